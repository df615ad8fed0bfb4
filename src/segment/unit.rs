//! A rank's instance of a symmetric object in its open phase, seen as cells.
//!
//! All ranks access an element in the same units: Rust's memory model wants atomic accesses that are not ordered to be apart,
//! or of the same size. So the unit follows from the type alone, which all ranks have agreed on.

use core::any::TypeId;
use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use bytemuck::Pod;

use super::atom::Atom;
use super::platform::ShmPlatform;
use crate::protocol::Killed;
use crate::protocol::symmetric::access::Signalling;
use crate::protocol::symmetric::{Cell, IntegerCell, OneSided};

/// One rank's access to the symmetric memory of a mapped segment.
pub(crate) type Access<'a> = OneSided<'a, ShmPlatform>;

/// An unsigned number of the size of a unit.
trait Unit: Pod {
    /// Its atomic.
    type Cell: Cell<Value = Self>;
}

macro_rules! units {
    ($($unit:ident $cell:ident)*) => {$(
        impl Unit for $unit {
            type Cell = $cell;
        }
    )*};
}

units! { u8 AtomicU8 u16 AtomicU16 u32 AtomicU32 u64 AtomicU64 }

/// The unit of accesses to elements of `T`: its alignment up to 8 bytes, and all of a 64-bit number also where that is aligned
/// to 4.
#[inline(always)]
fn unit<T: Pod>() -> usize {
    let wide = size_of::<T>() == 8
        && [TypeId::of::<u64>(), TypeId::of::<i64>(), TypeId::of::<f64>()].contains(&TypeId::of::<T>());
    if wide { 8 } else { align_of::<T>().min(8) }
}

/// Evaluates an expression with `$U` as the unit of `T`.
macro_rules! by_unit {
    ($T:ty, $U:ident => $body:expr) => {
        match unit::<$T>() {
            1 => {
                type $U = u8;
                $body
            }
            2 => {
                type $U = u16;
                $body
            }
            4 => {
                type $U = u32;
                $body
            }
            _ => {
                type $U = u64;
                $body
            }
        }
    };
}

// Not in line, so that what is checked can stay in registers.
#[cold]
#[inline(never)]
#[track_caller]
fn outside(start: usize, end: usize, len: usize) -> ! {
    panic!("elements {start}..{end} of a symmetric object of length {len}")
}

/// A rank's instance of an object of `len` elements, in its open phase.
pub(crate) struct Instance<'a, T> {
    start: *mut T,
    len: usize,
    object: PhantomData<&'a [T]>,
}

impl<T> Clone for Instance<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Instance<'_, T> {}

// SAFETY: I15: only an address; all access through it is atomic, also by several threads of a rank, and moves values of `T`
// between threads.
unsafe impl<T: Send> Send for Instance<'_, T> {}
// SAFETY: I15: as above.
unsafe impl<T: Send> Sync for Instance<'_, T> {}

impl<'a, T: Pod> Instance<'a, T> {
    /// The instance at `start`.
    ///
    /// # Safety
    /// For as long as `'a`: `start` is valid for `len` elements and aligned to 128 bytes, the object is in its open phase on
    /// all ranks, all of them have it as one of elements of `T`, and nothing accesses it but values of this type.
    #[inline]
    pub(crate) unsafe fn new(start: *mut T, len: usize) -> Self {
        Instance { start, len, object: PhantomData }
    }

    /// The length in elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address.
    #[inline]
    pub(crate) fn start(&self) -> *mut T {
        self.start
    }

    /// Panics, as a slice does, unless the range is inside.
    #[inline]
    #[track_caller]
    fn check(&self, range: &Range<usize>) {
        if range.start > range.end || range.end > self.len {
            outside(range.start, range.end, self.len);
        }
    }

