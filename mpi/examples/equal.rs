//! Compares the collectives over several nodes with a fold of one process over the same ranks, bit for bit. Started by an MPI's
//! launcher: `mpiexec -n 5 ./equal`. Each rank knows what all contribute, so nothing is compared over MPI.
//!
//! `equal die RANK`, `equal freeze RANK`: that rank ends, or stops, after some calls; the others print what they are told.
//! `equal die-started RANK`, `equal freeze-started RANK`: the same with calls that are started and only tested.
//! `equal freeze-soon RANK`: the same with a time-out that is shorter than leaders have for an answer.
//!
//! `equal panic RANK`: that rank comes late, and the hook of rank 1 panics while it waits for it.
//! `equal late-fold RANK`, `equal abort-in-fold RANK`: that rank comes late, or ends the job, in an operation of its own.
//!
//! `equal from-env`: the same comparison after `intranode_mpi::from_env`, which uses MPI only where there are several nodes.
//! `equal pss MEGABYTES`: data of this size in one copy a node; how much memory the ranks of each node have for it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ferrompi::{Mpi, ThreadLevel};
use intranode::{Hierarchical, Leaders, ReduceOp};

type Comm = Hierarchical<Box<dyn Leaders>>;
type Calls = fn(&Comm) -> Result<(), intranode::Error>;
type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["from-env"] {
        let job = intranode_mpi::from_env()?;
        all_equal(&job)?;
        println!("rank {}: {}", job.rank(), if job.map().nodes() == 1 { "without MPI" } else { "over MPI" });
        return Ok(());
    }
    let mpi = Mpi::init_thread(ThreadLevel::Funneled)?;
    let ends = arguments.len() == 2 && arguments[0] != "pss";
    // Shorter than leaders have for an answer.
    let soon = arguments.first().is_some_and(|what| what.ends_with("-soon"));
    let timeout =
        if soon { Duration::from_millis(400) } else { Duration::from_secs(if ends { 3 } else { 60 }) };
    let comm =
        intranode_mpi::over(&mpi.world(), |config| config.timeout(timeout).interrupt(may_panic))?.boxed();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => all_equal(&comm),
        ["pss", megabytes] => memory(&comm, megabytes.parse()?),
        ["die", rank] => fails(&comm, rank.parse()?, die, (waits, 1000)),
        ["freeze", rank] => fails(&comm, rank.parse()?, freeze, (waits, 1000)),
        ["freeze-soon", rank] => fails(&comm, rank.parse()?, freeze, (waits, 1000)),
        ["die-started", rank] => fails(&comm, rank.parse()?, die, (only_tests, 50)),
        ["freeze-started", rank] => fails(&comm, rank.parse()?, freeze, (only_tests, 50)),
        ["panic", rank] => fails(&comm, rank.parse()?, pause, (panics, 10)),
        ["late-fold", rank] => in_a_fold(&comm, rank.parse()?, pause),
        ["abort-in-fold", rank] => in_a_fold(&comm, rank.parse()?, || comm.abort(3)),
        _ => Err(
            "usage: equal [from-env | pss MEGABYTES | die[-started] RANK | freeze[-started | -soon] RANK | \
                  panic RANK | late-fold RANK | abort-in-fold RANK]"
                .into(),
        ),
    }
}

/// What a rank contributes: values whose sum depends on the order.
fn value(rank: usize, index: usize) -> f64 {
    let noise = ((rank * 7919 + index * 104_729) % 1_000_003) as f64 / 997.0;
    if (rank + index).is_multiple_of(3) { 1e16 - noise } else { noise - 1e3 }
}

fn values(rank: usize, len: usize) -> Vec<f64> {
    (0..len).map(|index| value(rank, index)).collect()
}

fn all_equal(comm: &Comm) -> Result<(), Failure> {
    let (rank, size) = (comm.rank(), comm.size());
    let mut compared = 0;
    for len in [1, 4, 13, 1000, 8192, 100_000, 1_000_000] {
        for (op, fold) in [
            (ReduceOp::Sum, (|a, b| a + b) as fn(f64, f64) -> f64),
            (ReduceOp::Prod, |a, b| a * b),
            (ReduceOp::Max, |a: f64, b| if b > a { b } else { a }),
        ] {
            let mut data = values(rank, len);
            comm.allreduce_in_place(&mut data, op)?;
            for (index, result) in data.iter().enumerate() {
                let expected = (1..size).fold(value(0, index), |all, other| fold(all, value(other, index)));
                same(result.to_bits(), expected.to_bits(), || format!("{op:?} of {len}, element {index}"))?;
            }
            compared += len;
        }
        let mut gathered = vec![0.0; len * size];
        comm.allgather(&values(rank, len), &mut gathered)?;
        for (place, result) in gathered.iter().enumerate() {
            same(result.to_bits(), value(place / len, place % len).to_bits(), || {
                format!("allgather of {len}")
            })?;
        }
        let root = len % size;
        let mut data = values(rank, len);
        comm.broadcast(&mut data, root)?;
        for (index, result) in data.iter().enumerate() {
            same(result.to_bits(), value(root, index).to_bits(), || format!("broadcast of {len} from {root}"))?;
        }
        let mut sum = vec![0.0; len];
        comm.reduce(&values(rank, len), (rank == root).then_some(&mut sum[..]), ReduceOp::Sum, root)?;
        let mut prefix = vec![0.0; len];
        comm.scan(&values(rank, len), &mut prefix, ReduceOp::Sum)?;
        for index in 0..len {
            let up_to = |last: usize| (1..=last).fold(value(0, index), |all, other| all + value(other, index));
            if rank == root {
                same(sum[index].to_bits(), up_to(size - 1).to_bits(), || format!("reduce of {len} to {root}"))?;
            }
            same(prefix[index].to_bits(), up_to(rank).to_bits(), || format!("scan of {len}, element {index}"))?;
        }
        compared += len * size + 2 * len;
    }
    compared += moves_and_parts(comm)?;
    compared += started(comm)?;
    comm.barrier()?;
    println!(
        "rank {rank} of {size} on node {} of {}: {compared} values have the same bits",
        comm.node(),
        comm.map().nodes()
    );
    Ok(())
}

