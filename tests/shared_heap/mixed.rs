//! Programs whose threads allocate at random, while other ranks and other processes read the same blocks. Every byte is checked.

use std::alloc::{GlobalAlloc, Layout};
use std::io::IoSliceMut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use intranode::{Access, Communicator, Config, Endpoint, EndpointError, Error, Handle, Messages, ReduceOp};
use libtest_mimic::Completion;
use nix::libc;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::blocks::MIB;
use super::{Program, Test, job};
use crate::HEAP;

pub(super) const PROGRAMS: &[Program] = &[("threads_allocate_while_others_read", 4, || mixed(None))];

/// What a test starts.
pub(super) const STARTED: &[Program] = &[(KILLED, 4, || mixed(Some(KILLED_RANK)))];

pub(super) const TESTS: &[Test] = &[("threads_allocate_while_others_read_and_a_rank_is_killed", killed)];

const KILLED: &str = "threads allocate and a rank is killed";
const KILLED_RANK: usize = 2;

/// The exit code of a child whose check holds.
const AS_EXPECTED: i32 = 42;

/// The longest block, and how much a thread keeps.
const LONGEST: usize = 64 * MIB;
const KEPT: usize = 32 * MIB;

/// What is stored in blocks: from some place on, again and again. Its length has no common divisor with that of a page.
struct Pattern(Vec<u8>);

impl Pattern {
    fn new() -> Self {
        let mut random = fastrand::Rng::with_seed(7);
        Pattern((0..60_013).map(|_| random.u8(..)).collect())
    }

    fn from(&self, seed: usize) -> usize {
        seed.wrapping_mul(7919) % self.0.len()
    }

    fn fill(&self, mut block: &mut [u8], seed: usize) {
        let mut start = self.from(seed);
        while !block.is_empty() {
            let len = block.len().min(self.0.len() - start);
            let (part, rest) = block.split_at_mut(len);
            part.copy_from_slice(&self.0[start..][..len]);
            (block, start) = (rest, 0);
        }
    }

    fn is_in(&self, mut block: &[u8], seed: usize) -> bool {
        let mut start = self.from(seed);
        while !block.is_empty() {
            let len = block.len().min(self.0.len() - start);
            if block[..len] != self.0[start..][..len] {
                return false;
            }
            (block, start) = (&block[len..], 0);
        }
        true
    }

    fn ensure_in(&self, block: &[u8], seed: usize) -> Result<()> {
        if self.is_in(block, seed) {
            return Ok(());
        }
        let mut expected = vec![0; block.len()];
        self.fill(&mut expected, seed);
        let differ = |(found, expected): (&u8, &u8)| found != expected;
        let first = block.iter().zip(&expected).position(differ).unwrap_or(0);
        let wrong = block.iter().zip(&expected).filter(|pair| differ(*pair)).count();
        let found = &block[first..block.len().min(first + 8)];
        anyhow::bail!("{wrong} of {} bytes are wrong, from {first} on: {found:?}", block.len())
    }
}

/// A block of the allocator, all of which is the pattern from a seed on.
struct Block {
    start: *mut u8,
    layout: Layout,
    seed: usize,
}

// SAFETY: it is the only one that refers to its memory.
unsafe impl Send for Block {}

impl Block {
    fn zeros(layout: Layout) -> Result<Self> {
        // SAFETY: the length is not zero.
        let start = unsafe { HEAP.alloc_zeroed(layout) };
        ensure!(!start.is_null() && start.addr().is_multiple_of(layout.align()), "{layout:?}");
        let mut block = Block { start, layout, seed: 0 };
        ensure!(block.bytes().iter().all(|byte| *byte == 0), "no zeros in a new block, {layout:?}");
        Ok(block)
    }

