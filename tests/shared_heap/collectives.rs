//! Collectives of what lies in the heaps of the ranks' processes.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use intranode::{Communicator, Config, Error, ReduceOp};
use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::blocks::{MIB, is_shared, memory};
use super::limits::without_heap;
use super::{Program, job};

pub(super) const PROGRAMS: &[Program] = &[
    ("vectors_are_read_in_place_2", 2, read_in_place),
    ("vectors_are_read_in_place_4", 4, read_in_place),
    ("collectives_of_vectors_2", 2, || collectives(&join()?)),
    ("collectives_of_vectors_3", 3, || collectives(&join()?)),
    ("a_rank_without_the_heap_is_served", 3, one_without),
    ("a_rank_that_cannot_map_the_others_is_served", 3, one_that_cannot_map),
    ("ranks_that_are_threads_share_a_heap", 0, threads),
    ("several_communicators_find_the_heap", 4, several_communicators),
    ("blocks_far_behind_in_the_heap_are_found", 2, far_blocks),
    ("short_vectors_are_read_in_place_once_they_stay", 2, short_vectors),
    ("a_rank_that_forks_goes_on", 2, forking_rank),
    ("a_child_keeps_no_memory_of_its_parent", 2, child_without_files),
    ("a_rank_that_locks_its_memory_allocates_none_of_another", 2, locked_reader),
    ("named_memory_finds_no_heap", 2, named),
    ("a_rank_dies_while_others_read_it", 3, one_dies),
    ("a_rank_gives_up_and_frees_what_others_read", 2, gives_up),
    ("stress", 4, stress),
];

fn join() -> Result<Communicator> {
    Ok(Config::from_env()?.join()?)
}

fn value(rank: usize, index: usize) -> u64 {
    (rank * 1_000_003 + index) as u64
}

fn block(rank: usize, len: usize) -> Vec<u64> {
    (0..len).map(|index| value(rank, index)).collect()
}

fn ensure_gathered(all: &[u64], len: usize, first: usize) -> Result<()> {
    for (rank, block) in all.chunks(len).enumerate() {
        let wrong = block.iter().enumerate().find(|(index, found)| **found != value(first + rank, *index));
        ensure!(wrong.is_none(), "{wrong:?} of rank {rank}, {len} elements, from {first} on");
    }
    Ok(())
}

/// The mappings of other processes' heaps, or of this one's as others have it.
pub(super) fn foreign() -> Result<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    Ok(maps.lines().filter(|line| line.contains("/memfd:intranode_heap_") && line.contains(" r--s ")).count())
}

/// The files of memory that this process has open.
fn memory_files() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let link = std::fs::read_link(entry?.path()).unwrap_or_default();
        names.extend(link.to_str().filter(|link| link.contains("memfd:intranode")).map(str::to_owned));
    }
    Ok(names)
}

/// What was never written has no memory, also where a rank locks all that it maps from then on.
fn locked_reader() -> Result<()> {
    let locks = std::env::var("INTRANODE_RANK")? == "1";
    // SAFETY: touches no memory of the program.
    if locks && unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
        return Err(job::NotAllowed(format!("to lock memory: {}", std::io::Error::last_os_error())).into());
    }
    let comm = join()?;
    let unwritten = vec![0u8; if locks { MIB } else { 150 * MIB }];
    let own = block(comm.rank(), 1 << 20);
    let mut all = vec![0; own.len() * comm.size()];
    let before = allocated()?;
    // What a heap has beside its blocks is not locked: its table alone would take more.
    ensure!(before < 100 * MIB as u64 && memory()?[1] < 200 * MIB, "{before} bytes, {:?}", memory()?);
    comm.allgather(&own, &mut all)?;
    ensure_gathered(&all, own.len(), 0)?;
    comm.barrier()?;
    ensure!(foreign()? == 1);
    let after = allocated()?;
    ensure!(locks || after <= before + 20 * MIB as u64, "{before} bytes, then {after}");
    comm.barrier()?;
    drop(unwritten);
    Ok(())
}

/// The bytes that the file of this process's heap has.
fn allocated() -> Result<u64> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let path = entry?.path();
        if std::fs::read_link(&path).is_ok_and(|link| link.to_string_lossy().contains("intranode_heap_")) {
            return Ok(std::fs::metadata(&path)?.blocks() * 512);
        }
    }
    anyhow::bail!("there is no heap")
}