/// alltoallv, an operation of the program's own, and the communicator of a part of the ranks.
fn moves_and_parts(comm: &Comm) -> Result<usize, Failure> {
    let (rank, size) = (comm.rank(), comm.size());
    let len = |from: usize, to: usize| (3 * from + 5 * to) % 7 * 100;
    let starts = |counts: &[usize]| (0..size).map(|at| counts[..at].iter().sum()).collect::<Vec<usize>>();
    let sends: Vec<usize> = (0..size).map(|to| len(rank, to)).collect();
    let receives: Vec<usize> = (0..size).map(|from| len(from, rank)).collect();
    let send: Vec<f64> = (0..size).flat_map(|to| values(rank * size + to, len(rank, to))).collect();
    let mut recv = vec![0.0; receives.iter().sum()];
    comm.alltoallv(&send, &sends, &starts(&sends), &mut recv, &receives, &starts(&receives))?;
    let expected = (0..size).flat_map(|from| values(from * size + rank, len(from, rank)));
    for (result, expected) in recv.iter().zip(expected) {
        same(result.to_bits(), expected.to_bits(), || "alltoallv".into())?;
    }
    for len in [2, 50_000] {
        let mut mixed = vec![0.0; len];
        comm.allreduce_with(&values(rank, len), &mut mixed, "mixed", |acc, x| *acc = *acc / 3.0 + x)?;
        for (index, result) in mixed.iter().enumerate() {
            let expected = (1..size).fold(value(0, index), |acc, other| acc / 3.0 + value(other, index));
            same(result.to_bits(), expected.to_bits(), || format!("an own operation of {len}"))?;
        }
    }
    let part = comm.split(rank % 2, rank)?;
    let members: Vec<usize> = (0..size).filter(|other| other % 2 == rank % 2).collect();
    let mut sum = values(rank, 1000);
    part.allreduce_in_place(&mut sum, ReduceOp::Sum)?;
    for (index, result) in sum.iter().enumerate() {
        let others = members.iter().skip(1);
        let expected = others.fold(value(members[0], index), |all, other| all + value(*other, index));
        same(result.to_bits(), expected.to_bits(), || format!("a sum of ranks {members:?}"))?;
    }
    // What alltoallv moves is another number on each rank.
    Ok(50_002 + 1000)
}

/// Calls that are started, several at once: some ranks wait for them, some only test them.
fn started(comm: &Comm) -> Result<usize, Failure> {
    let (rank, size) = (comm.rank(), comm.size());
    let lens = [0, 1, 13, 1000, 8192, 100_000];
    let expected = |index: usize| (1..size).fold(value(0, index), |all, other| all + value(other, index));
    for (turn, len) in lens.into_iter().enumerate() {
        let root = turn % size;
        let sum = comm.start_allreduce(values(rank, len), ReduceOp::Sum)?;
        let from_root = comm.start_broadcast(values(rank, len), root)?;
        // The last rank's block first.
        let displs: Vec<usize> = (0..size).rev().map(|place| place * len).collect();
        let gathered =
            comm.start_allgatherv(&values(rank, len), vec![0.0; len * size], &vec![len; size], &displs)?;
        let mut last = comm.start_barrier()?;
        if (rank + turn).is_multiple_of(2) {
            while !last.test() {}
        }
        last.wait()?;
        for (index, result) in sum.wait()?.iter().enumerate() {
            same(result.to_bits(), expected(index).to_bits(), || format!("a started sum of {len}"))?;
        }
        for (index, result) in from_root.wait()?.iter().enumerate() {
            same(result.to_bits(), value(root, index).to_bits(), || format!("a started broadcast of {len}"))?;
        }
        for (place, result) in gathered.wait()?.iter().enumerate() {
            let from = size - 1 - place / len;
            same(result.to_bits(), value(from, place % len).to_bits(), || {
                format!("a started allgatherv of {len}")
            })?;
        }
    }
    // The first node starts what the others wait in: no two calls that fit, on any rank.
    let differs = match comm.node() {
        0 if comm.map().nodes() > 1 => comm.start_barrier()?.wait(),
        _ => comm.barrier(),
    };
    match differs {
        Err(intranode::Error::Mismatch { .. }) if comm.map().nodes() > 1 => {}
        Ok(()) if comm.map().nodes() == 1 => {}
        other => return Err(format!("started and blocking: {other:?}").into()),
    }
    Ok(lens.iter().sum::<usize>() * (size + 2))
}

