//! Blocks that consist of a part for each other rank: scatter, alltoall.
//!
//! The parts of a sender follow one another from its successor's on, so that in one chunk of an alltoall every rank finds
//! something, each from another sender (the order of the linear shift algorithm: Thakur, Rabenseifner and Gropp 2005).

use std::num::NonZeroU64;
use std::ops::Range;

use super::memory::{RecvBytes, SendBytes};
use crate::copy::policy::StorePolicy;
use crate::copy::{Sink, Source};
use crate::rank::lending::Lending;

/// The ranks that a sender has parts for, in the order of these.
pub(super) fn receivers(sender: usize, size: usize) -> impl Iterator<Item = usize> {
    (sender + 1..sender + size).map(move |next| if next < size { next } else { next - size })
}

/// How many parts of a sender come before that of `receiver`.
#[inline]
pub(super) fn position(sender: usize, receiver: usize, size: usize) -> usize {
    if receiver > sender { receiver - sender - 1 } else { receiver + size - sender - 1 }
}

/// Copies a chunk of the concatenation of `parts` into staging.
pub(super) fn put<S: SendBytes>(parts: impl Iterator<Item = S>, chunk: Range<usize>, mut staging: Sink<'_>) {
    let mut start = 0;
    for part in parts {
        let common = chunk.start.max(start)..chunk.end.min(start + part.bytes());
        if !common.is_empty() {
            part.part(common.start - start..common.end - start).publish(&mut staging);
            staging = staging.after(common.len());
        }
        start += part.bytes();
        if start >= chunk.end {
            break;
        }
    }
}

/// Copies what a chunk in staging has of `part`, a range of the concatenation, to `place` in `target`, where that part belongs.
pub(super) fn get<S>(
    (part, place): (Range<usize>, Range<usize>),
    chunk: Range<usize>,
    staging: Source<'_>,
    target: &mut impl RecvBytes<S>,
    stores: &StorePolicy,
) {
    let common = chunk.start.max(part.start)..chunk.end.min(part.end);
    if !common.is_empty() {
        let staging = staging.after(common.start - chunk.start);
        let at = place.start + (common.start - part.start);
        debug_assert!(at + common.len() <= place.end);
        target.fetch(at..at + common.len(), &staging, stores);
    }
}

/// Copies what a chunk has of a part, which begins at `start` of the concatenation and at `own` in its sender's buffer, to `place` in
/// `target`, by single copy from rank `sender`, whose buffer begins at `from`. False: that was not possible.
pub(super) fn fetch<S>(
    (start, own, place): (usize, Range<usize>, Range<usize>),
    chunk: Range<usize>,
    (lending, sender, from): (&Lending<'_>, usize, NonZeroU64),
    target: &mut impl RecvBytes<S>,
    stores: &StorePolicy,
) -> bool {
    let common = chunk.start.max(start)..chunk.end.min(start.saturating_add(own.len()));
    if common.is_empty() {
        return true;
    }
    let (at, first) = (place.start + (common.start - start), own.start + (common.start - start));
    debug_assert!(at + common.len() <= place.end);
    target.fill(at..at + common.len(), stores, |offset, piece| {
        lending.fetch_from(sender, from, first + offset..first + offset + piece.len(), piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_receiver_has_the_position_that_the_order_gives_it() {
        for size in 1..9 {
            for sender in 0..size {
                let order: Vec<usize> = receivers(sender, size).collect();
                assert_eq!(order.len(), size - 1);
                for (index, receiver) in order.into_iter().enumerate() {
                    assert!(receiver != sender && position(sender, receiver, size) == index);
                }
            }
        }
    }
}