    /// The cells of these elements.
    #[inline]
    #[track_caller]
    fn cells<U: Unit>(self, range: Range<usize>) -> &'a [U::Cell] {
        self.check(&range);
        let units = (range.end - range.start) * size_of::<T>() / size_of::<U>();
        // SAFETY: I15: inside the instance, aligned to its unit; the object is accessed in these units only, atomically.
        unsafe { core::slice::from_raw_parts(self.start.wrapping_add(range.start).cast(), units) }
    }

    /// The range of `count` elements from `index` on.
    #[inline]
    #[track_caller]
    fn range(self, index: usize, count: usize) -> Range<usize> {
        let end = index.checked_add(count);
        index..end.unwrap_or_else(|| panic!("{count} elements from index {index} on are no range"))
    }

    /// Writes elements of `target`'s instance, which this is.
    #[inline]
    #[track_caller]
    pub(crate) fn put(self, access: &Access<'_>, target: usize, index: usize, values: &[T]) {
        let range = self.range(index, values.len());
        let done = by_unit!(T, U => access.put(target, self.cells::<U>(range), bytemuck::cast_slice(values)));
        unstopped(done);
    }

    /// Reads elements.
    #[inline]
    #[track_caller]
    pub(crate) fn get(self, access: &Access<'_>, index: usize, values: &mut [T]) {
        let range = self.range(index, values.len());
        by_unit!(T, U => access.get(self.cells::<U>(range), bytemuck::cast_slice_mut::<T, U>(values)));
    }

    /// Writes one element, after what was written before.
    #[inline]
    #[track_caller]
    pub(crate) fn store(self, access: &Access<'_>, target: usize, index: usize, value: T) {
        let range = self.range(index, 1);
        let done = by_unit!(T, U => match (self.cells::<U>(range), bytemuck::cast_slice(core::slice::from_ref(&value))) {
            ([cell], [unit]) => access.store(target, cell, *unit),
            // No single unit: the fence orders all of them.
            (cells, units) => {
                access.fence();
                access.put(target, cells, units)
            }
        });
        unstopped(done);
    }

    /// Reads one element, before what is read afterwards.
    #[inline]
    #[track_caller]
    pub(crate) fn load(self, access: &Access<'_>, index: usize) -> T {
        let range = self.range(index, 1);
        let mut value = T::zeroed();
        by_unit!(T, U => {
            match (self.cells::<U>(range), bytemuck::cast_slice_mut(core::slice::from_mut(&mut value))) {
                ([cell], [unit]) => *unit = access.load(cell),
                (cells, units) => access.get(cells, units),
            }
        });
        value
    }

    /// Panics, as a slice does, unless these elements are all inside.
    #[track_caller]
    fn check_strided(self, index: usize, stride: usize, count: usize) {
        if let Some(last) = count.checked_sub(1) {
            // Those before it have smaller indices.
            self.check(&self.range(strided(index, stride, last), 1));
        }
    }

    /// Writes elements that are `stride` elements apart.
    #[track_caller]
    pub(crate) fn put_strided(
        self,
        access: &Access<'_>,
        target: usize,
        index: usize,
        stride: usize,
        values: &[T],
    ) {
        // Before anything is written.
        self.check_strided(index, stride, values.len());
        for (number, value) in values.iter().enumerate() {
            let range = self.range(strided(index, stride, number), 1);
            by_unit!(T, U => {
                let units: &[U] = bytemuck::cast_slice(core::slice::from_ref(value));
                self.cells::<U>(range).iter().zip(units).for_each(|(cell, unit)| access.put_cell(cell, *unit));
            });
        }
        unstopped(access.put_done(target));
    }

    /// Reads elements that are `stride` elements apart.
    #[track_caller]
    pub(crate) fn get_strided(self, access: &Access<'_>, index: usize, stride: usize, values: &mut [T]) {
        self.check_strided(index, stride, values.len());
        for (number, value) in values.iter_mut().enumerate() {
            let range = self.range(strided(index, stride, number), 1);
            by_unit!(T, U => {
                let units: &mut [U] = bytemuck::cast_slice_mut(core::slice::from_mut(value));
                self.cells::<U>(range).iter().zip(units).for_each(|(cell, unit)| *unit = access.get_cell(cell));
            });
        }
        access.get_done();
    }

    /// Writes elements of `target`'s instance, and then a signal of its.
    #[inline]
    #[track_caller]
    pub(crate) fn put_signal<S: IntegerCell>(
        self,
        access: &Access<'_>,
        target: usize,
        (index, values): (usize, &[T]),
        signal: &S,
        (signalling, value): (Signalling, S::Value),
    ) {
        let range = self.range(index, values.len());
        let done = by_unit!(T, U => {
            let cells = (self.cells::<U>(range), bytemuck::cast_slice(values));
            access.put_signal(target, cells, signal, signalling, value)
        });
        unstopped(done);
    }
}

impl<'a, T: Atom> Instance<'a, T> {
    /// All elements as atomics.
    #[inline]
    pub(crate) fn atomics(self) -> &'a [T::Atomic] {
        const { assert!(size_of::<T>() == size_of::<T::Atomic>()) };
        // SAFETY: I15: inside the instance; aligned, since the instance is aligned to more than an element's size; the object
        // is accessed in these units only, atomically.
        unsafe { core::slice::from_raw_parts(self.start.cast(), self.len) }
    }

    /// One element as an atomic.
    #[inline]
    #[track_caller]
    pub(crate) fn atomic(self, index: usize) -> &'a T::Atomic {
        self.check(&self.range(index, 1));
        &self.atomics()[index]
    }
}

/// The index of the element of this number, of those that are `stride` apart.
#[track_caller]
fn strided(index: usize, stride: usize, number: usize) -> usize {
    assert!(stride > 0, "a stride is at least 1 element");
    number.checked_mul(stride).and_then(|offset| offset.checked_add(index)).unwrap_or(usize::MAX)
}

/// In production no rank is stopped by a test.
#[inline(always)]
pub(crate) fn unstopped<R>(result: Result<R, Killed>) -> R {
    result.unwrap_or_else(|Killed| unreachable!("only a test stops a rank"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_follows_from_the_type() {
        assert_eq!([unit::<u8>(), unit::<[u8; 24]>(), unit::<u16>(), unit::<f32>()], [1, 1, 2, 4]);
        assert_eq!([unit::<u64>(), unit::<i64>(), unit::<f64>()], [8; 3]);
        assert_eq!([unit::<u128>(), unit::<()>()], [align_of::<u128>().min(8), 1]);
    }
}
