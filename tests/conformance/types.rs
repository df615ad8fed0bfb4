//! Reductions of other types than numbers: bool, pairs with an index, complex numbers; and by operations of the program's own.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice::{from_mut, from_ref};

use anyhow::{Context, ensure};
use intranode::bytemuck::{Pod, cast_slice, cast_slice_mut};
use intranode::{Communicator, Error, Operation, ReduceOp, Reducible};

use crate::errors::wrong_on_one_or_all;
use crate::model::ensure_same;
use crate::scenario::{Outcome, Scenario, ensure_matches, row, seed, still_works};
use crate::threads::DELIBERATE;

pub(crate) fn rows() -> Vec<Scenario> {
    #[allow(unused_mut, reason = "there are more with the feature")]
    let mut rows = vec![
        row!(types_bool),
        row!(types_bool_through_tiny_staging).staging(64),
        row!(types_pairs),
        row!(types_pairs_through_tiny_staging).staging(64),
        row!(types_pairs_of_equal_values_and_nan),
        row!(types_that_a_reduction_is_not_defined_for),
        row!(types_of_pairs_that_differ).ranks(&[2, 3, 4, 8]),
        row!(own_operations_of_every_length),
        row!(own_operations_on_elements_anywhere),
        row!(own_operations_on_nan),
        row!(own_operations_through_tiny_staging).staging(64),
        row!(own_operations_of_long_elements).staging(64),
        row!(own_operations_with_wrong_arguments),
        row!(own_operations_of_other_names).ranks(&[2, 3, 4, 8]),
        row!(own_operations_that_panic).ranks(&[2, 3, 4, 8]),
        row!(own_operations_on_many_elements_that_panic).ranks(&[2, 3, 4, 8]),
        row!(own_operations_on_long_elements_that_panic).ranks(&[2, 3]).staging(64),
    ];
    #[cfg(feature = "num-complex")]
    rows.push(row!(types_complex));
    rows
}

/// All reductions of a type, over `values(rank)`, against a fold in rank order.
fn check<T: Reducible + PartialEq + Debug>(
    comm: &Communicator,
    op: ReduceOp,
    values: impl Fn(usize) -> Vec<T>,
    combine: impl Fn(T, T) -> T,
) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let (own, before) = (values(rank), values(size));
    let len = own.len();
    let folded = |ranks: usize| {
        (1..ranks).fold(values(0), |sums: Vec<T>, next| {
            sums.into_iter().zip(values(next)).map(|(a, b)| combine(a, b)).collect()
        })
    };
    let same = |what: &str, got: &[T], expected: &[T]| {
        let wrong = got.iter().zip(expected).position(|(got, expected)| got != expected);
        let wrong = wrong.map(|index| (index, got[index], expected[index]));
        ensure!(got.len() == expected.len() && wrong.is_none(), "{what} {op} of {len}: {wrong:?}");
        Ok(())
    };
    let all = folded(size);
    let mut recv = before.clone();
    comm.allreduce(&own, &mut recv, op)?;
    same("allreduce", &recv, &all)?;
    let mut data = own.clone();
    comm.allreduce_in_place(&mut data, op)?;
    same("allreduce_in_place", &data, &all)?;
    for root in 0..size {
        let mut recv = before.clone();
        comm.reduce(&own, (rank == root).then_some(&mut recv), op, root)?;
        same("reduce", &recv, if rank == root { &all } else { &before })?;
        let mut data = own.clone();
        comm.reduce_in_place(&mut data, op, root)?;
        same("reduce_in_place", &data, if rank == root { &all } else { &own })?;
    }
    let mut recv = before.clone();
    comm.scan(&own, &mut recv, op)?;
    same("scan", &recv, &folded(rank + 1))?;
    let mut data = own.clone();
    comm.exscan_in_place(&mut data, op)?;
    same("exscan_in_place", &data, &if rank == 0 { own.clone() } else { folded(rank) })?;
    let each = len / size;
    let mut block = before[..each].to_vec();
    comm.reduce_scatter_block(&own[..each * size], &mut block, op)?;
    same("reduce_scatter_block", &block, &all[each * rank..each * (rank + 1)])
}

const LENGTHS: [usize; 5] = [0, 1, 95, 97, 30_000];

