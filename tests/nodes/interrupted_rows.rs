//! Rows of leaders whose program does not want to wait any longer, or panics when it is asked.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use intranode::{Communicator, Error, Hierarchical, NodeMap};

use crate::scenario::{Outcome, Scenario, ensure_matches, row};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A leader asks within a tenth of a second. The rest is for a busy machine.
const SOON: Duration = Duration::from_secs(5);

pub(crate) fn rows() -> Vec<Scenario> {
    [row!(nodes_whose_leader_is_interrupted), row!(nodes_whose_interrupt_panics)]
        .map(|row| row.ranks(&[2, 4]).timeout(TIMEOUT).interrupt(is_interrupted))
        .to_vec()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    No,
    Yes,
    Panic,
}

thread_local! {
    /// Of a rank, which is a thread or a process.
    static ANSWER: Cell<Answer> = const { Cell::new(Answer::No) };
}

fn is_interrupted() -> bool {
    assert!(ANSWER.get() != Answer::Panic, "a hook");
    ANSWER.get() == Answer::Yes
}

type Call = fn(&Hierarchical) -> Result<(), Error>;

const CALLS: [Call; 3] = [
    |nodes| nodes.barrier(),
    |nodes| nodes.start_barrier()?.wait(),
    |nodes| nodes.allgather(&[1u64; 1000], &mut vec![0; 1000 * nodes.size()]),
];

/// The ranks of one node wait for those of the other, which call nothing until the leader, who is asked, has been told.
fn each_call(
    comm: &Communicator,
    answer: Answer,
    check: impl Fn(Call, &Hierarchical, usize) -> Outcome,
) -> Outcome {
    let size = comm.size();
    for leader in [0, size / 2] {
        for (number, call) in CALLS.into_iter().enumerate() {
            let nodes = Hierarchical::simulated(comm.split_local()?, &NodeMap::even(size, 2)?)?;
            let waits = nodes.node() == leader / (size / 2);
            if !waits {
                comm.barrier()?;
            }
            ANSWER.set(if comm.rank() == leader { answer } else { Answer::No });
            let checked = check(call, &nodes, leader);
            ANSWER.set(Answer::No);
            checked.with_context(|| format!("rank {leader} in call {number}"))?;
            if waits {
                comm.barrier()?;
            }
        }
    }
    Ok(())
}

fn nodes_whose_leader_is_interrupted(comm: Communicator) -> Outcome {
    each_call(&comm, Answer::Yes, |call, nodes, leader| {
        let begun = Instant::now();
        ensure_matches!(call(nodes), Err(Error::Interrupted { rank, .. }) if *rank == leader);
        ensure!(begun.elapsed() < SOON, "told after {:?}", begun.elapsed());
        Ok(())
    })
}

/// The leader goes on after the panic, and tells the other node in its next call.
fn nodes_whose_interrupt_panics(comm: Communicator) -> Outcome {
    each_call(&comm, Answer::Panic, |call, nodes, leader| {
        let result = catch_unwind(AssertUnwindSafe(|| call(nodes)));
        ANSWER.set(Answer::No);
        ensure!(result.is_err() == (nodes.rank() == leader), "{result:?}");
        let told = result.unwrap_or_else(|_| nodes.barrier());
        let text = told.err().context("no error")?.to_string();
        ensure!(text.contains(&format!("rank {leader}")) && text.contains("panicked"), "{text}");
        Ok(())
    })
}
