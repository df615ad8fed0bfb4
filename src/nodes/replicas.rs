//! One copy of data on each node.

use bytemuck::Pod;

use crate::communicator::call;
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::protocol::Call;
use crate::region::Shared;
use crate::tuning::SPREAD_PIECE_BYTES;

impl<L: Leaders> Hierarchical<L> {
    /// Makes `len` values that all ranks can read, of which there is **one copy on each node**. Rank 0 fills them: there `fill`
    /// gets the zeros, in shared memory already. `len` is the same on all ranks. Collective.
    ///
    /// Over the network they go once to each node, out of and into the regions themselves. What comes is a region of the node's
    /// communicator: [`reclaim`](Shared::reclaim) makes it writable for the ranks of this node, and changes nothing on others.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let sums = intranode::threads(4, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 3])?)?;
    ///     let table = comm.replicate(1000, |table: &mut [u64]| {
    ///         table.iter_mut().zip(1..).for_each(|(value, number)| *value = number);
    ///     })?;
    ///     Ok::<_, intranode::Error>(table.iter().sum::<u64>())
    /// })?;
    /// for sum in sums {
    ///     assert_eq!(sum?, 500_500);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::AllocationFailed`] on the ranks of a node that has not enough memory, and [`Error::Refused`], which names its leader,
    /// on the others; otherwise as [`barrier`](Hierarchical::barrier).
    ///
    /// # Panics
    /// If `fill` panics; then the communicator ends on all ranks.
    pub fn replicate<T: Pod>(&self, len: usize, fill: impl FnOnce(&mut [T])) -> Result<Shared<T>, Error> {
        let operation = Operation::Region;
        if self.map.nodes() == 1 {
            let mut region = self.node.region(len)?;
            if self.node.rank() == 0 {
                fill(region.as_mut_slice());
            }
            return region.publish();
        }
        let call = Call { length: len as u64, ..call::<T>(operation) };
        let mut session = self.begin(operation)?;
        session.agree(&call, Ok(()), &[])?;
        let made = match self.node.region(len) {
            Err(error) if error.is_fatal() => session.node(|_| Err(error))?,
            // All ranks of the node have the same.
            other => other,
        };
        let mut has_failed = vec![0u64; self.map.nodes()];
        has_failed[self.own] = made.is_err().into();
        let counts = vec![8; self.map.nodes()];
        session.leaders_with(&mut has_failed, |leaders, words, wait| {
            leaders.allgatherv(bytemuck::cast_slice_mut(words), &counts, wait)
        })?;
        let mut region = made?;
        if let Some(node) = has_failed.iter().position(|failed| *failed != 0) {
            return Err(Error::Refused { operation, round: session.round(), rank: self.map.leader_of(node) });
        }
        if self.rank() == 0 {
            fill(region.as_mut_slice());
        }
        // Only a leader has a part of it; all ranks of a node count its pieces.
        let bytes = len * size_of::<T>();
        let own: &mut [u8] = bytemuck::cast_slice_mut(region.as_mut_slice());
        for start in (0..bytes).step_by(SPREAD_PIECE_BYTES) {
            let piece = start..(start + SPREAD_PIECE_BYTES).min(bytes);
            session.leaders(|leaders, wait| leaders.broadcast(&mut own[piece], 0, wait))?;
        }
        session.node(|_| region.publish())
    }
}
