//! Regions, exchanges and split communicators.
//!
//! Each rank has its own mapping of their memory, at its own address. So the sanitizer detects neither races in it nor the
//! order that its words establish. It does detect the round of the job's own segment in which regions are published.

use intranode::{Error, ReduceOp};

use crate::{Program, run};

pub(crate) const PROGRAMS: &[Program] =
    &[("regions", regions), ("exchanges", exchanges), ("parts of a job", parts_of_a_job)];

fn regions() {
    run(&[2, 3, 8], |comm, guarded| {
        let (rank, size) = (comm.rank(), comm.size());
        for len in [0, 5, 10_000] {
            let mut region = comm.region::<u64>(len)?;
            region.as_mut_slice().fill(1);
            let shared = guarded.by(comm, || region.publish())?;
            assert!(shared.iter().all(|value| *value == 1));
            let mut region = guarded.by(comm, || shared.reclaim())?;
            guarded.by(comm, || region.distribute())?;
            region.as_mut_slice().fill(2);
            // Every rank owns two ranges, between those of the others.
            let step = len / (2 * size);
            let start = |index: usize| (index * size + rank) * step;
            let own = [0, 1].map(|index| start(index)..start(index) + step);
            guarded.by(comm, || region.set_ownership(own))?;
            region.parts_mut().for_each(|part| part.fill(3));
            let shared = guarded.by(comm, || region.publish())?;
            assert!(shared[..2 * size * step].iter().all(|value| *value == 3));
        }
        Ok(())
    });
}

fn exchanges() {
    run(&[2, 3, 8], |comm, guarded| {
        let counts: Vec<usize> = (0..comm.size()).map(|rank| 1_000 * (rank % 2) + 1).collect();
        let mut exchange = comm.exchange::<u32>(&counts)?;
        for turn in 0..20 {
            exchange.own().fill(turn);
            let shared = guarded.by(comm, || exchange.share().map(<[u32]>::to_vec))?;
            assert!(shared.iter().all(|value| *value == turn));
        }
        Ok(())
    });
}

fn parts_of_a_job() {
    run(&[2, 3, 8], |comm, guarded| {
        let part = guarded.by(comm, || comm.split(comm.rank() % 2, 0))?;
        let all = guarded.by(comm, || comm.split_local())?;
        for comm in [&part, &all] {
            let mut sum = vec![1u64; 20_000];
            comm.allreduce_in_place(&mut sum, ReduceOp::Sum)?;
            assert!(sum.iter().all(|sum| *sum == comm.size() as u64));
            comm.barrier()?;
        }
        drop(part);
        // Leaving the split communicator ends neither.
        all.barrier()?;
        Ok::<(), Error>(())
    });
}
