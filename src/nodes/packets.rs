//! What ranks and nodes show each other to agree on a call.

use crate::error::{CallSummary, Error, Operation};
use crate::nodes::map::NodeMap;
use crate::protocol::Call;
use crate::tuning::NODE_PACKET_BYTES;

/// A rank's call, in words.
pub(super) const CALL: usize = 3;

/// What a rank shows its node: its call, and what comes along. It fits into a header, so it is one round.
pub(super) const SHOWN: usize = 12;

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
    /// Puts what has come from each rank, `len` bytes, one after the other, in the order of the ranks.
    pub(super) fn unpack(&self, map: &NodeMap, len: usize, bytes: &mut [u8]) {
        let from =
            (0..map.nodes()).flat_map(|node| (0..map.ranks_of(node).len()).map(move |index| (node, index)));
        for (place, (node, index)) in bytes.chunks_mut(len.max(1)).zip(from) {
            let packet: &[u8] = bytemuck::cast_slice(&self.packets[node * PACKET..][HEAD..PACKET]);
            place.copy_from_slice(&packet[index * len..][..len]);
        }
    }
}

/// Whether `len` bytes of each rank come along, if a node has up to `largest` ranks.
pub(super) fn comes_along(len: usize, largest: usize) -> bool {
    len <= ALONG && len * largest <= PACKED
}

/// What a rank shows its node of this call, and `along`.
pub(super) fn shown(call: &Call, along: &[u8]) -> [u64; SHOWN] {
    let mut shown = [0u64; SHOWN];
    shown[..CALL].copy_from_slice(&call.words());
    bytemuck::cast_slice_mut(&mut shown[CALL..])[..along.len()].copy_from_slice(along);
    shown
}

/// The packets of all nodes, of which only that of this node `own` is written: from what its ranks have shown, and this rank's call.
/// `along` bytes of each come along.
pub(super) fn packets(map: &NodeMap, own: usize, of_node: &[u64], call: &Call, along: usize) -> Vec<u64> {
    let mut calls = of_node.chunks(SHOWN).map(|shown| &shown[..CALL]);
    let mut packets = vec![0u64; PACKET * map.nodes()];
    let packet = &mut packets[own * PACKET..][..PACKET];
    packet[0] = u64::from(calls.all(|other| other == call.words()) && !call.refused);
    packet[1..HEAD].copy_from_slice(&call.words());
    let packed: &mut [u8] = bytemuck::cast_slice_mut(&mut packet[HEAD..]);
    // A node that disagrees may have other lengths; then nothing is read.
    for (shown, place) in of_node.chunks(SHOWN).zip(packed.chunks_mut(along.max(1))) {
        if along > 0 && place.len() == along {
            place.copy_from_slice(&bytemuck::cast_slice(&shown[CALL..])[..along]);
        }
    }
    packets
}

/// The bytes of the packet of each node.
pub(super) fn packet_counts(map: &NodeMap) -> Vec<usize> {
    vec![PACKET * 8; map.nodes()]
}

/// What has come along with the packets of all nodes, if all ranks make the same call.
pub(super) fn agreed(packets: Vec<u64>) -> Option<Along> {
    let first = &packets[..HEAD];
    let agree = first[0] == AGREED && packets.chunks(PACKET).all(|packet| &packet[..HEAD] == first);
    agree.then_some(Along { packets })
}

/// The calls of all ranks, of which only those of this node are written.
pub(super) fn calls_of_node(map: &NodeMap, own: usize, of_node: &[u64]) -> Vec<u64> {
    let mut all = vec![0u64; CALL * map.ranks()];
    let place = &mut all[CALL * map.leader_of(own)..];
    place.chunks_mut(CALL).zip(of_node.chunks(SHOWN)).for_each(|(place, shown)| {
        place.copy_from_slice(&shown[..CALL]);
    });
    all
}

/// The bytes of the calls of each node.
pub(super) fn call_counts(map: &NodeMap) -> Vec<usize> {
    map.counts().iter().map(|ranks| ranks * CALL * 8).collect()
}

/// The error of a call that not all ranks make in the same way, from the calls of all.
#[cold]
pub(super) fn disagreement(operation: Operation, round: u32, checked: Result<(), Error>, all: &[u64]) -> Error {
    let calls: Vec<Call> = all.as_chunks::<CALL>().0.iter().copied().map(Call::from_words).collect();
    match (checked, calls.iter().position(|call| call.refused)) {
        (Err(own), _) => own,
        (Ok(()), Some(rank)) => Error::Refused { operation, round, rank },
        (Ok(()), None) => Error::Mismatch { operation, round, calls: CallSummary::all(&calls) },
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
