//! Measurements on two processors of this machine, compared with the model of two cores.
//!
//! They cover the transfer of a line, the concurrent misses of a core, and the library's barrier of two ranks. They do not
//! cover how a home serves many readers.
//!
//! Virtual processors may or may not share a cache, and that changes during the run. So the transfer is measured directly
//! before and after each measurement, and the model uses that value. If the two differ, the measurement is discarded.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use intranode::{Config, Error, threads_with};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::model::barrier::{Barrier, Rule};
use crate::model::machine::{Cost, Machine};
use crate::model::microseconds;
use crate::model::simulation::{LineId, Program, Round, Step, run};
use crate::study::BACK_TO_BACK;

/// The repetitions of each measurement.
const BLOCKS: usize = 41;

/// The rounds that are timed together.
const ROUNDS: u32 = 500;

/// The largest relative change of the line's transfer during a measurement.
const STEADY: f64 = 1.15;

/// The numbers of lines that one core writes and the other awaits.
const COUNTS: [usize; 4] = [1, 4, 16, 64];

/// A quantity that is measured and modelled. In µs.
pub(crate) struct Comparison {
    pub(crate) what: String,
    /// The number of blocks in which the transfer did not change.
    pub(crate) blocks: usize,
    /// The block in which measured and modelled have the median ratio.
    pub(crate) median: Block,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// The one-way transfer of a line that both cores compare-exchange alternately: the model's input.
    pub(crate) line: f64,
    pub(crate) measured: f64,
    pub(crate) modelled: f64,
}

/// Latencies of one core. In µs; the model's input.
pub(crate) struct Alone {
    /// A compare-exchange of a line in the core's cache.
    pub(crate) atomic: f64,
    /// From one poll to the next.
    pub(crate) pause: f64,
    /// The library's barrier of one rank: a call's own work.
    pub(crate) barrier: f64,
}

/// None without two processors.
pub(crate) fn compare() -> Result<Option<(Alone, Vec<Comparison>)>, Error> {
    let Some(pair) = two_processors() else { return Ok(None) };
    let alone = alone()?;
    let machine = Machine::pair().with(Cost::Atomic, alone.atomic * 1e3).with(Cost::Pause, alone.pause * 1e3);
    let mut all = Vec::new();
    for count in COUNTS {
        let what = format!("lines that one writes and the other awaits: {count}");
        all.extend(comparison(what, lines(pair, count), &machine, &Lines { count }, 0.0));
    }
    let own_work = (alone.barrier - alone.atomic).max(0.0);
    for (what, group, barrier) in [
        ("the library's barrier, flat", 0, Barrier::flat(2)),
        ("the same in a group of two", 2, Barrier::groups(&machine, 2, Rule::Of(2))),
    ] {
        all.extend(comparison(what.to_owned(), barriers(pair, group)?, &machine, &barrier, own_work));
    }
    Ok(Some((alone, all)))
}

/// `measured`: by block, the transfer and the measurement. `own_work`: the local work of a call, which is not modelled.
fn comparison(
    what: String,
    measured: Vec<(f64, f64)>,
    machine: &Machine,
    program: &impl Program,
    own_work: f64,
) -> Option<Comparison> {
    let block = |(line, measured)| {
        let nanoseconds = line * 1e3;
        let machine =
            machine.clone().with(Cost::NearLatency, nanoseconds).with(Cost::NearService, nanoseconds / 2.0);
        Block { line, measured, modelled: per_round(&machine, program) + own_work }
    };
    let mut blocks: Vec<Block> = measured.into_iter().map(block).collect();
    blocks.sort_by(|one, other| (one.measured / one.modelled).total_cmp(&(other.measured / other.modelled)));
    let median = *blocks.get(blocks.len() / 2)?;
    Some(Comparison { what, blocks: blocks.len(), median })
}

/// The mean time of a round in the model, in µs.
fn per_round(machine: &Machine, program: &impl Program) -> f64 {
    const WARM_UP: usize = 100;
    let ends: Vec<u64> = run(machine, 2, program, BACK_TO_BACK, ROUNDS).iter().map(Round::end).collect();
    let last = ends.len() - 1;
    microseconds(ends[last] - ends[WARM_UP]) / (last - WARM_UP) as f64
}

/// Two ranks that write the same lines alternately; the other awaits all of them.
struct Lines {
    count: usize,
}

impl Program for Lines {
    fn lines(&self) -> usize {
        self.count
    }

    fn owner(&self, _: LineId) -> usize {
        0
    }

