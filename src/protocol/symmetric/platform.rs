//! What symmetric memory needs from the machine beyond a [`Platform`].

use super::super::{Ordering, Platform};

/// A unit of symmetric memory, which every rank reads and writes: an atomic of one size.
///
/// # Safety
/// The operations have the semantics of Rust's atomics, with at least the ordering given, among all ranks.
pub unsafe trait Cell {
    /// What it holds.
    type Value: Copy;

    /// Reads it.
    fn load(&self, order: Ordering) -> Self::Value;

    /// Writes it.
    fn store(&self, value: Self::Value, order: Ordering);

    /// Writes cells, in any order, as by a loop of [`store`](Self::store).
    #[inline]
    fn store_all(cells: &[Self], values: &[Self::Value], order: Ordering)
    where
        Self: Sized,
    {
        cells.iter().zip(values).for_each(|(cell, value)| cell.store(*value, order));
    }

    /// Reads cells, in any order, as by a loop of [`load`](Self::load).
    #[inline]
    fn load_all(cells: &[Self], values: &mut [Self::Value], order: Ordering)
    where
        Self: Sized,
    {
        cells.iter().zip(values).for_each(|(cell, value)| *value = cell.load(order));
    }
}

/// A cell that is a whole element, and has read-modify-write operations.
///
/// # Safety
/// As [`Cell`].
pub unsafe trait AtomicCell: Cell {
    /// Writes it, and returns what was there before.
    fn swap(&self, value: Self::Value, order: Ordering) -> Self::Value;

    /// Replaces `current` by `new`, or returns what was there instead. Never fails spuriously.
    fn compare_exchange(
        &self,
        current: Self::Value,
        new: Self::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Value, Self::Value>;
}

/// A read-modify-write operation on integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// Adds, and wraps around.
    Add,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// The lesser of both.
    Min,
    /// The greater of both.
    Max,
}

/// An [`AtomicCell`] that holds an integer.
///
/// # Safety
/// As [`Cell`].
pub unsafe trait IntegerCell: AtomicCell {
    /// Applies the operation, and returns what was there before.
    fn fetch(&self, operation: Fetch, value: Self::Value, order: Ordering) -> Self::Value;
}

/// A machine with symmetric memory: cells, fences, and sleeping on what no single word tells.
///
/// The operations on cells are the cells' own. They are called through the machine so that a model can weaken each by the
/// name of its site.
///
/// # Safety
/// As [`Platform`]. `fence` is Rust's. Between [`fence_light`](Self::fence_light) on one rank and
/// [`fence_heavy`](Self::fence_heavy) on another there is the order of two SeqCst fences: of two ranks that each write, then
/// fence, then read what the other writes, at least one reads it. No access to memory may depend on that, only whether a rank sleeps: a
/// system's fence may leave out a thread, and a rank that sleeps naps.
pub unsafe trait SymmetricPlatform: Platform {
    /// A fence of one thread.
    #[track_caller]
    fn fence(&self, site: &'static str, order: Ordering);

    /// The cheap side of an asymmetric fence: what every write pays.
    #[track_caller]
    fn fence_light(&self, site: &'static str);

    /// The expensive side: what a rank pays before it sleeps. It is a SeqCst fence too.
    #[track_caller]
    fn fence_heavy(&self, site: &'static str);

    /// Polls again and again until there is a result, or until it is time to sleep (`None`).
    #[track_caller]
    fn poll<R>(&self, site: &'static str, poll: impl FnMut() -> Option<R>) -> Option<R>;

    /// The end of the next sleep of a wait that ends at the deadline. Not later than that, and so soon that a write of which
    /// nobody told is found in time.
    fn nap(&self, deadline: &Self::Deadline) -> Self::Deadline;

    /// Whether the deadline has passed.
    fn has_passed(&self, deadline: &Self::Deadline) -> bool;

    /// Reads a cell.
    #[inline(always)]
    #[track_caller]
    fn load_cell<C: Cell>(&self, site: &'static str, cell: &C, order: Ordering) -> C::Value {
        let _ = site;
        cell.load(order)
    }

    /// Writes a cell.
    #[inline(always)]
    #[track_caller]
    fn store_cell<C: Cell>(&self, site: &'static str, cell: &C, value: C::Value, order: Ordering) {
        let _ = site;
        cell.store(value, order);
    }

    /// Writes a cell, and returns what was there before.
    #[inline(always)]
    #[track_caller]
    fn swap_cell<C: AtomicCell>(
        &self,
        site: &'static str,
        cell: &C,
        value: C::Value,
        order: Ordering,
    ) -> C::Value {
        let _ = site;
        cell.swap(value, order)
    }

    /// Replaces `current` by `new`, or returns what was there instead. Never fails spuriously.
    #[inline(always)]
    #[track_caller]
    fn exchange_cell<C: AtomicCell>(
        &self,
        site: &'static str,
        cell: &C,
        current: C::Value,
        new: C::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<C::Value, C::Value> {
        let _ = site;
        cell.compare_exchange(current, new, success, failure)
    }

    /// Applies an operation to a cell, and returns what was there before.
    #[inline(always)]
    #[track_caller]
    fn fetch_cell<C: IntegerCell>(
        &self,
        site: &'static str,
        cell: &C,
        operation: Fetch,
        value: C::Value,
        order: Ordering,
    ) -> C::Value {
        let _ = site;
        cell.fetch(operation, value, order)
    }

    /// Writes cells, in any order.
    #[inline(always)]
    #[track_caller]
    fn put_cells<C: Cell>(&self, site: &'static str, cells: &[C], values: &[C::Value], order: Ordering) {
        let _ = site;
        C::store_all(cells, values, order);
    }

    /// Reads cells, in any order.
    #[inline(always)]
    #[track_caller]
    fn get_cells<C: Cell>(&self, site: &'static str, cells: &[C], values: &mut [C::Value], order: Ordering) {
        let _ = site;
        C::load_all(cells, values, order);
    }
}
