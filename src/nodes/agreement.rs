//! All ranks agree on a call, before anything of it is done.
//!
//! The ranks of a node compare their calls in one round. The leaders exchange one call for each node, and whether its ranks
//! agree. If all do, that is all, and a small contribution has come along. If not, the calls of all ranks are exchanged, so
//! that every rank has the error that it would have on one machine.

use crate::error::Error;
use crate::nodes::leaders::Leaders;
use crate::nodes::packets::{self, Along, SHOWN};
use crate::nodes::session::Session;
use crate::protocol::Call;

impl<L: Leaders> Session<'_, L> {
    /// Agrees on a call, after this rank has checked its arguments. What is to come along has the same length on all ranks that make
    /// this call, for which [`comes_along`](packets::comes_along).
    ///
    /// # Errors
    /// `checked`; [`Error::Refused`] and [`Error::Mismatch`], on every rank alike; those of the node and of the leaders.
    pub(super) fn agree(
        &mut self,
        call: &Call,
        checked: Result<(), Error>,
        along: &[u8],
    ) -> Result<Along, Error> {
        let (map, own) = (&self.all.map, self.all.own);
        let call = Call { refused: checked.is_err(), ..*call };
        let mut of_node = vec![0u64; SHOWN * self.all.node.size()];
        match self.all.node.allgather(&packets::shown(&call, along), &mut of_node) {
            Ok(()) => {}
            // Other ranks of the node have started a call that they complete later.
            Err(Error::Mismatch { .. }) => return Err(self.disagree_with_started(call, checked)),
            Err(error) => return self.node(|_| Err(error)),
        }
        let mut packets = packets::packets(map, own, &of_node, &call, along.len());
        let counts = packets::packet_counts(map);
        self.leaders_with(&mut packets, |leaders, packets, wait| {
            leaders.allgatherv(bytemuck::cast_slice_mut(packets), &counts, wait)
        })?;
        packets::agreed(packets).ok_or_else(|| self.disagreement(checked, &of_node))
    }

    /// The error of a call that not all ranks make in the same way, from the calls of all.
    #[cold]
    fn disagreement(&mut self, checked: Result<(), Error>, of_node: &[u64]) -> Error {
        let map = &self.all.map;
        let mut all = packets::calls_of_node(map, self.all.own, of_node);
        let counts = packets::call_counts(map);
        let exchanged = self.leaders_with(&mut all, |leaders, all, wait| {
            leaders.allgatherv(bytemuck::cast_slice_mut(all), &counts, wait)
        });
        match exchanged {
            Err(fatal) => fatal,
            Ok(()) => packets::disagreement(self.operation, self.round(), checked, &all),
        }
    }
}
