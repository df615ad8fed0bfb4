//! Programs whose threads allocate at random, while other ranks and other processes read the same blocks. Every byte is checked.

use std::io::IoSliceMut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use intranode::{Access, Communicator, Config, Ended, Endpoint, EndpointError, Error, Handle};
use libtest_mimic::Completion;
use nix::libc;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::blocks::MIB;
use super::mixed_calls::call;
use super::patterns::{Block, Pattern, Shared, allocate};
use super::{Program, Test, job};

pub(super) const PROGRAMS: &[Program] = &[("threads_allocate_while_others_read", 4, || mixed(None))];

/// What a test starts.
pub(super) const STARTED: &[Program] = &[(KILLED, 4, || mixed(Some(KILLED_RANK)))];

pub(super) const TESTS: &[Test] = &[("threads_allocate_while_others_read_and_a_rank_is_killed", killed)];

const KILLED: &str = "threads allocate and a rank is killed";
const KILLED_RANK: usize = 2;

/// The exit code of a child whose check holds.
const AS_EXPECTED: i32 = 42;

/// Forks a child that finds the blocks as they were, changes them, and frees one.
fn fork_once(shared: &Shared, kept: &mut Vec<Block>) -> Result<()> {
    // SAFETY: the child needs no lock but that of the heap, which a fork leaves open.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            let status = waitpid(child, None)?;
            ensure!(matches!(status, WaitStatus::Exited(_, AS_EXPECTED)), "{status:?}");
            kept.iter_mut().try_for_each(|block| block.check(&shared.pattern)).context("after a fork")
        }
        ForkResult::Child => {
            let mut right = true;
            for block in kept.iter_mut() {
                let seed = block.seed;
                right &= shared.pattern.is_in(block.bytes(), seed);
                block.bytes().fill(0xEE);
                right &= block.bytes().iter().all(|byte| *byte == 0xEE);
            }
            // Of those that the C library has none is freed: another thread may have had its lock.
            if let Some(index) = kept.iter().position(|block| block.layout.size() > MIB) {
                drop(kept.swap_remove(index));
            }
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(if right { AS_EXPECTED } else { 1 }) }
        }
    }
}

fn worker(shared: &Shared, seed: u64, forks: bool) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut kept = Vec::new();
    while !shared.done.load(Ordering::Relaxed) {
        allocate(shared, &mut random, &mut kept)?;
        if forks && random.u32(..64) == 0 {
            fork_once(shared, &mut kept)?;
        }
    }
    kept.iter_mut().try_for_each(|block| block.check(&shared.pattern))
}