fn bools(comm: &Communicator, lengths: &[usize]) -> Outcome {
    for len in lengths {
        let values = |rank: usize| {
            let mut random = fastrand::Rng::with_seed(seed().wrapping_add(rank as u64));
            (0..*len).map(|_| random.bool()).collect::<Vec<bool>>()
        };
        check(comm, ReduceOp::LogicalAnd, values, |a, b| a && b)?;
        check(comm, ReduceOp::LogicalOr, values, |a, b| a || b)?;
        check(comm, ReduceOp::LogicalXor, values, |a, b| a != b)?;
    }
    Ok(())
}

fn types_bool(comm: Communicator) -> Outcome {
    bools(&comm, &LENGTHS)
}

fn types_bool_through_tiny_staging(comm: Communicator) -> Outcome {
    bools(&comm, &[64, 500])
}

fn pairs(comm: &Communicator, lengths: &[usize]) -> Outcome {
    fn of<V: intranode::Number + PartialOrd + Debug>(
        comm: &Communicator,
        len: usize,
        value: impl Fn(i8) -> V,
    ) -> Outcome
    where
        (V, usize): Reducible,
    {
        let values = |rank: usize| {
            let mut random = fastrand::Rng::with_seed(seed().wrapping_add(rank as u64));
            // Few values, so that many are equal, with indices in any order.
            (0..len).map(|_| (value(random.i8(0..4)), random.usize(..))).collect::<Vec<(V, usize)>>()
        };
        let lower = |a: (V, usize), b: (V, usize)| if b.1 < a.1 { b } else { a };
        check(comm, ReduceOp::MinLoc, values, |a, b| {
            if a.0 == b.0 {
                lower(a, b)
            } else if a.0 < b.0 {
                a
            } else {
                b
            }
        })?;
        check(comm, ReduceOp::MaxLoc, values, |a, b| {
            if a.0 == b.0 {
                lower(a, b)
            } else if a.0 > b.0 {
                a
            } else {
                b
            }
        })
    }
    for len in lengths {
        of(comm, *len, |value| f64::from(value) - 1.5)?;
        of(comm, *len, |value| -f32::from(value) - 0.5)?;
        of(comm, *len, |value| value - 2)?;
        of(comm, *len, |value| i32::from(value) - 2)?;
        of(comm, *len, |value| isize::from(value) - 2)?;
        of(comm, *len, |value| u8::MAX - value as u8)?;
        of(comm, *len, |value| -i64::from(value))?;
        of(comm, *len, |value| u64::MAX - value as u64)?;
        of(comm, *len, |value| value as usize)?;
    }
    Ok(())
}

fn types_pairs(comm: Communicator) -> Outcome {
    pairs(&comm, &[0, 1, 6, 7, 5000])
}

fn types_pairs_through_tiny_staging(comm: Communicator) -> Outcome {
    pairs(&comm, &[7, 100])
}

fn types_pairs_of_equal_values_and_nan(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    for from in 0..size {
        let mut pair = [(1.5, size - rank), (if rank == from { f64::NAN } else { -1.0 }, 100 + rank)];
        comm.allreduce_in_place(&mut pair, ReduceOp::MinLoc)?;
        ensure!(pair[0] == (1.5, 1), "{pair:?}");
        ensure!(pair[1].0.is_nan() && pair[1].1 == 100 + from, "{pair:?}");
    }
    Ok(())
}

#[cfg(feature = "num-complex")]
fn types_complex(comm: Communicator) -> Outcome {
    use num_complex::Complex;

    // Bit for bit.
    #[derive(Clone, Copy, Debug)]
    struct Seed(usize, usize);
    let values = |Seed(rank, len)| {
        let mut random = fastrand::Rng::with_seed(seed().wrapping_add(rank as u64));
        (0..len).map(|_| Complex::new(random.f64() - 0.5, random.f64() - 0.5)).collect::<Vec<Complex<f64>>>()
    };
    for len in LENGTHS {
        let of = |rank| values(Seed(rank, len));
        check(&comm, ReduceOp::Sum, of, |a, b| a + b)?;
        check(&comm, ReduceOp::Prod, of, |a, b| a * b)?;
        let narrow = |rank| of(rank).into_iter().map(|z| Complex::new(z.re as f32, z.im as f32)).collect();
        check(&comm, ReduceOp::Sum, narrow, |a: Complex<f32>, b| a + b)?;
        check(&comm, ReduceOp::Prod, narrow, |a: Complex<f32>, b| a * b)?;
    }
    let error = comm.allreduce_in_place(&mut [Complex::new(1.0f32, 0.0)], ReduceOp::Min).expect_err("no order");
    ensure_matches!(&error, Error::InvalidReduction { reduction: ReduceOp::Min, .. });
    still_works(&comm)
}

