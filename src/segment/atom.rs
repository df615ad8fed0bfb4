//! The cells of symmetric memory: the standard library's atomics.

use core::fmt;
use core::sync::atomic::{
    AtomicI32, AtomicI64, AtomicIsize, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    Ordering::Relaxed,
};

use bytemuck::Pod;

use crate::copy::relaxed;
use crate::protocol::symmetric::{AtomicCell, Cell, Fetch, IntegerCell};

/// A number that ranks change atomically in symmetric memory: `i32`, `u32`, `i64`, `u64`, `isize`, `usize`, `f32`, `f64`. No
/// other type can be made one.
///
/// ```
/// use intranode::{Atom, Communicator, Error};
///
/// /// The sum of what the ranks have, by an atomic on rank 0.
/// fn swapped<T: Atom>(comm: &Communicator, own: T) -> Result<T, Error> {
///     let last = comm.symmetric::<T>(1)?;
///     let before = last.at(0)?.swap(0, own);
///     comm.barrier()?;
///     Ok(before)
/// }
///
/// let results = intranode::threads(1, |comm| swapped(&comm, 7u32))?;
/// for result in results {
///     assert_eq!(result?, 0);
/// }
/// # Ok::<(), Error>(())
/// ```
pub trait Atom: Pod + PartialOrd + fmt::Debug + sealed::Sealed {
    /// The atomic of the same size. For `f32` and `f64` it holds the bits.
    type Atomic: AtomicCell;

    #[doc(hidden)]
    fn to_cell(self) -> <Self::Atomic as Cell>::Value;

    #[doc(hidden)]
    fn from_cell(value: <Self::Atomic as Cell>::Value) -> Self;
}

/// An [`Atom`] that is an integer.
///
/// ```
/// use intranode::{AtomInt, Communicator, Error};
///
/// fn ticket<T: AtomInt>(comm: &Communicator, one: T) -> Result<T, Error> {
///     let counter = comm.symmetric::<T>(1)?;
///     let ticket = counter.at(0)?.fetch_add(0, one);
///     comm.barrier()?;
///     Ok(ticket)
/// }
///
/// let mut tickets = intranode::threads(3, |comm| ticket(&comm, 1u64))?.into_iter().collect::<Result<Vec<_>, _>>()?;
/// tickets.sort();
/// assert_eq!(tickets, [0, 1, 2]);
/// # Ok::<(), Error>(())
/// ```
pub trait AtomInt: Atom<Atomic: IntegerCell> {}

mod sealed {
    pub trait Sealed {}
}

/// Implements [`Cell`] for atomics that hold a value of their size.
macro_rules! cells {
    ($($atomic:ident $value:ident)*) => {$(
        // SAFETY: I3: the operations are those of the standard library's atomics, with the given orderings; what `relaxed`
        // moves counts as a loop of Relaxed accesses (I15).
        unsafe impl Cell for $atomic {
            type Value = $value;

            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }

            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }

            #[inline(always)]
            fn store_all(cells: &[Self], values: &[$value], order: Ordering) {
                // Not in line, so that the copy of a single value can be.
                #[inline(never)]
                fn several(cells: &[$atomic], values: &[$value]) {
                    let bytes = size_of_val(values);
                    let head = relaxed::head(cells.as_ptr().cast(), bytes) / size_of::<$value>();
                    let (cells_head, cells) = cells.split_at(head);
                    let (values_head, values) = values.split_at(head);
                    cells_head.iter().zip(values_head).for_each(|(cell, value)| cell.store(*value, Relaxed));
                    let (source, target) = (values.as_ptr().cast(), cells.as_ptr().cast_mut().cast());
                    // SAFETY: I15: atomics may be written behind a shared reference; both have this length; a private or
                    // published slice does not overlap with cells that are open.
                    let done = unsafe { relaxed::copy_lines(source, target, size_of_val(values)) };
                    let rest = cells.iter().zip(values).skip(done / size_of::<$value>());
                    rest.for_each(|(cell, value)| cell.store(*value, Relaxed));
                }

                assert!(cells.len() == values.len() && order == Relaxed);
                match (cells, values) {
                    ([cell], [value]) => cell.store(*value, order),
                    _ => several(cells, values),
                }
            }

            #[inline(always)]
            fn load_all(cells: &[Self], values: &mut [$value], order: Ordering) {
                // As above.
                #[inline(never)]
                fn several(cells: &[$atomic], values: &mut [$value]) {
                    let bytes = size_of_val(values);
                    let head = relaxed::head(values.as_ptr().cast(), bytes) / size_of::<$value>();
                    let (cells_head, cells) = cells.split_at(head);
                    let (values_head, values) = values.split_at_mut(head);
                    cells_head.iter().zip(values_head).for_each(|(cell, value)| *value = cell.load(Relaxed));
                    let (target, bytes) = (values.as_mut_ptr().cast(), size_of_val(values));
                    // SAFETY: I15, as above.
                    let done = unsafe { relaxed::copy_lines(cells.as_ptr().cast(), target, bytes) };
                    let rest = cells.iter().zip(values).skip(done / size_of::<$value>());
                    rest.for_each(|(cell, value)| *value = cell.load(Relaxed));
                }

                assert!(cells.len() == values.len() && order == Relaxed);
                match (cells, &mut *values) {
                    ([cell], [value]) => *value = cell.load(order),
                    _ => several(cells, values),
                }
            }
        }
    )*};
}

