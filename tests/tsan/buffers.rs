//! The collectives over the callers' buffers.

use intranode::ReduceOp;

use crate::{Program, run};

pub(crate) const PROGRAMS: &[Program] = &[
    ("barriers", barriers),
    ("reductions", reductions),
    ("gathers", gathers),
    ("gathers with non-temporal stores", gathers_with_non_temporal_stores),
    ("broadcasts", broadcasts),
    ("different calls", different_calls),
];

fn barriers() {
    run(&[2, 3, 8], |comm, guarded| (0..100).try_for_each(|_| guarded.by(comm, || comm.barrier())));
}

/// Elements that fit into a header, into a chunk, into slices of one chunk, and of several.
fn reductions() {
    run(&[2, 5, 8], |comm, guarded| {
        let (rank, size) = (comm.rank() as u64, comm.size() as u64);
        for len in [1, 12, 13, 1_000, 30_000, 300_001] {
            let own: Vec<u64> = (0..len).map(|index| index * (rank + 1)).collect();
            let expected: Vec<u64> = (0..len).map(|index| index * size * (size + 1) / 2).collect();
            let mut sums = vec![0; own.len()];
            guarded.by(comm, || comm.allreduce(&own, &mut sums, ReduceOp::Sum))?;
            assert!(sums == expected, "{len} elements");
            let mut sums = own;
            guarded.by(comm, || comm.allreduce_in_place(&mut sums, ReduceOp::Sum))?;
            assert!(sums == expected, "{len} elements in place");
        }
        Ok(())
    });
}

/// Blocks of different lengths, with a gap after each.
fn gathers() {
    run(&[2, 3, 8], |comm, guarded| {
        let (rank, size) = (comm.rank(), comm.size());
        for len in [0, 1, 90, 5_000, 700_000] {
            let counts: Vec<usize> = (0..size).map(|rank| len - rank.min(len)).collect();
            let displs: Vec<usize> = (0..size).map(|rank| rank * (len + 1)).collect();
            let byte = |rank: usize, index: usize| (100 * rank + 7 * index) as u8;
            let own: Vec<u8> = (0..counts[rank]).map(|index| byte(rank, index)).collect();
            let mut all = vec![0xEE; size * (len + 1)];
            guarded.by(comm, || comm.allgatherv(&own, &mut all, &counts, &displs))?;
            for rank in 0..size {
                let block = &all[displs[rank]..displs[rank] + counts[rank]];
                assert!(block.iter().enumerate().all(|(index, got)| *got == byte(rank, index)), "{len} bytes");
            }
            let mut all = vec![0; len * size];
            guarded.by(comm, || comm.allgather(&vec![rank as u16; len], &mut all))?;
            assert!(
                all.iter().enumerate().all(|(index, got)| usize::from(*got) == index / len),
                "{len} numbers"
            );
        }
        Ok(())
    });
}

/// From 16 MiB on the receive buffer is written with non-temporal stores.
fn gathers_with_non_temporal_stores() {
    const LEN: usize = (8 << 20) + 5;
    run(&[2], |comm, guarded| {
        let own = vec![comm.rank() as u8; LEN];
        let mut all = vec![0xEE; 2 * LEN];
        guarded.by(comm, || comm.allgather(&own, &mut all))?;
        assert!(all[..LEN].iter().all(|got| *got == 0) && all[LEN..].iter().all(|got| *got == 1));
        Ok(())
    });
}

fn broadcasts() {
    run(&[2, 3, 8], |comm, guarded| {
        for root in 0..comm.size() {
            for len in [1, 20, 3_000, 400_000] {
                let mut numbers = vec![comm.rank() as u32; len];
                guarded.by(comm, || comm.broadcast(&mut numbers, root))?;
                assert!(numbers.iter().all(|number| *number == root as u32), "{len} numbers of rank {root}");
            }
        }
        Ok(())
    });
}

/// All ranks read the calls of all others, and make further calls.
fn different_calls() {
    run(&[2, 3, 8], |comm, guarded| {
        for turn in 0..20 {
            let different = comm.rank() == turn % comm.size();
            let calls = || match turn % 3 {
                0 if different => comm.barrier(),
                0 => comm.broadcast(&mut [0u8; 5], 0),
                1 if different => comm.broadcast(&mut [0u8; 5], 99),
                1 => comm.broadcast(&mut [0u8; 5], 0),
                _ if different => comm.allreduce_in_place(&mut vec![0.5; 5_000], ReduceOp::Sum),
                _ => comm.allreduce_in_place(&mut vec![0.5; 5_001], ReduceOp::Sum),
            };
            guarded.by(comm, || {
                let error = calls().expect_err("they differ");
                assert!(!error.is_fatal() && !error.to_string().is_empty());
                // Also while others make further calls.
                assert!(!comm.state()?.ended);
                Ok(())
            })?;
        }
        Ok(())
    });
}