/// Neither the heap's descriptor nor those of its note and of buffers.
fn child_without_files() -> Result<()> {
    let comm = join()?;
    let buffer = comm.buffer::<u64>(1 << 20)?;
    gather(&comm, 1 << 20, 0)?;
    let own = memory_files()?;
    ensure!(own.len() == 3, "{own:?}");
    // SAFETY: no other thread of this process holds a lock that the child needs.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let left = memory_files().map_or(1, |names| names.len());
            drop(buffer);
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(left as i32) }
        }
        ForkResult::Parent { child } => {
            let status = waitpid(child, None)?;
            ensure!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
        }
    }
    ensure!(memory_files()? == own);
    drop(buffer);
    gather(&comm, 1 << 20, 1)
}

pub(super) fn gather(comm: &Communicator, len: usize, turn: usize) -> Result<()> {
    let mut own = block(comm.rank() + turn, len);
    let mut all = vec![0; len * comm.size()];
    comm.allgather(&own, &mut all)?;
    // What others would read too late; also when it is freed.
    own.fill(u64::MAX);
    drop(own);
    ensure_gathered(&all, len, turn)
}

fn read_in_place() -> Result<()> {
    let comm = join()?;
    gather(&comm, 1000, 0)?;
    ensure!(foreign()? == 0, "short blocks go through staging");
    for turn in 0..5 {
        gather(&comm, 140_000, turn)?;
        ensure!(foreign()? == comm.size() - 1, "{} mappings in turn {turn}", foreign()?);
    }
    collectives(&comm)
}

pub(super) fn collectives(comm: &Communicator) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    for len in [1000, 9000, 131_072, 600_001] {
        for turn in 0..3 {
            gather(comm, len, turn)?;
            let mut own = block(rank, len);
            comm.broadcast(&mut own, turn % size)?;
            ensure_gathered(&own, len, turn % size)?;
            let mut sums = vec![0; len];
            comm.allreduce(&block(rank, len), &mut sums, ReduceOp::Sum)?;
            let sum = |index| (0..size).map(|rank| value(rank, index)).sum::<u64>();
            ensure!(sums.iter().enumerate().all(|(index, found)| *found == sum(index)), "allreduce of {len}");
            let mut sums = block(rank, len);
            comm.allreduce_in_place(&mut sums, ReduceOp::Sum)?;
            ensure!(sums.iter().enumerate().all(|(index, found)| *found == sum(index)), "in place, {len}");
            let mut parts = vec![0; len * size];
            comm.alltoall(&block(rank, len * size), &mut parts)?;
            for (source, part) in parts.chunks(len).enumerate() {
                let right =
                    part.iter().enumerate().all(|(index, found)| *found == value(source, len * rank + index));
                ensure!(right, "alltoall of {len} from {source}");
            }
            let mut all = vec![0; len * size];
            all[len * rank..][..len].copy_from_slice(&block(rank, len));
            comm.allgather_in_place(&mut all)?;
            ensure_gathered(&all, len, 0)?;
            let root = turn % size;
            let whole = block(0, len * size);
            let mut part = vec![0; len];
            comm.scatter((rank == root).then_some(&whole[..]), &mut part, root)?;
            let right = part.iter().enumerate().all(|(index, found)| *found == value(0, len * rank + index));
            ensure!(right, "scatter of {len}");
            comm.gather(&block(rank, len), (rank == root).then_some(&mut all[..]), root)?;
            ensure_gathered(&all, len, 0)?;
        }
    }
    Ok(())
}

pub(super) fn number(name: &str) -> Result<usize> {
    Ok(std::env::var(name)?.parse()?)
}

fn one_without() -> Result<()> {
    if number("INTRANODE_RANK")? == 1 {
        without_heap()?;
    }
    let comm = join()?;
    collectives(&comm)?;
    let of_others = if comm.rank() == 1 { 2 } else { 1 };
    ensure!(foreign()? >= of_others, "{} mappings", foreign()?);
    Ok(())
}

fn one_that_cannot_map() -> Result<()> {
    let comm = join()?;
    let last = comm.rank() == 2;
    let limit = getrlimit(Resource::RLIMIT_NOFILE)?;
    if last {
        drop(vec![1u8; MIB]);
        setrlimit(Resource::RLIMIT_NOFILE, 0, limit.1)?;
    }
    let result = gather(&comm, 140_000, 0);
    setrlimit(Resource::RLIMIT_NOFILE, limit.0, limit.1)?;
    result?;
    for turn in 0..3 {
        gather(&comm, 140_000, turn)?;
    }
    // The first refusal decides.
    ensure!(!last || foreign()? == 0, "{} mappings", foreign()?);
    collectives(&comm)
}

