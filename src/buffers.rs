//! The caller's buffers, as the protocols use them.

use std::num::NonZeroU64;
use std::ops::Range;

use bytemuck::Pod;

use crate::element::{Number, ReduceOp, sealed::Folder};
use crate::payload::{self, Sink, Source, Term};
use crate::protocol::allreduce::Reduction;
use crate::protocol::single_copy::Address;
use crate::protocol::transfer::Exchange;
use crate::reach::{self, Reach};
use crate::sys::lines;

/// From how many bytes on received data is stored past the cache.
const STREAM_FROM: usize = 16 << 20;

/// Blocks of bytes from every rank, each with its place in the receive buffer.
pub(crate) struct Gather<'a, P> {
    send: &'a [u8],
    recv: &'a mut [u8],
    place: P,
    rank: usize,
    stream: bool,
    reach: Option<&'a Reach>,
}

impl<'a, P: Fn(usize) -> Range<usize>> Gather<'a, P> {
    /// `place(rank)` is where the block of `rank` belongs in `recv`.
    pub(crate) fn new(
        send: &'a [u8],
        recv: &'a mut [u8],
        rank: usize,
        place: P,
        reach: Option<&'a Reach>,
    ) -> Self {
        let stream = recv.len() >= STREAM_FROM;
        Gather { send, recv, place, rank, stream, reach }
    }

    fn target(&mut self, rank: usize, part: &Range<usize>) -> &mut [u8] {
        let block = (self.place)(rank);
        &mut self.recv[block.start + part.start..block.start + part.end]
    }

    /// Copies a part of this rank's own block into staging, and meanwhile what there is to `get`: a part of the block of
    /// a rank, from its staging. One's own part goes to its place too, while it is near, if received data does not stay in
    /// the cache: then it comes from memory once.
    fn put_in_turns(
        &mut self,
        part: Range<usize>,
        staging: Sink<'_>,
        get: Option<(usize, Range<usize>, Source<'_>)>,
    ) {
        let own = &self.send[part.clone()];
        let (mut kept, mut got) = (0, 0);
        staging.put_in_turns(own, |put| {
            if let Some((rank, part, staging)) = &get {
                let stream = self.stream;
                let target = self.target(*rank, part);
                let piece = go_on(&mut got, put, own.len(), target);
                take(&staging.after(piece.start), &mut target[piece], stream);
            }
            if self.stream {
                let target = self.target(self.rank, &part);
                let piece = go_on(&mut kept, put, own.len(), target);
                lines::stream_slice(&own[piece.clone()], &mut target[piece]);
            }
        });
    }
}

/// What comes next in a target, if it is to keep pace with something else of which `put` of `all` bytes are done, so that no
/// line is written in two pieces.
fn go_on(done: &mut usize, put: usize, all: usize, target: &[u8]) -> Range<usize> {
    let goes_on = put < all && put < target.len();
    let end = if goes_on { lines::whole(target.as_ptr(), put) } else { target.len() };
    let start = *done;
    *done = end.max(start);
    start..*done
}

impl<P: Fn(usize) -> Range<usize>> Exchange for Gather<'_, P> {
    #[inline]
    fn length(&self, rank: usize) -> usize {
        (self.place)(rank).len()
    }

    #[inline]
    fn put(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        if self.stream {
            return self.put_in_turns(part, staging, None);
        }
        staging.put(0, &self.send[part]);
    }

    #[inline]
    fn keep(&mut self, part: Range<usize>) {
        if self.stream {
            return;
        }
        let own = &self.send[part.clone()];
        self.target(self.rank, &part).copy_from_slice(own);
    }

    #[inline]
    fn get(&mut self, rank: usize, part: Range<usize>, staging: Source<'_>) {
        let stream = self.stream;
        take(&staging, self.target(rank, &part), stream);
    }

    fn get_and_put(
        &mut self,
        rank: usize,
        theirs: Range<usize>,
        staging: Source<'_>,
        next: Range<usize>,
        place: Sink<'_>,
    ) {
        // Where all goes through the cache there is nothing to wait for.
        if self.stream || payload::streams() {
            self.put_in_turns(next, place, Some((rank, theirs, staging)));
        } else {
            self.get(rank, theirs, staging);
            self.put(next, place);
        }
    }

