//! A long mixed sequence with random delays of the ranks.

use std::time::{Duration, Instant};

use anyhow::Context;
use fastrand::Rng;
use intranode::{Communicator, ReduceOp};

use crate::model::{ensure_same, reduced, values};
use crate::scenario::{Outcome, Scenario, row, seed};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(mixed_sequence_10_000_rounds_with_a_random_rank_delayed).ranks(&[1, 2, 4]),
        row!(mixed_sequence_through_tiny_staging).staging(64),
    ]
}

fn mixed_sequence_10_000_rounds_with_a_random_rank_delayed(comm: Communicator) -> Outcome {
    mixed_sequence(&comm, 10_000, 3000)
}

fn mixed_sequence_through_tiny_staging(comm: Communicator) -> Outcome {
    mixed_sequence(&comm, 300, 100)
}

fn mixed_sequence(comm: &Communicator, rounds: u64, longest: usize) -> Outcome {
    // The same on all ranks.
    let mut random = Rng::with_seed(seed());
    for round in 0..rounds {
        mixed_round(comm, &mut random, longest).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// allgatherv → allreduce → barrier → allgatherv → broadcast, each with a rank delayed.
fn mixed_round(comm: &Communicator, random: &mut Rng, longest: usize) -> Outcome {
    let mut random = random.fork();
    delay(comm, &mut random);
    gather(comm, &mut random, longest).context("allgatherv")?;

    delay(comm, &mut random);
    let (seed, len) = (random.u64(..), length(&mut random, longest));
    let mut data = values::<f64>(seed, comm.rank(), len);
    comm.allreduce_in_place(&mut data, ReduceOp::Sum)?;
    ensure_same(&data, &reduced(ReduceOp::Sum, seed, comm.size(), len)).context("allreduce")?;

    delay(comm, &mut random);
    comm.barrier()?;

    delay(comm, &mut random);
    gather(comm, &mut random, longest).context("allgatherv after the barrier")?;

    delay(comm, &mut random);
    let (seed, len, root) = (random.u64(..), length(&mut random, longest), random.usize(..comm.size()));
    let expected = values::<u64>(seed, root, len);
    let mut buffer = if comm.rank() == root { expected.clone() } else { vec![0; len] };
    comm.broadcast(&mut buffer, root)?;
    ensure_same(&buffer, &expected).context("broadcast")
}

fn gather(comm: &Communicator, random: &mut Rng, longest: usize) -> Outcome {
    let seed = random.u64(..);
    let counts: Vec<usize> = (0..comm.size()).map(|_| length(random, longest)).collect();
    let blocks: Vec<Vec<i32>> = counts.iter().enumerate().map(|(rank, len)| values(seed, rank, *len)).collect();
    let expected = blocks.concat();
    let displs: Vec<usize> = (0..comm.size()).map(|rank| counts[..rank].iter().sum()).collect();
    let mut recv = vec![0; expected.len()];
    comm.allgatherv(&blocks[comm.rank()], &mut recv, &counts, &displs)?;
    ensure_same(&recv, &expected)
}

/// Mostly short, as in programs; sometimes empty.
fn length(random: &mut Rng, longest: usize) -> usize {
    match random.u8(..20) {
        0 => 0,
        1 => random.usize(..longest),
        _ => random.usize(..30),
    }
}

/// Delays one rank, mostly for a short time.
fn delay(comm: &Communicator, random: &mut Rng) {
    let (late, how, micros) = (random.usize(..comm.size()), random.u8(..), random.u64(1..100));
    if late != comm.rank() {
        return;
    }
    match how {
        0 => std::thread::sleep(Duration::from_micros(10 * micros)),
        1..20 => std::thread::yield_now(),
        20..30 => {
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(micros) {
                std::hint::spin_loop();
            }
        }
        _ => {}
    }
}
