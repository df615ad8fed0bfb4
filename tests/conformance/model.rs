//! A sequential model of the collectives.

use std::fmt::Debug;

use anyhow::bail;
use fastrand::Rng;
use intranode::bytemuck::{self, Pod};
use intranode::{Number, ReduceOp};

use crate::scenario::Outcome;

/// Every reduction.
pub(crate) const OPERATIONS: [ReduceOp; 10] = [
    ReduceOp::Sum,
    ReduceOp::Prod,
    ReduceOp::Min,
    ReduceOp::Max,
    ReduceOp::BitAnd,
    ReduceOp::BitOr,
    ReduceOp::BitXor,
    ReduceOp::LogicalAnd,
    ReduceOp::LogicalOr,
    ReduceOp::LogicalXor,
];

/// The reductions of floating-point values.
pub(crate) const ARITHMETIC: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max];

/// A number whose reductions are modelled.
pub(crate) trait Value: Number + Debug {
    /// The reductions that are defined for it.
    const REDUCTIONS: &[ReduceOp];
    /// A random value; special values are more frequent.
    fn any(random: &mut Rng) -> Self;
    /// The reduction of two values.
    fn combine(op: ReduceOp, a: Self, b: Self) -> Self;
}

macro_rules! integers {
    ($($number:ident)*) => {$(
        impl Value for $number {
            const REDUCTIONS: &[ReduceOp] = &OPERATIONS;

            fn any(random: &mut Rng) -> Self {
                match random.u8(..8) {
                    0 => $number::MIN,
                    1 => $number::MAX,
                    2 => 0,
                    _ => random.$number(..),
                }
            }

            fn combine(op: ReduceOp, a: Self, b: Self) -> Self {
                // Wide enough for any sum and product, then truncated.
                let (wide_a, wide_b) = (a as i128, b as i128);
                match op {
                    ReduceOp::Sum => (wide_a + wide_b) as $number,
                    ReduceOp::Prod => wide_a.wrapping_mul(wide_b) as $number,
                    ReduceOp::Min => if wide_a < wide_b { a } else { b },
                    ReduceOp::Max => if wide_a > wide_b { a } else { b },
                    ReduceOp::BitAnd => (wide_a & wide_b) as $number,
                    ReduceOp::BitOr => (wide_a | wide_b) as $number,
                    ReduceOp::BitXor => (wide_a ^ wide_b) as $number,
                    ReduceOp::LogicalAnd => <$number>::from(a != 0 && b != 0),
                    ReduceOp::LogicalOr => <$number>::from(a != 0 || b != 0),
                    ReduceOp::LogicalXor => <$number>::from((a != 0) != (b != 0)),
                    other => panic!("the model has no {other}"),
                }
            }
        }
    )*};
}

macro_rules! floats {
    ($($number:ident)*) => {$(
        impl Value for $number {
            const REDUCTIONS: &[ReduceOp] = &ARITHMETIC;

            fn any(random: &mut Rng) -> Self {
                const ODD: [$number; 12] = [
                    0.0, -0.0, 1.0, -1.0, 1e16, -1e16, $number::MAX, $number::MIN_POSITIVE / 4.0,
                    $number::INFINITY, $number::NEG_INFINITY, $number::NAN, -$number::NAN,
                ];
                if random.u8(..4) == 0 { ODD[random.usize(..ODD.len())] } else { (random.$number() - 0.5) * 1e6 }
            }

            fn combine(op: ReduceOp, a: Self, b: Self) -> Self {
                let result = match op {
                    ReduceOp::Sum => a + b,
                    ReduceOp::Prod => a * b,
                    _ if a.is_nan() || b.is_nan() => $number::NAN,
                    ReduceOp::Min => if a.total_cmp(&b).is_lt() { a } else { b },
                    ReduceOp::Max => if a.total_cmp(&b).is_gt() { a } else { b },
                    bitwise => panic!("{bitwise} of floating-point values"),
                };
                if result.is_nan() { $number::NAN } else { result }
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);
floats!(f32 f64);

/// How many values a contribution has before they repeat: a prime, so that no block, chunk, or page lies a multiple of it away from
/// where it belongs. A rank models what all others contribute: without this, that took an eighth of the suite's time.
const PERIOD: usize = 4093;

/// The contribution of `rank`, which every rank can compute.
pub(crate) fn values<T: Value>(seed: u64, rank: usize, len: usize) -> Vec<T> {
    let mut random = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9).wrapping_add(rank as u64));
    repeated((0..len.min(PERIOD)).map(|_| T::any(&mut random)).collect(), len)
}

/// The contributions of all ranks, folded in rank order.
pub(crate) fn reduced<T: Value>(op: ReduceOp, seed: u64, ranks: usize, len: usize) -> Vec<T> {
    let period = len.min(PERIOD);
    let mut result = values::<T>(seed, 0, period);
    for rank in 1..ranks {
        for (total, value) in result.iter_mut().zip(values(seed, rank, period)) {
            *total = T::combine(op, *total, value);
        }
    }
    repeated(result, len)
}

/// `len` values, of which the first are given.
fn repeated<T: Copy>(mut values: Vec<T>, len: usize) -> Vec<T> {
    while values.len() < len {
        values.extend_from_within(..values.len().min(len - values.len()));
    }
    values
}

/// Element `index` of a large block of `rank`, of which no copy is kept. Exact in an `f64`.
pub(crate) fn element(rank: usize, index: usize) -> f64 {
    (rank * 1_000_000_000 + index) as f64
}

/// The first `len` of these.
pub(crate) fn elements(rank: usize, len: usize) -> Vec<f64> {
    (0..len).map(|index| element(rank, index)).collect()
}

/// Fails at the first element whose bytes differ.
pub(crate) fn ensure_same<T: Pod + Debug>(got: &[T], expected: &[T]) -> Outcome {
    if got.len() != expected.len() {
        bail!("{} elements, expected {}", got.len(), expected.len());
    }
    if bytemuck::cast_slice::<T, u8>(got) == bytemuck::cast_slice::<T, u8>(expected) {
        return Ok(());
    }
    let same = |(got, expected): (&T, &T)| bytemuck::bytes_of(got) == bytemuck::bytes_of(expected);
    match got.iter().zip(expected).position(|pair| !same(pair)) {
        Some(index) => bail!("element {index} is {:?}, expected {:?}", got[index], expected[index]),
        None => Ok(()),
    }
}
