//! Row 32: another process writes arbitrary bytes into a live segment.
//!
//! The library trusts its ranks, so that may change results. It must not make a rank end by a signal or a panic, hang, or
//! leave anything behind: numbers in the segment are checked before they are used.
//!
//! A failure prints the seed. `FAULTS_SEED` repeats its choices, but not their timing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use intranode::Config;
use intranode::segment::layout::Layout;
use libtest_mimic::Completion;

use super::job::{Job, LIMIT, Violation};
use super::operations::operation;
use super::report::Report;
use super::segment::{SLOT, Segment, data, parts};
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_32_scribbled", || scribbled(20, Target::Job, &[])),
    ("row_32_scribbled_while_joining", || scribbled(8, Target::Joining, &[])),
    ("row_32_scribbled_in_a_split_communicator", || scribbled(8, Target::Split, &[])),
    ("row_32_scribbled_in_groups", || scribbled(8, Target::Job, &[("INTRANODE_GROUP", "2")])),
    ("row_32_scribbled_in_single_copy", || scribbled(8, Target::Job, &[("INTRANODE_SINGLE_COPY", "1")])),
    ("row_32_scribbled_with_the_pthread_wait", || scribbled(8, Target::Job, &[PTHREAD])),
];

pub(crate) const PROGRAMS: &[Program] = &[("all operations", all_operations)];

const RANKS: usize = 3;

/// The number of operations of a rank.
const OPERATIONS: u64 = 150;

/// The seed of the ranks' operations.
const SEED: &str = "FAULTS_SEED";

/// The size of a staging buffer.
const CHUNK: &str = "FAULTS_CHUNK";

/// Set where ranks use a split communicator.
const IN_SPLIT: &str = "FAULTS_PART";

const PTHREAD: (&str, &str) = ("INTRANODE_WAIT", "pthread");

/// The target of the scribbling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// The segment of a job whose ranks have joined.
    Job,
    /// The segment of a job whose ranks are joining.
    Joining,
    /// The segment of a split communicator.
    Split,
}

fn scribbled(times: usize, target: Target, environment: &[(&str, &str)]) -> Result<Completion> {
    let (mut ends, times) = (BTreeMap::new(), repeat(times));
    let given = std::env::var(SEED).ok().map(|seed| seed.parse()).transpose()?;
    // More often where all ranks have passed by what was written.
    let noticed = |ends: &BTreeMap<String, usize>| ends.keys().any(|end| end != DONE);
    for job in 0..times * 4 {
        if job >= times && (given.is_some() || noticed(&ends)) {
            break;
        }
        let seed = given.unwrap_or_else(|| fastrand::u64(..));
        run(seed, target, environment, &mut ends).with_context(|| format!("{SEED}={seed}"))?;
    }
    ensure!(given.is_some() || noticed(&ends), "no rank has noticed what was written");
    eprintln!("the ranks ended with {ends:?}");
    Ok(Completion::Completed)
}

/// One job under one scribbler. Counts how its ranks end.
fn run(
    seed: u64,
    target: Target,
    environment: &[(&str, &str)],
    ends: &mut BTreeMap<String, usize>,
) -> Result<()> {
    let mut random = Rng::with_seed(seed);
    let chunk = [4 << 10, 64 << 10, Layout::default_chunk(RANKS)][random.usize(0..3)];
    let set = |command: &mut Command| {
        command.envs(environment.iter().copied()).env("INTRANODE_STATE", "1");
        command.env("INTRANODE_TIMEOUT", "1");
        command.env(SEED, seed.to_string()).env(CHUNK, chunk.to_string());
        match target {
            Target::Job => command,
            // Others may have refused the segment.
            Target::Joining => command.env("INTRANODE_JOIN_TIMEOUT", "2"),
            Target::Split => command.env(IN_SPLIT, "1"),
        };
    };
    let layout = Layout::new(RANKS, chunk)?;
    let mut job = Job::new(RANKS);
    job.start(0, "all operations", set)?;
    job.await_name()?;
    let mut segment = Segment::by_name(&job, layout)?;
    if target == Target::Joining {
        // Rank 0's settings, which the others have not read yet.
        let words = [layout.barrier_shape(), layout.single_copy()];
        segment.write(words[random.usize(0..words.len())], &random.u32(0..4).to_ne_bytes())?;
    }
    (1..RANKS).try_for_each(|rank| job.start(rank, "all operations", set))?;
    if target != Target::Joining {
        job.await_joined(0..RANKS)?;
    }
    if target == Target::Split {
        segment = Segment::in_process(job.pid(0)?, layout, |line| line.contains("/memfd:intranode"))?;
    }
    (0..RANKS).try_for_each(|rank| job.send(rank, "go on"))?;
    let parts = match random.u8(0..3) {
        0 => data(&layout)?,
        // Not the mutexes of the pthread wait: the C library may block or abort on a damaged one. Nor the word that chooses
        // the wait: ranks with different waits do not wake each other, and each sleep lasts until the time-out.
        _ => parts(&layout, target != Target::Joining && !environment.contains(&PTHREAD))?,
    };
    let mut scribbler = Scribbler { segment, parts, random };
    let last_lines = scribbler.scribble_until_all_end(&mut job)?;
    for (rank, line) in last_lines {
        let end = if line == DONE { line } else { Report::parse(&line)?.kind };
        *ends.entry(end).or_default() += 1;
        // A panic of the library's own thread does not end the process.
        let stderr = job.stderr(rank)?;
        ensure!(!stderr.contains("panicked"), "rank {rank} wrote {stderr}");
    }
    job.finish(&[])
}

