//! Random programs over random maps of nodes, beside the same calls of a communicator; and maps from the environment.

use anyhow::{Context, ensure};
use intranode::bytemuck;
use intranode::{Communicator, Hierarchical, NodeMap, Pending, ReduceOp};
use libtest_mimic::{Failed, Trial};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::job::{Job, WAITS, Wait};
use crate::model::{Value, ensure_same, reduced, values};
use crate::scenario::{Outcome, seed};

/// The role of a process that joins by `INTRANODE_NODES`.
const FROM_ENV: &str = "nodes_from_env";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![Trial::test("threads::random_programs_over_random_nodes", random_programs)];
    for wait in WAITS.iter().copied() {
        let name = format!("processes::{}::nodes_from_the_environment", wait.name());
        trials.push(Trial::test(name, move || from_the_environment(wait)));
    }
    trials
}

/// What a process does that has a role of this page.
pub(crate) fn play(role: &str) -> Option<Outcome> {
    (role == FROM_ENV).then(play_from_env)
}

const EXPECTED: &str = "EXPECTED_COUNTS";

fn from_the_environment(wait: Wait) -> Result<(), Failed> {
    // What is set, and the ranks of each node; nothing is expected where it is refused.
    let cases = [(Some("2"), "3,2"), (Some("1,3,1"), "1,3,1"), (None, "5"), (Some("6"), ""), (Some("2,2"), "")];
    for (nodes, expected) in cases {
        let mut job = Job::new(5, wait);
        for rank in 0..5 {
            job.start_with(rank, FROM_ENV, |command| {
                command.env(EXPECTED, expected);
                nodes.map(|nodes| command.env("INTRANODE_NODES", nodes));
            })
            .map_err(|error| format!("{error:#}"))?;
        }
        job.finish(&[0; 5]).map_err(|error| format!("{nodes:?}: {error:#}"))?;
    }
    Ok(())
}

fn play_from_env() -> Outcome {
    let expected = std::env::var(EXPECTED)?;
    let nodes = match Hierarchical::from_env() {
        Ok(nodes) => nodes,
        Err(error) => {
            let text = error.to_string();
            ensure!(expected.is_empty() && text.contains("INTRANODE_NODES"), "{text}");
            return Ok(());
        }
    };
    let counts: Vec<String> = nodes.map().counts().iter().map(usize::to_string).collect();
    ensure!(counts.join(",") == expected, "{counts:?}");
    let mut sum = [nodes.rank()];
    nodes.allreduce_in_place(&mut sum, ReduceOp::Sum)?;
    ensure!(sum == [10], "{sum:?}");
    Ok(())
}

/// A call of a program.
#[derive(Clone, Debug)]
enum Call {
    Barrier,
    Allreduce { op: usize, len: usize },
    Allgather { len: usize },
    Broadcast { len: usize, root: usize },
}

/// How a rank makes a call: the ranks differ.
#[derive(Clone, Copy, Debug)]
enum Way {
    Waits,
    /// It starts it, and goes on in this way: by the number, and the rank.
    Starts(usize),
}

/// A map, from how many bytes on reductions go from node to node, in chunks of how many, and calls, each of a kind of element.
#[derive(Clone, Debug)]
struct World {
    counts: Vec<usize>,
    chain: (usize, usize),
    calls: Vec<(Call, usize, Way)>,
}

fn world() -> impl Strategy<Value = World> {
    let len = || prop_oneof![0..20usize, 0..2000usize];
    let call = prop_oneof![
        1 => Just(Call::Barrier),
        4 => (0..10usize, len()).prop_map(|(op, len)| Call::Allreduce { op, len }),
        2 => len().prop_map(|len| Call::Allgather { len }),
        2 => (len(), 0..8usize).prop_map(|(len, root)| Call::Broadcast { len, root }),
    ];
    let counts = prop::collection::vec(1..=4usize, 1..=4)
        .prop_filter("up to 8 ranks", |counts| counts.iter().sum::<usize>() <= 8);
    let chain = (prop_oneof![Just(0usize), Just(500), Just(5000), Just(usize::MAX)], 1..3000usize);
    let way = prop_oneof![Just(Way::Waits), (0..7usize).prop_map(Way::Starts)];
    let calls = prop::collection::vec((call, 0..5usize, way), 1..8);
    (counts, chain, calls).prop_map(|(counts, chain, calls)| World { counts, chain, calls })
}

/// `PROPTEST_CASES` worlds, or some.
fn random_programs() -> Result<(), Failed> {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let cases = if asked { ProptestConfig::default().cases } else { 100 };
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut random = fastrand::Rng::with_seed(seed());
    let numbers: [u8; 32] = std::array::from_fn(|_| random.u8(..));
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &numbers))
        .run(&world(), |world| play_world(&world).map_err(|error| TestCaseError::fail(format!("{error:#}"))))
        .map_err(|failure| failure.to_string().into())
}

