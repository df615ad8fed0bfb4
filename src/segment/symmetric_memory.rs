//! Symmetric memory: the instances of all ranks in one mapping, and an object in it. Its phase is a type state.
//!
//! ```text
//!   base                 base + stride          base + 2 · stride
//!   │ rank 0             │ rank 1               │ rank 2               │
//!   ├──────┬────────┬────┼──────┬────────┬──────┼──────┬────────┬──────┤
//!   │      │ object │    │      │ object │      │      │ object │      │
//!   └──────┴────────┴────┴──────┴────────┴──────┴──────┴────────┴──────┘
//!          offset               offset                 offset
//!
//!   Own ──leave──▶ Transition ──open──▶ Open ──leave──▶ Transition ──own, read──▶ Own, Read
//!   &mut own       no reference         raw pointers     no reference             &mut own, & all
//! ```
//!
//! Entering a phase needs a proof token of the protocol, which exists only after its round.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytemuck::Pod;

use super::unit::Instance;
use crate::copy::Source;
use crate::protocol::symmetric::phase::{AllOpen, AllOwn, AllRead};
use crate::sys::memory::backing::ShmHandle;
use crate::sys::memory::huge;
use crate::sys::memory::mapping::Mapping;

/// The phase in which any rank accesses any instance: that of a new object.
///
/// ```
/// use intranode::{Open, Symmetric};
///
/// fn bytes(object: &Symmetric<u32, Open>) -> usize {
///     4 * object.len()
/// }
///
/// let sizes = intranode::threads(2, |comm| comm.symmetric(100).map(|object| bytes(&object)))?;
/// for size in sizes {
///     assert_eq!(size?, 400);
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Debug)]
pub enum Open {}

/// The phase in which each rank has `&mut [T]` of its own instance, and no rank has access to another's.
///
/// ```
/// use intranode::{Own, Symmetric};
///
/// fn clear(object: &mut Symmetric<u8, Own>) {
///     object.fill(0);
/// }
///
/// let cleared = intranode::threads(2, |comm| comm.symmetric(100)?.into_own().map(|mut object| clear(&mut object)))?;
/// assert!(cleared.iter().all(Result::is_ok));
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Debug)]
pub enum Own {}

/// The phase in which every rank has `&[T]` of all instances, and no rank writes.
///
/// ```
/// use intranode::{Read, Symmetric};
///
/// fn sum_of_all(object: &Symmetric<u32, Read>, ranks: usize) -> u32 {
///     (0..ranks).flat_map(|rank| object.of(rank)).sum()
/// }
///
/// let sums = intranode::threads(2, |comm| {
///     Ok::<_, intranode::Error>(sum_of_all(&comm.symmetric(100)?.into_read()?, comm.size()))
/// })?;
/// for sum in sums {
///     assert_eq!(sum?, 0);
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Debug)]
pub enum Read {}

/// The state between two phases, without access.
#[derive(Debug)]
pub(crate) enum Transition {}

/// Memory of which each rank has a part of the same length, in one mapping.
#[derive(Debug)]
pub(crate) struct Instances {
    mapping: Mapping,
    ranks: usize,
    /// The length of a rank's part, in bytes.
    stride: usize,
    /// Whether several ranks of this process have it.
    by_threads: AtomicBool,
}

/// What ranks of this process have mapped. Ranks that are threads share one mapping: with a second one, an atomic would
/// have two addresses, which Rust's memory model does not know.
static MAPPED: Mutex<Vec<(ShmHandle, Weak<Instances>)>> = Mutex::new(Vec::new());

impl Instances {
    /// The memory behind a handle. `mapping` is dropped if another rank of this process has mapped it before.
    ///
    /// # Panics
    /// When the mapping is too short.
    // By its name the thread sanitizer knows what it reports falsely (tests/tsan/suppressions).
    #[inline(never)]
    pub(crate) fn share(handle: &ShmHandle, mapping: Mapping, ranks: usize, stride: usize) -> Arc<Self> {
        assert!(stride.checked_mul(ranks).is_some_and(|len| len <= mapping.len()));
        let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(other, _): &&(ShmHandle, _)| other == handle;
        if let Some(instances) = mapped.iter().find(same).and_then(|(_, instances)| instances.upgrade()) {
            assert!((instances.ranks, instances.stride) == (ranks, stride), "the handle identifies the memory");
            instances.by_threads.store(true, Relaxed);
            return instances;
        }
        mapped.retain(|(_, instances)| instances.strong_count() > 0);
        let instances = Arc::new(Instances { mapping, ranks, stride, by_threads: AtomicBool::new(false) });
        mapped.push((*handle, Arc::downgrade(&instances)));
        instances
    }

    /// Whether other threads of this process are ranks that have this memory.
    pub(crate) fn by_threads(&self) -> bool {
        self.by_threads.load(Relaxed)
    }

    /// The offset of bytes that lie in this memory.
    pub(crate) fn offset_of(&self, bytes: &[u8]) -> Option<usize> {
        self.mapping.offset_of(bytes, self.stride * self.ranks)
    }

    /// Whether bytes at an offset lie in the part of a rank.
    pub(crate) fn is_in_part(&self, rank: usize, offset: usize, len: usize) -> bool {
        let start = self.stride * rank;
        offset
            .checked_sub(start)
            .and_then(|before| before.checked_add(len))
            .is_some_and(|end| end <= self.stride)
    }

    /// The bytes at an offset; `None` if they reach past the end.
    pub(crate) fn view(&self, offset: usize, len: usize) -> Option<Source<'_>> {
        let end = offset.checked_add(len)?;
        // SAFETY: I15: inside the mapping. The rank that has published the offset lends the bytes until the call's last round.
        (end <= self.stride * self.ranks)
            .then(|| unsafe { Source::new(self.mapping.start().wrapping_add(offset), len) })
    }

    /// Replaces small pages by huge ones. Returns the bytes in huge pages.
    pub(crate) fn collapse(&self) -> io::Result<usize> {
        huge::collapse(&self.mapping)
    }
}

