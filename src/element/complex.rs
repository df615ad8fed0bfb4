//! Sums and products of complex numbers, with the feature `num-complex`.

use std::borrow::Cow;

use num_complex::Complex;

use super::{ReduceOp, Reducible, sealed};

macro_rules! complex {
    ($($number:ident)*) => {$(
        impl Reducible for Complex<$number> {}
        impl sealed::Sealed for Complex<$number> {
            sent_as_it_is!();

            fn has(op: ReduceOp) -> bool {
                matches!(op, ReduceOp::Sum | ReduceOp::Prod)
            }

            fn fold(op: ReduceOp, fold: impl sealed::Folder<Self>) {
                let canonical = |value: $number| if value.is_nan() { $number::NAN } else { value };
                match op {
                    ReduceOp::Sum => fold.each(|a, b| {
                        Complex::new(canonical(a.re + b.re), canonical(a.im + b.im))
                    }),
                    ReduceOp::Prod => fold.each(|a, b| {
                        let (re, im) = (a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
                        Complex::new(canonical(re), canonical(im))
                    }),
                    other => unreachable!("{other} of complex numbers is refused"),
                }
            }
        }
    )*};
}

complex!(f32 f64);
