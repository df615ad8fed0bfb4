//! The payload's boundary: raw views of staging, and the copies and folds through them.
//!
//! Staging is memory that other processes write. No reference to it is ever made: a view is a pointer and a
//! length, and only the copies below touch what is behind it. Which rank may do so at which moment is decided in
//! `protocol`, which the model checkers explore (SAFETY.md, invariant I2).

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU8, Ordering};

/// Staging that the holder may fill.
#[derive(Debug)]
pub struct Sink<'a> {
    pub(super) start: *mut u8,
    pub(super) len: usize,
    cell: PhantomData<&'a ()>,
}

/// Staging that the holder may read.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub(super) start: *const u8,
    pub(super) len: usize,
    cell: PhantomData<&'a ()>,
}

/// One of several ranks' values that are to be folded.
#[derive(Clone, Copy, Debug)]
pub enum Term<'a> {
    /// This rank's own, where they came from.
    Own,
    /// Those in staging, from the view's start on.
    Staged(Source<'a>),
}

/// The most terms of one [`fold`](super::fold()): more are in each other's way, fewer read and write the target more often.
pub const TERMS: usize = 4;

impl<'a> Sink<'a> {
    /// Private memory in place of staging.
    #[inline]
    pub fn of(memory: &'a mut [u8]) -> Self {
        // SAFETY: I8: the slice can be written as long as it is borrowed.
        unsafe { Sink::new(memory.as_mut_ptr(), memory.len()) }
    }
}

impl<'a> Source<'a> {
    /// Private memory in place of staging.
    #[inline]
    #[must_use]
    pub fn of(memory: &'a [u8]) -> Self {
        // SAFETY: I8: the slice can be read as long as it is borrowed.
        unsafe { Source::new(memory.as_ptr(), memory.len()) }
    }
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
    #[inline]
    pub fn after(self, offset: usize) -> Self {
        assert!(offset <= self.len);
        let start = self.start.wrapping_add(offset);
        Sink { start, len: self.len - offset, cell: PhantomData }
    }

    /// Copies `bytes` to `offset`. They are visible to a rank that sees a later arrival of this rank.
    ///
    /// # Panics
    /// When they reach past the end of the view.
    #[inline]
    pub fn put(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset <= self.len && bytes.len() <= self.len - offset);
        let target = self.start.wrapping_add(offset);
        // SAFETY: I1 and I2: the range is inside the view, which is ours to write. I8: a private slice does not
        // overlap with it.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
    }

    /// Stores one byte atomically, so that ranks and reports may peek at it at any time.
    ///
    /// # Panics
    /// When it lies past the end of the view.
    #[inline]
    pub fn store_relaxed(&mut self, offset: usize, byte: u8) {
        assert!(offset < self.len);
        // SAFETY: I1 and I2: the byte is inside the view, which is ours to write; a rank that reads it without being allowed
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
    #[inline]
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
        unsafe { core::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len()) };
    }

    /// What lies here as a term of a [`fold`], or this rank's own values instead.
    #[inline]
    pub fn or_own(self, own: bool) -> Term<'a> {
        if own { Term::Own } else { Term::Staged(self) }
    }

    #[inline]
    pub(super) fn range(&self, offset: usize, len: usize) -> *const u8 {
        assert!(offset <= self.len && len <= self.len - offset);
        self.start.wrapping_add(offset)
    }
}

impl Sink<'_> {
    /// [`put`](Self::put) for what is often a single number: then without a call of the C library, for which its caller would have to
    /// store what it has in registers.
    ///
    /// # Panics
    /// When they reach past the end of the view.
    #[inline(always)]
    pub(crate) fn put_few(&mut self, offset: usize, bytes: &[u8]) {
        match bytes.len() {
            8 => self.put(offset, &bytes[..8]),
            _ => self.put(offset, bytes),
        }
    }
}

#[cfg(target_os = "linux")]
impl Source<'_> {
    /// [`get`](Self::get) for what is often a single number, as messages between endpoints.
    ///
    /// # Panics
    /// When they reach past the end of the view.
    #[inline(always)]
    pub(crate) fn get_few(&self, offset: usize, target: &mut [u8]) {
        match target.len() {
            8 => self.get(offset, &mut target[..8]),
            _ => self.get(offset, target),
        }
    }
}