    fn new(pattern: &Pattern, layout: Layout, seed: usize, zeroed: bool) -> Result<Self> {
        let mut block = if zeroed {
            Block::zeros(layout)?
        } else {
            // SAFETY: the length is not zero.
            let start = unsafe { HEAP.alloc(layout) };
            ensure!(!start.is_null() && start.addr().is_multiple_of(layout.align()), "{layout:?}");
            // SAFETY: it has this length, and belongs to nobody else.
            unsafe { start.write_bytes(0, layout.size()) };
            Block { start, layout, seed: 0 }
        };
        block.seed = seed;
        pattern.fill(block.bytes(), seed);
        Ok(block)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: it is this long, was written, and belongs to this.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.layout.size()) }
    }

    fn check(&mut self, pattern: &Pattern) -> Result<()> {
        let seed = self.seed;
        pattern.ensure_in(self.bytes(), seed)
    }

    fn resize(&mut self, pattern: &Pattern, len: usize, seed: usize) -> Result<()> {
        let kept = len.min(self.layout.size());
        // SAFETY: a block of this layout, and a length that is not zero.
        let start = unsafe { HEAP.realloc(self.start, self.layout, len) };
        ensure!(!start.is_null(), "{len} bytes");
        self.start = start;
        self.layout = Layout::from_size_align(len, self.layout.align())?;
        ensure!(start.addr().is_multiple_of(self.layout.align()), "{:?}", self.layout);
        // SAFETY: the part that was written before.
        let old = unsafe { std::slice::from_raw_parts(start, kept) };
        pattern.ensure_in(old, self.seed).with_context(|| format!("after a resize to {len}"))?;
        // SAFETY: what comes after it belongs to this, too.
        unsafe { start.wrapping_add(kept).write_bytes(0, len - kept) };
        self.seed = seed;
        pattern.fill(self.bytes(), seed);
        Ok(())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { HEAP.dealloc(self.start, self.layout) };
    }
}

fn length(random: &mut fastrand::Rng) -> usize {
    let end = if random.u32(..12) == 0 { 27 } else { 21 };
    let most = 1 << random.u32(4..end);
    random.usize(1..=most).min(LONGEST)
}

fn layout(random: &mut fastrand::Rng, len: usize) -> Result<Layout> {
    let power = if random.u32(..3) == 0 { random.u32(..22) } else { 3 };
    Ok(Layout::from_size_align(len, 1 << power)?)
}

/// What all threads of a process have.
struct Shared {
    pattern: Pattern,
    done: AtomicBool,
    /// Blocks that one thread has made, and another frees or changes.
    handed_on: Mutex<Vec<Block>>,
}

