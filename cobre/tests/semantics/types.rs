//! Every type that may cross, and one that may not.

use std::fmt::Debug;

use anyhow::ensure;
use cobre_comm::{CommData, CommError, Communicator, ReduceOp, prefix_displs};
use intranode_cobre::ShmBackend;

use crate::{Outcome, Row, SEVERAL, USUAL, ensure_matches, rows};

pub(crate) fn rows() -> Vec<Row> {
    let mut all = rows![USUAL;
        every_number_in_every_collective,
        floats_have_the_same_nan_and_zero_everywhere,
        bool_and_char_in_every_collective,
        reductions_that_a_type_does_not_have,
        a_type_that_can_not_cross,
    ]
    .to_vec();
    all.extend(rows![SEVERAL; a_type_that_can_not_cross_on_one_rank, one_number_type_for_another]);
    all
}

/// Gathers and broadcasts `values`, of which each rank has one.
fn moves<T: CommData + PartialEq + Debug>(comm: &ShmBackend, values: &[T]) -> Outcome {
    let size = comm.size();
    let mine = values[comm.rank() % values.len()];
    let expected: Vec<T> = (0..size).map(|rank| values[rank % values.len()]).collect();
    let counts = vec![1; size];
    let mut all = vec![T::default(); size];
    comm.allgatherv(&[mine], &mut all, &counts, &prefix_displs(&counts))?;
    ensure!(all == expected, "{all:?} is not {expected:?}");
    let mut buffer = [mine];
    comm.broadcast(&mut buffer, size - 1)?;
    ensure!(buffer[..] == expected[size - 1..], "{buffer:?}");
    Ok(())
}

/// What a reduction gives.
fn reduced<T: CommData>(comm: &ShmBackend, mine: T, op: ReduceOp) -> Result<T, CommError> {
    let mut result = [T::default()];
    comm.allreduce(&[mine], &mut result, op)?;
    Ok(result[0])
}

macro_rules! check_number {
    ($comm:expr, $($number:ty),*) => {$({
        let (rank, size) = ($comm.rank() as $number, $comm.size() as $number);
        moves($comm, &[<$number>::MIN, <$number>::MAX, 1 as $number, 0 as $number])?;
        let sum = reduced($comm, rank + 1 as $number, ReduceOp::Sum)?;
        ensure!(sum == size * (size + 1 as $number) / 2 as $number, "{}: {sum}", stringify!($number));
        ensure!(reduced($comm, rank, ReduceOp::Min)? == 0 as $number);
        ensure!(reduced($comm, rank, ReduceOp::Max)? == size - 1 as $number);
    })*};
}

fn every_number_in_every_collective(comm: &ShmBackend) -> Outcome {
    check_number!(comm, u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64);
    // A sum that does not fit wraps.
    let wrapped = reduced(comm, 200_u8, ReduceOp::Sum)?;
    ensure!(wrapped == (0..comm.size()).fold(0, |sum: u8, _| sum.wrapping_add(200)));
    Ok(())
}

fn floats_have_the_same_nan_and_zero_everywhere(comm: &ShmBackend) -> Outcome {
    let last = comm.rank() + 1 == comm.size();
    if comm.size() > 1 {
        for op in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max] {
            let mine = if last { f64::NAN } else { 1.0 };
            ensure!(reduced(comm, mine, op)?.is_nan(), "{op:?}");
        }
        let zero = if last { -0.0_f64 } else { 0.0 };
        ensure!(reduced(comm, zero, ReduceOp::Min)?.to_bits() == (-0.0_f64).to_bits());
        ensure!(reduced(comm, zero, ReduceOp::Max)?.to_bits() == 0);
    }
    Ok(())
}

