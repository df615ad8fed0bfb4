//! What can be sent, and what can be reduced.

use std::any::TypeId;
use std::borrow::Cow;
use std::fmt;

use bytemuck::Pod;

use crate::codes::codes;

codes! {
    /// An element-wise reduction.
    ///
    /// The fold goes from rank 0's value to the last rank's, one after the other, so the result has the same bits on
    /// every rank and in every run.
    ///
    /// * Integer sums and products wrap.
    /// * A floating-point sum or product that is not a number is the type's canonical quiet NaN, whatever NaNs went in.
    /// * `Min` and `Max` of floating-point values follow IEEE 754-2019's `minimum` and `maximum`: a NaN from any rank
    ///   gives the canonical NaN, and −0 is less than +0.
    /// * Logical reductions are those of `bool`, and of integers, of which each but 0 counts as true; the result is 0 or 1.
    /// * `MinLoc` and `MaxLoc` are those of pairs of a number and an index: the least or greatest number, and of equal numbers
    ///   that with the lowest index. Numbers compare as for `Min` and `Max`: a NaN from any rank gives a NaN, with its index.
    /// * Complex numbers (with the feature `num-complex`) have sums and products.
    /// * A result of one rank's value is that value, unchanged: with one rank, in a scan on rank 0, in an exscan on rank 1.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let results = intranode::threads(3, |comm| {
    ///     let value = [0.1, 0.2, 0.3][comm.rank()];
    ///     let (mut sum, mut greatest) = ([value], [value]);
    ///     comm.allreduce_in_place(&mut sum, ReduceOp::Sum)?;
    ///     comm.allreduce_in_place(&mut greatest, ReduceOp::Max)?;
    ///     Ok::<_, intranode::Error>((sum[0], greatest[0]))
    /// })?;
    /// for result in results {
    ///     // In rank order: another order gives other bits.
    ///     assert_eq!(result?, ((0.1 + 0.2) + 0.3, 0.3));
    /// }
    /// assert!(ReduceOp::BitOr.is_bitwise() && !ReduceOp::Sum.is_bitwise());
    /// # Ok::<(), intranode::Error>(())
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum ReduceOp: u8 {
        /// The sum.
        Sum = 1,
        /// The product.
        Prod = 2,
        /// The least value.
        Min = 3,
        /// The greatest value.
        Max = 4,
        /// Bitwise and, of integers.
        BitAnd = 5,
        /// Bitwise or, of integers.
        BitOr = 6,
        /// Bitwise exclusive or, of integers.
        BitXor = 7,
        /// Logical and, of `bool` or integers.
        LogicalAnd = 8,
        /// Logical or, of `bool` or integers.
        LogicalOr = 9,
        /// Logical exclusive or, of `bool` or integers.
        LogicalXor = 10,
        /// The least number of pairs, with its index.
        MinLoc = 11,
        /// The greatest number of pairs, with its index.
        MaxLoc = 12,
    }
}

impl ReduceOp {
    /// Whether it combines the bits of integers. Example: [`ReduceOp`].
    pub fn is_bitwise(self) -> bool {
        matches!(self, ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor)
    }

    fn is_logical(self) -> bool {
        matches!(self, ReduceOp::LogicalAnd | ReduceOp::LogicalOr | ReduceOp::LogicalXor)
    }

    fn is_located(self) -> bool {
        matches!(self, ReduceOp::MinLoc | ReduceOp::MaxLoc)
    }

    fn is_arithmetic(self) -> bool {
        !(self.is_bitwise() || self.is_logical() || self.is_located())
    }

