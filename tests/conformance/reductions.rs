//! Reductions.

use anyhow::{Context, ensure};
use intranode::protocol::Staging;
use intranode::protocol::call::INLINE;
use intranode::{Communicator, Error, ReduceOp};

use crate::model::{ARITHMETIC, OPERATIONS, Value, ensure_same, reduced, values};
use crate::scenario::{Outcome, Scenario, ensure_matches, row, seed, staging, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(allreduce_sum_of_1_2_3_4),
        row!(allreduce_min_and_max_of_rank_and_its_mirror),
        row!(allreduce_of_one_rank_changes_nothing).ranks(&[1]),
        row!(allreduce_of_nothing),
        row!(allreduce_one_element),
        row!(allreduce_1_million_elements).ranks(&[1, 2, 4, 8]),
        row!(allreduce_order_sensitive_sum_1_000_times),
        row!(allreduce_order_sensitive_sum_of_long_vectors),
        row!(allreduce_every_type_and_operation),
        row!(allreduce_every_type_and_operation_through_tiny_staging).staging(64),
        row!(allreduce_around_the_inline_and_the_chunk_size).ranks(&[1, 2, 4, 8]),
        row!(allreduce_in_place),
        row!(allreduce_not_a_number_from_any_rank),
        row!(allreduce_signed_zeros),
        row!(allreduce_bit_operations_on_floats_are_an_error),
    ]
}

fn allreduce<T: Value>(comm: &Communicator, send: &[T], op: ReduceOp) -> anyhow::Result<Vec<T>> {
    let mut recv: Vec<T> = values(0, usize::MAX, send.len());
    comm.allreduce(send, &mut recv, op)?;
    Ok(recv)
}

/// Reduces any values, and compares with the model.
fn check<T: Value>(comm: &Communicator, op: ReduceOp, seed: u64, len: usize) -> Outcome {
    let got = allreduce(comm, &values::<T>(seed, comm.rank(), len), op)?;
    let expected = reduced(op, seed, comm.size(), len);
    ensure_same(&got, &expected).with_context(|| format!("{op} of {len} × {}", std::any::type_name::<T>()))
}

fn allreduce_sum_of_1_2_3_4(comm: Communicator) -> Outcome {
    let ranks = comm.size() as f64;
    let sum = allreduce(&comm, &[1.0, 2.0, 3.0, 4.0], ReduceOp::Sum)?;
    ensure_same(&sum, &[ranks, 2.0 * ranks, 3.0 * ranks, 4.0 * ranks])
}

fn allreduce_min_and_max_of_rank_and_its_mirror(comm: Communicator) -> Outcome {
    let (rank, ranks) = (comm.rank() as f64, comm.size() as f64);
    let own = [rank, ranks - rank];
    ensure_same(&allreduce(&comm, &own, ReduceOp::Min)?, &[0.0, 1.0])?;
    ensure_same(&allreduce(&comm, &own, ReduceOp::Max)?, &[ranks - 1.0, ranks])
}

fn allreduce_of_one_rank_changes_nothing(comm: Communicator) -> Outcome {
    // Also the payload of a NaN is the same.
    let own = [1.5, -0.0, f64::INFINITY, f64::from_bits(0x7FF8_0000_0000_1234)];
    for op in ARITHMETIC {
        ensure_same(&allreduce(&comm, &own, op)?, &own)?;
        let many = values::<f64>(seed(), 0, 100_000);
        ensure_same(&allreduce(&comm, &many, op)?, &many)?;
    }
    for op in OPERATIONS {
        ensure_same(&allreduce(&comm, &[0xA5u8, 3], op)?, &[0xA5, 3])?;
    }
    Ok(())
}

fn allreduce_of_nothing(comm: Communicator) -> Outcome {
    ensure_same(&allreduce::<f64>(&comm, &[], ReduceOp::Sum)?, &[])?;
    still_works(&comm)
}

fn allreduce_one_element(comm: Communicator) -> Outcome {
    for op in OPERATIONS {
        check::<u64>(&comm, op, seed(), 1)?;
    }
    check::<f64>(&comm, ReduceOp::Sum, seed(), 1)
}

fn allreduce_1_million_elements(comm: Communicator) -> Outcome {
    const LENGTH: usize = 1_000_000;
    let send: Vec<f64> = (0..LENGTH).map(|index| (index * (comm.rank() + 1)) as f64).collect();
    let sum = allreduce(&comm, &send, ReduceOp::Sum)?;
    let factor = (1..=comm.size()).sum::<usize>();
    let expected: Vec<f64> = (0..LENGTH).map(|index| (index * factor) as f64).collect();
    ensure_same(&sum, &expected)?;
    check::<f64>(&comm, ReduceOp::Sum, seed(), LENGTH)
}

/// Values whose sum depends on the order of the terms.
const TERMS: [f64; 4] = [1e16, 1.0, -1e16, 1.0];

fn term(rank: usize, index: usize) -> f64 {
    TERMS[(rank + index) % TERMS.len()]
}

fn sum_in_rank_order(ranks: usize, index: usize) -> f64 {
    (1..ranks).fold(term(0, index), |sum, rank| sum + term(rank, index))
}

