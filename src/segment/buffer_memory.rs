//! The memory of buffers: a rank's own, with references to it, and that of others, which is only read in place.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;

use crate::copy::Source;
use crate::sys::kept_file::KeptFile;
use crate::sys::memory::backing::Refusal;
use crate::sys::memory::findable;
use crate::sys::memory::mapping::Mapping;

/// Memory in which one rank's buffers lie: that rank's mapping of it, or another rank's own one, which is read-only.
#[derive(Debug)]
pub(crate) struct BufferBytes {
    mapping: Mapping,
}

impl BufferBytes {
    pub(crate) fn new(mapping: Mapping) -> Self {
        BufferBytes { mapping }
    }

    /// In bytes.
    pub(crate) fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Whether this is a forked child, in which the memory does not exist.
    pub(crate) fn forked(&self) -> bool {
        self.mapping.forked()
    }

    /// The offset of bytes that lie in this memory.
    pub(crate) fn offset_of(&self, bytes: &[u8]) -> Option<usize> {
        self.mapping.offset_of(bytes, self.len())
    }

    /// The bytes at an offset; `None` if they reach past the end.
    pub(crate) fn view(&self, offset: usize, len: usize) -> Option<Source<'_>> {
        let end = offset.checked_add(len)?;
        // SAFETY: I19: inside the mapping, which no reference lies in. The rank that has published the offset lends the bytes
        // until the call's last round.
        (end <= self.len()).then(|| unsafe { Source::new(self.mapping.start().wrapping_add(offset), len) })
    }
}

/// A range of a rank's own memory that belongs to one buffer.
#[derive(Debug)]
pub(crate) struct BufferBlock {
    bytes: Arc<BufferBytes>,
    /// In bytes.
    range: Range<usize>,
}

impl BufferBlock {
    /// `range` belongs to no other block until this one is dropped.
    ///
    /// # Panics
    /// When it exceeds the memory.
    pub(crate) fn new(bytes: Arc<BufferBytes>, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= bytes.len());
        BufferBlock { bytes, range }
    }

    pub(crate) fn bytes(&self) -> &Arc<BufferBytes> {
        &self.bytes
    }

    pub(crate) fn range(&self) -> &Range<usize> {
        &self.range
    }

    /// Allocates its pages, whose contents may become zeros. `file`: where the memory lies, unless it is private.
    pub(crate) fn allocate(&mut self, file: Option<&KeptFile>) -> Result<(), Refusal> {
        if !findable::allocate(file, &self.bytes.mapping, self.range.clone())? {
            // The system allocates it when something is stored there.
            self.values_mut::<u8>(self.range.len()).fill(0);
        }
        Ok(())
    }

    /// Gives its whole pages back to the system, where that is possible. `file` as above.
    pub(crate) fn give_back(&mut self, file: Option<&KeptFile>) {
        // SAFETY: I19: no other block has these bytes, and the exclusive borrow of `self` excludes references to them.
        unsafe { findable::give_back(file, &self.bytes.mapping, self.range.clone()) };
    }

    /// The first `len` elements.
    ///
    /// # Panics
    /// When the block is too short for them, or not aligned. In a forked child.
    #[inline]
    pub(crate) fn values<T: Pod>(&self, len: usize) -> &[T] {
        let start = self.start::<T>(len);
        // SAFETY: I19: inside the mapping, aligned, any bytes are a `Pod`; only this rank writes, and only behind `&mut self`.
        unsafe { core::slice::from_raw_parts(start, len) }
    }

    /// The same, to be written.
    ///
    /// # Panics
    /// As [`values`](Self::values).
    #[inline]
    pub(crate) fn values_mut<T: Pod>(&mut self, len: usize) -> &mut [T] {
        let start = self.start::<T>(len);
        // SAFETY: I19: as above; no other block has these bytes, and the exclusive borrow of `self` covers the only reference.
        unsafe { core::slice::from_raw_parts_mut(start, len) }
    }

    #[inline]
    fn start<T>(&self, len: usize) -> *mut T {
        assert!(!self.bytes.forked(), "a buffer does not exist in a forked child");
        let start = self.bytes.mapping.start().wrapping_add(self.range.start).cast::<T>();
        let bytes = len.checked_mul(size_of::<T>());
        assert!(bytes.is_some_and(|bytes| bytes <= self.range.len()) && start.is_aligned());
        start
    }
}
