//! Buffers of the caller's process that its other threads may write while a call runs, as other languages let them.
//!
//! No reference to such memory is ever made: what is behind a buffer is copied, published and [folded](super::fold_raw), in Rust's
//! terms by a loop of Relaxed accesses of a unit, as [`relaxed`] does it. So a write at the wrong time garbles the data, and
//! nothing else.

use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use bytemuck::Pod;

use super::policy::Stores;
use super::relaxed;
use super::view::Source;

/// A buffer of `len` elements that is sent, which other threads of this process may write meanwhile: for bindings to languages
/// that cannot promise what a `&[T]` does. It need not be aligned.
///
/// ```
/// use intranode::{RawSource, RawTarget, ReduceOp};
///
/// let sums = intranode::threads(2, |comm| {
///     let (send, mut recv) = ([comm.rank() as f64, 1.0], [0.0; 2]);
///     // Of slices they can be made safely. A binding makes them of an address, by `new`.
///     comm.allreduce_raw(Some(RawSource::from(&send[..])), RawTarget::from(&mut recv[..]), ReduceOp::Sum)?;
///     Ok::<_, intranode::Error>(recv)
/// })?;
/// for sum in sums {
///     assert_eq!(sum?, [1.0, 2.0]);
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Debug)]
pub struct RawSource<'a, T> {
    start: *const u8,
    len: usize,
    of: PhantomData<&'a T>,
}

/// A buffer of `len` elements that is received into, which other threads of this process may read and write meanwhile. Example:
/// [`RawSource`].
#[derive(Debug)]
pub struct RawTarget<'a, T> {
    start: *mut u8,
    len: usize,
    of: PhantomData<&'a mut T>,
}

impl<T> Clone for RawSource<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RawSource<'_, T> {}

impl<'a, T: Pod> RawSource<'a, T> {
    /// The buffer of `len` elements from `start` on. Example: [`RawSource`].
    ///
    /// # Safety
    /// For the lifetime `'a` its bytes can be read, and there is no `&mut` to any of them. Whatever writes them meanwhile is
    /// either code of another language, or atomic.
    pub unsafe fn new(start: *const T, len: usize) -> Self {
        RawSource { start: start.cast(), len, of: PhantomData }
    }

    /// Some of its elements.
    ///
    /// # Panics
    /// When the range is not inside.
    #[inline]
    pub(crate) fn part(self, range: Range<usize>) -> Self {
        let start = place::<T>(self.start, self.len, &range);
        RawSource { start, len: range.len(), of: PhantomData }
    }

    /// The same memory as elements of another type of the same size.
    #[inline]
    pub(crate) fn cast<U: Pod>(self) -> RawSource<'a, U> {
        const { assert!(size_of::<T>() == size_of::<U>()) };
        RawSource { start: self.start, len: self.len, of: PhantomData }
    }

    /// Its bytes.
    #[inline]
    pub(crate) fn bytes(self) -> RawSource<'a, u8> {
        RawSource { start: self.start, len: self.len * size_of::<T>(), of: PhantomData }
    }
}

impl<T> RawSource<'_, T> {
    /// Its length in elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where it begins.
    #[inline]
    pub(crate) fn start(&self) -> *const u8 {
        self.start
    }
}

impl<'a, T: Pod> RawTarget<'a, T> {
    /// The buffer of `len` elements from `start` on. Example: [`RawSource`].
    ///
    /// # Safety
    /// For the lifetime `'a` its bytes can be read and written, and there is no reference to any of them. Whatever accesses them
    /// meanwhile is either code of another language, or atomic.
    pub unsafe fn new(start: *mut T, len: usize) -> Self {
        RawTarget { start: start.cast(), len, of: PhantomData }
    }

    /// What is there, to be sent.
    #[inline]
    pub(crate) fn source(&self) -> RawSource<'a, T> {
        RawSource { start: self.start, len: self.len, of: PhantomData }
    }

    /// Some of its elements.
    ///
    /// # Panics
    /// When the range is not inside.
    #[inline]
    pub(crate) fn part(&mut self, range: Range<usize>) -> RawTarget<'_, T> {
        let start = place::<T>(self.start, self.len, &range).cast_mut();
        RawTarget { start, len: range.len(), of: PhantomData }
    }

    /// The same memory as elements of another type of the same size.
    #[inline]
    pub(crate) fn cast<U: Pod>(self) -> RawTarget<'a, U> {
        const { assert!(size_of::<T>() == size_of::<U>()) };
        RawTarget { start: self.start, len: self.len, of: PhantomData }
    }

    /// Its bytes.
    #[inline]
    pub(crate) fn into_bytes(self) -> RawTarget<'a, u8> {
        RawTarget { start: self.start, len: self.len * size_of::<T>(), of: PhantomData }
    }

    /// Copies the beginning of a view of staging here.
    ///
    /// # Panics
    /// When the view is shorter.
    #[inline]
    pub(crate) fn fetch(&mut self, staging: &Source<'_>, stores: Stores) {
        let bytes = self.len * size_of::<T>();
        // SAFETY: I1 and I2: the view can be read. I8: the buffer can be written, and does not overlap with a mapping of a segment.
        unsafe { copy(staging.range(0, bytes), self.start, bytes, stores) };
    }

    /// Copies another buffer here.
    ///
    /// # Panics
    /// When it has another length.
    #[inline]
    pub(crate) fn copy_from(&mut self, source: RawSource<'_, T>, stores: Stores) {
        assert!(source.len == self.len);
        // SAFETY: I8: the one buffer can be read, and the other written. Where they overlap, the result is unspecified.
        unsafe { copy(source.start, self.start, self.len * size_of::<T>(), stores) };
    }
}