fn threads() -> Result<()> {
    let results = intranode::threads(3, |comm| collectives(&comm))?;
    results.into_iter().collect::<Result<()>>()?;
    ensure!(foreign()? == 0, "mappings stay when the communicators have gone");
    Ok(())
}

fn several_communicators() -> Result<()> {
    let comm = join()?;
    let part = comm.split(comm.rank() % 2, 0)?;
    for turn in 0..3 {
        gather(&comm, 140_000, turn)?;
        gather(&part, 200_000, turn)?;
    }
    ensure!(foreign()? == 4, "{} mappings", foreign()?);
    drop(part);
    gather(&comm, 140_000, 0)?;
    ensure!(foreign()? == 3, "{} mappings", foreign()?);
    Ok(())
}

/// A heap that grows is mapped again, as far as it is read.
fn far_blocks() -> Result<()> {
    const LEN: usize = 140_000;
    let comm = join()?;
    let mut kept = Vec::new();
    for window in 0..3 {
        // It ends behind the window before. What is not written takes no memory.
        let len = if window == 0 { LEN } else { (64 * MIB / 8) << (2 * (window - 1)) };
        let mut whole = vec![0; len];
        ensure!(is_shared(whole.as_ptr())?);
        let own = &mut whole[len - LEN..];
        own.copy_from_slice(&block(comm.rank(), LEN));
        let mut all = vec![0; 2 * LEN];
        comm.allgather(own, &mut all)?;
        own.fill(u64::MAX);
        ensure_gathered(&all, LEN, 0)?;
        ensure!(foreign()? == window + 1, "{} mappings", foreign()?);
        kept.push(whole);
    }
    Ok(())
}

fn short_vectors() -> Result<()> {
    // Less than what is read in place whether it changes or not, of an allocation that is long enough for the heap.
    const LEN: usize = 7_000;
    let comm = join()?;
    let mut own = block(comm.rank(), 10_000);
    let mut all = vec![0; 2 * LEN];
    for turn in 0..10 {
        comm.allgather(&own[..LEN], &mut all)?;
        ensure_gathered(&all, LEN, 0)?;
        // From the third call on.
        ensure!((foreign()? > 0) == (turn > 1), "{} mappings in turn {turn}", foreign()?);
    }
    for turn in 0..10 {
        own[5] = turn;
        comm.allgather(&own[..LEN], &mut all)?;
        own[5] = u64::MAX;
        ensure!(all[5] == turn && all[LEN + 5] == turn, "an old value in turn {turn}");
    }
    Ok(())
}

fn forking_rank() -> Result<()> {
    const AS_EXPECTED: i32 = 42;
    let comm = join()?;
    let kept = block(comm.rank(), 300_000);
    for turn in 0..10 {
        gather(&comm, 140_000, turn)?;
        if comm.rank() == 0 {
            // SAFETY: the child reads, writes and frees its own copy, which needs no lock of the watcher's thread, and ends.
            match unsafe { fork() }? {
                ForkResult::Parent { child } => {
                    gather(&comm, 140_000, turn)?;
                    ensure!(matches!(waitpid(child, None)?, WaitStatus::Exited(_, AS_EXPECTED)));
                }
                ForkResult::Child => {
                    let right = ensure_gathered(&kept, 300_000, 0).is_ok();
                    let refused = matches!(comm.barrier(), Err(Error::Forked { .. }));
                    // SAFETY: ends the child without running the parent's exit handlers.
                    unsafe { libc::_exit(if right && refused { AS_EXPECTED } else { 1 }) }
                }
            }
        } else {
            gather(&comm, 140_000, turn)?;
        }
    }
    ensure_gathered(&kept, 300_000, comm.rank())?;
    ensure!(foreign()? == 1, "{} mappings", foreign()?);
    Ok(())
}

/// As by INTRANODE_MEMORY=named, on one rank: it finds the other's heap, and nobody finds its own.
fn named() -> Result<()> {
    let last = number("INTRANODE_RANK")? == 1;
    if last {
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var("INTRANODE_MEMORY", "named") };
    }
    let comm = join()?;
    for turn in 0..3 {
        gather(&comm, 140_000, turn)?;
    }
    ensure!(foreign()? == usize::from(last), "{} mappings", foreign()?);
    Ok(())
}