    /// For which types it is defined, in words.
    pub(crate) fn types(self) -> &'static str {
        match self {
            ReduceOp::Sum | ReduceOp::Prod => "numbers and complex numbers",
            ReduceOp::Min | ReduceOp::Max => "numbers",
            ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => "integers",
            ReduceOp::LogicalAnd | ReduceOp::LogicalOr | ReduceOp::LogicalXor => "bool and integers",
            ReduceOp::MinLoc | ReduceOp::MaxLoc => "pairs (number, usize)",
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A type whose values can be reduced: a [`Number`]; `bool`; a pair `(number, usize)` of a value and its index; with the
/// feature `num-complex`, `Complex<f32>` and `Complex<f64>`. No other type can be made one. [`ReduceOp`] says which reductions
/// each has.
///
/// For `bool` and pairs a call takes a copy of the buffers.
///
/// ```
/// use intranode::ReduceOp;
///
/// let results = intranode::threads(3, |comm| {
///     let value = [2.5, 0.5, 4.0][comm.rank()];
///     let mut least = [(value, comm.rank())];
///     comm.allreduce_in_place(&mut least, ReduceOp::MinLoc)?;
///     let mut all_positive = [value > 0.0];
///     comm.allreduce_in_place(&mut all_positive, ReduceOp::LogicalAnd)?;
///     Ok::<_, intranode::Error>((least[0], all_positive[0]))
/// })?;
/// for result in results {
///     assert_eq!(result?, ((0.5, 1), true));
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
pub trait Reducible: sealed::Sealed {}

/// A number that can be reduced: `u8` to `u64`, `i8` to `i64`, `usize`, `isize`, `f32`, `f64`. No other type can be made one.
///
/// ```
/// use intranode::{Communicator, Error, Number, ReduceOp};
///
/// fn greatest<T: Number>(comm: &Communicator, own: T) -> Result<T, Error> {
///     let mut value = [own];
///     comm.allreduce_in_place(&mut value, ReduceOp::Max)?;
///     Ok(value[0])
/// }
///
/// let results = intranode::threads(3, |comm| greatest(&comm, comm.rank() as i16 - 2))?;
/// for result in results {
///     assert_eq!(result?, 0);
/// }
/// # Ok::<(), Error>(())
/// ```
pub trait Number: Pod + Reducible + sealed::Sealed<Repr = Self> {}

pub(crate) mod sealed {
    use std::borrow::Cow;

    use bytemuck::Pod;

    use super::ReduceOp;

    pub trait Sealed: Copy + Send + 'static {
        /// What is sent for a value.
        type Repr: Pod + Send;

        /// Whether the operation is defined for it.
        fn has(op: ReduceOp) -> bool;

        /// `target[i] = op(target[i], other[i])`, where `fold` goes over the elements.
        fn fold(op: ReduceOp, fold: impl Folder<Self::Repr>);

        /// What is sent for these values.
        fn encode(values: &[Self]) -> Cow<'_, [Self::Repr]>;

        /// Lets a call change what is sent for these values, and changes the values accordingly.
        fn update<R>(values: &mut [Self], call: impl FnOnce(&mut [Self::Repr]) -> R) -> R;
    }

    /// Something that can apply a combination to all its elements. The choice of the operation stays outside the
    /// loop over the elements.
    pub trait Folder<T>: Sized {
        /// The same over elements of another type.
        type Of<U: Pod>: Folder<U>;

        fn each(self, combine: impl Fn(T, T) -> T);

        /// Takes the elements for those of a type of the same size and alignment: types that an operation gives the same bits
        /// share its loops.
        fn cast<U: Pod>(self) -> Self::Of<U>;
    }
}

/// What is sent for a value is the value.
macro_rules! sent_as_it_is {
    () => {
        type Repr = Self;

        #[inline]
        fn encode(values: &[Self]) -> Cow<'_, [Self]> {
            Cow::Borrowed(values)
        }

        #[inline]
        fn update<R>(values: &mut [Self], call: impl FnOnce(&mut [Self]) -> R) -> R {
            call(values)
        }
    };
}

/// What is true of all integers.
macro_rules! integer {
    () => {
        sent_as_it_is!();

        #[inline]
        fn has(op: ReduceOp) -> bool {
            !op.is_located()
        }
    };
}

macro_rules! unsigned {
    ($($number:ty)*) => {$(
        impl Number for $number {}
        impl Reducible for $number {}
        impl sealed::Sealed for $number {
            integer!();

            fn fold(op: ReduceOp, fold: impl sealed::Folder<Self>) {
                match op {
                    ReduceOp::Sum => fold.each(<$number>::wrapping_add),
                    ReduceOp::Prod => fold.each(<$number>::wrapping_mul),
                    ReduceOp::Min => fold.each(Ord::min),
                    ReduceOp::Max => fold.each(Ord::max),
                    ReduceOp::BitAnd => fold.each(|a, b| a & b),
                    ReduceOp::BitOr => fold.each(|a, b| a | b),
                    ReduceOp::BitXor => fold.each(|a, b| a ^ b),
                    ReduceOp::LogicalAnd => fold.each(|a, b| <$number>::from((a != 0) & (b != 0))),
                    ReduceOp::LogicalOr => fold.each(|a, b| <$number>::from((a | b) != 0)),
                    ReduceOp::LogicalXor => fold.each(|a, b| <$number>::from((a != 0) ^ (b != 0))),
                    ReduceOp::MinLoc | ReduceOp::MaxLoc => unreachable!("{op} of integers is refused"),
                }
            }
        }
    )*};
}

/// In two's complement all operations but minimum and maximum give the bits that they give unsigned.
macro_rules! signed {
    ($($number:ty: $unsigned:ty),*) => {$(
        impl Number for $number {}
        impl Reducible for $number {}
        impl sealed::Sealed for $number {
            integer!();

            fn fold(op: ReduceOp, fold: impl sealed::Folder<Self>) {
                match op {
                    ReduceOp::Min => fold.each(Ord::min),
                    ReduceOp::Max => fold.each(Ord::max),
                    op => <$unsigned as sealed::Sealed>::fold(op, fold.cast()),
                }
            }
        }
    )*};
}

