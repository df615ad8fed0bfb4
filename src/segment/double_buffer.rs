//! Double buffering in shared memory: ranks read one buffer and write the other.

use core::marker::PhantomData;
use std::io;
use std::ops::Range;

use bytemuck::Pod;

use crate::protocol::region::{AllPublished, Parts};
use crate::sys::memory::mapping::Mapping;
use crate::sys::memory::pages::page_size;

/// Both buffers on one rank.
///
/// A rank writes its own block of one buffer. After the round it reads all of that buffer until it arrives at the next
/// round. A rank that arrives has finished reading the other buffer, so after the round all ranks may write that one.
#[derive(Debug)]
pub(crate) struct DoubleBuffer<T> {
    mapping: Mapping,
    /// The length of each buffer, in elements.
    len: usize,
    /// This rank's block.
    own: Range<usize>,
    /// The buffer to be written: 0 or 1.
    next: usize,
    values: PhantomData<T>,
}

/// The block of a rank that is in a round.
pub(crate) struct Disowned(Range<usize>);

/// The size of two buffers of `len` values each; `None` if it overflows.
pub(crate) fn bytes<T>(len: usize) -> Option<usize> {
    // A mapping cannot be empty.
    stride::<T>(len)?.max(1).checked_mul(2).filter(|bytes| isize::try_from(*bytes).is_ok())
}

/// The distance of the two buffers: each begins at a page.
fn stride<T>(len: usize) -> Option<usize> {
    len.checked_mul(size_of::<T>())?.checked_next_multiple_of(page_size())
}

impl<T: Pod> DoubleBuffer<T> {
    const ALIGNED: () = assert!(align_of::<T>() <= 4096, "an element's alignment is at most that of a page");

    /// Two zeroed buffers of `len` values each. `parts` is this rank's block: one range, or none.
    ///
    /// # Errors
    /// When other ranks' pages cannot be made read-only.
    ///
    /// # Panics
    /// When the mapping is too short.
    pub(crate) fn new(mapping: Mapping, len: usize, parts: &Parts) -> io::Result<Self> {
        let () = Self::ALIGNED;
        assert!(bytes::<T>(len).is_some_and(|bytes| bytes <= mapping.len()) && parts.end() <= len);
        let own = parts.ranges().first().cloned().unwrap_or(0..0);
        let buffers = DoubleBuffer { mapping, len, own, next: 0, values: PhantomData };
        buffers.protect()?;
        Ok(buffers)
    }

    /// Makes the pages that contain this rank's values writable, and all others read-only. The first and the last writable
    /// page may contain neighbours' values too.
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

    /// This rank's block of the buffer that is read after the next round.
    pub(crate) fn own(&mut self) -> &mut [T] {
        let start = self.buffer(self.next).wrapping_add(self.own.start);
        // SAFETY: I13: inside the mapping, aligned, any bytes are a `Pod`; no rank reads this buffer, no other rank owns
        // these values, and the exclusive borrow of `self` covers the reference.
        unsafe { core::slice::from_raw_parts_mut(start, self.own.len()) }
    }

    /// This rank owns no block any more: other ranks may read it. Returns it, for [`own_again`](Self::own_again).
    pub(crate) fn disown(&mut self) -> Disowned {
        Disowned(core::mem::replace(&mut self.own, 0..0))
    }

    /// Owns its block of the next turn again: this one has ended on all ranks, or on none.
    pub(crate) fn own_again(&mut self, Disowned(own): Disowned) {
        self.own = own;
    }

    /// Swaps the buffers after a round. Returns the one that the ranks have written.
    pub(crate) fn flip(&mut self, _: AllPublished) -> &[T] {
        let start = self.buffer(self.next);
        self.next = 1 - self.next;
        // SAFETY: I13: inside the mapping, aligned, any bytes are a `Pod`; no rank writes this buffer before all ranks
        // have arrived at the next round, and this rank does not arrive while `self` is borrowed.
        unsafe { core::slice::from_raw_parts(start, self.len) }
    }

    fn stride(&self) -> usize {
        stride::<T>(self.len).expect("checked by `new`")
    }

    fn buffer(&self, index: usize) -> *mut T {
        assert!(!self.mapping.forked(), "a region does not exist in a forked child");
        self.mapping.start().wrapping_add(index * self.stride()).cast()
    }
}