fn types_that_a_reduction_is_not_defined_for(comm: Communicator) -> Outcome {
    fn refused<T: Reducible>(comm: &Communicator, op: ReduceOp, value: T, types: &str) -> Outcome {
        let error = comm.allreduce_in_place(&mut [value], op).err().context("no error")?;
        ensure_matches!(&error, Error::InvalidReduction { reduction, .. } if *reduction == op);
        ensure!(!error.is_fatal() && error.to_string().contains(types), "{error}");
        still_works(comm)
    }
    refused(&comm, ReduceOp::Sum, true, "numbers and complex numbers")?;
    refused(&comm, ReduceOp::BitAnd, true, "integers")?;
    refused(&comm, ReduceOp::LogicalAnd, 1.0, "bool and integers")?;
    refused(&comm, ReduceOp::MinLoc, 1u8, "pairs (number, usize)")?;
    refused(&comm, ReduceOp::MaxLoc, 1.0f32, "pairs (number, usize)")?;
    refused(&comm, ReduceOp::Min, (1.0, 0), "numbers")
}

fn types_of_pairs_that_differ(comm: Communicator) -> Outcome {
    // Of the same size.
    let result = match comm.rank() {
        0 => comm.allreduce_in_place(&mut [(1.0f64, 0)], ReduceOp::MinLoc),
        _ => comm.allreduce_in_place(&mut [(1u64, 0)], ReduceOp::MinLoc),
    };
    let text = result.as_ref().err().context("no error")?.to_string();
    ensure_matches!(result, Err(Error::Mismatch { .. }));
    ensure!(text.contains("(f64, usize)") && text.contains("(u64, usize)"), "{text}");
    still_works(&comm)
}

/// Neither commutative nor associative, so that only the order of the ranks gives the result.
fn mix<T: Pod>(acc: &mut T, x: &T) {
    let (acc, x): (&mut [u64], &[u64]) = (cast_slice_mut(from_mut(acc)), cast_slice(from_ref(x)));
    acc.iter_mut().zip(x).for_each(|(acc, x)| *acc = acc.wrapping_mul(31).wrapping_add(*x));
}

fn own<const N: usize>(comm: &Communicator, len: usize) -> Outcome
where
    [u64; N]: Pod,
{
    own_of::<[u64; N]>(comm, len)
}

/// Elements of numbers.
fn own_of<T: Pod + PartialEq + Debug>(comm: &Communicator, len: usize) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let numbers = len * size_of::<T>() / size_of::<u64>();
    let values = |rank: usize| -> Vec<T> {
        let mut random = fastrand::Rng::with_seed(seed().wrapping_add(rank as u64));
        cast_slice(&Vec::from_iter((0..numbers).map(|_| random.u64(..)))).to_vec()
    };
    let folded = |ranks: usize| {
        (1..ranks).fold(values(0), |mut sums, next| {
            sums.iter_mut().zip(values(next)).for_each(|(acc, x)| mix(acc, &x));
            sums
        })
    };
    let context = || format!("{len} elements of {} bytes", size_of::<T>());
    let (send, before) = (values(rank), vec![T::zeroed(); len]);
    let mut recv = before.clone();
    comm.allreduce_with(&send, &mut recv, "mix", mix)?;
    ensure_same(&recv, &folded(size)).with_context(context)?;
    for root in 0..size {
        let mut recv = before.clone();
        comm.reduce_with(&send, (rank == root).then_some(&mut recv), "mix", mix, root)?;
        ensure_same(&recv, &if rank == root { folded(size) } else { before.clone() }).with_context(context)?;
    }
    recv.clone_from(&before);
    comm.scan_with(&send, &mut recv, "mix", mix)?;
    ensure_same(&recv, &folded(rank + 1)).with_context(context)
}