fn bool_and_char_in_every_collective(comm: &ShmBackend) -> Outcome {
    moves(comm, &[true, false])?;
    moves(comm, &['a', '\u{10ffff}', '\0'])?;
    let first = comm.rank() == 0;
    ensure!(reduced(comm, first, ReduceOp::BitwiseOr)?);
    ensure!(reduced(comm, first, ReduceOp::Max)?);
    ensure!(reduced(comm, first, ReduceOp::Min)? == (comm.size() == 1));
    let letter = if first { 'z' } else { 'a' };
    ensure!(reduced(comm, letter, ReduceOp::Max)? == 'z');
    ensure!(reduced(comm, letter, ReduceOp::Min)? == if comm.size() == 1 { 'z' } else { 'a' });

    // The gap between two blocks stays as it is.
    let size = comm.size();
    let mut flags = vec![true; 2 * size];
    let displs: Vec<usize> = (0..size).map(|rank| 2 * rank).collect();
    comm.allgatherv(&[false], &mut flags, &vec![1; size], &displs)?;
    ensure!(flags.chunks(2).all(|pair| pair == [false, true]), "{flags:?}");
    Ok(())
}

fn reductions_that_a_type_does_not_have(comm: &ShmBackend) -> Outcome {
    let refused = |result: Result<(), CommError>, name: &str| {
        ensure_matches!(result, Err(CommError::CollectiveFailed { operation: "allreduce", mpi_error_code: 0, message })
            if message.contains(name));
        Ok(())
    };
    refused(reduced(comm, 1.0_f64, ReduceOp::BitwiseOr).map(drop), "f64")?;
    refused(reduced(comm, 1.0_f32, ReduceOp::BitwiseOr).map(drop), "f32")?;
    refused(reduced(comm, true, ReduceOp::Sum).map(drop), "bool")?;
    refused(reduced(comm, 'a', ReduceOp::Sum).map(drop), "char")?;
    refused(reduced(comm, 'a', ReduceOp::BitwiseOr).map(drop), "char")?;
    comm.barrier()?;
    Ok(())
}

#[derive(Clone, Copy, Default)]
struct Padded(#[expect(dead_code)] u8, #[expect(dead_code)] u32);

/// Calls every collective with values of a type that cannot cross.
fn send_padded(comm: &ShmBackend) -> [Result<(), CommError>; 3] {
    let size = comm.size();
    let counts = vec![1; size];
    [
        comm.allgatherv(
            &[Padded::default()],
            &mut vec![Padded::default(); size],
            &counts,
            &prefix_displs(&counts),
        ),
        reduced(comm, Padded::default(), ReduceOp::Max).map(drop),
        comm.broadcast(&mut [Padded::default()], 0),
    ]
}

fn names_the_type(results: [Result<(), CommError>; 3]) -> Outcome {
    for (result, name) in results.into_iter().zip(["allgatherv", "allreduce", "broadcast"]) {
        ensure_matches!(result, Err(CommError::CollectiveFailed { operation, mpi_error_code: 0, message })
            if *operation == name && message.contains("Padded"));
    }
    Ok(())
}

fn a_type_that_can_not_cross(comm: &ShmBackend) -> Outcome {
    names_the_type(send_padded(comm))?;
    comm.barrier()?;
    Ok(())
}

fn a_type_that_can_not_cross_on_one_rank(comm: &ShmBackend) -> Outcome {
    let size = comm.size();
    if comm.rank() == 1 {
        names_the_type(send_padded(comm))?;
    } else {
        let counts = vec![1; size];
        for result in [
            comm.allgatherv(&[0_u64], &mut vec![0; size], &counts, &prefix_displs(&counts)),
            reduced(comm, 0_u64, ReduceOp::Max).map(drop),
            comm.broadcast(&mut [0_u64], 0),
        ] {
            ensure_matches!(result, Err(CommError::CollectiveFailed { message, .. }) if message.contains("rank 1"));
        }
    }
    comm.barrier()?;
    Ok(())
}

fn one_number_type_for_another(comm: &ShmBackend) -> Outcome {
    let result = if comm.rank() == 0 {
        reduced(comm, 1_u64, ReduceOp::Sum).map(drop)
    } else {
        reduced(comm, 1_i64, ReduceOp::Sum).map(drop)
    };
    ensure_matches!(result, Err(CommError::CollectiveFailed { operation: "allreduce", mpi_error_code: 0, message })
        if message.contains("u64") && message.contains("i64"));
    comm.barrier()?;
    Ok(())
}
