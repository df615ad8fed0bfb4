//! Atomic operations on the instance of another rank.

use crate::error::Operation;
use crate::protocol::symmetric::Fetch;
use crate::segment::atom::{Atom, AtomInt};
use crate::segment::unit::unstopped;
use crate::symmetric::remote::Remote;

impl<'a, T: Atom> Remote<'a, T> {
    /// Writes one element atomically. Order as for [`store`](Remote::store); the name is that of OpenSHMEM's `atomic_set`. Not
    /// collective. Example: [`swap`](Remote::swap).
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn set(&self, index: usize, value: T) {
        self.store(index, value);
    }

    /// Writes one element, and returns what was there before. Not collective.
    ///
    /// ```
    /// let before = intranode::threads(1, |comm| {
    ///     let object = comm.symmetric::<f32>(1)?;
    ///     object.at(0)?.set(0, 2.5);
    ///     Ok::<_, intranode::Error>((object.at(0)?.swap(0, 1.5), object.at(0)?.load(0)))
    /// })?;
    /// for before in before {
    ///     assert_eq!(before?, (2.5, 1.5));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn swap(&self, index: usize, value: T) -> T {
        self.count(Operation::Atomic, size_of::<T>());
        let before = self.access.swap(self.rank, self.instance.atomic(index), value.to_cell());
        T::from_cell(unstopped(before))
    }

    /// Replaces `current` by `new`, or returns what was there instead (`Err`). Floating-point numbers are compared bit by bit.
    /// Not collective.
    ///
    /// ```
    /// let results = intranode::threads(1, |comm| {
    ///     let object = comm.symmetric::<i32>(1)?;
    ///     let remote = object.at(0)?;
    ///     assert_eq!(remote.compare_swap(0, 0, 5), Ok(0));
    ///     assert_eq!(remote.compare_swap(0, 0, 6), Err(5));
    ///     Ok::<_, intranode::Error>(remote.load(0))
    /// })?;
    /// for result in results {
    ///     assert_eq!(result?, 5);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// What the element held, if that was not `current`. Nothing has changed then.
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn compare_swap(&self, index: usize, current: T, new: T) -> Result<T, T> {
        self.count(Operation::Atomic, size_of::<T>());
        let cell = self.instance.atomic(index);
        let result = self.access.compare_swap(self.rank, cell, current.to_cell(), new.to_cell());
        unstopped(result).map(T::from_cell).map_err(T::from_cell)
    }

    /// Replaces one element by a function of it, and returns what was there before. The function may be called several times,
    /// if other ranks change the element meanwhile. Not collective.
    ///
    /// ```
    /// let sums = intranode::threads(3, |comm| {
    ///     let sum = comm.symmetric::<f64>(1)?;
    ///     sum.at(0)?.fetch_update(0, |sum| sum + 0.5);
    ///     comm.barrier()?;
    ///     Ok::<_, intranode::Error>(sum.at(0)?.load(0))
    /// })?;
    /// for sum in sums {
    ///     assert_eq!(sum?, 1.5);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn fetch_update(&self, index: usize, mut update: impl FnMut(T) -> T) -> T {
        let mut current = self.load(index);
        loop {
            match self.compare_swap(index, current, update(current)) {
                Ok(before) => return before,
                Err(now) => current = now,
            }
        }
    }

    /// All elements as the standard library's atomics: for whatever access this type has no method for. A write through them
    /// rings no bell, so that a rank which sleeps until the element changes finds it within 10 ms, or at once after
    /// [`Communicator::notify`](crate::Communicator::notify). Not collective.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::Relaxed;
    ///
    /// let sums = intranode::threads(2, |comm| {
    ///     let object = comm.symmetric::<u32>(2)?;
    ///     object.at(1)?.atomics()[0].fetch_add(4, Relaxed);
    ///     comm.barrier()?;
    ///     Ok::<_, intranode::Error>(object.at(1)?.load(0))
    /// })?;
    /// for sum in sums {
    ///     assert_eq!(sum?, 8);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    #[inline]
    pub fn atomics(&self) -> &'a [T::Atomic] {
        self.instance.atomics()
    }
}