/// A word is an integer of 64 bits: lib.rs refuses to be compiled where it is not.
macro_rules! words {
    ($($number:ty: $fixed:ty),*) => {$(
        impl Number for $number {}
        impl Reducible for $number {}
        impl sealed::Sealed for $number {
            integer!();

            fn fold(op: ReduceOp, fold: impl sealed::Folder<Self>) {
                <$fixed as sealed::Sealed>::fold(op, fold.cast());
            }
        }
    )*};
}

macro_rules! floats {
    ($($number:ident)*) => {$(
        impl Number for $number {}
        impl Reducible for $number {}
        impl sealed::Sealed for $number {
            sent_as_it_is!();

            #[inline]
            fn has(op: ReduceOp) -> bool {
                op.is_arithmetic()
            }

            fn fold(op: ReduceOp, fold: impl sealed::Folder<Self>) {
                // The sign and the payload of an arithmetic NaN are not specified, so two ranks could differ.
                let canonical = |value: $number| if value.is_nan() { $number::NAN } else { value };
                match op {
                    ReduceOp::Sum => fold.each(|a, b| canonical(a + b)),
                    ReduceOp::Prod => fold.each(|a, b| canonical(a * b)),
                    // Equal values differ at most in the sign of a zero: its bit decides.
                    ReduceOp::Min => fold.each(|a, b| {
                        let less = if a == b { $number::from_bits(a.to_bits() | b.to_bits()) } else if a < b { a } else { b };
                        if a.is_nan() | b.is_nan() { $number::NAN } else { less }
                    }),
                    ReduceOp::Max => fold.each(|a, b| {
                        let more = if a == b { $number::from_bits(a.to_bits() & b.to_bits()) } else if a > b { a } else { b };
                        if a.is_nan() | b.is_nan() { $number::NAN } else { more }
                    }),
                    other => unreachable!("{other} of floating-point values is refused"),
                }
            }
        }
    )*};
}

unsigned!(u8 u16 u32 u64);
signed!(i8: u8, i16: u16, i32: u32, i64: u64);
words!(usize: u64, isize: i64);
floats!(f32 f64);

/// `into[i] = op(into[i], next[i])`, of what is sent for values of `V`.
///
/// # Panics
/// When the lengths differ.
pub(crate) fn combine_slices<V: Reducible>(op: ReduceOp, into: &mut [V::Repr], next: &[V::Repr]) {
    assert_eq!(into.len(), next.len(), "two slices of the same length can be combined");
    V::fold(op, Slices { into, next });
}

struct Slices<'a, R> {
    into: &'a mut [R],
    next: &'a [R],
}

impl<'a, R: Pod> sealed::Folder<R> for Slices<'a, R> {
    type Of<U: Pod> = Slices<'a, U>;

    #[inline]
    fn each(self, combine: impl Fn(R, R) -> R) {
        self.into.iter_mut().zip(self.next).for_each(|(into, next)| *into = combine(*into, *next));
    }

    #[inline]
    fn cast<U: Pod>(self) -> Slices<'a, U> {
        Slices { into: bytemuck::cast_slice_mut(self.into), next: bytemuck::cast_slice(self.next) }
    }
}

mod boolean;
#[cfg(feature = "num-complex")]
mod complex;
mod pairs;

/// Declares [`NAMES`] and [`types`] from one list.
macro_rules! elements {
    ($($number:ty),*) => {
        /// The names of element types, by their codes. All types but those that can be reduced are "data", which their size and alignment
        /// tell apart.
        const NAMES: &[&str] = &["data", $(stringify!($number)),*];

        /// The types whose names follow the first.
        fn types() -> [TypeId; NAMES.len() - 1] {
            [$(TypeId::of::<$number>()),*]
        }
    };
}

// Complex numbers are data: they have no code that depends on a feature.
elements!(
    u8,
    u16,
    u32,
    u64,
    usize,
    i8,
    i16,
    i32,
    i64,
    isize,
    f32,
    f64,
    bool,
    (u8, usize),
    (u16, usize),
    (u32, usize),
    (u64, usize),
    (usize, usize),
    (i8, usize),
    (i16, usize),
    (i32, usize),
    (i64, usize),
    (isize, usize),
    (f32, usize),
    (f64, usize)
);

/// A code for an element type that means the same in every process, whatever compiler built it: the index in [`NAMES`].
pub(crate) fn code<T: 'static>() -> u8 {
    let id = TypeId::of::<T>();
    types().iter().position(|known| *known == id).map_or(0, |index| index as u8 + 1)
}

