//! Two buffers that are used in turns: while one is read, the other is written.

use core::marker::PhantomData;
use std::io;
use std::ops::Range;

use bytemuck::Pod;

use crate::protocol::region::{AllPublished, Parts};
use crate::sys::memory::mapping::Mapping;
use crate::sys::memory::pages::page_size;

/// The memory of both buffers on one rank.
///
/// A rank writes its own part of the one buffer, and then, when all ranks have, reads all of it, until it arrives at the
/// next round. In that round all ranks have finished reading the other buffer, so after it they may write it again.
#[derive(Debug)]
pub(crate) struct DoubleBuffer<T> {
    mapping: Mapping,
    /// In elements, of each buffer.
    len: usize,
    /// This rank's part.
    own: Range<usize>,
    /// Which buffer is to be written.
    next: usize,
    values: PhantomData<T>,
}

/// How many bytes two buffers of so many values take; `None` if that is no number.
pub(crate) fn bytes<T>(len: usize) -> Option<usize> {
    // Even buffers of nothing are mapped.
    stride::<T>(len)?.max(1).checked_mul(2).filter(|bytes| isize::try_from(*bytes).is_ok())
}

/// The distance of the buffers: each begins at a page.
fn stride<T>(len: usize) -> Option<usize> {
    len.checked_mul(size_of::<T>())?.checked_next_multiple_of(page_size())
}

impl<T: Pod> DoubleBuffer<T> {
    const ALIGNED: () = assert!(align_of::<T>() <= 4096, "an element's alignment is that of a page at most");

    /// Two zeroed buffers of `len` values each. `parts` is what this rank owns: one range, or nothing.
    ///
    /// # Errors
    /// When the pages that are not this rank's can not be protected from it.
    ///
    /// # Panics
    /// When the mapping is too short.
    pub(crate) fn new(mapping: Mapping, len: usize, parts: &Parts) -> io::Result<Self> {
        let () = Self::ALIGNED;
        assert!(bytes::<T>(len).is_some_and(|bytes| bytes <= mapping.len()) && parts.end() <= len);
        let own = parts.ranges().first().cloned().unwrap_or(0..0);
        let turns = DoubleBuffer { mapping, len, own, next: 0, values: PhantomData };
        turns.protect()?;
        Ok(turns)
    }

    /// Lets this process write the pages that hold its own values, and no others. A neighbour's values may lie in the
    /// first and in the last of them.
    fn protect(&self) -> io::Result<()> {
        self.mapping.protect(false)?;
        let bytes = |index: usize| index * size_of::<T>();
        for buffer in 0..2 {
            let base = buffer * self.stride();
            let (start, end) = (base + bytes(self.own.start), base + bytes(self.own.end));
            let start = start - start % page_size();
            if start < end {
                self.mapping.protect_range(start..end.min(self.mapping.len()), true)?;
            }
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// This rank's own values in the buffer that is to be read next.
    pub(crate) fn own(&mut self) -> &mut [T] {
        let start = self.buffer(self.next).wrapping_add(self.own.start);
        // SAFETY: I13: inside the mapping, aligned, any bytes are a `Pod`; nobody reads this buffer, nobody but this
        // rank has these values, and the exclusive borrow of `self` covers the reference.
        unsafe { core::slice::from_raw_parts_mut(start, self.own.len()) }
    }

    /// Gives up this rank's part, for good: others may read it.
    pub(crate) fn give_up(&mut self) {
        self.own = 0..0;
    }

    /// All values that the ranks have written for this turn. The next turn has begun.
    pub(crate) fn turn(&mut self, _: AllPublished) -> &[T] {
        let start = self.buffer(self.next);
        self.next = 1 - self.next;
        // SAFETY: I13: inside the mapping, aligned, any bytes are a `Pod`; nobody writes this buffer before all ranks
        // have arrived at the next round, and this rank does not while `self` is borrowed.
        unsafe { core::slice::from_raw_parts(start, self.len) }
    }

    fn stride(&self) -> usize {
        stride::<T>(self.len).expect("the mapping has room for it")
    }

    fn buffer(&self, index: usize) -> *mut T {
        assert!(!self.mapping.forked(), "a region does not exist in a forked child");
        self.mapping.start().wrapping_add(index * self.stride()).cast()
    }
}