fn own_operations_of_every_length(comm: Communicator) -> Outcome {
    for len in [0, 1, 12, 13, 2048, 30_000] {
        own::<1>(&comm, len)?;
        own::<2>(&comm, len)?;
        own::<3>(&comm, len)?;
        own::<4>(&comm, len.min(5000))?;
        own::<8>(&comm, len.min(5000))?;
        own::<9>(&comm, len.min(2048))?;
    }
    own::<1>(&comm, SLICED / 8)?;
    own::<512>(&comm, 1)?;
    own::<512>(&comm, 300)?;
    // Longer than what is sent at a time where one rank folds what another sends.
    for len in [1, 2, 7, 9] {
        own_of::<[[u64; 512]; 9]>(&comm, len)?;
    }
    own_of::<[[u64; 512]; 31]>(&comm, 1)?;
    own_of::<[[u64; 1024]; 25]>(&comm, 3)
}

/// Bytes of a contribution of which two ranks fold a slice each.
const SLICED: usize = 600_000;

fn own_operations_on_elements_anywhere(comm: Communicator) -> Outcome {
    anywhere::<1>(&comm)?;
    anywhere::<2>(&comm)?;
    anywhere::<3>(&comm)?;
    anywhere::<4>(&comm)?;
    anywhere::<12>(&comm)
}

/// Elements of `N` bytes, in buffers that begin elsewhere on each rank.
fn anywhere<const N: usize>(comm: &Communicator) -> Outcome
where
    [u8; N]: Pod,
{
    let value = |rank: usize, index: usize| -> [u8; N] {
        std::array::from_fn(|byte| (rank + 1 + (index >> (byte % 3))) as u8)
    };
    let mix = |acc: &mut [u8; N], x: &[u8; N]| {
        *acc = std::array::from_fn(|byte| acc[byte].wrapping_mul(31).wrapping_add(x[N - 1 - byte]));
    };
    for len in [1, 700, 5001, 90_000, SLICED / N] {
        let folded = |index: usize| {
            (1..comm.size()).fold(value(0, index), |mut acc, rank| {
                mix(&mut acc, &value(rank, index));
                acc
            })
        };
        let before = comm.rank() % 5;
        let mut send = vec![[0; N]; before];
        send.extend((0..len).map(|index| value(comm.rank(), index)));
        let (inside, mut recv) = (before + 1..before + 1 + len, vec![[7; N]; before + 2 + len]);
        comm.allreduce_with(&send[before..], &mut recv[inside.clone()], "mix", mix)?;
        ensure_same(&recv[inside.clone()], &(0..len).map(folded).collect::<Vec<_>>())?;
        recv.drain(inside);
        ensure!(recv.iter().all(|element| *element == [7; N]), "written beside the buffer");
    }
    Ok(())
}

/// The compiler decides which NaN the sum of two is. All ranks get the same one.
fn own_operations_on_nan(comm: Communicator) -> Outcome {
    let add = |acc: &mut f64, x: &f64| *acc += x;
    let nan = f64::from_bits(f64::NAN.to_bits() | (comm.rank() as u64 + 1));
    for len in [1, 2, 7, 12, 13, 2048, 5001, 30_000, SLICED / 8] {
        let before = comm.rank() % 4;
        let mut recv = vec![0.0; before + len];
        comm.allreduce_with(&vec![nan; len], &mut recv[before..], "add", add)?;
        let bits: Vec<u64> = recv[before..].iter().map(|value| value.to_bits()).collect();
        ensure!(recv[before..].iter().all(|value| value.is_nan()), "{len}");
        let mut of_rank_0 = bits.clone();
        comm.broadcast(&mut of_rank_0, 0)?;
        ensure_same(&bits, &of_rank_0).with_context(|| format!("{len} elements"))?;
    }
    Ok(())
}

fn own_operations_through_tiny_staging(comm: Communicator) -> Outcome {
    for len in [1, 8, 65, 333] {
        own::<1>(&comm, len)?;
        own::<2>(&comm, len)?;
        own::<3>(&comm, len)?;
        own::<8>(&comm, len)?;
    }
    Ok(())
}

/// Longer than a chunk.
fn own_operations_of_long_elements(comm: Communicator) -> Outcome {
    for len in [0, 1, 2, 20] {
        own::<12>(&comm, len)?;
        own::<32>(&comm, len)?;
    }
    Ok(())
}