impl<T> RawTarget<'_, T> {
    /// Its length in elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where it begins.
    #[inline]
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.start
    }
}

impl<'a, T: Pod> From<&'a [T]> for RawSource<'a, T> {
    fn from(slice: &'a [T]) -> Self {
        RawSource { start: slice.as_ptr().cast(), len: slice.len(), of: PhantomData }
    }
}

impl<'a, T: Pod> From<&'a mut [T]> for RawTarget<'a, T> {
    fn from(slice: &'a mut [T]) -> Self {
        RawTarget { start: slice.as_mut_ptr().cast(), len: slice.len(), of: PhantomData }
    }
}

/// Where elements of a buffer of `len` lie.
#[inline]
fn place<T>(start: *const u8, len: usize, range: &Range<usize>) -> *const u8 {
    assert!(range.start <= range.end && range.end <= len);
    start.wrapping_add(range.start * size_of::<T>())
}

/// Copies with these stores. Those that are non-temporal are seen by other threads only after [`super::lines::fence`].
///
/// # Safety
/// `source` can be read and `target` written for `len` bytes, and they do not overlap. Whatever of Rust accesses them meanwhile
/// is atomic.
#[inline]
pub(super) unsafe fn copy(source: *const u8, target: *mut u8, len: usize, stores: Stores) {
    let head = relaxed::head(target, len);
    // SAFETY: the caller's promise.
    unsafe { copy_units(source, target, head) };
    let (from, to) = (source.wrapping_add(head), target.wrapping_add(head));
    // SAFETY: the caller's promise; behind the head the target is aligned to a line, if there is a line.
    let lines = unsafe { relaxed::copy_lines_by(stores, from, to, len - head) };
    let done = head + lines;
    // SAFETY: the caller's promise.
    unsafe { copy_units(source.wrapping_add(done), target.wrapping_add(done), len - done) };
}

/// # Safety
/// As [`copy`].
unsafe fn copy_units(source: *const u8, target: *mut u8, len: usize) {
    const WORD: usize = size_of::<u64>();
    let aligned = source.align_offset(WORD) == 0 && target.align_offset(WORD) == 0;
    let words = if aligned { len / WORD } else { 0 };
    for at in (0..words * WORD).step_by(WORD) {
        // SAFETY: the caller's promise: the word lies inside, and is aligned, since the first one is.
        let word = unsafe { relaxed::load_word(source.wrapping_add(at).cast()) };
        // SAFETY: I3: as above.
        let to = unsafe { AtomicU64::from_ptr(target.wrapping_add(at).cast()) };
        to.store(word, Relaxed);
    }
    for at in words * WORD..len {
        // SAFETY: the caller's promise: the byte lies inside.
        let byte = unsafe { relaxed::load_byte(source.wrapping_add(at)) };
        // SAFETY: I3: as above.
        let to = unsafe { AtomicU8::from_ptr(target.wrapping_add(at)) };
        to.store(byte, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_copied_whatever_the_alignment_and_the_length() {
        let bytes = crate::copy::pattern(20_000);
        // The longer ones are for vectors, which Miri does not have.
        let most = if cfg!(miri) { 256 } else { 16_000 };
        let lengths = [0, 1, 7, 8, 63, 64, 65, 255, 256, 1000, 9000, 16_000];
        for len in lengths.into_iter().filter(|len| *len <= most) {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 5), (8, 16)] {
                for stores in [Stores::Cached, Stores::NonTemporal] {
                    let source = RawSource::from(&bytes[..]).part(from..from + len);
                    let mut target = vec![0; len + 32];
                    RawTarget::from(&mut target[..]).part(to..to + len).copy_from(source, stores);
                    crate::copy::lines::fence();
                    assert_eq!(target[to..to + len], bytes[from..from + len]);
                    assert_eq!(target[..to], vec![0; to]);
                    assert_eq!(target[to + len..], vec![0; 32 - to]);
                }
            }
        }
    }

    #[test]
    fn staging_is_copied_to_where_it_is_wanted() {
        let staged: Vec<u16> = (0..3000).collect();
        // SAFETY: the vector can be read as long as it is borrowed.
        let staging = unsafe { Source::new(staged.as_ptr().cast(), 2 * staged.len()) };
        let mut target = vec![7; 5000];
        RawTarget::from(&mut target[..]).part(1000..4000).fetch(&staging, Stores::Cached);
        assert_eq!(target[1000..4000], staged);
        assert!(target[..1000].iter().chain(&target[4000..]).all(|value| *value == 7));
    }

    #[test]
    #[should_panic(expected = "range.end <= len")]
    fn what_is_not_inside_is_not_touched() {
        let _ = RawSource::from(&[1u8, 2][..]).part(1..3);
    }
}