/// Makes, changes, checks and frees blocks.
fn allocate(shared: &Shared, random: &mut fastrand::Rng, kept: &mut Vec<Block>) -> Result<()> {
    let pattern = &shared.pattern;
    let len = length(random);
    match random.u32(..8) {
        0..3 => kept.push(Block::new(pattern, layout(random, len)?, random.usize(..), random.bool())?),
        3..5 if !kept.is_empty() => {
            let index = random.usize(..kept.len());
            kept[index].check(pattern)?;
            kept[index].resize(pattern, len, random.usize(..))?;
        }
        5 if !kept.is_empty() => {
            let block = kept.swap_remove(random.usize(..kept.len()));
            shared.handed_on.lock().expect("no panic").push(block);
        }
        6 => {
            let taken = shared.handed_on.lock().expect("no panic").pop();
            kept.extend(taken);
        }
        _ if !kept.is_empty() => kept.swap_remove(random.usize(..kept.len())).check(pattern)?,
        _ => {
            // Of no length, and of one that no vector needs memory for.
            ensure!(Vec::<u8>::new().is_empty() && vec![(); 1 << 20].len() == 1 << 20);
        }
    }
    while kept.iter().map(|block| block.layout.size()).sum::<usize>() > KEPT {
        kept.swap_remove(random.usize(..kept.len())).check(pattern)?;
    }
    Ok(())
}

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
        if asked.is_err() {
            // It may have ended before this has.
            return Ok(());
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

/// One call, the same on all ranks.
fn call(
    comm: &Communicator,
    messages: &mut Messages,
    shared: &Shared,
    (common, own): (&mut fastrand::Rng, &mut fastrand::Rng),
    kept: &mut Vec<Block>,
) -> Result<()> {
    let (rank, size, pattern) = (comm.rank(), comm.size(), &shared.pattern);
    let (seed, root) = (common.usize(..1 << 30), common.usize(..size));
    let len = length(common).min(4 * MIB);
    let of = |rank: usize| seed + 31 * rank;
    match common.u32(..6) {
        0 => {
            let zeros = Block::zeros(layout(own, len)?)?;
            let mut block = zeros;
            if rank == root {
                pattern.fill(block.bytes(), of(root));
            }
            for turn in 0..common.usize(1..5) {
                comm.broadcast(block.bytes(), root)?;
                pattern.ensure_in(block.bytes(), of(root + turn))?;
                pattern.fill(block.bytes(), of(root + turn + 1));
            }
        }
        1 => {
            let mut send = Block::new(pattern, layout(own, len)?, of(rank), own.bool())?;
            let mut recv = Block::zeros(layout(own, len * size)?)?;
            comm.allgather(send.bytes(), recv.bytes())?;
            send.bytes().fill(0xCC);
            drop(send);
            for (rank, part) in recv.bytes().chunks(len).enumerate() {
                pattern.ensure_in(part, of(rank)).with_context(|| format!("allgather from {rank}"))?;
            }
        }
        2 => {
            // The same block again, which is found unchanged, and then changes in one place.
            let mut send = Block::new(pattern, layout(own, len)?, of(rank), own.bool())?;
            let mut recv = Block::zeros(layout(own, len * size)?)?;
            for turn in 0..5 {
                comm.allgather(send.bytes(), recv.bytes())?;
                for (rank, part) in recv.bytes().chunks(len).enumerate() {
                    let mut expected = vec![0; len];
                    pattern.fill(&mut expected, of(rank));
                    if turn < 4 {
                        change(&mut expected, seed, rank, turn);
                    }
                    ensure!(part == expected, "an old value of rank {rank} in turn {turn}");
                }
                if turn < 3 {
                    change(send.bytes(), seed, rank, turn + 1);
                } else {
                    // At another place, or at the same one again.
                    pattern.fill(send.bytes(), of(rank));
                    send.resize(pattern, len / 2 + 1, of(rank))?;
                    send.resize(pattern, len, of(rank))?;
                }
            }
        }
        3 => {
            // Of one rank, and zeros of the others.
            let mut sum = Block::zeros(layout(own, len)?)?;
            let mut send = Block::zeros(layout(own, len)?)?;
            if rank == root {
                pattern.fill(send.bytes(), of(root));
            }
            comm.allreduce(send.bytes(), sum.bytes(), ReduceOp::Max)?;
            pattern.ensure_in(sum.bytes(), of(root)).context("allreduce")?;
            comm.allreduce_in_place(send.bytes(), ReduceOp::Max)?;
            pattern.ensure_in(send.bytes(), of(root)).context("allreduce in place")?;
            send.seed = of(root);
            shared.handed_on.lock().expect("no panic").push(send);
        }
        4 => {
            let mut send = Block::new(pattern, layout(own, len)?, of(rank), own.bool())?;
            let mut recv = Block::zeros(layout(own, len)?)?;
            let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
            messages.sendrecv(send.bytes(), next, recv.bytes(), before, 3)?;
            drop(send);
            pattern.ensure_in(recv.bytes(), of(before)).context("a message")?;
        }
        _ => {
            // One that is taken back, and freed, while its receiver may read it: every other rank receives first.
            let mut first = Block::new(pattern, layout(own, len)?, of(rank), own.bool())?;
            let mut second = Block::new(pattern, layout(own, len)?, of(rank + 1), own.bool())?;
            let mut recv = Block::zeros(layout(own, len)?)?;
            let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
            let mut receive = |messages: &mut Messages| loop {
                let envelope = messages.recv(recv.bytes(), before, intranode::Tag::Any)?;
                let expected = of(before + envelope.tag as usize - 1);
                pattern.ensure_in(recv.bytes(), expected).with_context(|| format!("a message {envelope:?}"))?;
                if envelope.tag == 2 {
                    return anyhow::Ok(());
                }
            };
            if rank % 2 == 1 {
                receive(messages)?;
            }
            let mut sending = messages.start_send(first.bytes(), next, 1)?;
            for _ in 0..own.u32(..50) {
                messages.test(&mut sending)?;
                std::thread::yield_now();
            }
            drop(sending);
            first.bytes().fill(0xBB);
            drop(first);
            let mut sending = messages.start_send(second.bytes(), next, 2)?;
            if rank % 2 == 0 {
                receive(messages)?;
            }
            messages.wait(&mut sending)?;
        }
    }
    allocate(shared, own, kept)
}

/// Changes a block at one place in each turn.
fn change(block: &mut [u8], seed: usize, rank: usize, turns: usize) {
    for turn in 1..=turns {
        let at = (seed + 977 * rank + 13 * turn) % block.len();
        block[at] = (seed + turn) as u8;
    }
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