    #[inline]
    fn in_one_copy(&mut self) -> bool {
        let Some(reach) = self.reach.filter(|reach| reach.serves(|rank| self.length(rank))) else {
            return false;
        };
        // What is better stored past the cache is better not copied by the system.
        let fits = (0..reach.size()).map(|rank| self.length(rank)).sum::<usize>() < STREAM_FROM;
        self.stream &= !fits;
        fits
    }

    fn address(&self) -> Address {
        reach::address(self.send)
    }

    fn fetch(&mut self, rank: usize, part: Range<usize>, from: NonZeroU64) -> bool {
        let reach = self.reach;
        let target = self.target(rank, &part);
        reach.is_some_and(|reach| reach.fetch(rank, from, part, target))
    }

    fn refused(&mut self) {
        self.reach.iter().for_each(|reach| reach.refuse());
    }
}

impl<P> Drop for Gather<'_, P> {
    fn drop(&mut self) {
        end(self.stream);
    }
}

/// One block of bytes from the root to everybody.
pub(crate) struct FromRoot<'a> {
    buffer: &'a mut [u8],
    root: usize,
    stream: bool,
}

impl<'a> FromRoot<'a> {
    pub(crate) fn new(buffer: &'a mut [u8], root: usize) -> Self {
        let stream = buffer.len() >= STREAM_FROM;
        FromRoot { buffer, root, stream }
    }
}

impl Exchange for FromRoot<'_> {
    #[inline]
    fn length(&self, rank: usize) -> usize {
        if rank == self.root { self.buffer.len() } else { 0 }
    }

    #[inline]
    fn put(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        staging.put(0, &self.buffer[part]);
    }

    #[inline]
    fn keep(&mut self, _: Range<usize>) {}

    #[inline]
    fn get(&mut self, _: usize, part: Range<usize>, staging: Source<'_>) {
        take(&staging, &mut self.buffer[part], self.stream);
    }
}

impl Drop for FromRoot<'_> {
    fn drop(&mut self) {
        end(self.stream);
    }
}

/// Copies out of staging.
#[inline]
fn take(staging: &Source<'_>, target: &mut [u8], stream: bool) {
    if stream {
        staging.stream(0, target);
    } else {
        staging.get(0, target);
    }
}

/// To be called before the buffers are given back.
#[inline]
fn end(stream: bool) {
    if stream {
        lines::fence();
    }
}

/// Values to reduce: from `send`, or in place.
pub(crate) struct Reduce<'a, T> {
    pub(crate) send: Option<&'a [T]>,
    pub(crate) recv: &'a mut [T],
    pub(crate) op: ReduceOp,
}

impl<T: Number> Reduction for Reduce<'_, T> {
    #[inline]
    fn elements(&self) -> usize {
        self.recv.len()
    }

    #[inline]
    fn element_size(&self) -> usize {
        size_of::<T>()
    }

    #[inline]
    fn contribute(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        let send = self.send.unwrap_or(self.recv);
        staging.put(0, bytemuck::cast_slice(&send[part]));
    }

    #[inline]
    fn keeps_own(&self) -> bool {
        self.send.is_some()
    }

    #[inline]
    fn fold(&mut self, part: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>) {
        let own = self.send.map(|send| &send[part.clone()]);
        T::fold(self.op, Terms { target: &mut self.recv[part], own, begin, terms, staging });
    }

    #[inline]
    fn collect(&mut self, part: Range<usize>, staging: Source<'_>) {
        staging.get(0, bytemuck::cast_slice_mut(&mut self.recv[part]));
    }

    fn collects_and_contributes(&self) -> bool {
        // Where all goes through the cache there is nothing to wait for.
        payload::streams()
    }

    fn collect_and_contribute(
        &mut self,
        part: Range<usize>,
        staging: Source<'_>,
        next: Range<usize>,
        place: Sink<'_>,
    ) {
        let (until, after) = self.recv.split_at_mut(part.end);
        let send = match self.send {
            Some(send) => &send[next],
            None => &after[next.start - part.end..next.end - part.end],
        };
        let send = bytemuck::cast_slice(send);
        let target: &mut [u8] = bytemuck::cast_slice_mut(&mut until[part.start..]);
        let mut got = 0;
        place.put_in_turns(send, |put| {
            let piece = go_on(&mut got, put, send.len(), target);
            staging.after(piece.start).get(0, &mut target[piece]);
        });
    }
}