impl<T: AtomInt> Remote<'_, T> {
    /// Adds to one element, and wraps around. [`fetch_add`](Remote::fetch_add) costs the same. Not collective.
    ///
    /// ```
    /// let sums = intranode::threads(4, |comm| {
    ///     let sum = comm.symmetric::<u64>(1)?;
    ///     sum.at(3)?.add(0, comm.rank() as u64);
    ///     comm.barrier()?;
    ///     Ok::<_, intranode::Error>(sum.at(3)?.load(0))
    /// })?;
    /// for sum in sums {
    ///     assert_eq!(sum?, 0 + 1 + 2 + 3);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn add(&self, index: usize, value: T) {
        self.fetch_add(index, value);
    }

    /// Adds to one element, and wraps around. Returns what was there before. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(1, |comm| {
    ///     let object = comm.symmetric::<i64>(1)?;
    ///     let remote = object.at(0)?;
    ///     remote.store(0, 5);
    ///     Ok::<_, intranode::Error>((remote.fetch_add(0, 3), remote.load(0)))
    /// })?;
    /// for result in results {
    ///     assert_eq!(result?, (5, 8));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn fetch_add(&self, index: usize, value: T) -> T {
        self.fetch(Fetch::Add, index, value)
    }

    /// Bitwise and with one element. Returns what was there before. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(1, |comm| {
    ///     let object = comm.symmetric::<i64>(1)?;
    ///     let remote = object.at(0)?;
    ///     remote.store(0, 6);
    ///     Ok::<_, intranode::Error>((remote.fetch_and(0, 3), remote.load(0)))
    /// })?;
    /// for result in results {
    ///     assert_eq!(result?, (6, 2));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn fetch_and(&self, index: usize, value: T) -> T {
        self.fetch(Fetch::And, index, value)
    }

    /// Bitwise or with one element. Returns what was there before. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(1, |comm| {
    ///     let object = comm.symmetric::<i64>(1)?;
    ///     let remote = object.at(0)?;
    ///     remote.store(0, 6);
    ///     Ok::<_, intranode::Error>((remote.fetch_or(0, 3), remote.load(0)))
    /// })?;
    /// for result in results {
    ///     assert_eq!(result?, (6, 7));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn fetch_or(&self, index: usize, value: T) -> T {
        self.fetch(Fetch::Or, index, value)
    }

    /// Bitwise exclusive or with one element. Returns what was there before. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(1, |comm| {
    ///     let object = comm.symmetric::<i64>(1)?;
    ///     let remote = object.at(0)?;
    ///     remote.store(0, 6);
    ///     Ok::<_, intranode::Error>((remote.fetch_xor(0, 3), remote.load(0)))
    /// })?;
    /// for result in results {
    ///     assert_eq!(result?, (6, 5));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn fetch_xor(&self, index: usize, value: T) -> T {
        self.fetch(Fetch::Xor, index, value)
    }

    /// Replaces one element by the lesser of it and the value. Returns what was there before. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(1, |comm| {
    ///     let object = comm.symmetric::<i64>(1)?;
    ///     let remote = object.at(0)?;
    ///     remote.store(0, 6);
    ///     Ok::<_, intranode::Error>((remote.fetch_min(0, 3), remote.load(0)))
    /// })?;
    /// for result in results {
    ///     assert_eq!(result?, (6, 3));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn fetch_min(&self, index: usize, value: T) -> T {
        self.fetch(Fetch::Min, index, value)
    }

    /// Replaces one element by the greater of it and the value. Returns what was there before. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(1, |comm| {
    ///     let object = comm.symmetric::<i64>(1)?;
    ///     let remote = object.at(0)?;
    ///     remote.store(0, 6);
    ///     Ok::<_, intranode::Error>((remote.fetch_max(0, 9), remote.load(0)))
    /// })?;
    /// for result in results {
    ///     assert_eq!(result?, (6, 9));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn fetch_max(&self, index: usize, value: T) -> T {
        self.fetch(Fetch::Max, index, value)
    }

    #[inline]
    #[track_caller]
    fn fetch(&self, operation: Fetch, index: usize, value: T) -> T {
        self.count(Operation::Atomic, size_of::<T>());
        let before = self.access.fetch(self.rank, self.instance.atomic(index), operation, value.to_cell());
        T::from_cell(unstopped(before))
    }
}