fn own_operations_with_wrong_arguments(comm: Communicator) -> Outcome {
    let add = |acc: &mut f64, x: &f64| *acc += x;
    for operation in [Operation::Allreduce, Operation::Scan, Operation::Reduce] {
        let call = |wrong| {
            let mut recv = vec![-1.5; if wrong { 3 } else { 4 }];
            let result = match operation {
                Operation::Allreduce => comm.allreduce_with(&[1.0; 4], &mut recv, "add", add),
                Operation::Scan => comm.scan_with(&[1.0; 4], &mut recv, "add", add),
                _ => {
                    // The wrong rank has a buffer, or the root none.
                    let given = (comm.rank() == 0) != wrong;
                    comm.reduce_with(&[1.0; 4], given.then_some(&mut recv), "add", add, 0)
                }
            };
            (result, recv)
        };
        let own = |error: &Error| {
            matches!(error, Error::InvalidBufferSize { .. } | Error::RootBuffer { .. })
                && error.operation() == operation
        };
        wrong_on_one_or_all(&comm, operation, call, own)?;
    }
    let call = |wrong| {
        let (mut recv, root) = (vec![-1.5; 4], if wrong { comm.size() } else { 0 });
        let given = comm.rank() == root;
        (comm.reduce_with(&[1.0; 4], given.then_some(&mut recv), "add", add, root), recv)
    };
    wrong_on_one_or_all(&comm, Operation::Reduce, call, |error| matches!(error, Error::InvalidRoot { .. }))
}

fn own_operations_of_other_names(comm: Communicator) -> Outcome {
    let odd = comm.rank() == comm.size() - 1;
    let add = |acc: &mut u64, x: &u64| *acc += x;
    for len in [1, 1000, 100_000] {
        let (send, mut recv) = (vec![1; len], vec![7; len]);
        let name = if odd { "sum" } else { "total" };
        let results = [
            comm.allreduce_with(&send, &mut recv, name, add),
            comm.scan_with(&send, &mut recv, name, add),
            comm.reduce_with(&send, (comm.rank() == 0).then_some(&mut recv), name, add, 0),
        ];
        for result in results {
            let text = result.as_ref().err().context("no error")?.to_string();
            let Err(Error::Mismatch { calls, .. }) = result else { anyhow::bail!("{text}") };
            let last = comm.size() - 1;
            ensure!(
                calls.iter().all(|call| call.own_reduction == Some(if call.rank == last { last } else { 0 }))
            );
            ensure!(text.contains(&format!("named as on rank {last}")), "{text}");
        }
        ensure_same(&recv, &vec![7; len])?;
        // An operation of the library's, and one of the program's.
        let result = match odd {
            true => comm.allreduce_in_place(&mut recv, ReduceOp::Sum),
            false => comm.allreduce_with(&send, &mut recv, "total", add),
        };
        ensure_matches!(result, Err(Error::Mismatch { .. }));
        still_works(&comm)?;
    }
    Ok(())
}

fn own_operations_that_panic(comm: Communicator) -> Outcome {
    panic_in_fold(&comm, &[1u64; 5], true)
}

/// Each rank folds a slice for all, so that nobody gets a result.
fn own_operations_on_many_elements_that_panic(comm: Communicator) -> Outcome {
    panic_in_fold(&comm, &[1u64; SLICED / 8], false)
}

/// These are longer than a chunk, and folded behind the last round.
fn own_operations_on_long_elements_that_panic(comm: Communicator) -> Outcome {
    panic_in_fold(&comm, &[[1u8; 256]; 4], true)
}

/// The communicator has ended then, on all ranks, also where the panic is caught. `for_themselves`: the other ranks fold for themselves,
/// and have a result.
fn panic_in_fold<T: Pod>(comm: &Communicator, own: &[T], for_themselves: bool) -> Outcome {
    let panics = comm.rank() == 1;
    let result = catch_unwind(AssertUnwindSafe(|| {
        comm.allreduce_with(own, &mut own.to_vec(), "panics", |_, _| {
            if panics {
                std::panic::panic_any(DELIBERATE);
            }
        })
    }));
    match &result {
        Err(_) => ensure!(panics),
        Ok(result) => ensure!(!panics && result.is_ok() == for_themselves, "{result:?}"),
    }
    // The next call fails for all.
    let error = comm.barrier().err().context("a rank has panicked in a call")?;
    ensure_matches!(&error, Error::Poisoned { rank: 1, .. });
    ensure!(error.is_fatal() && error.to_string().contains("panicked"), "{error}");
    Ok(())
}
