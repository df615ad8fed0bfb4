//! The collectives of ranks that are threads, in sizes for Miri (`make miri`): the segment, the platform, the copies and the folds of
//! production, with everything that Miri checks. Without it this checks the results.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use intranode::{Communicator, Config, Error, ReduceOp};

/// Some lengths, in numbers: none, in a header, in a chunk, in several.
const LENGTHS: [usize; 5] = [0, 1, 13, 40, 150];

/// Few enough for 150 numbers of 32 bits to take several rounds.
const CHUNK: usize = 256;

/// Longer than any call takes.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs a program on jobs of these sizes, with a flat barrier and with a hierarchical one.
fn run(sizes: &[usize], program: impl Fn(&Communicator) -> Result<(), Error> + Sync) {
    for (size, group) in sizes.iter().flat_map(|size| [(*size, 0), (*size, 2)]) {
        let config = Config::new("/miri", 0, size).timeout(LIMIT).chunk_bytes(CHUNK).group(group);
        let ends = intranode::threads_with(&config, |comm| program(&comm)).expect("a job");
        ends.into_iter().for_each(|end| end.expect("every call succeeds"));
    }
}

/// The numbers of a rank.
fn own(rank: usize, len: usize) -> Vec<u32> {
    (0..len as u32).map(|index| index + 1000 * rank as u32).collect()
}

/// Those of these ranks, one after the other.
fn all(ranks: impl IntoIterator<Item = usize>, len: usize) -> Vec<u32> {
    ranks.into_iter().flat_map(|rank| own(rank, len)).collect()
}

/// Their sums.
fn sums(ranks: impl IntoIterator<Item = usize> + Clone, len: usize) -> Vec<u32> {
    (0..len as u32)
        .map(|index| ranks.clone().into_iter().map(|rank| index + 1000 * rank as u32).sum())
        .collect()
}

#[test]
fn reductions() {
    run(&[2, 3], |comm| {
        let (rank, size) = (comm.rank(), comm.size());
        for len in LENGTHS {
            let (send, expected) = (own(rank, len), sums(0..size, len));
            let mut recv = vec![7; len];
            comm.allreduce(&send, &mut recv, ReduceOp::Sum)?;
            assert_eq!(recv, expected);
            let mut data = send.clone();
            comm.allreduce_in_place(&mut data, ReduceOp::Sum)?;
            assert_eq!(data, expected);
            let mut data = send.clone();
            comm.scan_in_place(&mut data, ReduceOp::Sum)?;
            assert_eq!(data, sums(0..=rank, len));
        }
        Ok(())
    });
}

#[test]
fn reductions_to_one_rank_and_in_parts() {
    run(&[3], |comm| {
        let (rank, size) = (comm.rank(), comm.size());
        for len in LENGTHS {
            let mut recv = vec![7; len];
            comm.reduce(&own(rank, len), (rank == 1).then_some(&mut recv[..]), ReduceOp::Sum, 1)?;
            assert_eq!(recv, if rank == 1 { sums(0..size, len) } else { vec![7; len] });
            let mut recv = vec![7; len];
            comm.reduce_scatter_block(&own(rank, size * len), &mut recv, ReduceOp::Max)?;
            assert_eq!(recv, own(size - 1, size * len)[rank * len..][..len]);
            let mut recv = vec![7; len];
            comm.exscan(&own(rank, len), &mut recv, ReduceOp::Sum)?;
            assert_eq!(recv, if rank > 0 { sums(0..rank, len) } else { vec![7; len] });
        }
        Ok(())
    });
}

#[test]
fn gathers() {
    run(&[2, 3], |comm| {
        let (rank, size) = (comm.rank(), comm.size());
        for len in LENGTHS {
            let expected = all(0..size, len);
            let mut recv = vec![7; size * len];
            comm.allgather(&own(rank, len), &mut recv)?;
            assert_eq!(recv, expected);
            let mut recv = vec![7; size * len];
            comm.gather(&own(rank, len), (rank == 0).then_some(&mut recv[..]), 0)?;
            assert_eq!(recv, if rank == 0 { expected.clone() } else { vec![7; size * len] });
            // Blocks of different lengths, with a gap between them.
            let counts: Vec<usize> = (0..size).map(|rank| len.saturating_sub(rank)).collect();
            let displs: Vec<usize> = (0..size).map(|rank| rank * (len + 1)).collect();
            let mut recv = vec![7; size * (len + 1)];
            comm.allgatherv(&own(rank, counts[rank]), &mut recv, &counts, &displs)?;
            for rank in 0..size {
                let (block, gap) = recv[displs[rank]..][..len + 1].split_at(counts[rank]);
                assert!(block == own(rank, counts[rank]) && gap.iter().all(|number| *number == 7));
            }
        }
        Ok(())
    });
}

