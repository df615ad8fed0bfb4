//! The memory of a region on one rank, with references to it. Its epoch is a type state.
//!
//! ```text
//!   Writable ──protect──▶ Transition ──publish──▶ ReadOnly ──unprotect──▶ Transition ──reclaim──▶ Writable
//!   &mut own parts        no reference            & everything            no reference
//! ```
//!
//! Entering a state with references needs a proof token of the protocol, which exists only after its round.

use core::marker::PhantomData;
use std::io;
use std::sync::Arc;

use bytemuck::Pod;

use crate::copy::Source;
use crate::protocol::region::{AllPublished, AllReclaimed, Parts};
use crate::sys::memory::huge;
use crate::sys::memory::mapping::Mapping;

/// The epoch in which each rank reads and writes the parts that it owns, and no others.
///
/// ```
/// use intranode::{Region, Writable};
///
/// fn clear(region: &mut Region<u8, Writable>) {
///     region.parts_mut().for_each(|part| part.fill(0));
/// }
///
/// let cleared = intranode::threads(2, |comm| comm.region(100).map(|mut region| clear(&mut region)))?;
/// assert!(cleared.iter().all(Result::is_ok));
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Debug)]
pub enum Writable {}

/// The epoch in which every rank reads everything, and no rank writes.
///
/// ```
/// use intranode::{ReadOnly, Region};
///
/// fn sum(region: &Region<u32, ReadOnly>) -> u32 {
///     region.iter().sum()
/// }
///
/// let sums = intranode::threads(2, |comm| Ok::<_, intranode::Error>(sum(&comm.region(100)?.publish()?)))?;
/// for sum in sums {
///     assert_eq!(sum?, 0);
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Debug)]
pub enum ReadOnly {}

/// The bytes of a region on one rank: in an epoch behind references, and in a collective read in place by other ranks.
#[derive(Debug)]
pub(crate) struct RegionBytes {
    mapping: Mapping,
    /// In bytes.
    len: usize,
}

impl RegionBytes {
    /// The offset of bytes that lie in this region.
    pub(crate) fn offset_of(&self, bytes: &[u8]) -> Option<usize> {
        self.mapping.offset_of(bytes, self.len)
    }

    /// The bytes at an offset; `None` if they reach past the end.
    pub(crate) fn view(&self, offset: usize, len: usize) -> Option<Source<'_>> {
        let end = offset.checked_add(len)?;
        // SAFETY: I12: inside the mapping. The rank that has published the offset lends the bytes until the call's last round.
        (end <= self.len).then(|| unsafe { Source::new(self.mapping.start().wrapping_add(offset), len) })
    }
}

/// The memory in a state: [`Writable`], [`ReadOnly`] or [`Transition`].
#[derive(Debug)]
pub(crate) struct Memory<T, S> {
    bytes: Arc<RegionBytes>,
    /// In elements.
    len: usize,
    parts: Parts,
    writable: bool,
    state: PhantomData<(T, S)>,
}

/// The state between two epochs, without references.
#[derive(Debug)]
pub(crate) enum Transition {}

impl<T: Pod, S> Memory<T, S> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Replaces small pages by huge ones. Returns the bytes in huge pages.
    pub(crate) fn collapse(&self) -> io::Result<usize> {
        huge::collapse(&self.bytes.mapping)
    }

    /// What other ranks read in place.
    pub(crate) fn bytes(&self) -> &Arc<RegionBytes> {
        &self.bytes
    }

    fn enter<N>(self) -> Memory<T, N> {
        let Memory { bytes, len, parts, writable, .. } = self;
        Memory { bytes, len, parts, writable, state: PhantomData }
    }

    fn protect_from(mut self, writable: bool) -> io::Result<Memory<T, Transition>> {
        self.bytes.mapping.protect(writable)?;
        self.writable = writable;
        Ok(self.enter())
    }

    fn start(&self) -> *mut T {
        let mapping = &self.bytes.mapping;
        assert!(!mapping.forked(), "a region does not exist in a forked child");
        mapping.start().cast()
    }
}

impl<T: Pod> Memory<T, Transition> {
    /// After every rank has protected its mapping.
    ///
    /// # Panics
    /// When this rank has not.
    pub(crate) fn publish(self, _: AllPublished) -> Memory<T, ReadOnly> {
        assert!(!self.writable);
        self.enter()
    }

    /// After every rank has stopped reading.
    ///
    /// # Panics
    /// When this rank's mapping is still read-only.
    pub(crate) fn reclaim(self, _: AllReclaimed) -> Memory<T, Writable> {
        assert!(self.writable);
        self.enter()
    }
}

impl<T: Pod> Memory<T, Writable> {
    /// A mapping is page-aligned.
    const ALIGNED: () = assert!(align_of::<T>() <= 4096, "an element's alignment is at most that of a page");

    /// The zeroed memory of a region of `len` elements in its first epoch. A value of `Parts` is disjoint from those of all
    /// other ranks.
    ///
    /// # Panics
    /// When the mapping is too short.
    pub(crate) fn new(mapping: Mapping, len: usize, parts: Parts) -> Self {
        let () = Self::ALIGNED;
        let bytes = len.checked_mul(size_of::<T>()).expect("the mapping was made for it");
        assert!(bytes <= mapping.len() && parts.end() <= len);
        let bytes = Arc::new(RegionBytes { mapping, len: bytes });
        Memory { bytes, len, parts, writable: true, state: PhantomData }
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Changes the ownership of elements. All ranks do so, between the same two rounds. Returns the parts of before.
    ///
    /// # Panics
    /// When a part reaches past the end.
    pub(crate) fn set_ownership(&mut self, parts: Parts) -> Parts {
        assert!(parts.end() <= self.len);
        core::mem::replace(&mut self.parts, parts)
    }

    /// The parts that this rank owns.
    pub(crate) fn own(&mut self) -> impl Iterator<Item = &mut [T]> {
        let start = self.start();
        self.parts.ranges().iter().map(move |part| {
            // SAFETY: I12: inside the mapping, aligned, any bytes are a `Pod`; no other rank owns these elements in this
            // epoch, the parts are disjoint, and the exclusive borrow of `self` covers all references to them.
            unsafe { core::slice::from_raw_parts_mut(start.wrapping_add(part.start), part.len()) }
        })
    }

    /// Makes the mapping read-only on this rank.
    pub(crate) fn protect(self) -> io::Result<Memory<T, Transition>> {
        self.protect_from(false)
    }
}

impl<T: Pod> Memory<T, ReadOnly> {
    /// All elements.
    pub(crate) fn values(&self) -> &[T] {
        // SAFETY: I12: inside the mapping, aligned, any bytes are a `Pod`; no rank writes in this epoch, which does not
        // end while this rank has `self`.
        unsafe { core::slice::from_raw_parts(self.start(), self.len) }
    }

    /// Makes the mapping writable on this rank.
    pub(crate) fn unprotect(self) -> io::Result<Memory<T, Transition>> {
        self.protect_from(true)
    }
}
