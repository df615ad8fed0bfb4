//! Casts from a slice of a generic type to one of the concrete type that it is.

use core::any::TypeId;

/// The same slice, if `T` and `U` are the same type.
///
/// For adapters whose interface is generic over more types than can cross processes.
///
/// ```
/// let numbers = [1.0f64, 2.0];
/// assert_eq!(intranode::cast::slice::<f64, f64>(&numbers), Some(&numbers[..]));
/// assert_eq!(intranode::cast::slice::<f64, u64>(&numbers), None);
/// ```
pub fn slice<T: 'static, U: 'static>(slice: &[T]) -> Option<&[U]> {
    if TypeId::of::<T>() != TypeId::of::<U>() {
        return None;
    }
    // SAFETY: I9: the types are the same, just checked; pointer, length and lifetime are those of a live slice.
    Some(unsafe { core::slice::from_raw_parts(slice.as_ptr().cast(), slice.len()) })
}

/// The same slice, if `T` and `U` are the same type.
///
/// ```
/// let mut numbers = [1.0f64, 2.0];
/// if let Some(numbers) = intranode::cast::slice_mut::<f64, f64>(&mut numbers) {
///     numbers[0] = 3.0;
/// }
/// assert_eq!(numbers, [3.0, 2.0]);
/// assert_eq!(intranode::cast::slice_mut::<f64, u64>(&mut numbers), None);
/// ```
pub fn slice_mut<T: 'static, U: 'static>(slice: &mut [T]) -> Option<&mut [U]> {
    if TypeId::of::<T>() != TypeId::of::<U>() {
        return None;
    }
    // SAFETY: I9: as in `slice`; the result takes over the exclusive borrow.
    Some(unsafe { core::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), slice.len()) })
}
