//! `INTRANODE_CHECK=1`: operations of the program's own are compared by what they do.

use anyhow::{Context, ensure};
use intranode::{Communicator, Error};
use libtest_mimic::Trial;

use crate::job::{Job, WAITS};
use crate::scenario::{Outcome, ensure_matches, still_works};

type Role = fn() -> Outcome;

pub(crate) const ROLES: [(&str, Role); 2] = [(ALL, on_all), (ONE, on_one)];
const ALL: &str = "operations_are_compared_by_what_they_do";
const ONE: &str = "a_rank_that_compares_operations_alone_is_a_mismatch";

/// Trials that do not use a scenario.
pub(crate) fn trials() -> Vec<Trial> {
    let trial = |role: &'static str, size: usize| {
        let run = move || checked(role, size).map_err(|error| format!("{error:#}").into());
        Trial::test(format!("processes::{size}::{role}"), run)
    };
    [1, 2, 4].map(|size| trial(ALL, size)).into_iter().chain([2, 4].map(|size| trial(ONE, size))).collect()
}

/// In [`ONE`] the last rank is the only one with the variable.
fn checked(role: &str, size: usize) -> Outcome {
    let mut job = Job::new(size, WAITS[0]);
    for rank in 0..size {
        job.start_with(rank, role, |command| {
            command.env("INTRANODE_CHECK", if role == ALL || rank == size - 1 { "1" } else { "0" });
        })?;
    }
    job.finish(&vec![0; size])
}

/// One of each, with `step` in what the closure does. Returns what was received.
fn calls(comm: &Communicator, len: usize, step: u64) -> [(Result<(), Error>, Vec<u64>); 3] {
    let (rank, root) = (comm.rank(), comm.size() - 1);
    let send = vec![rank as u64 + 1; len];
    let digits = |acc: &mut u64, x: &u64| *acc = acc.wrapping_mul(10).wrapping_add(step * x);
    let mut recv = [vec![0; len], vec![0; len], vec![0; len]];
    let results = [
        comm.allreduce_with(&send, &mut recv[0], "digits", digits),
        comm.reduce_with(&send, (rank == root).then_some(&mut recv[1][..]), "digits", digits, root),
        comm.scan_with(&send, &mut recv[2], "digits", digits),
    ];
    let [a, b, c] = recv;
    let [x, y, z] = results;
    [(x, a), (y, b), (z, c)]
}

fn on_all() -> Outcome {
    let comm = Communicator::from_env()?;
    let (rank, size) = (comm.rank(), comm.size());
    let digits = |ranks: usize| (2..=ranks as u64).fold(1u64, |acc, x| 10 * acc + x);
    for len in [1, 13, 700, 20_000] {
        let [(all, sums), (root, at_root), (scan, up_to)] = calls(&comm, len, 1);
        all.and(root).and(scan).with_context(|| format!("the same operation, {len} elements"))?;
        ensure!(sums == vec![digits(size); len] && up_to == vec![digits(rank + 1); len]);
        ensure!(at_root == vec![if rank + 1 == size { digits(size) } else { 0 }; len]);
        // One rank's closure has captured something else. A rank alone has nothing to compare with.
        for odd in (0..size).filter(|_| size > 1) {
            for (result, recv) in calls(&comm, len, 1 + u64::from(rank == odd)) {
                let error = result.err().context("no error")?;
                ensure!(!error.is_fatal() && recv == vec![0; len], "{error}");
                let others: Vec<usize> = if odd == 0 { (1..size).collect() } else { vec![odd] };
                ensure_matches!(&error, Error::OperationsDiffer { ranks, .. } if **ranks == *others);
                ensure!(
                    error.to_string().contains(&format!("rank {}", others[0])) || others.len() > 1,
                    "{error}"
                );
            }
            still_works(&comm)?;
        }
    }
    // Nothing to compare, and the name is still compared.
    comm.allreduce_with(&[0u64; 0], &mut [], "nothing", |_, _| ())?;
    if size > 1 {
        let name = if rank == 0 { "one" } else { "another" };
        let result = comm.allreduce_with(&[1u64], &mut [0], name, |acc, x| *acc += x);
        ensure_matches!(result, Err(Error::Mismatch { .. }));
    }
    still_works(&comm)
}

fn on_one() -> Outcome {
    let comm = Communicator::from_env()?;
    for (result, _) in calls(&comm, 13, 1) {
        ensure_matches!(result, Err(Error::Mismatch { .. }));
        still_works(&comm)?;
    }
    Ok(())
}
