//! What the ranks of an alltoallv agree on: how long what each sends to each other rank is.
//!
//! If the [headers](super::count_header) have room for the counts of every rank, each rank has those of all pairs after one round, and so
//! the same verdict on them; data that are short have come with them. If not, an alltoall exchanges the counts, and a further round
//! the verdicts.

use super::allgatherv::gather_words;
use super::alltoall::exchange;
use super::parts;
use crate::error::{CountPair, Error, Operation};
use crate::protocol::Call;
use crate::rank::rank_state::OpenCall;

const OPERATION: Operation = Operation::Alltoallv;

/// What this rank sends, and what it expects.
#[derive(Clone, Copy)]
pub(super) struct OwnCounts<'a> {
    /// In elements, by rank.
    pub(super) send: &'a [usize],
    pub(super) recv: &'a [usize],
    /// Whether the other ranks can read the blocks where they lie, but the counts do not tell where each begins.
    pub(super) sends_displs: bool,
}

/// What a rank knows when all agree on the counts.
pub(super) struct Agreed {
    /// By sender.
    pub(super) places: Vec<Place>,
    /// Whether some rank has to say where its blocks begin. The same on all ranks.
    pub(super) need_displs: bool,
}

/// What a rank has to know of a sender. In elements.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Where the part for this rank begins among the sender's parts.
    pub(super) start: usize,
    /// The length of all parts for other ranks.
    pub(super) total: usize,
    /// Where the part for this rank begins in the sender's memory, if its blocks follow one another there in rank order.
    pub(super) offset: usize,
}

/// The counts of all ranks: a row for each, of what it sends to each rank and what it expects from each.
#[derive(Clone, Copy)]
pub(super) struct AllCounts<'a> {
    pub(super) rows: &'a [u64],
    /// The number of ranks.
    pub(super) size: usize,
}

impl AllCounts<'_> {
    /// How many numbers there are.
    #[inline]
    pub(super) const fn numbers(size: usize) -> usize {
        2 * size * size
    }

    #[inline]
    fn sent(self, from: usize, to: usize) -> u64 {
        self.rows[2 * self.size * from + to]
    }

    #[inline]
    fn expected(self, from: usize, to: usize) -> u64 {
        self.rows[2 * self.size * to + self.size + from]
    }

    /// An error if the counts of some pair differ, the same on all ranks.
    #[inline]
    pub(super) fn check(self) -> Result<(), Error> {
        for (from, to) in (0..self.size).flat_map(|from| (0..self.size).map(move |to| (from, to))) {
            let (sent, expected) = (self.sent(from, to), self.expected(from, to));
            if sent != expected {
                return Err(disagreement(OPERATION, (from, to), sent, expected));
            }
        }
        Ok(())
    }

    /// Where the part of a sender for a receiver begins among its parts, in elements.
    #[inline]
    pub(super) fn start(self, sender: usize, receiver: usize) -> usize {
        let before = if sender == receiver { 0 } else { parts::position(sender, receiver, self.size) };
        self.of_parts(sender, before)
    }

    /// The length of all parts of a sender, in elements.
    #[inline]
    pub(super) fn total(self, sender: usize) -> usize {
        self.of_parts(sender, self.size - 1)
    }

    /// The length of the first parts of a sender.
    #[inline]
    fn of_parts(self, sender: usize, parts: usize) -> usize {
        total(parts::receivers(sender, self.size).take(parts).map(|to| self.sent(sender, to)))
    }

    /// What `rank` has to know of all senders.
    pub(super) fn places(self, rank: usize) -> Vec<Place> {
        let place = |from: usize| Place {
            start: self.start(from, rank),
            total: self.total(from),
            offset: total((0..rank).map(|to| self.sent(from, to))),
        };
        (0..self.size).map(place).collect()
    }
}

/// The sum of counts.
#[inline]
fn total(counts: impl Iterator<Item = u64>) -> usize {
    counts.fold(0, |sum, count| sum.saturating_add(count as usize))
}

/// Exchanges the counts in one round, which takes several if they are too long for the headers, and the verdicts in one.
pub(super) fn agree_in_two_rounds(
    open: &mut OpenCall<'_>,
    call: &Call,
    counts: &OwnCounts<'_>,
) -> Result<Agreed, Error> {
    let (rank, size) = (open.rank_state().rank, open.rank_state().size());
    // For each receiver: its count, where its part begins, and where it does in memory.
    let mut own = vec![[0u64; 3]; size];
    let (mut total, mut offset) = (0, 0);
    for receiver in parts::receivers(rank, size) {
        own[receiver][1] = total as u64;
        total += counts.send[receiver];
    }
    for (receiver, count) in counts.send.iter().enumerate() {
        (own[receiver][0], own[receiver][2]) = (*count as u64, offset as u64);
        offset += count;
    }
    let mut theirs = vec![[0u64; 3]; size];
    let (send, recv) = (own.as_flattened(), theirs.as_flattened_mut());
    exchange(open, call, bytemuck::cast_slice::<u64, u8>(send), bytemuck::cast_slice_mut::<u64, u8>(recv))?;
    let wrong = (0..size).find(|from| theirs[*from][0] != counts.recv[*from] as u64);
    // The sender counts from 1, so that 0 is none.
    let [from, sent, expected] =
        wrong.map_or([0; 3], |from| [1 + from as u64, theirs[from][0], counts.recv[from] as u64]);
    let own = [total as u64, u64::from(counts.sends_displs), from, sent, expected];
    let verdicts = gather_words(open, call, own)?;
    let wrong = verdicts.iter().enumerate().filter(|(_, [_, _, from, ..])| *from > 0);
    if let Some((to, [_, _, from, sent, expected])) = wrong.min_by_key(|(to, [_, _, from, ..])| (*from, *to)) {
        return Err(disagreement(OPERATION, (*from as usize - 1, to), *sent, *expected));
    }
    let place = |([_, start, offset], [total, ..]): (&[u64; 3], &[u64; 5])| Place {
        start: *start as usize,
        total: *total as usize,
        offset: *offset as usize,
    };
    let places = theirs.iter().zip(&verdicts).map(place).collect();
    let need_displs = verdicts.iter().any(|[_, sends_displs, ..]| *sends_displs != 0);
    Ok(Agreed { places, need_displs })
}

pub(super) fn disagreement(
    operation: Operation,
    (from, to): (usize, usize),
    sent: u64,
    expected: u64,
) -> Error {
    let pair = CountPair { from, to, sent: sent as usize, expected: expected as usize };
    Error::CountsDisagree { operation, pair: Box::new(pair) }
}
