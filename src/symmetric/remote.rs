//! One-sided access to the instance of another rank: put and get.

use std::fmt;

use bytemuck::Pod;

use crate::codes::Codes;
use crate::error::{Error, Operation};
use crate::segment::unit::{Access, Instance};
use crate::symmetric::handle::Symmetric;

/// The instance that one rank has of a [`Symmetric`] object, for access by this rank while the object is open. No other rank
/// takes part.
///
/// A value of this type is `Copy`, and can be used by any thread of the rank. All indices and lengths are in elements; one that
/// reaches past the end is a panic, as for a slice.
/// In a forked child, in which the memory does not exist, an access through one that was made before the fork is a fault, as through a
/// reference. [`Symmetric::at`] refuses there.
///
/// Accesses of other ranks at the same time are no data race: elements are accessed in units of their alignment, up to 8
/// bytes. A unit is read as one rank has written it, never as a mixture; an element of several units may be one.
///
/// | | what it orders |
/// | --- | --- |
/// | [`store`](Remote::store) | what this rank wrote before is seen before it |
/// | [`load`](Remote::load), [`get`](Remote::get) | what this rank reads later is read after it |
/// | [`put`](Remote::put), [`put_strided`](Remote::put_strided) | nothing: see [`Communicator::fence`](crate::Communicator::fence) |
/// | read-modify-write operations | both |
///
/// ```
/// let results = intranode::threads(3, |comm| {
///     let ring = comm.symmetric::<u64>(4)?;
///     // Each rank writes into the memory of the next one.
///     let next = ring.at((comm.rank() + 1) % comm.size())?;
///     next.put(0, &[comm.rank() as u64; 4]);
///     comm.barrier()?;
///     let mut own = [0; 4];
///     ring.at(comm.rank())?.get(0, &mut own);
///     Ok::<_, intranode::Error>(own)
/// })?;
/// let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(results, [[2; 4], [0; 4], [1; 4]]);
/// # Ok::<(), intranode::Error>(())
/// ```
pub struct Remote<'a, T> {
    pub(super) access: Access<'a>,
    pub(super) instance: Instance<'a, T>,
    pub(super) rank: usize,
}

impl<T> Clone for Remote<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Remote<'_, T> {}

impl<T: Pod> Symmetric<T> {
    /// The instance of a rank, which may be this one. Not collective. Example: [`Remote`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`]; [`Error::Forked`] in a forked child.
    #[inline]
    pub fn at(&self, rank: usize) -> Result<Remote<'_, T>, Error> {
        let instance = self.instance(rank)?;
        Ok(Remote { access: self.access(), instance, rank })
    }
}

impl<'a, T: Pod> Remote<'a, T> {
    /// The rank whose instance it is. Not collective.
    ///
    /// ```
    /// let ranks = intranode::threads(2, |comm| Ok::<_, intranode::Error>(comm.symmetric::<u8>(1)?.at(1)?.rank()))?;
    /// for rank in ranks {
    ///     assert_eq!(rank?, 1);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of elements: the same on all ranks. Not collective.
    ///
    /// ```
    /// let lengths = intranode::threads(2, |comm| {
    ///     let object = comm.symmetric::<u8>(7)?;
    ///     let remote = object.at(1)?;
    ///     Ok::<_, intranode::Error>((remote.len(), remote.is_empty()))
    /// })?;
    /// for length in lengths {
    ///     assert_eq!(length?, (7, false));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    #[inline]
    pub fn len(&self) -> usize {
        self.instance.len()
    }

    /// Whether there are no elements. Not collective. Example: [`len`](Remote::len).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes one element. What this rank wrote before, to any rank, is seen by every rank that sees this value. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(2, |comm| {
    ///     let object = comm.symmetric::<f64>(2)?;
    ///     object.at(1 - comm.rank())?.store(1, 0.5 + comm.rank() as f64);
    ///     comm.barrier()?;
    ///     Ok::<_, intranode::Error>(object.at(comm.rank())?.load(1))
    /// })?;
    /// let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(results, [1.5, 0.5]);
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn store(&self, index: usize, value: T) {
        self.count(Operation::Put, size_of::<T>());
        self.instance.store(&self.access, self.rank, index, value);
    }

    /// Reads one element. What this rank reads afterwards is read after it. Not collective. Example: [`store`](Remote::store).
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn load(&self, index: usize) -> T {
        self.count(Operation::Get, size_of::<T>());
        self.instance.load(&self.access, index)
    }