/// How many bits of a shape the alignment takes: its logarithm.
const ALIGN_BITS: u32 = 6;

/// Size and alignment of an element in one number, which no other size and alignment have. A type that is too large for that
/// is refused when the program is compiled.
pub(crate) const fn shape<T>() -> u32 {
    const { assert!(size_of::<T>() <= (u32::MAX >> ALIGN_BITS) as usize, "an element has less than 64 MiB") };
    (size_of::<T>() as u32) << ALIGN_BITS | align_of::<T>().trailing_zeros()
}

/// The size of an element in bytes, from its shape.
pub(crate) const fn size_of_shape(shape: u32) -> u64 {
    (shape >> ALIGN_BITS) as u64
}

/// An element type in words, from its code and shape.
pub(crate) fn describe(code: u8, shape: u32) -> String {
    match NAMES.get(usize::from(code)) {
        Some(name) if code > 0 => (*name).to_owned(),
        _ => format!("{} bytes aligned to {}", shape >> ALIGN_BITS, 1u64 << (shape & ((1 << ALIGN_BITS) - 1))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduce<T: Number>(op: ReduceOp, a: T, b: T) -> T {
        let mut value = [a];
        op.combine(&mut value, &[b]).expect("every operation that is used here is defined");
        value[0]
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(reduce(ReduceOp::Sum, 250u8, 10), 4);
        assert_eq!(reduce(ReduceOp::Prod, i32::MIN, -1), i32::MIN);
        assert_eq!(reduce(ReduceOp::Min, -3i64, 2), -3);
        assert_eq!((reduce(ReduceOp::Min, -1isize, 1), reduce(ReduceOp::Max, -1i8, 1)), (-1, 1));
        assert_eq!(reduce(ReduceOp::Max, 3usize, 2), 3);
        assert_eq!(reduce(ReduceOp::BitAnd, 6u16, 3), 2);
        assert_eq!(reduce(ReduceOp::BitOr, 6u16, 3), 7);
        assert_eq!(reduce(ReduceOp::BitXor, 6u16, 3), 5);
        for (a, b) in [(0i32, 0), (0, -8), (6, 0), (6, 8)] {
            let (one, other) = (a != 0, b != 0);
            assert_eq!(reduce(ReduceOp::LogicalAnd, a, b), i32::from(one && other));
            assert_eq!(reduce(ReduceOp::LogicalOr, a, b), i32::from(one || other));
            assert_eq!(reduce(ReduceOp::LogicalXor, a, b), i32::from(one != other));
        }
    }

    #[test]
    fn zeros_and_nans_have_one_answer() {
        let (minus, plus, nan) = (-0.0f64, 0.0f64, f64::from_bits(0xFFF8_0000_0000_0001));
        for (a, b) in [(minus, plus), (plus, minus)] {
            assert_eq!(reduce(ReduceOp::Min, a, b).to_bits(), minus.to_bits());
            assert_eq!(reduce(ReduceOp::Max, a, b).to_bits(), plus.to_bits());
        }
        for op in [ReduceOp::Min, ReduceOp::Max, ReduceOp::Sum, ReduceOp::Prod] {
            for (a, b) in [(nan, 1.0), (1.0, nan), (nan, nan)] {
                assert_eq!(reduce(op, a, b).to_bits(), f64::NAN.to_bits(), "{op} {a} {b}");
            }
        }
        assert_eq!(reduce(ReduceOp::Min, -1.0f32, 2.0), -1.0);
        assert_eq!(reduce(ReduceOp::Max, f32::NEG_INFINITY, 2.0), 2.0);
    }

    #[test]
    fn codes_are_distinct_and_named() {
        let codes = [code::<u8>(), code::<u16>(), code::<u32>(), code::<u64>(), code::<usize>(), code::<i8>()];
        let more = [code::<i16>(), code::<i32>(), code::<i64>(), code::<isize>(), code::<f32>(), code::<f64>()];
        let mut all = [codes, more].concat();
        all.dedup();
        assert_eq!(all, (1..13).collect::<Vec<u8>>());
        assert_eq!(describe(code::<f64>(), shape::<f64>()), "f64");
        assert_eq!(describe(code::<[u16; 3]>(), shape::<[u16; 3]>()), "6 bytes aligned to 2");
        assert_ne!(shape::<[u16; 4]>(), shape::<u64>());
        // The largest that is allowed, and one that has nothing.
        assert_eq!(describe(0, shape::<[[u8; 8191]; 8192]>()), "67100672 bytes aligned to 1");
        assert_eq!(describe(0, shape::<()>()), "0 bytes aligned to 1");
    }
}
