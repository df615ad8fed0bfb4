//! All ranks agree on a call, before anything of it is done.
//!
//! The ranks of a node compare their calls in one round. The leaders exchange one call for each node, and whether its ranks
//! agree. If all do, that is all, and a small contribution has come along. If not, the calls of all ranks are exchanged, so
//! that every rank has the error that it would have on one machine.

use crate::error::{CallSummary, Error};
use crate::nodes::leaders::Leaders;
use crate::nodes::session::Session;
use crate::protocol::Call;
use crate::tuning::NODE_PACKET_BYTES;

/// A rank's call, in words.
const CALL: usize = 3;

/// What a rank shows its node: its call, and what comes along. It fits into a header, so it is one round.
const SHOWN: usize = 12;

/// The most bytes of a rank that come along.
const ALONG: usize = (SHOWN - CALL) * 8;

/// What a node shows the others: whether its ranks agree, their call, and what comes along.
const PACKET: usize = NODE_PACKET_BYTES / 8;

/// The most bytes of a node's ranks that come along.
const PACKED: usize = (PACKET - HEAD) * 8;

const HEAD: usize = 1 + CALL;
const AGREED: u64 = 1;

/// What has come along, by node.
pub(super) struct Along {
    packets: Vec<u64>,
}

impl Along {
    /// What has come from rank `index` of `node`, of which each has sent `len` bytes.
    pub(super) fn of(&self, node: usize, index: usize, len: usize) -> &[u8] {
        let packet = &self.packets[node * PACKET..][HEAD..PACKET];
        &bytemuck::cast_slice(packet)[index * len..][..len]
    }
}

/// Whether `len` bytes of each rank come along, if a node has up to `largest` ranks.
pub(super) fn comes_along(len: usize, largest: usize) -> bool {
    len <= ALONG && len * largest <= PACKED
}

impl<L: Leaders> Session<'_, L> {
    /// Agrees on a call, after this rank has checked its arguments. What is to come along has the same length on all ranks that make
    /// this call, for which [`comes_along`].
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
        let mut shown = [0u64; SHOWN];
        shown[..CALL].copy_from_slice(&call.words());
        bytemuck::cast_slice_mut(&mut shown[CALL..])[..along.len()].copy_from_slice(along);
        let mut of_node = vec![0u64; SHOWN * self.all.node.size()];
        self.node(|node| node.allgather(&shown, &mut of_node))?;
        let calls = || of_node.chunks(SHOWN).map(|shown| &shown[..CALL]);

        let mut packets = vec![0u64; PACKET * map.nodes()];
        let packet = &mut packets[own * PACKET..][..PACKET];
        packet[0] = u64::from(calls().all(|other| other == call.words()) && !call.refused);
        packet[1..HEAD].copy_from_slice(&call.words());
        let packed: &mut [u8] = bytemuck::cast_slice_mut(&mut packet[HEAD..]);
        // Whoever disagrees may have other lengths; then nothing is read.
        for (shown, place) in of_node.chunks(SHOWN).zip(packed.chunks_mut(along.len().max(1))) {
            if !along.is_empty() && place.len() == along.len() {
                place.copy_from_slice(&bytemuck::cast_slice(&shown[CALL..])[..along.len()]);
            }
        }
        let counts = vec![PACKET * 8; map.nodes()];
        self.leaders_with(&mut packets, |leaders, packets, wait| {
            leaders.allgatherv(bytemuck::cast_slice_mut(packets), &counts, wait)
        })?;
        let first = &packets[..HEAD];
        if first[0] == AGREED && packets.chunks(PACKET).all(|packet| &packet[..HEAD] == first) {
            return Ok(Along { packets });
        }
        Err(self.disagreement(checked, &of_node))
    }

    /// The error of a call that not all ranks make in the same way, from the calls of all.
    #[cold]
    fn disagreement(&mut self, checked: Result<(), Error>, of_node: &[u64]) -> Error {
        let (map, own) = (&self.all.map, self.all.own);
        let mut all = vec![0u64; CALL * map.ranks()];
        let place = &mut all[CALL * map.leader_of(own)..];
        place.chunks_mut(CALL).zip(of_node.chunks(SHOWN)).for_each(|(place, shown)| {
            place.copy_from_slice(&shown[..CALL]);
        });
        let counts: Vec<usize> = map.counts().iter().map(|ranks| ranks * CALL * 8).collect();
        let exchanged = self.leaders_with(&mut all, |leaders, all, wait| {
            leaders.allgatherv(bytemuck::cast_slice_mut(all), &counts, wait)
        });
        if let Err(fatal) = exchanged {
            return fatal;
        }
        let (operation, round) = (self.operation, self.round());
        let calls: Vec<Call> = all.as_chunks::<CALL>().0.iter().copied().map(Call::from_words).collect();
        match (checked, calls.iter().position(|call| call.refused)) {
            (Err(own), _) => own,
            (Ok(()), Some(rank)) => Error::Refused { operation, round, rank },
            (Ok(()), None) => Error::Mismatch { operation, round, calls: CallSummary::all(&calls) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let call = Call {
            operation: 3,
            reduction: 12,
            element: 255,
            refused: true,
            phase: 127,
            shape: u32::MAX - 1,
            length: u64::MAX,
            extra: 5,
        };
        assert_eq!(Call::from_words(call.words()), call);
        assert_eq!(Call::from_words(Call::default().words()), Call::default());
    }

    #[test]
    fn what_comes_along_fits() {
        assert!(comes_along(0, usize::MAX) && comes_along(8, 12) && !comes_along(8, 13));
        assert!(comes_along(ALONG, 1) && !comes_along(ALONG + 1, 1));
    }
}