/// Implements [`IntegerCell`].
macro_rules! integers {
    ($($atomic:ident $value:ident)*) => {$(
        // SAFETY: I3, as above.
        unsafe impl AtomicCell for $atomic {
            #[inline(always)]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }

            #[inline(always)]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }

        // SAFETY: I3, as above.
        unsafe impl IntegerCell for $atomic {
            #[inline(always)]
            fn fetch(&self, operation: Fetch, value: $value, order: Ordering) -> $value {
                match operation {
                    Fetch::Add => self.fetch_add(value, order),
                    Fetch::And => self.fetch_and(value, order),
                    Fetch::Or => self.fetch_or(value, order),
                    Fetch::Xor => self.fetch_xor(value, order),
                    Fetch::Min => self.fetch_min(value, order),
                    Fetch::Max => self.fetch_max(value, order),
                }
            }
        }
    )*};
}

/// Implements [`Atom`] for integers, whose atomics hold them as they are.
macro_rules! integer_atoms {
    ($($value:ident $atomic:ident)*) => {$(
        impl sealed::Sealed for $value {}
        impl AtomInt for $value {}
        impl Atom for $value {
            type Atomic = $atomic;

            #[inline(always)]
            fn to_cell(self) -> $value {
                self
            }

            #[inline(always)]
            fn from_cell(value: $value) -> Self {
                value
            }
        }
    )*};
}

/// Implements [`Atom`] for floating-point numbers, whose atomics hold their bits.
macro_rules! float_atoms {
    ($($value:ident $atomic:ident $bits:ident)*) => {$(
        impl sealed::Sealed for $value {}
        impl Atom for $value {
            type Atomic = $atomic;

            #[inline(always)]
            fn to_cell(self) -> $bits {
                self.to_bits()
            }

            #[inline(always)]
            fn from_cell(bits: $bits) -> Self {
                $value::from_bits(bits)
            }
        }
    )*};
}

cells! { AtomicU8 u8 AtomicU16 u16 AtomicU32 u32 AtomicU64 u64 AtomicI32 i32 AtomicI64 i64 AtomicIsize isize AtomicUsize usize }
integers! { AtomicU32 u32 AtomicU64 u64 AtomicI32 i32 AtomicI64 i64 AtomicIsize isize AtomicUsize usize }
integer_atoms! { i32 AtomicI32 u32 AtomicU32 i64 AtomicI64 u64 AtomicU64 isize AtomicIsize usize AtomicUsize }
float_atoms! { f32 AtomicU32 u32 f64 AtomicU64 u64 }
