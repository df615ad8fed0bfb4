//! Random worlds against a sequential model, with ranks as threads and as processes.
//!
//! A failing world is shrunk to a minimal one. `CONFORMANCE_SEED` repeats the choice of worlds.

use anyhow::Context;
use intranode::{Communicator, Config, Error, ReduceOp};
use libtest_mimic::{Failed, Trial};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::job::{Job, WAITS, Wait};
use crate::model::{Value, ensure_same, reduced, values};
use crate::scenario::{Outcome, ensure_matches, seed};

mod folds;
mod moves;
mod started;
mod world;

use started::Held;
use world::{Call, Kind, Step, World, world};

/// The role of a process that is a rank of a random world.
pub(crate) const ROLE: &str = "random_world";

/// The variable that gives a process its world.
const WORLD: &str = "CONFORMANCE_WORLD";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials =
        vec![Trial::test("threads::random_worlds_agree_with_the_model", || try_worlds(1000, play))];
    for wait in WAITS {
        let name = format!("processes::{}::random_worlds_agree_with_the_model", wait.name());
        trials.push(Trial::test(name, || try_worlds(50, |world| play_processes(world, *wait))));
    }
    trials
}

/// Runs `cases` random worlds, or `PROPTEST_CASES`.
fn try_worlds(cases: u32, play: impl Fn(&World) -> Outcome) -> Result<(), Failed> {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let cases = if asked { ProptestConfig::default().cases } else { cases };
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut random = fastrand::Rng::with_seed(seed());
    let numbers: [u8; 32] = std::array::from_fn(|_| random.u8(..));
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &numbers))
        .run(&world(), |world| play(&world).map_err(|error| TestCaseError::fail(format!("{error:#}"))))
        .map_err(|failure| failure.to_string().into())
}

/// Runs a world over processes.
fn play_processes(world: &World, wait: Wait) -> Outcome {
    let json = serde_json::to_string(world)?;
    let mut job = Job::new(world.ranks, wait);
    for rank in 0..world.ranks {
        job.start_with(rank, ROLE, |command| {
            command.env(WORLD, &json);
        })?;
    }
    job.finish(&vec![0; world.ranks])
}

/// Runs in one of these processes.
pub(crate) fn play_process() -> Outcome {
    let world: World = serde_json::from_str(&std::env::var(WORLD)?)?;
    let comm = world.configure(Config::from_env()?).join()?;
    play_rank(&comm, &world)
}

/// Runs a world over threads of this process.
fn play(world: &World) -> Outcome {
    let config = world.configure(Config::new("/threads", 0, world.ranks));
    let results = intranode::threads_with(&config, |comm| play_rank(&comm, world))?;
    for (rank, result) in results.into_iter().enumerate() {
        result.with_context(|| format!("rank {rank}"))?;
    }
    Ok(())
}

fn play_rank(comm: &Communicator, world: &World) -> Outcome {
    let second = match &world.colors {
        Some(colors) => Some(comm.split(colors[comm.rank()], 0)?),
        None => None,
    };
    let (mut held, mut held_of_second) = (Held::default(), Held::default());
    for (index, step) in world.steps.iter().enumerate() {
        let seed = seed().wrapping_add(index as u64);
        let outcome = match &second {
            Some(second) if step.second => play_kind(second, step, &mut held_of_second, seed),
            _ => play_kind(comm, step, &mut held, seed),
        };
        outcome.with_context(|| format!("step {index}: {:?}", step.call))?;
    }
    // What is still held is completed here, on the ranks that hold it and on the others.
    comm.barrier()?;
    held.finish()?;
    if let Some(second) = &second {
        second.barrier()?;
        held_of_second.finish()?;
    }
    Ok(())
}

fn play_kind<'c>(comm: &'c Communicator, step: &Step, held: &mut Held<'c>, seed: u64) -> Outcome {
    let call = &step.call.clone().among(comm.size());
    match step.kind {
        Kind::U8 => play_call::<u8>(comm, call, held, seed),
        Kind::U16 => play_call::<u16>(comm, call, held, seed),
        Kind::U32 => play_call::<u32>(comm, call, held, seed),
        Kind::U64 => play_call::<u64>(comm, call, held, seed),
        Kind::Usize => play_call::<usize>(comm, call, held, seed),
        Kind::I8 => play_call::<i8>(comm, call, held, seed),
        Kind::I16 => play_call::<i16>(comm, call, held, seed),
        Kind::I32 => play_call::<i32>(comm, call, held, seed),
        Kind::I64 => play_call::<i64>(comm, call, held, seed),
        Kind::Isize => play_call::<isize>(comm, call, held, seed),
        Kind::F32 => play_call::<f32>(comm, call, held, seed),
        Kind::F64 => play_call::<f64>(comm, call, held, seed),
    }
}