    fn steps(&self, rank: usize, round: u32) -> Vec<Step> {
        if round as usize % 2 == rank {
            (0..self.count).map(Step::Store).collect()
        } else {
            vec![Step::Await((0..self.count).collect())]
        }
    }
}

/// The first two processors that this process may use.
fn two_processors() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
    let mut usable = (0..CpuSet::count()).filter(|processor| allowed.is_set(*processor).unwrap_or(false));
    Some([usable.next()?, usable.next()?])
}

/// Binds the calling thread to a processor.
fn pin(processor: usize) {
    let mut only = CpuSet::new();
    only.set(processor).expect("the system has named it");
    sched_setaffinity(Pid::from_raw(0), &only).expect("it is one of the allowed");
}

#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU32);

/// One round's time in µs.
fn per_round_of(rounds: impl FnOnce()) -> f64 {
    let start = Instant::now();
    rounds();
    start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
}

/// As in core-to-core-latency: each side waits by retrying its own compare-exchange. Both sides call it.
fn exchange(line: &Line, side: usize) -> f64 {
    let (mine, others) = (side as u32, 1 - side as u32);
    per_round_of(|| {
        for _ in 0..ROUNDS / 2 {
            while line.0.compare_exchange(mine, others, Ordering::AcqRel, Ordering::Relaxed).is_err() {}
        }
    })
}

/// The measurements of one side, by block: the transfer of a line, and a round of `rounds`. Both sides call it.
fn blocks(line: &Line, side: usize, mut rounds: impl FnMut()) -> Vec<(f64, f64)> {
    let all = (0..BLOCKS).map(|_| {
        let before = exchange(line, side);
        let measured = per_round_of(&mut rounds);
        (before, measured, exchange(line, side))
    });
    let all: Vec<_> = all.collect();
    let steady = all.into_iter().filter(|(before, _, after)| before.max(*after) < STEADY * before.min(*after));
    steady.map(|(before, measured, after)| (f64::midpoint(before, after), measured)).collect()
}

fn lines(pair: [usize; 2], count: usize) -> Vec<(f64, f64)> {
    let line = Line::default();
    let lines: Vec<Line> = (0..count).map(|_| Line::default()).collect();
    let write = |round: u32| lines.iter().for_each(|line| line.0.store(round, Ordering::Release));
    let wait = |round: u32| {
        for line in &lines {
            while line.0.load(Ordering::Acquire) != round {
                spin_loop();
            }
        }
    };
    let side = |side: usize| {
        pin(pair[side]);
        // Each block begins with round 1; the block before has ended with an even number.
        blocks(&line, side, || {
            for round in (1..=ROUNDS).step_by(2) {
                if side == 0 {
                    write(round);
                    wait(round + 1);
                } else {
                    wait(round);
                    write(round + 1);
                }
            }
        })
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| side(0));
        scope.spawn(|| side(1));
        first.join().expect("it only measures")
    })
}

/// The library's barrier, over two ranks that are threads, each on a processor.
fn barriers(pair: [usize; 2], group: usize) -> Result<Vec<(f64, f64)>, Error> {
    let line = Line::default();
    let config = Config::new("/contention", 0, 2).group(group);
    let measured = threads_with(&config, |comm| {
        pin(pair[comm.rank()]);
        let mut result = Ok(());
        let blocks = blocks(&line, comm.rank(), || {
            result = (0..ROUNDS).try_for_each(|_| comm.barrier());
        });
        result.map(|()| blocks)
    })?;
    measured.into_iter().next().expect("there is a rank 0")
}

/// The median of some repetitions.
fn median(rounds: impl FnMut()) -> f64 {
    let mut rounds = rounds;
    let mut times: Vec<f64> = (0..BLOCKS).map(|_| per_round_of(&mut rounds)).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn alone() -> Result<Alone, Error> {
    let line = Line::default();
    let atomic = median(|| {
        for value in 0..ROUNDS {
            let _ = black_box(line.0.compare_exchange(value, value + 1, Ordering::Release, Ordering::Relaxed));
        }
        line.0.store(0, Ordering::Relaxed);
    });
    let pause = median(|| {
        for _ in 0..ROUNDS {
            black_box(line.0.load(Ordering::Acquire));
            spin_loop();
        }
    });
    let barrier = threads_with(&Config::new("/contention", 0, 1), |comm| {
        let mut result = Ok(());
        let barrier = median(|| result = (0..ROUNDS).try_for_each(|_| comm.barrier()));
        result.map(|()| barrier)
    })?;
    Ok(Alone { atomic, pause, barrier: barrier.into_iter().next().expect("there is a rank 0")? })
}