/// Writes arbitrary bytes to random offsets.
struct Scribbler {
    segment: Segment,
    parts: Vec<Range<usize>>,
    random: Rng,
}

impl Scribbler {
    /// Goes on until each rank has reported its end.
    fn scribble_until_all_end(&mut self, job: &mut Job) -> Result<BTreeMap<usize, String>> {
        // Sometimes few, since many would hide the effect of one.
        let mut strokes = self.one_of(&[1, 3, 30, usize::MAX]);
        let pause = self.one_of(&[0, 20, 300, 5000]);
        thread::sleep(Duration::from_micros(self.random.u64(0..30_000)));
        let started = Instant::now();
        let mut ends = BTreeMap::new();
        while ends.len() < RANKS {
            ensure!(started.elapsed() < LIMIT, Violation::Hang(format!("only {ends:?} have ended")));
            if strokes > 0 {
                strokes -= 1;
                self.scribble().with_context(|| format!("rank 0 wrote {:?}", job.stderr(0)))?;
                thread::sleep(Duration::from_micros(self.random.u64(0..=pause)));
            } else {
                thread::sleep(Duration::from_millis(1));
            }
            for rank in 0..RANKS {
                if let Some(line) = job.line_so_far(rank)?.filter(|line| line != JOINED) {
                    ends.insert(rank, line);
                }
            }
        }
        Ok(ends)
    }

    fn scribble(&mut self) -> Result<()> {
        let part = self.part();
        let (offset, bytes) = match self.random.u8(0..7) {
            0 => {
                let len = self.random.usize(1..=64);
                (self.offset(&part, 1), (0..len).map(|_| self.random.u8(..)).collect())
            }
            1 => {
                let any = self.random.u32(..);
                let word = self.one_of(&[0, 1, 3, 0x3FFF_FFFF, 0x4000_0000, 0x8000_0000, u32::MAX, any]);
                (self.offset(&part, size_of::<u32>()), word.to_ne_bytes().to_vec())
            }
            2 => {
                let any = self.random.u64(..);
                let word = self.one_of(&[0, 1, 1 << 40, u64::MAX / 16, u64::MAX, any]);
                (self.offset(&part, size_of::<u64>()), word.to_ne_bytes().to_vec())
            }
            3 => {
                let any = self.random.u8(..);
                (self.offset(&part, SLOT), vec![self.one_of(&[0, 0xFF, any]); SLOT])
            }
            // A copy of another slot: a call that no rank makes now.
            4 => {
                let from = self.part();
                let from = self.offset(&from, SLOT).min(self.segment.layout().len() - SLOT);
                (self.offset(&part, SLOT), self.read(from, SLOT)?)
            }
            // One bit.
            5 => {
                let offset = self.offset(&part, 1);
                let byte = self.read(offset, 1)?[0];
                (offset, vec![byte ^ 1 << self.random.u8(0..8)])
            }
            // A generation close to the current one.
            _ => {
                let offset = self.offset(&part, size_of::<u32>());
                let word = self.read(offset, size_of::<u32>())?;
                let word = u32::from_ne_bytes(word.try_into().expect("four bytes"));
                let other = word.wrapping_add_signed(4 * self.random.i32(-4..=4));
                (offset, other.to_ne_bytes().to_vec())
            }
        };
        // Not beyond the end of the part.
        self.segment.write(offset, &bytes[..bytes.len().min(part.end - offset)])
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.random.usize(0..choices.len())]
    }

    fn part(&mut self) -> Range<usize> {
        self.parts[self.random.usize(0..self.parts.len())].clone()
    }

    fn read(&self, offset: usize, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.segment.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// A random offset in a part, at a multiple of `align` from its start. In staging, half of them are near the start of a
    /// chunk.
    fn offset(&mut self, part: &Range<usize>, align: usize) -> usize {
        const NEAR: usize = 512;
        let (len, chunk) = (part.len(), self.segment.layout().chunk());
        let offset = match len > chunk && self.random.bool() {
            true => self.random.usize(0..len / chunk) * chunk + self.random.usize(0..NEAR),
            false => self.random.usize(0..len),
        };
        part.start + offset - offset % align
    }
}

const JOINED: &str = "joined";
const DONE: &str = "done";

/// Joins, and runs operations until one fails fatally.
fn all_operations() -> Result<()> {
    let number = |variable: &str| Ok::<u64, anyhow::Error>(std::env::var(variable)?.parse()?);
    let (seed, chunk) = (number(SEED)?, number(CHUNK)?);
    let job = match Config::from_env()?.chunk_bytes(usize::try_from(chunk)?).join() {
        Ok(job) => job,
        Err(error) => return rank::report(&error),
    };
    let part = std::env::var_os(IN_SPLIT).map(|_| job.split_local()).transpose()?;
    rank::send(JOINED)?;
    rank::receive()?;
    let comm = part.as_ref().unwrap_or(&job);
    for number in 0..OPERATIONS {
        if let Err(error) = operation(comm, seed.wrapping_add(number)) {
            ensure!(!error.to_string().is_empty());
            if error.is_fatal() {
                return rank::report(&error);
            }
        }
    }
    rank::send(DONE)?;
    // Keeps its mappings, so that the scribbler can go on.
    while rank::receive()?.is_some() {}
    Ok(())
}
