//! The payload's boundary: raw views of staging, and the copies and folds through them.
//!
//! Staging is memory that other processes write. No reference to it is ever made: a view is a pointer and a
//! length, and only the copies below touch what is behind it. Which rank may do so at which moment is decided in
//! `protocol`, which the model checkers explore (SAFETY.md, invariant I2).

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU8, Ordering};

use crate::sys::copy::{self, Pieces};
use crate::sys::lines;

mod fold;

pub use fold::{TERMS, Term, fold};

pub(crate) use copy::streams;

/// How many bytes are put in a turn: few enough for what follows to begin before they have reached memory.
const TURN: usize = 1 << 10;

/// How many bytes are put before the first turn: enough to find out how they are best put.
const FIRST: usize = 16 << 10;

/// Staging that the holder may fill.
#[derive(Debug)]
pub struct Sink<'a> {
    start: *mut u8,
    len: usize,
    cell: PhantomData<&'a ()>,
}

/// Staging that the holder may look at.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    start: *const u8,
    len: usize,
    cell: PhantomData<&'a ()>,
}

impl<'a> Sink<'a> {
    /// The view of `len` bytes from `start`.
    ///
    /// # Safety
    /// For the lifetime `'a` the bytes are mapped and writable, and the protocol gives them to this rank.
    pub unsafe fn new(start: *mut u8, len: usize) -> Self {
        Sink { start, len, cell: PhantomData }
    }

    /// The view without its first `offset` bytes.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn after(self, offset: usize) -> Self {
        assert!(offset <= self.len);
        let start = self.start.wrapping_add(offset);
        Sink { start, len: self.len - offset, cell: PhantomData }
    }

    /// Copies `bytes` to `offset`. They are visible to whoever sees a later arrival of this rank.
    ///
    /// # Panics
    /// When they reach past the end of the view.
    #[inline]
    pub fn put(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset <= self.len && bytes.len() <= self.len - offset);
        let target = self.start.wrapping_add(offset);
        // SAFETY: I1 and I2: the range is inside the view, which is ours to write. I8: a private slice does not
        // overlap with it.
        unsafe { copy::publish(bytes.as_ptr(), target, bytes.len()) };
    }

    /// [`put`](Self::put) at the start of the view, with something else to do in between: `turn` gets how many bytes have
    /// been put, now and then, and at the end.
    ///
    /// # Panics
    /// When they reach past the end of the view.
    pub fn put_in_turns(mut self, bytes: &[u8], mut turn: impl FnMut(usize)) {
        let len = bytes.len();
        assert!(len <= self.len);
        let first = len.min(FIRST);
        self.put(0, &bytes[..first]);
        turn(first);
        let pieces = Pieces::of(len - first);
        for start in (first..len).step_by(TURN) {
            let piece = &bytes[start..(start + TURN).min(len)];
            // SAFETY: I1 and I2: the range is inside the view, which is ours to write. I8: a private slice does not overlap
            // with it.
            unsafe { pieces.publish(piece.as_ptr(), self.start.wrapping_add(start), piece.len()) };
            turn(start + piece.len());
        }
    }

    /// Stores one byte in a way that lets anybody look at it meanwhile, as at a number that means nothing else.
    ///
    /// # Panics
    /// When it lies past the end of the view.
    #[inline]
    pub fn show(&mut self, offset: usize, byte: u8) {
        assert!(offset < self.len);
        // SAFETY: I1 and I2: the byte is inside the view, which is ours to write; whoever reads it without being allowed
        // to reads it atomically too.
        let shown = unsafe { AtomicU8::from_ptr(self.start.wrapping_add(offset)) };
        shown.store(byte, Ordering::Relaxed);
    }
}

impl<'a> Source<'a> {
    /// The view of `len` bytes from `start`.
    ///
    /// # Safety
    /// For the lifetime `'a` the bytes are mapped, and the protocol gives them to this rank to read.
    pub unsafe fn new(start: *const u8, len: usize) -> Self {
        Source { start, len, cell: PhantomData }
    }

    /// The view without its first `offset` bytes.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn after(self, offset: usize) -> Self {
        assert!(offset <= self.len);
        let start = self.start.wrapping_add(offset);
        Source { start, len: self.len - offset, cell: PhantomData }
    }

    /// `N` bytes from `offset`.
    ///
    /// # Panics
    /// When they reach past the end of the view.
    #[inline]
    pub fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.get(offset, &mut bytes);
        bytes
    }

    /// Copies bytes from `offset` on to `target`.
    ///
    /// # Panics
    /// When they reach past the end of the view.
    #[inline]
    pub fn get(&self, offset: usize, target: &mut [u8]) {
        let source = self.range(offset, target.len());
        // SAFETY: I1 and I2: the range is inside the view, which nobody writes meanwhile. I8: a private slice
        // does not overlap with it.
        unsafe { lines::fetch(source, target.as_mut_ptr(), target.len()) };
    }

    /// The same with stores that do not keep the target in the cache. Pays where the target is larger than that.
    /// The bytes are visible to other threads only after [`lines::fence`].
    ///
    /// # Panics
    /// When they reach past the end of the view.
    pub fn stream(&self, offset: usize, target: &mut [u8]) {
        let source = self.range(offset, target.len());
        // SAFETY: I1 and I2, as in `get`.
        unsafe { lines::stream(source, target.as_mut_ptr(), target.len()) };
    }

    /// What lies here as a term of a [`fold`], or this rank's own values instead.
    #[inline]
    pub fn or_own(self, own: bool) -> Term<'a> {
        if own { Term::Own } else { Term::Staged(self) }
    }

    #[inline]
    fn range(&self, offset: usize, len: usize) -> *const u8 {
        assert!(offset <= self.len && len <= self.len - offset);
        self.start.wrapping_add(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_turns_is_there_at_each_turn() {
        let lengths = [0, 1, TURN, FIRST, FIRST + 1, FIRST + 3 * TURN + 5];
        for (len, stream) in lengths.into_iter().flat_map(|len| [(len, 0), (len, 1 << 20)]) {
            copy::stream_next(stream);
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            let mut staging = vec![0xEE; len + 1];
            // SAFETY: the vector can be written for as long as the view is used.
            let view = unsafe { Sink::new(staging.as_mut_ptr(), len) };
            let mut turns = Vec::new();
            view.put_in_turns(&bytes, |put| turns.push(put));
            assert!(turns.is_sorted() && turns.last() == Some(&len));
            assert_eq!(staging[..len], bytes);
            assert_eq!(staging[len], 0xEE);
        }
    }
}
