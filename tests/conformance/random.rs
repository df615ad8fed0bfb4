//! Random worlds against a sequential model, with ranks as threads and as processes.
//!
//! A failing world is shrunk to a minimal one. `CONFORMANCE_SEED` repeats the choice of worlds.

use anyhow::Context;
use intranode::{Communicator, Config, Error, ReduceOp};
use libtest_mimic::{Failed, Trial};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner};
use serde::{Deserialize, Serialize};

use crate::job::{Job, WAITS, Wait};
use crate::model::{OPERATIONS, Value, ensure_same, reduced, values};
use crate::scenario::{Outcome, ensure_matches, seed};

mod folds;
mod moves;

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

/// A number of ranks, and the sequence of their calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct World {
    ranks: usize,
    staging: Option<usize>,
    group: Option<usize>,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Step {
    kind: Kind,
    call: Call,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Call {
    Barrier,
    Allreduce {
        len: usize,
        #[serde(with = "by_place")]
        op: ReduceOp,
        in_place: bool,
    },
    Allgather {
        len: usize,
    },
    /// By rank. `order`: the order of the blocks in the receive buffer of rank 0; other ranks rotate it.
    Allgatherv {
        counts: Vec<usize>,
        gaps: Vec<usize>,
        order: Vec<usize>,
    },
    Broadcast {
        len: usize,
        root: usize,
    },
    Reduce {
        len: usize,
        #[serde(with = "by_place")]
        op: ReduceOp,
        in_place: bool,
        root: usize,
    },
    /// Inclusive or exclusive.
    Scan {
        len: usize,
        #[serde(with = "by_place")]
        op: ReduceOp,
        in_place: bool,
        exclusive: bool,
    },
    /// By rank.
    ReduceScatter {
        counts: Vec<usize>,
        #[serde(with = "by_place")]
        op: ReduceOp,
    },
    /// A gatherv and a scatterv, with gaps and an order as in an allgatherv.
    Rooted {
        counts: Vec<usize>,
        gaps: Vec<usize>,
        order: Vec<usize>,
        root: usize,
    },
    Alltoall {
        len: usize,
    },
    /// By sender and receiver.
    Alltoallv {
        counts: Vec<Vec<usize>>,
        gaps: Vec<usize>,
        order: Vec<usize>,
    },
    /// The rank passes a buffer that is too short.
    Wrong {
        rank: usize,
        len: usize,
    },
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Kind {
    U8,
    U16,
    U32,
    U64,
    Usize,
    I8,
    I16,
    I32,
    I64,
    Isize,
    F32,
    F64,
}

/// A reduction is encoded as its index in the list.
mod by_place {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{OPERATIONS, ReduceOp};

    pub(super) fn serialize<S: Serializer>(op: &ReduceOp, serializer: S) -> Result<S::Ok, S::Error> {
        let place = OPERATIONS.iter().position(|other| other == op).expect("the list has all");
        serializer.serialize_u64(place as u64)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ReduceOp, D::Error> {
        let place = usize::deserialize(deserializer)?;
        OPERATIONS.get(place).copied().ok_or_else(|| D::Error::custom("no such reduction"))
    }
}

fn world() -> impl Strategy<Value = World> {
    let staging = prop::sample::select(vec![None, Some(64), Some(128), Some(192), Some(1024), Some(4096)]);
    let group = prop::sample::select(vec![None, Some(1), Some(2), Some(3), Some(8)]);
    (1usize..=6, staging, group).prop_flat_map(|(ranks, staging, group)| {
        let steps = prop::collection::vec(step(ranks), 1..12);
        steps.prop_map(move |steps| World { ranks, staging, group, steps })
    })
}

/// Empty, a few elements, around the inline size, and many chunks.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), 0usize..6, 0usize..120, 0usize..3000]
}

fn step(ranks: usize) -> impl Strategy<Value = Step> {
    use Kind::*;
    let kind = prop::sample::select(vec![U8, U16, U32, U64, Usize, I8, I16, I32, I64, Isize, F32, F64]);
    let each = |strategy| prop::collection::vec(strategy, ranks);
    let order = || Just((0..ranks).collect::<Vec<usize>>()).prop_shuffle();
    let op = || prop::sample::select(OPERATIONS.to_vec());
    let short = || prop_oneof![Just(0), 0usize..6, 0usize..60, 0usize..800];
    let call = prop_oneof![
        1 => Just(Call::Barrier),
        3 => (length(), op(), any::<bool>()).prop_map(|(len, op, in_place)| Call::Allreduce { len, op, in_place }),
        2 => length().prop_map(|len| Call::Allgather { len }),
        4 => (each(length().boxed()), each((0usize..5).boxed()), order())
            .prop_map(|(counts, gaps, order)| Call::Allgatherv { counts, gaps, order }),
        2 => (length(), 0..ranks).prop_map(|(len, root)| Call::Broadcast { len, root }),
        3 => (length(), op(), any::<bool>(), 0..ranks)
            .prop_map(|(len, op, in_place, root)| Call::Reduce { len, op, in_place, root }),
        3 => (length(), op(), any::<bool>(), any::<bool>())
            .prop_map(|(len, op, in_place, exclusive)| Call::Scan { len, op, in_place, exclusive }),
        3 => (each(short().boxed()), op()).prop_map(|(counts, op)| Call::ReduceScatter { counts, op }),
        4 => (each(short().boxed()), each((0usize..5).boxed()), order(), 0..ranks)
            .prop_map(|(counts, gaps, order, root)| Call::Rooted { counts, gaps, order, root }),
        2 => short().prop_map(|len| Call::Alltoall { len }),
        3 => (
            prop::collection::vec(prop::collection::vec(short(), ranks), ranks),
            each((0usize..5).boxed()),
            order(),
        )
            .prop_map(|(counts, gaps, order)| Call::Alltoallv { counts, gaps, order }),
        1 => (0..ranks, length()).prop_map(|(rank, len)| Call::Wrong { rank, len }),
    ];
    (kind, call).prop_map(|(kind, call)| Step { kind, call })
}

impl World {
    /// The configuration of its ranks.
    fn configure(&self, config: Config) -> Config {
        let config = config.group(self.group);
        match self.staging {
            Some(staging) => config.chunk_bytes(staging),
            None => config,
        }
    }
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
    play_rank(&comm, &world.steps)
}

/// Runs a world over threads of this process.
fn play(world: &World) -> Outcome {
    let config = world.configure(Config::new("/threads", 0, world.ranks));
    let results = intranode::threads_with(&config, |comm| play_rank(&comm, &world.steps))?;
    for (rank, result) in results.into_iter().enumerate() {
        result.with_context(|| format!("rank {rank}"))?;
    }
    Ok(())
}

fn play_rank(comm: &Communicator, steps: &[Step]) -> Outcome {
    for (index, Step { kind, call }) in steps.iter().enumerate() {
        let seed = seed().wrapping_add(index as u64);
        let outcome = match kind {
            Kind::U8 => play_step::<u8>(comm, call, seed),
            Kind::U16 => play_step::<u16>(comm, call, seed),
            Kind::U32 => play_step::<u32>(comm, call, seed),
            Kind::U64 => play_step::<u64>(comm, call, seed),
            Kind::Usize => play_step::<usize>(comm, call, seed),
            Kind::I8 => play_step::<i8>(comm, call, seed),
            Kind::I16 => play_step::<i16>(comm, call, seed),
            Kind::I32 => play_step::<i32>(comm, call, seed),
            Kind::I64 => play_step::<i64>(comm, call, seed),
            Kind::Isize => play_step::<isize>(comm, call, seed),
            Kind::F32 => play_step::<f32>(comm, call, seed),
            Kind::F64 => play_step::<f64>(comm, call, seed),
        };
        outcome.with_context(|| format!("step {index}: {call:?}"))?;
    }
    Ok(())
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