/// A part of every instance, at the same offset. The heap makes it, and makes no second one for the same bytes as long as a
/// rank has an object in it.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    instances: Arc<Instances>,
    /// In bytes, from the beginning of a rank's part.
    offset: usize,
    len: usize,
}

impl Block {
    /// # Panics
    /// When it reaches past the end of an instance.
    pub(crate) fn new(instances: Arc<Instances>, offset: usize, len: usize) -> Self {
        assert!(offset.checked_add(len).is_some_and(|end| end <= instances.stride));
        Block { instances, offset, len }
    }
}

/// The memory of an object in a phase: [`Open`], [`Own`], [`Read`], or [`Transition`].
#[derive(Debug)]
pub(crate) struct SymmetricMemory<T, S> {
    block: Block,
    /// In elements.
    len: usize,
    /// This rank.
    rank: usize,
    state: PhantomData<(T, S)>,
}

impl<T: Pod, S> SymmetricMemory<T, S> {
    /// The length in elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The number of ranks.
    #[inline]
    pub(crate) fn ranks(&self) -> usize {
        self.block.instances.ranks
    }

    /// Whether this process is a forked child, in which the object does not exist.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        self.block.instances.mapping.forked()
    }

    /// Ends the phase on this rank. The borrow checker sees to it that no reference is left.
    pub(crate) fn leave(self) -> SymmetricMemory<T, Transition> {
        self.enter()
    }

    fn enter<N>(self) -> SymmetricMemory<T, N> {
        let SymmetricMemory { block, len, rank, .. } = self;
        SymmetricMemory { block, len, rank, state: PhantomData }
    }

    /// The address of a rank's instance.
    ///
    /// # Panics
    /// When there is no such rank.
    #[inline]
    fn start(&self, rank: usize) -> *mut T {
        let Block { instances, offset, .. } = &self.block;
        assert!(rank < instances.ranks, "rank {rank} is not one of {} ranks", instances.ranks);
        instances.mapping.start().wrapping_add(rank * instances.stride + offset).cast()
    }

    fn assert_not_forked(&self) {
        assert!(!self.forked(), "a symmetric object does not exist in a forked child");
    }
}

impl<T: Pod> SymmetricMemory<T, Transition> {
    /// A new object of `len` elements in a block that the heap has just given out.
    ///
    /// # Panics
    /// When the block is too short, or not aligned.
    pub(crate) fn new(block: Block, len: usize, rank: usize) -> Self {
        let bytes = len.checked_mul(size_of::<T>()).expect("the block was made for it");
        assert!(bytes <= block.len && rank < block.instances.ranks);
        let memory: Self = SymmetricMemory { block, len, rank, state: PhantomData };
        // Strides are multiples of the alignment, so this holds for all instances if it holds for the first two.
        let aligned = |rank: usize| memory.start(rank).addr().is_multiple_of(align_of::<T>());
        assert!(aligned(0) && aligned(memory.ranks() - 1) && aligned(1.min(memory.ranks() - 1)));
        memory
    }

    /// After every rank has made its last access to the instances of others.
    pub(crate) fn own(self, _: &AllOwn) -> SymmetricMemory<T, Own> {
        self.enter()
    }

    /// After every rank has written for the last time.
    pub(crate) fn read(self, _: AllRead) -> SymmetricMemory<T, Read> {
        self.enter()
    }

    /// After every rank has given up its references.
    pub(crate) fn open(self, _: AllOpen) -> SymmetricMemory<T, Open> {
        self.enter()
    }
}

impl<T: Pod> SymmetricMemory<T, Open> {
    /// A rank's instance.
    ///
    /// # Panics
    /// When there is no such rank.
    #[inline]
    pub(crate) fn instance(&self, rank: usize) -> Instance<'_, T> {
        // SAFETY: I15: inside the mapping, and aligned to the heap's granule. In this phase, which does not end on any rank
        // while this one has `self`, all ranks access it as elements of this type, by this function alone.
        unsafe { Instance::new(self.start(rank), self.len) }
    }
}

impl<T: Pod> SymmetricMemory<T, Own> {
    /// This rank's instance.
    ///
    /// # Panics
    /// In a forked child.
    pub(crate) fn values(&self) -> &[T] {
        self.assert_not_forked();
        // SAFETY: I15: inside the mapping, aligned, any bytes are a `Pod`; no other rank accesses this instance in this
        // phase, which does not end while this rank has `self`.
        unsafe { core::slice::from_raw_parts(self.start(self.rank), self.len) }
    }

    /// The same, to be written.
    ///
    /// # Panics
    /// In a forked child.
    pub(crate) fn values_mut(&mut self) -> &mut [T] {
        self.assert_not_forked();
        // SAFETY: I15: as above, and the exclusive borrow of `self` covers the only reference.
        unsafe { core::slice::from_raw_parts_mut(self.start(self.rank), self.len) }
    }
}

impl<T: Pod> SymmetricMemory<T, Read> {
    /// A rank's instance.
    ///
    /// # Panics
    /// When there is no such rank, and in a forked child.
    pub(crate) fn values_of(&self, rank: usize) -> &[T] {
        self.assert_not_forked();
        // SAFETY: I15: inside the mapping, aligned, any bytes are a `Pod`; no rank writes in this phase, which does not end
        // while this rank has `self`.
        unsafe { core::slice::from_raw_parts(self.start(rank), self.len) }
    }
}