/// The last rank ends at any moment, in some call. The others have an error that names it, and go on with what they have.
fn one_dies() -> Result<()> {
    let comm = join()?;
    let own = block(comm.rank(), 500_000);
    gather(&comm, 140_000, 0)?;
    if comm.rank() == 2 {
        let pause = Duration::from_micros(fastrand::u64(..20_000));
        std::thread::spawn(move || {
            std::thread::sleep(pause);
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) }
        });
    }
    let mut sums = vec![0; 500_000];
    let mut all = vec![0; 1_500_000];
    let error = loop {
        let result =
            comm.allgather(&own, &mut all).and_then(|()| comm.allreduce(&own, &mut sums, ReduceOp::Max));
        if let Err(error) = result {
            break error;
        }
        ensure_gathered(&all, 500_000, 0)?;
    };
    ensure!(matches!(error, Error::RankDied { rank: 2, .. }), "{error:?}");
    drop((sums, all));
    ensure_gathered(&own, 500_000, comm.rank())?;
    ensure!(vec![0u64; 4_000_000].iter().all(|value| *value == 0));
    Ok(())
}

/// Its call has timed out, and its memory is written, freed and given back before the other rank comes.
fn gives_up() -> Result<()> {
    let rank = number("INTRANODE_RANK")?;
    let comm = Config::from_env()?.timeout(Duration::from_millis(200 + 60_000 * rank as u64)).join()?;
    for turn in 0..3 {
        gather(&comm, 140_000, turn)?;
    }
    let mut own = block(rank, 20_000_000);
    let mut all = vec![0; 40_000_000];
    if rank == 1 {
        std::thread::sleep(Duration::from_millis(600));
    }
    let result = comm.allgather(&own, &mut all);
    own.fill(u64::MAX);
    drop(own);
    ensure!(result.is_err(), "rank {rank} has heard nothing of it");
    Ok(())
}

/// All ranks choose the same calls and lengths, at random, and verify what they get. Blocks are made, kept and dropped.
fn stress() -> Result<()> {
    let comm = join()?;
    let (rank, size, start) = (comm.rank(), comm.size(), Instant::now());
    let mut seed = [if rank == 0 { fastrand::u64(..) } else { 0 }];
    comm.broadcast(&mut seed, 0)?;
    let mut random = fastrand::Rng::with_seed(seed[0]);
    let mut kept: Vec<(usize, Vec<u64>)> = Vec::new();
    let mut own_random = fastrand::Rng::with_seed(seed[0] ^ rank as u64);
    let mut turn = 0;
    loop {
        let mut go_on = [u8::from(start.elapsed() < job::stress())];
        comm.broadcast(&mut go_on, 0)?;
        if go_on == [0] {
            break;
        }
        let longest = 1 << random.u32(10..19);
        let len = random.usize(1..longest);
        let (operation, root) = (random.u32(..4), random.usize(..size));
        one_call(&comm, (operation, root), len, turn)
            .with_context(|| format!("seed {}, turn {turn}", seed[0]))?;
        if own_random.bool() {
            let len = own_random.usize(1..200_000);
            kept.push((turn, block(turn, len)));
        }
        if kept.len() > 30 {
            let (number, old) = kept.swap_remove(own_random.usize(..kept.len()));
            ensure_gathered(&old, old.len(), number)?;
        }
        turn += 1;
    }
    kept.iter().try_for_each(|(number, old)| ensure_gathered(old, old.len(), *number))?;
    ensure!(turn > 0 && (turn < 50 || foreign()? >= size - 1), "{turn} turns, {} mappings", foreign()?);
    Ok(())
}

fn one_call(comm: &Communicator, (operation, root): (u32, usize), len: usize, turn: usize) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    match operation {
        0 => gather(comm, len, turn),
        1 => {
            let mut own = block(rank + turn, len);
            comm.broadcast(&mut own, root)?;
            ensure_gathered(&own, len, root + turn)
        }
        2 => {
            let mut own = block(rank + turn, len);
            comm.allreduce_in_place(&mut own, ReduceOp::Max)?;
            ensure_gathered(&own, len, size - 1 + turn)
        }
        _ => {
            let mut parts = vec![0; len * size];
            comm.alltoall(&block(rank + turn, len * size), &mut parts)?;
            for (source, part) in parts.chunks(len).enumerate() {
                let expected = |index: usize| value(source + turn, len * rank + index);
                ensure!(
                    part.iter().enumerate().all(|(index, found)| *found == expected(index)),
                    "from {source}"
                );
            }
            Ok(())
        }
    }
}