    /// Writes elements from `index` on: one copy, which is complete for this rank when it returns. Other ranks see the
    /// elements in any order; [`Communicator::fence`](crate::Communicator::fence), [`quiet`](crate::Communicator::quiet), a
    /// signal, a [`store`](Remote::store) or a barrier orders them. Not collective. Example: [`Remote`].
    ///
    /// # Panics
    /// When the elements reach past the end.
    #[inline]
    #[track_caller]
    pub fn put(&self, index: usize, values: &[T]) {
        let start = self.count(Operation::Put, size_of_val(values));
        self.instance.put(&self.access, self.rank, index, values);
        self.end(Operation::Put, size_of_val(values), start);
    }

    /// Reads elements from `index` on. What this rank reads afterwards is read after them. Not collective. Example:
    /// [`Remote`].
    ///
    /// # Panics
    /// When the elements reach past the end.
    #[inline]
    #[track_caller]
    pub fn get(&self, index: usize, values: &mut [T]) {
        let start = self.count(Operation::Get, size_of_val(values));
        self.instance.get(&self.access, index, values);
        self.end(Operation::Get, size_of_val(values), start);
    }

    /// Writes elements that are `stride` elements apart: the first at `index`. What is between them does not change. Order as
    /// for [`put`](Remote::put). Not collective.
    ///
    /// ```
    /// let results = intranode::threads(2, |comm| {
    ///     // A column of a matrix of 3 × 4.
    ///     let matrix = comm.symmetric::<u32>(12)?;
    ///     if comm.rank() == 0 {
    ///         matrix.at(1)?.put_strided(2, 4, &[1, 2, 3]);
    ///     }
    ///     comm.barrier()?;
    ///     let mut column = [0; 3];
    ///     matrix.at(1)?.get_strided(2, 4, &mut column);
    ///     Ok::<_, intranode::Error>((column, matrix.at(1)?.load(3)))
    /// })?;
    /// for result in results {
    ///     assert_eq!(result?, ([1, 2, 3], 0));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Panics
    /// When the elements reach past the end, or the stride is 0 and there are elements.
    #[track_caller]
    pub fn put_strided(&self, index: usize, stride: usize, values: &[T]) {
        let start = self.count(Operation::Put, size_of_val(values));
        self.instance.put_strided(&self.access, self.rank, index, stride, values);
        self.end(Operation::Put, size_of_val(values), start);
    }

    /// Reads elements that are `stride` elements apart: the first at `index`. Not collective. Example:
    /// [`put_strided`](Remote::put_strided).
    ///
    /// # Panics
    /// When the elements reach past the end, or the stride is 0 and there are elements.
    #[track_caller]
    pub fn get_strided(&self, index: usize, stride: usize, values: &mut [T]) {
        let start = self.count(Operation::Get, size_of_val(values));
        self.instance.get_strided(&self.access, index, stride, values);
        self.end(Operation::Get, size_of_val(values), start);
    }

    /// The address of the instance in this process: what `shmem_ptr` returns. It is valid as long as the object. Not
    /// collective.
    ///
    /// Only atomic accesses of this type's units may be made through it while the object is open, and they ring no bell: see
    /// [`Communicator::notify`](crate::Communicator::notify). For numbers [`atomics`](Remote::atomics) is the safe form.
    ///
    /// ```
    /// let apart = intranode::threads(2, |comm| {
    ///     let object = comm.symmetric::<u64>(3)?;
    ///     Ok::<_, intranode::Error>(object.at(0)?.as_ptr() != object.at(1)?.as_ptr())
    /// })?;
    /// for apart in apart {
    ///     assert!(apart?);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    #[inline]
    pub fn as_ptr(&self) -> *mut T {
        self.instance.start()
    }
}

impl<T> Remote<'_, T> {
    /// Counts an access, with `INTRANODE_REPORT`. When it began, if it is timed; else 0.
    #[inline(always)]
    pub(super) fn count(&self, operation: Operation, bytes: usize) -> u64 {
        access_begins(&self.access, operation, bytes)
    }

    #[inline(always)]
    fn end(&self, operation: Operation, bytes: usize, start: u64) {
        access_ends(&self.access, operation, bytes, start);
    }
}

/// Counts an access, with `INTRANODE_REPORT`. When it began, if it is timed; else 0.
#[inline(always)]
pub(super) fn access_begins(access: &Access<'_>, operation: Operation, bytes: usize) -> u64 {
    match access.platform().recorder {
        None => 0,
        Some(lane) => lane.begin_access(operation.code(), bytes),
    }
}

/// The access has ended.
#[inline(always)]
pub(super) fn access_ends(access: &Access<'_>, operation: Operation, bytes: usize, start: u64) {
    if start != 0
        && let Some(lane) = access.platform().recorder
    {
        lane.end_access(operation.code(), bytes, start);
    }
}

impl<T> fmt::Debug for Remote<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("rank", &self.rank).finish_non_exhaustive()
    }
}
