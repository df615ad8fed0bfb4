//! The caller's buffers, as the protocols use them.

use std::ops::Range;

use bytemuck::Pod;

use crate::element::{Number, ReduceOp, sealed::Folder};
use crate::payload::{self, Sink, Source, Term};
use crate::protocol::allreduce::Reduction;
use crate::protocol::transfer::Exchange;
use crate::sys::lines;

/// From how many bytes on received data is stored past the cache.
const STREAM_FROM: usize = 16 << 20;

/// How many bytes stay in the nearest cache from one copy to the next.
const NEAR: usize = 16 << 10;

/// Blocks of bytes from every rank, each with its place in the receive buffer.
pub(crate) struct Gather<'a, P> {
    send: &'a [u8],
    recv: &'a mut [u8],
    place: P,
    rank: usize,
    stream: bool,
}

impl<'a, P: Fn(usize) -> Range<usize>> Gather<'a, P> {
    /// `place(rank)` is where the block of `rank` belongs in `recv`.
    pub(crate) fn new(send: &'a [u8], recv: &'a mut [u8], rank: usize, place: P) -> Self {
        let stream = recv.len() >= STREAM_FROM;
        Gather { send, recv, place, rank, stream }
    }

    fn target(&mut self, rank: usize, part: &Range<usize>) -> &mut [u8] {
        let block = (self.place)(rank);
        &mut self.recv[block.start + part.start..block.start + part.end]
    }

    /// Copies a part of this rank's own block into staging, and to its place, while it is near: it comes from memory
    /// once, and meanwhile what went past the cache reaches memory.
    fn put_and_keep(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        for start in part.clone().step_by(NEAR) {
            let piece = start..(start + NEAR).min(part.end);
            let own = &self.send[piece.clone()];
            staging.put(start - part.start, own);
            lines::stream_slice(own, self.target(self.rank, &piece));
        }
    }
}

impl<P: Fn(usize) -> Range<usize>> Exchange for Gather<'_, P> {
    #[inline]
    fn length(&self, rank: usize) -> usize {
        (self.place)(rank).len()
    }

    #[inline]
    fn put(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        if self.stream {
            return self.put_and_keep(part, staging);
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