#[test]
fn broadcasts_and_scatters() {
    run(&[2, 3], |comm| {
        let (rank, size) = (comm.rank(), comm.size());
        for len in LENGTHS {
            let mut data = own(rank, len);
            comm.broadcast(&mut data, 1)?;
            assert_eq!(data, own(1, len));
            let (send, mut recv) = (own(5, size * len), vec![7; len]);
            comm.scatter((rank == 1).then_some(&send[..]), &mut recv, 1)?;
            assert_eq!(recv, send[rank * len..][..len]);
            let mut data = if rank == 0 { own(3, len) } else { Vec::new() };
            comm.broadcast_vec(&mut data, 0)?;
            assert_eq!(data, own(3, len));
        }
        Ok(())
    });
}

#[test]
fn exchanges_of_all_with_all() {
    run(&[3], |comm| {
        let (rank, size) = (comm.rank(), comm.size());
        for len in [0, 1, 13, 90] {
            let send = own(rank, size * len);
            let expected: Vec<u32> =
                (0..size).flat_map(|other| own(other, size * len)[rank * len..][..len].to_vec()).collect();
            let mut recv = vec![7; size * len];
            comm.alltoall(&send, &mut recv)?;
            assert_eq!(recv, expected);
            let mut data = send;
            comm.alltoall_in_place(&mut data)?;
            assert_eq!(data, expected);
        }
        Ok(())
    });
}

#[test]
fn calls_that_are_completed_later() {
    run(&[3], |comm| {
        let (rank, size) = (comm.rank(), comm.size());
        for len in [1, 13, 90] {
            let barrier = comm.start_barrier()?;
            let sum = comm.start_allreduce(own(rank, len), ReduceOp::Sum)?;
            barrier.wait()?;
            assert_eq!(sum.wait()?, sums(0..size, len));
            // Dropped before it is complete.
            drop(comm.start_allreduce(own(rank, len), ReduceOp::Sum)?);
            comm.barrier()?;
        }
        Ok(())
    });
}

#[test]
fn different_calls_are_errors_and_all_go_on() {
    run(&[2, 3], |comm| {
        for turn in 0..3 {
            let different = comm.rank() == turn % comm.size();
            let end = match turn {
                0 if different => comm.barrier(),
                0 => comm.broadcast(&mut [0u8; 5], 0),
                1 if different => comm.broadcast(&mut [0u8; 5], 99),
                1 => comm.broadcast(&mut [0u8; 5], 0),
                _ if different => comm.allreduce_in_place(&mut vec![0.5; 100], ReduceOp::Sum),
                _ => comm.allreduce_in_place(&mut vec![0.5; 101], ReduceOp::Sum),
            };
            let error = end.expect_err("they differ");
            assert!(!error.is_fatal() && !error.to_string().is_empty());
            assert!(!comm.state()?.ended);
            comm.barrier()?;
        }
        Ok(())
    });
}

#[test]
fn a_rank_that_leaves_or_does_not_come_is_named() {
    let ends = intranode::threads(3, |comm| {
        comm.barrier().expect("all come");
        if comm.rank() == 1 { comm.leave() } else { comm.barrier() }
    });
    let ends = ends.expect("a job");
    assert!(matches!(
        ends[..],
        [Err(Error::RankLeft { rank: 1, .. }), Ok(()), Err(Error::RankLeft { rank: 1, .. })]
    ));
    let told = AtomicUsize::new(0);
    // Miri is slow.
    let config = Config::new("/miri", 0, 2).timeout(Duration::from_secs(if cfg!(miri) { 10 } else { 1 }));
    let ends = intranode::threads_with(&config, |comm| {
        comm.barrier().expect("all come");
        while comm.rank() == 0 && told.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        let end = comm.barrier();
        told.fetch_add(1, Relaxed);
        end
    });
    for end in ends.expect("a job") {
        assert!(matches!(&end, Err(Error::TimedOut { late, .. }) if **late == [0]), "{end:?}");
    }
}