fn allreduce_order_sensitive_sum_1_000_times(comm: Communicator) -> Outcome {
    if comm.size() == 4 {
        let any_order = TERMS[0] + TERMS[2] + TERMS[1] + TERMS[3];
        ensure!(sum_in_rank_order(4, 0) != any_order, "the terms do not show the order");
    }
    let own: Vec<f64> = (0..4).map(|index| term(comm.rank(), index)).collect();
    let expected: Vec<f64> = (0..4).map(|index| sum_in_rank_order(comm.size(), index)).collect();
    for repetition in 0..1000 {
        let sum = allreduce(&comm, &own, ReduceOp::Sum)?;
        ensure_same(&sum, &expected).with_context(|| format!("repetition {repetition}"))?;
        let mut all = vec![0.0; 4 * comm.size()];
        comm.allgather(&sum, &mut all)?;
        for (rank, theirs) in all.chunks(4).enumerate() {
            ensure_same(theirs, &sum).with_context(|| format!("rank {rank}, repetition {repetition}"))?;
        }
    }
    Ok(())
}

fn allreduce_order_sensitive_sum_of_long_vectors(comm: Communicator) -> Outcome {
    for len in [13, 1000, 2048, 10_000, 100_000] {
        let own: Vec<f64> = (0..len).map(|index| term(comm.rank(), index)).collect();
        let expected: Vec<f64> = (0..len).map(|index| sum_in_rank_order(comm.size(), index)).collect();
        for _ in 0..20 {
            ensure_same(&allreduce(&comm, &own, ReduceOp::Sum)?, &expected)?;
        }
    }
    Ok(())
}

/// Every operation on every element type.
fn check_everything(comm: &Communicator, lengths: &[usize]) -> Outcome {
    fn all<T: Value>(comm: &Communicator, lengths: &[usize]) -> Outcome {
        for op in T::REDUCTIONS {
            for len in lengths {
                check::<T>(comm, *op, seed().wrapping_add(*len as u64), *len)?;
            }
        }
        Ok(())
    }
    all::<u8>(comm, lengths)?;
    all::<u16>(comm, lengths)?;
    all::<u32>(comm, lengths)?;
    all::<u64>(comm, lengths)?;
    all::<usize>(comm, lengths)?;
    all::<i8>(comm, lengths)?;
    all::<i16>(comm, lengths)?;
    all::<i32>(comm, lengths)?;
    all::<i64>(comm, lengths)?;
    all::<isize>(comm, lengths)?;
    all::<f32>(comm, lengths)?;
    all::<f64>(comm, lengths)
}

fn allreduce_every_type_and_operation(comm: Communicator) -> Outcome {
    check_everything(&comm, &[1, 5, 97, 1000, 20_001])
}

fn allreduce_every_type_and_operation_through_tiny_staging(comm: Communicator) -> Outcome {
    check_everything(&comm, &[1, 8, 65, 333])
}

fn allreduce_around_the_inline_and_the_chunk_size(comm: Communicator) -> Outcome {
    let Staging { short, folded, .. } = staging(&comm);
    // 16 KiB: from there on a chunk is folded in slices.
    for size in [INLINE, short, 16 << 10, folded] {
        for len in size - 1..=size + 1 {
            check::<u8>(&comm, ReduceOp::Sum, seed(), len)?;
        }
    }
    for size in [INLINE, short, folded, 3 * folded] {
        for len in size / 8 - 1..=size / 8 + 1 {
            check::<f64>(&comm, ReduceOp::Sum, seed(), len)?;
        }
    }
    Ok(())
}

fn allreduce_in_place(comm: Communicator) -> Outcome {
    for len in [0, 1, 12, 13, 5000, 100_000] {
        for op in ARITHMETIC {
            let mut data = values::<f64>(seed(), comm.rank(), len);
            comm.allreduce_in_place(&mut data, op)?;
            ensure_same(&data, &reduced(op, seed(), comm.size(), len))?;
        }
    }
    Ok(())
}

fn allreduce_not_a_number_from_any_rank(comm: Communicator) -> Outcome {
    let odd = f64::from_bits(0xFFF8_0000_0000_0001);
    for from in 0..comm.size() {
        for len in [1, 100, 10_000] {
            let own = vec![if comm.rank() == from { odd } else { 1.0 }; len];
            // With one rank the value does not change.
            let expected = vec![if comm.size() == 1 { odd } else { f64::NAN }; len];
            for op in ARITHMETIC {
                ensure_same(&allreduce(&comm, &own, op)?, &expected).with_context(|| format!("{op}"))?;
            }
        }
    }
    Ok(())
}

fn allreduce_signed_zeros(comm: Communicator) -> Outcome {
    for from in 0..comm.size() {
        for len in [1, 100, 10_000] {
            let minus = vec![if comm.rank() == from { -0.0f32 } else { 0.0 }; len];
            let plus: Vec<f32> = minus.iter().map(|value| -value).collect();
            ensure_same(&allreduce(&comm, &minus, ReduceOp::Min)?, &vec![-0.0; len])?;
            ensure_same(&allreduce(&comm, &plus, ReduceOp::Max)?, &vec![0.0; len])?;
        }
    }
    Ok(())
}

fn allreduce_bit_operations_on_floats_are_an_error(comm: Communicator) -> Outcome {
    for op in OPERATIONS.into_iter().filter(|op| op.is_bitwise()) {
        let mut recv = [7.5];
        let result = comm.allreduce(&[1.0], &mut recv, op);
        ensure_matches!(result, Err(Error::InvalidReduction { reduction, .. }) if *reduction == op);
        ensure!(recv == [7.5], "something was written");
        let error = comm.allreduce_in_place(&mut [1.0f32], op).expect_err("no such operation");
        ensure!(!error.is_fatal());
        ensure!(error.to_string().contains("f32") && error.to_string().contains("integers"), "{error}");
        still_works(&comm)?;
    }
    Ok(())
}