/// The owner of memory that it shares, takes back, frees and shares anew at any time, also while others read.
fn owner(shared: &Shared, name: &str, seed: u64) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut endpoint = Endpoint::listen(name)?;
    let mut current = None;
    while !shared.done.load(Ordering::Relaxed) {
        let mut nothing = [];
        if let Some(call) = endpoint.try_recv_unexpected(&mut nothing)? {
            if current.is_none() {
                let (len, seed) = (random.usize(1..4 * MIB), random.usize(..1 << 30));
                let mut bytes = vec![0; len].into_boxed_slice();
                ensure!(bytes.iter().all(|byte| *byte == 0), "no zeros to share");
                shared.pattern.fill(&mut bytes, seed);
                current = Some((endpoint.share(vec![bytes], Access::Read), seed, len));
            }
            if let Some((memory, seed, len)) = &current {
                let mut answer = memory.handle().to_bytes().to_vec();
                answer.extend((*seed as u64).to_ne_bytes());
                answer.extend((*len as u64).to_ne_bytes());
                match endpoint.send_expected(call.peer, 0, &answer) {
                    Ok(()) | Err(EndpointError::PeerGone { .. } | EndpointError::UnknownPeer { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if random.u32(..50) == 0
            && let Some((memory, seed, _)) = current.take()
        {
            for mut buffer in endpoint.revoke(memory)? {
                shared.pattern.ensure_in(&buffer, seed)?;
                buffer.fill(0xDD);
            }
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

fn reader(shared: &Shared, name: &str, reads: &AtomicUsize) -> Result<()> {
    let mut endpoint = Endpoint::builder().timeout(Duration::from_secs(20)).client()?;
    let until = Instant::now() + Duration::from_secs(20);
    let address = intranode::Address::local(name)?;
    let owner = loop {
        match endpoint.connect(&address) {
            Ok(owner) => break owner,
            Err(_) if shared.done.load(Ordering::Relaxed) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error.into()),
            Err(_) => std::thread::yield_now(),
        }
    };
    while !shared.done.load(Ordering::Relaxed) {
        let mut answer = [0; Handle::BYTES + 16];
        let asked = endpoint
            .send_unexpected(owner, 0, b"")
            .and_then(|()| endpoint.recv_expected(owner, 0, &mut answer));
        match asked {
            Ok(_) => {}
            // It may have ended before this has.
            Err(EndpointError::UnknownPeer { .. }) => return Ok(()),
            Err(EndpointError::PeerGone { ended, .. }) if ended != Ended::Violated => return Ok(()),
            Err(error) => return Err(error).context("asking the owner"),
        }
        let handle = Handle::from_bytes(&answer[..Handle::BYTES])?;
        let word = |at: usize| {
            let bytes = answer[Handle::BYTES + 8 * at..].first_chunk().expect("it has two");
            u64::from_ne_bytes(*bytes) as usize
        };
        let mut target = vec![0; word(1)];
        let got = endpoint.get(owner, &handle, 0, &mut [IoSliceMut::new(&mut target)]);
        match got {
            Ok(()) => {
                shared.pattern.ensure_in(&target, word(0)).context("a get that has succeeded")?;
                reads.fetch_add(1, Ordering::Relaxed);
            }
            Err(EndpointError::NotShared { .. } | EndpointError::PeerGone { .. }) => {}
            Err(error) => return Err(error).context("a get"),
        }
    }
    Ok(())
}

fn communicate(comm: &Communicator, shared: &Shared, time: Duration, seed: u64) -> Result<u64> {
    let start = Instant::now();
    let mut common = fastrand::Rng::with_seed(seed);
    let mut own = fastrand::Rng::with_seed(seed ^ (1 + comm.rank() as u64));
    let mut messages = comm.messages()?;
    let mut kept = Vec::new();
    for turn in 0.. {
        let mut go_on = [u8::from(start.elapsed() < time)];
        comm.broadcast(&mut go_on, 0)?;
        if go_on == [0] {
            comm.barrier()?;
            return Ok(turn);
        }
        call(comm, &mut messages, shared, (&mut common, &mut own), &mut kept)
            .with_context(|| format!("turn {turn}, rank {}", comm.rank()))?;
        if own.u32(..40) == 0 {
            fork_once(shared, &mut kept)?;
        }
    }
    unreachable!()
}

fn mixed(killed: Option<usize>) -> Result<()> {
    let comm = Config::from_env()?.join()?;
    let (rank, size) = (comm.rank(), comm.size());
    let seed = std::env::var(job::SEED).ok().and_then(|seed| seed.parse().ok());
    let mut seed = [seed.unwrap_or_else(|| fastrand::u64(..))];
    comm.broadcast(&mut seed, 0)?;
    let [seed] = seed;
    let shared =
        Shared { pattern: Pattern::new(), done: AtomicBool::new(false), handed_on: Mutex::new(Vec::new()) };
    let job = std::env::var("INTRANODE_NAME")?;
    let name = |rank: usize| format!("{}-{rank}", job.trim_start_matches('/'));
    if killed == Some(rank) {
        let pause = Duration::from_millis(fastrand::u64(50..1500));
        std::thread::spawn(move || {
            std::thread::sleep(pause);
            raise(Signal::SIGKILL)
        });
    }
    let reads = AtomicUsize::new(0);
    let result = std::thread::scope(|scope| {
        let shared = &shared;
        let ended = |result: &Result<()>| {
            if result.is_err() {
                shared.done.store(true, Ordering::Relaxed);
            }
        };
        let workers: Vec<_> = (0..2u64)
            .map(|number| {
                scope.spawn(move || {
                    let result = worker(shared, seed ^ (number << 32) ^ (rank as u64) << 40, number == 0);
                    ended(&result);
                    result
                })
            })
            .collect();
        let (own_name, next_name) = (name(rank), name((rank + 1) % size));
        let owner = scope.spawn(move || owner(shared, &own_name, seed ^ rank as u64));
        let reads = &reads;
        let reader = scope.spawn(move || reader(shared, &next_name, reads));
        let time = if killed.is_some() { Duration::from_secs(60) } else { job::stress() };
        let result = communicate(&comm, shared, time, seed);
        if result.is_err() {
            // What is there stays as it is, and is given out as before.
            let until = Instant::now() + Duration::from_millis(100);
            while Instant::now() < until && !shared.done.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        }
        shared.done.store(true, Ordering::Relaxed);
        let mut others = Vec::new();
        others.extend(workers.into_iter().map(|thread| thread.join().expect("no panic")));
        others.push(owner.join().expect("no panic").context("the owner"));
        others.push(reader.join().expect("no panic").context("the reader"));
        others.into_iter().collect::<Result<()>>()?;
        result
    });
    let result = result.with_context(|| format!("seed {seed}"));
    let mut left = std::mem::take(&mut *shared.handed_on.lock().expect("no panic"));
    left.iter_mut().try_for_each(|block| block.check(&shared.pattern))?;
    match (result, killed) {
        (Ok(turns), None) => {
            // A short time on a machine that is busy is enough for few.
            let reads = reads.into_inner();
            ensure!(turns > 0 && (turns < 50 || reads > 0), "{turns} turns, {reads} reads");
            Ok(())
        }
        (Err(error), Some(killed)) => {
            let died = |error: &Error| matches!(error, Error::RankDied { rank, .. } if *rank == killed);
            ensure!(error.downcast_ref().is_some_and(died), "{error:?}");
            Ok(())
        }
        (result, _) => result.map(drop),
    }
}

/// A job after another, of which each loses a rank.
fn killed() -> Result<Completion> {
    let start = Instant::now();
    loop {
        let completion = job::play(KILLED, 4, Some(KILLED_RANK), |_, _| ())?;
        if matches!(completion, Completion::Ignored { .. }) || start.elapsed() >= job::stress() {
            return Ok(completion);
        }
    }
}