/// A [`payload::fold`] without the combination.
struct Terms<'a, T> {
    target: &'a mut [T],
    own: Option<&'a [T]>,
    begin: bool,
    terms: &'a [Term<'a>],
    staging: Option<Sink<'a>>,
}

impl<T: Pod> Folder<T> for Terms<'_, T> {
    #[inline]
    fn each(self, combine: impl Fn(T, T) -> T) {
        let Terms { target, own, begin, terms, staging } = self;
        payload::fold(target, own, begin, terms, staging, combine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no madvise, which ranks that are threads need")]
    fn blocks_of_several_parts_come_to_any_place_and_nothing_else_is_touched() {
        let byte = |rank: usize, index: usize| (index * 7 + index / 251 + 100 * rank) as u8;
        // Through the cache and past it, with parts that end with a line of their target and that do not.
        for counts in [[1_700_001, 1_600_000], [1, 1_600_001], [STREAM_FROM, 1_300_003], [600_001, STREAM_FROM]]
        {
            for gap in [0, 1, 64] {
                crate::threads(2, |world| {
                    let rank = world.rank();
                    let send: Vec<u8> = (0..counts[rank]).map(|index| byte(rank, index)).collect();
                    let displs = [gap, 2 * gap + counts[0]];
                    let mut recv = vec![0xEE; 3 * gap + counts[0] + counts[1]];
                    world.allgatherv(&send, &mut recv, &counts, &displs).unwrap();
                    for rank in 0..2 {
                        let block = &recv[displs[rank]..displs[rank] + counts[rank]];
                        assert!(block.iter().enumerate().all(|(index, value)| *value == byte(rank, index)));
                        assert!(recv[displs[rank] - gap..displs[rank]].iter().all(|value| *value == 0xEE));
                    }
                    assert!(recv[recv.len() - gap..].iter().all(|value| *value == 0xEE));
                })
                .unwrap();
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no madvise, which ranks that are threads need")]
    fn parts_of_a_reduction_are_collected_while_others_are_contributed_to() {
        // The last part is shorter, slices differ in length, and the last of five ranks contributes all when in place.
        for (ranks, len) in [(2, 400_003), (5, 300_001)] {
            crate::threads(ranks, |world| {
                let value = |rank: usize, index: usize| (index * (rank + 3)) as u64;
                let send: Vec<u64> = (0..len).map(|index| value(world.rank(), index)).collect();
                let expected: Vec<u64> =
                    (0..len).map(|index| (0..ranks).map(|rank| value(rank, index)).sum()).collect();
                // Both ways at a time only if staging is stored past the cache.
                crate::sys::copy::stream_next(1 << 30);
                let mut recv = vec![0; len];
                world.allreduce(&send, &mut recv, ReduceOp::Sum).unwrap();
                assert!(recv == expected);
                recv.copy_from_slice(&send);
                world.allreduce_in_place(&mut recv, ReduceOp::Sum).unwrap();
                assert!(recv == expected);
            })
            .unwrap();
        }
    }

    #[test]
    fn what_goes_past_the_cache_does_not_go_in_one_copy() {
        let reach = Reach::of([1, 2].into());
        for (len, fits) in [(STREAM_FROM / 2 - 1, true), (STREAM_FROM / 2, false)] {
            // With gaps between the blocks, which do not count.
            let mut recv = vec![0; 2 * STREAM_FROM];
            let place = |rank: usize| rank * STREAM_FROM..rank * STREAM_FROM + len;
            let mut blocks = Gather::new(&[], &mut recv, 0, place, Some(&reach));
            assert_eq!((blocks.in_one_copy(), blocks.stream), (fits, !fits));
        }
    }

    #[test]
    fn a_piece_ends_with_a_line_of_its_target_or_with_the_target() {
        let target = [0u8; 1000];
        for skipped in 0..70 {
            let target = &target[skipped..];
            let (mut done, mut pieces) = (0, Vec::new());
            for len in [10, 100, 100, 700, target.len()] {
                pieces.push(go_on(&mut done, len, target.len(), target));
            }
            assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!((pieces[0].start, done), (0, target.len()));
            let ends = pieces[..4].iter().filter(|piece| !piece.is_empty()).map(|piece| piece.end);
            assert!(ends.into_iter().all(|end| target[end..].as_ptr().addr() % 64 == 0));
        }
    }
}
