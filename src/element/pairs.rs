//! The least and the greatest of pairs of a number and an index.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::{Number, ReduceOp, Reducible, sealed};

/// A number of a pair, in 64 bits.
trait Located: Number {
    /// Has the same order, and of each value the same bits: types that are folded alike share its loops. Bits that are no value's, which
    /// this library does not send, are compared as they are, and cut when they become one.
    type Wide: Located;
    fn to_bits(self) -> u64;
    fn of_bits(bits: u64) -> Self;
    /// The order of `Min` and `Max`; `None`: at least one is not a number.
    fn order(self, other: Self) -> Option<Ordering>;
    /// The canonical value of what is not a number.
    fn canonical(self) -> Self {
        self
    }
    fn is_number(self) -> bool {
        true
    }
}

macro_rules! located_integers {
    ($wide:ty: $($number:ty)*) => {$(
        impl Located for $number {
            type Wide = $wide;

            fn to_bits(self) -> u64 {
                self as u64
            }

            fn of_bits(bits: u64) -> Self {
                bits as $number
            }

            fn order(self, other: Self) -> Option<Ordering> {
                Some(self.cmp(&other))
            }
        }
    )*};
}

macro_rules! located_floats {
    ($($number:ident)*) => {$(
        impl Located for $number {
            type Wide = Self;

            fn to_bits(self) -> u64 {
                $number::to_bits(self).into()
            }

            fn of_bits(bits: u64) -> Self {
                $number::from_bits(bits as _)
            }

            fn order(self, other: Self) -> Option<Ordering> {
                // Of numbers, the total order tells the zeros apart.
                let numbers = !self.is_nan() && !other.is_nan();
                numbers.then(|| self.total_cmp(&other))
            }

            fn canonical(self) -> Self {
                if self.is_nan() { $number::NAN } else { self }
            }

            fn is_number(self) -> bool {
                !self.is_nan()
            }
        }
    )*};
}

located_integers!(u64: u8 u16 u32 u64 usize);
located_integers!(i64: i8 i16 i32 i64 isize);
located_floats!(f32 f64);

fn fold_located<V: Located>(op: ReduceOp, fold: impl sealed::Folder<[u64; 2]>) {
    match op {
        ReduceOp::MinLoc => fold.each(|a, b| located::<V>(Ordering::Less, a, b)),
        ReduceOp::MaxLoc => fold.each(|a, b| located::<V>(Ordering::Greater, a, b)),
        other => unreachable!("{other} of pairs is refused"),
    }
}

/// The pair of two that is wanted: the number that is `wanted` relative to the other, or is none; else the lower index.
fn located<V: Located>(wanted: Ordering, a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    let (first, second) = (V::of_bits(a[0]), V::of_bits(b[0]));
    let lower = if b[1] < a[1] { b } else { a };
    let [bits, index] = match first.order(second) {
        Some(Ordering::Equal) => lower,
        Some(order) => {
            if order == wanted {
                a
            } else {
                b
            }
        }
        None => match (first.is_number(), second.is_number()) {
            (true, _) => b,
            (_, true) => a,
            _ => lower,
        },
    };
    [V::of_bits(bits).canonical().to_bits(), index]
}

impl<V: Located> Reducible for (V, usize) {}
impl<V: Located> sealed::Sealed for (V, usize) {
    type Repr = [u64; 2];

    fn has(op: ReduceOp) -> bool {
        op.is_located()
    }

    fn fold(op: ReduceOp, fold: impl sealed::Folder<[u64; 2]>) {
        fold_located::<V::Wide>(op, fold);
    }

    fn encode(values: &[Self]) -> Cow<'_, [[u64; 2]]> {
        Cow::Owned(values.iter().map(|(value, index)| [value.to_bits(), *index as u64]).collect())
    }

    fn update<R>(values: &mut [Self], call: impl FnOnce(&mut [[u64; 2]]) -> R) -> R {
        let mut pairs = Self::encode(values).into_owned();
        let result = call(&mut pairs);
        values.iter_mut().zip(pairs).for_each(|(value, [bits, index])| {
            *value = (V::of_bits(bits), usize::try_from(index).unwrap_or(usize::MAX));
        });
        result
    }
}

#[cfg(test)]
mod tests {
    use super::super::combine_slices;
    use super::*;

    fn least<V: Located>(a: (V, usize), b: (V, usize)) -> (V, usize) {
        of(ReduceOp::MinLoc, a, b)
    }

    fn greatest<V: Located>(a: (V, usize), b: (V, usize)) -> (V, usize) {
        of(ReduceOp::MaxLoc, a, b)
    }

    fn of<V: Located>(op: ReduceOp, a: (V, usize), b: (V, usize)) -> (V, usize) {
        let mut pair = [a];
        op.combine(&mut pair, &[b]).expect("pairs have it");
        pair[0]
    }

    #[test]
    fn numbers_decide_and_then_the_lower_index() {
        assert_eq!((least((-3i8, 9), (2, 1)), greatest((-3i8, 9), (2, 1))), ((-3, 9), (2, 1)));
        assert_eq!((least((5u64, 9), (5, 1)), greatest((5u64, 1), (5, 9))), ((5, 1), (5, 1)));
        assert_eq!(least((f64::NEG_INFINITY, 4), (1.0, 3)), (f64::NEG_INFINITY, 4));
        assert_eq!(greatest((u64::MAX, 0), (1, 1)), (u64::MAX, 0));
        assert_eq!((greatest((200u8, 0), (100, 1)), least((-1isize, 0), (0, 1))), ((200, 0), (-1, 0)));
    }

    #[test]
    fn bits_that_are_no_value_become_one() {
        let mut pair = [(7u8, 3)];
        <(u8, usize) as sealed::Sealed>::update(&mut pair, |bits| {
            combine_slices::<(u8, usize)>(ReduceOp::MaxLoc, bits, &[[0x1FF, 1]]);
        });
        assert_eq!(pair, [(0xFF, 1)]);
    }

    #[test]
    fn zeros_and_nans_are_those_of_min_and_max() {
        for (a, b) in [((-0.0f32, 7), (0.0, 2)), ((0.0, 2), (-0.0, 7))] {
            assert_eq!((least(a, b).1, greatest(a, b).1), (7, 2));
        }
        let nan = f64::from_bits(0xFFF8_0000_0000_0001);
        for (a, b, index) in [((nan, 5), (1.0, 2), 5), ((1.0, 2), (nan, 5), 5), ((nan, 5), (nan, 3), 3)] {
            for (value, at) in [least(a, b), greatest(a, b)] {
                assert_eq!((value.to_bits(), at), (f64::NAN.to_bits(), index));
            }
        }
    }
}