/// A call that blocks, or what is done with those that do not.
fn play_call<'c, T: Value>(comm: &'c Communicator, call: &Call, held: &mut Held<'c>, seed: u64) -> Outcome {
    match call {
        Call::Start { call, fault, tests } => held.start::<T>(comm, call, *fault, tests[comm.rank()], seed),
        Call::Settle(settling) => held.settle(settling[comm.rank()]),
        _ => {
            play_step::<T>(comm, call, seed)?;
            held.ensure_complete()
        }
    }
}

fn play_step<T: Value>(comm: &Communicator, call: &Call, seed: u64) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    match call {
        Call::Barrier => Ok(comm.barrier()?),
        Call::Allreduce { len, op, in_place } => reduce::<T>(comm, *len, *op, *in_place, seed),
        Call::Allgather { len } => {
            let mut recv = values(!seed, rank, len * size);
            comm.allgather(&values::<T>(seed, rank, *len), &mut recv)?;
            let expected: Vec<T> = (0..size).flat_map(|rank| values(seed, rank, *len)).collect();
            ensure_same(&recv, &expected)
        }
        Call::Allgatherv { counts, gaps, order } => {
            let (displs, len) = places(rank, counts, gaps, order);
            let mut recv = values::<T>(!seed, rank, len);
            let mut expected = recv.clone();
            for (rank, (displ, count)) in displs.iter().zip(counts).enumerate() {
                expected[*displ..displ + count].copy_from_slice(&values(seed, rank, *count));
            }
            comm.allgatherv(&values(seed, rank, counts[rank]), &mut recv, counts, &displs)?;
            ensure_same(&recv, &expected)
        }
        Call::Broadcast { len, root } => {
            let mut buffer = values::<T>(seed, rank, *len);
            comm.broadcast(&mut buffer, *root)?;
            ensure_same(&buffer, &values(seed, *root, *len))
        }
        Call::Reduce { .. } | Call::Scan { .. } | Call::ReduceScatter { .. } => {
            folds::play::<T>(comm, call, seed)
        }
        Call::Rooted { counts, gaps, order, root } => {
            let (displs, len) = places(rank, counts, gaps, order);
            moves::rooted::<T>(comm, (counts, &displs, len), *root, seed)
        }
        Call::Alltoall { len } => moves::alltoall::<T>(comm, *len, seed),
        Call::Alltoallv { counts, gaps, order } => {
            let recv: Vec<usize> = counts.iter().map(|row| row[rank]).collect();
            let (send_places, recv_places) =
                (places(rank + 1, &counts[rank], gaps, order), places(rank, &recv, gaps, order));
            moves::alltoallv::<T>(comm, counts, send_places, recv_places, seed)
        }
        Call::Wrong { rank: wrong, len } => {
            let mut recv = vec![T::zeroed(); len * size + usize::from(rank == *wrong)];
            let result = comm.allgather(&values(seed, rank, *len), &mut recv);
            if rank == *wrong {
                ensure_matches!(result, Err(Error::InvalidBufferSize { .. }));
            } else {
                ensure_matches!(result, Err(Error::Refused { rank, .. }) if rank == wrong);
            }
            Ok(())
        }
        Call::Gatherv { .. } | Call::Scatterv { .. } | Call::Start { .. } | Call::Settle(_) => {
            unreachable!("{call:?} is played elsewhere")
        }
    }
}

fn reduce<T: Value>(comm: &Communicator, len: usize, op: ReduceOp, in_place: bool, seed: u64) -> Outcome {
    let mut own = values::<T>(seed, comm.rank(), len);
    let mut recv = values::<T>(!seed, comm.rank(), len);
    let result =
        if in_place { comm.allreduce_in_place(&mut own, op) } else { comm.allreduce(&own, &mut recv, op) };
    if !T::REDUCTIONS.contains(&op) {
        ensure_matches!(result, Err(Error::InvalidReduction { .. }));
        return Ok(());
    }
    result?;
    ensure_same(if in_place { &own } else { &recv }, &reduced(op, seed, comm.size(), len))
}

/// The displacements of a rank, in an order of its own and with gaps, and the length of its receive buffer.
fn places(rank: usize, counts: &[usize], gaps: &[usize], order: &[usize]) -> (Vec<usize>, usize) {
    let mut displs = vec![0; counts.len()];
    let mut end = 0;
    for position in 0..order.len() {
        let block = order[(position + rank) % order.len()];
        displs[block] = end + gaps[position];
        end = displs[block] + counts[block];
    }
    (displs, end + gaps[0])
}