fn play_world(world: &World) -> Outcome {
    let map = NodeMap::new(&world.counts)?;
    let outcomes = intranode::threads(map.ranks(), |comm| {
        let nodes = Hierarchical::simulated(comm.split_local()?, &map)?.chain(world.chain.0, world.chain.1);
        let mut held = Vec::new();
        for (index, (call, kind, way)) in world.calls.iter().enumerate() {
            let seed = seed() ^ index as u64;
            let outcome = match (way, kind) {
                (Way::Waits, 0) => both::<f64>(&comm, &nodes, call, seed),
                (Way::Waits, 1) => both::<f32>(&comm, &nodes, call, seed),
                (Way::Waits, 2) => both::<u8>(&comm, &nodes, call, seed),
                (Way::Waits, 3) => both::<i32>(&comm, &nodes, call, seed),
                (Way::Waits, _) => both::<u64>(&comm, &nodes, call, seed),
                (Way::Starts(way), 0) => started::<f64>(&nodes, call, seed, *way, &mut held),
                (Way::Starts(way), 1) => started::<f32>(&nodes, call, seed, *way, &mut held),
                (Way::Starts(way), 2) => started::<u8>(&nodes, call, seed, *way, &mut held),
                (Way::Starts(way), 3) => started::<i32>(&nodes, call, seed, *way, &mut held),
                (Way::Starts(way), _) => started::<u64>(&nodes, call, seed, *way, &mut held),
            };
            outcome.with_context(|| format!("call {index}: {call:?}"))?;
        }
        held.into_iter().try_for_each(|check| check().context("a call that was started before"))?;
        // Completes what was dropped: a rank that leaves would end it.
        nodes.barrier()?;
        anyhow::Ok(())
    })?;
    outcomes
        .into_iter()
        .enumerate()
        .try_for_each(|(rank, outcome)| outcome.with_context(|| format!("rank {rank}")))
}

/// What completes a call later, and checks its result.
type Check<'c> = Box<dyn FnOnce() -> Outcome + 'c>;

/// Starts a call, and settles it now, later, or never.
fn settled<'c, R: 'c>(
    mut pending: Pending<'c, R>,
    how: usize,
    held: &mut Vec<Check<'c>>,
    check: impl FnOnce(R) -> Outcome + 'c,
) -> Outcome {
    match how {
        0 => return check(pending.wait()?),
        1 => {
            while !pending.test() {}
            return check(pending.wait()?);
        }
        2 => drop(pending),
        3 => std::mem::forget(pending),
        4 => {
            // Those that were started last are waited for first.
            pending.test();
            held.insert(0, Box::new(move || check(pending.wait()?)));
        }
        _ => held.push(Box::new(move || check(pending.wait()?))),
    }
    Ok(())
}

/// A call that is started over nodes. No call of the flat communicator is made meanwhile, in which a rank would wait for one that
/// waits for it here.
fn started<'c, T: Value>(
    nodes: &'c Hierarchical,
    call: &Call,
    seed: u64,
    way: usize,
    held: &mut Vec<Check<'c>>,
) -> Outcome {
    let (rank, size) = (nodes.rank(), nodes.size());
    let how = (way + rank) % 7;
    match *call {
        Call::Barrier => settled(nodes.start_barrier()?, how, held, |()| Ok(())),
        Call::Allreduce { op, len } => {
            let op = T::REDUCTIONS[op % T::REDUCTIONS.len()];
            let pending = nodes.start_allreduce(values::<T>(seed, rank, len), op)?;
            let check = move |sums: Vec<T>| ensure_same(&sums, &reduced(op, seed, size, len));
            settled(pending, how, held, check)
        }
        Call::Allgather { len } => {
            let own = values::<T>(seed, rank, len);
            let recv: Vec<T> = vec![bytemuck::Zeroable::zeroed(); len * size];
            let displs: Vec<usize> = (0..size).map(|rank| rank * len).collect();
            let pending = nodes.start_allgatherv(&own, recv, &vec![len; size], &displs)?;
            let expected = move || (0..size).flat_map(|rank| values(seed, rank, len)).collect::<Vec<T>>();
            settled(pending, how, held, move |all: Vec<T>| ensure_same(&all, &expected()))
        }
        Call::Broadcast { len, root } => {
            let pending = nodes.start_broadcast(values::<T>(seed, rank, len), root % size)?;
            let check = move |data: Vec<T>| ensure_same(&data, &values(seed, root % size, len));
            settled(pending, how, held, check)
        }
    }
}

/// The same call of both communicators: over nodes first, which completes what was started there.
fn both<T: Value>(comm: &Communicator, nodes: &Hierarchical, call: &Call, seed: u64) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    match *call {
        Call::Barrier => Ok(nodes.barrier()?),
        Call::Allreduce { op, len } => {
            let op = T::REDUCTIONS[op % T::REDUCTIONS.len()];
            let mut flat = values::<T>(seed, rank, len);
            let mut over = flat.clone();
            nodes.allreduce_in_place(&mut over, op)?;
            comm.allreduce_in_place(&mut flat, op)?;
            ensure_same(&over, &flat)
        }
        Call::Allgather { len } => {
            let own = values::<T>(seed, rank, len);
            let (mut flat, mut over): (Vec<T>, Vec<T>) = (
                vec![bytemuck::Zeroable::zeroed(); len * size],
                vec![bytemuck::Zeroable::zeroed(); len * size],
            );
            nodes.allgather(&own, &mut over)?;
            comm.allgather(&own, &mut flat)?;
            ensure_same(&over, &flat)
        }
        Call::Broadcast { len, root } => {
            let mut over = values::<T>(seed, rank, len);
            nodes.broadcast(&mut over, root % size)?;
            ensure_same(&over, &values(seed, root % size, len))
        }
    }
}
