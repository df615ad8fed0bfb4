//! The memory of a region on one rank: the one place where what ranks share lies behind references.
//!
//! ```text
//!   Writable ──protect──▶ Transition ──publish──▶ ReadOnly ──unprotect──▶ Transition ──take back──▶ Writable
//!  &mut own parts        no reference         &everything              no reference
//! ```
//!
//! A state that hands out references is entered only with what the protocol has shown.

use core::marker::PhantomData;
use std::io;

use bytemuck::Pod;

use crate::protocol::region::{AllPublished, AllReclaimed, Parts};
use crate::sys::memory::huge;
use crate::sys::memory::mapping::Mapping;

/// The epoch in which each rank writes the parts that it owns, and nobody reads those of others.
#[derive(Debug)]
pub enum Writable {}

/// The epoch in which every rank reads everything, and nobody writes.
#[derive(Debug)]
pub enum ReadOnly {}

/// The memory in a state, which is an epoch of the region's, or [`Transition`].
#[derive(Debug)]
pub(crate) struct Memory<T, S> {
    mapping: Mapping,
    /// In elements.
    len: usize,
    parts: Parts,
    writable: bool,
    state: PhantomData<(T, S)>,
}

/// The state between two epochs, in which the memory can not be used.
#[derive(Debug)]
pub(crate) enum Transition {}

impl<T: Pod, S> Memory<T, S> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The memory itself, whose pages may be asked about.
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Puts huge pages in place of small ones; how many bytes they hold.
    pub(crate) fn collapse(&self) -> io::Result<usize> {
        huge::collapse(&self.mapping)
    }

    fn enter<N>(self) -> Memory<T, N> {
        let Memory { mapping, len, parts, writable, .. } = self;
        Memory { mapping, len, parts, writable, state: PhantomData }
    }

    fn protect_from(mut self, writable: bool) -> io::Result<Memory<T, Transition>> {
        self.mapping.protect(writable)?;
        self.writable = writable;
        Ok(self.enter())
    }

    fn start(&self) -> *mut T {
        assert!(!self.mapping.forked(), "a region does not exist in a forked child");
        self.mapping.start().cast()
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

    /// After every rank has given up reading.
    ///
    /// # Panics
    /// When this rank's mapping is still protected.
    pub(crate) fn reclaim(self, _: AllReclaimed) -> Memory<T, Writable> {
        assert!(self.writable);
        self.enter()
    }
}

impl<T: Pod> Memory<T, Writable> {
    /// Where elements may begin. A mapping begins at a page.
    const ALIGNED: () = assert!(align_of::<T>() <= 4096, "an element's alignment is that of a page at most");

    /// The zeroed memory of a region of `len` elements in its first epoch. That its parts are apart from those of all
    /// other ranks is what makes them `Parts`.
    ///
    /// # Panics
    /// When the mapping is too short.
    pub(crate) fn new(mapping: Mapping, len: usize, parts: Parts) -> Self {
        let () = Self::ALIGNED;
        let bytes = len.checked_mul(size_of::<T>()).expect("the mapping was made for it");
        assert!(bytes <= mapping.len() && parts.end() <= len);
        Memory { mapping, len, parts, writable: true, state: PhantomData }
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Changes who owns what. All ranks do so, between the same two rounds.
    ///
    /// # Panics
    /// When a part reaches past the end.
    pub(crate) fn set_ownership(&mut self, parts: Parts) {
        assert!(parts.end() <= self.len);
        self.parts = parts;
    }

    /// This rank's own elements, part by part.
    pub(crate) fn own(&mut self) -> impl Iterator<Item = &mut [T]> {
        let start = self.start();
        self.parts.ranges().iter().map(move |part| {
            // SAFETY: I12: inside the mapping, aligned, any bytes are a `Pod`; nobody but this rank has these elements
            // in this epoch, the parts are apart, and the exclusive borrow of `self` covers all references to them.
            unsafe { core::slice::from_raw_parts_mut(start.wrapping_add(part.start), part.len()) }
        })
    }

    /// Ends writing on this rank.
    pub(crate) fn protect(self) -> io::Result<Memory<T, Transition>> {
        self.protect_from(false)
    }
}

impl<T: Pod> Memory<T, ReadOnly> {
    /// Everything.
    pub(crate) fn values(&self) -> &[T] {
        // SAFETY: I12: inside the mapping, aligned, any bytes are a `Pod`; nobody writes in this epoch, which does not
        // end before this rank gives up `self`.
        unsafe { core::slice::from_raw_parts(self.start(), self.len) }
    }

    /// Ends reading on this rank.
    pub(crate) fn unprotect(self) -> io::Result<Memory<T, Transition>> {
        self.protect_from(true)
    }
}