/// What the ranks of each node have for data of which there is one copy on each.
fn memory(comm: &Comm, megabytes: usize) -> Result<(), Failure> {
    let before = pss()?;
    comm.barrier()?;
    let table = comm.replicate(megabytes << 20, |bytes: &mut [u8]| bytes.fill(7))?;
    // A page counts for the ranks that have touched it.
    let sum: u64 = table.iter().map(|byte| u64::from(*byte)).sum();
    comm.barrier()?;
    let mut all = vec![0; comm.size()];
    comm.allgather(&[pss()?.saturating_sub(before)], &mut all)?;
    if comm.rank() == 0 {
        for node in 0..comm.map().nodes() {
            let kilobytes: u64 = all[comm.map().ranks_of(node)].iter().sum();
            println!("node {node}: {} MiB for {megabytes} MiB of data", kilobytes / 1024);
        }
    }
    if sum == 7 * (megabytes << 20) as u64 { Ok(()) } else { Err("the data has not arrived".into()) }
}

/// The shared memory of this process, in KiB: a page that several processes have counts once for all of them.
fn pss() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss_Shmem:")).ok_or("no line Pss_Shmem")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

fn same(result: u64, expected: u64, what: impl Fn() -> String) -> Result<(), Failure> {
    if result == expected { Ok(()) } else { Err(format!("{}: {result:x}, not {expected:x}", what()).into()) }
}

fn die() {
    std::process::abort()
}

fn freeze() {
    std::thread::sleep(Duration::from_secs(3600));
}

/// For longer than the time-out, and not for ever: MPICH's launcher does not end it when all ranks of another node have ended.
fn pause() {
    std::thread::sleep(Duration::from_secs(6));
}

fn waits(comm: &Comm) -> Result<(), intranode::Error> {
    comm.allreduce_in_place(&mut [comm.rank() as f64], ReduceOp::Max)
}

/// Two calls at once, one of them long, of which the last is tested.
fn only_tests(comm: &Comm) -> Result<(), intranode::Error> {
    let long = comm.start_allreduce(vec![comm.rank() as f64; 20_000], ReduceOp::Max)?;
    let mut last = comm.start_barrier()?;
    while !last.test() {}
    long.wait()?;
    last.wait()
}

static PANICS: AtomicBool = AtomicBool::new(false);

fn may_panic() -> bool {
    assert!(!PANICS.swap(false, Ordering::Relaxed), "a hook");
    false
}

/// A call in which the hook of rank 1 panics, if it waits; then the next one, which tells why.
fn panics(comm: &Comm) -> Result<(), intranode::Error> {
    PANICS.store(comm.rank() == 1, Ordering::Relaxed);
    catch_unwind(AssertUnwindSafe(|| comm.barrier())).unwrap_or_else(|_| comm.barrier())
}

/// A sum that goes from node to node, in which a rank ends. Those that are done before compute meanwhile.
fn in_a_fold(comm: &Comm, victim: usize, end: impl Fn()) -> Result<(), Failure> {
    let (begun, len) = (Instant::now(), 20_000);
    let ends = Cell::new(comm.rank() == victim);
    let combine = |acc: &mut u64, x: &u64| {
        if ends.take() {
            end();
        }
        *acc += x;
    };
    let mut result = comm.scan_with(&vec![1; len], &mut vec![0; len], "sum", combine);
    if result.is_ok() {
        std::thread::sleep(Duration::from_secs(5));
        result = comm.barrier();
    }
    if let Err(error) = result {
        println!("rank {} was told after {:?}: {error}", comm.rank(), begun.elapsed());
        std::thread::sleep(Duration::from_secs(2));
    }
    std::process::exit(0);
}

/// A rank ends after some calls; what the others are told, and when.
fn fails(comm: &Comm, victim: usize, end: fn(), (calls, last): (Calls, usize)) -> Result<(), Failure> {
    for call in 0.. {
        if call == last && comm.rank() == victim {
            end();
        }
        let begun = Instant::now();
        if let Err(error) = calls(comm) {
            println!("rank {} was told after {:?}: {error}", comm.rank(), begun.elapsed());
            // The launcher ends the others as soon as one has ended; and MPI_Finalize would wait for the victim.
            std::thread::sleep(Duration::from_secs(2));
            std::process::exit(0);
        }
    }
    Ok(())
}
