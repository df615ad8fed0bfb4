//! What two processors of this machine show, next to what the model says of two cores.
//!
//! They show how long a line takes, how many misses a core has under way, and what a barrier of two ranks takes with the
//! library itself. They cannot show how a home serves many readers.
//!
//! Where processors are virtual, they share a cache or not, and that changes while this runs. So the line is measured just
//! before and after each thing that is compared, the model is given that very line, and where the two differ nothing
//! counts.

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

/// How often each thing is measured.
const BLOCKS: usize = 41;

/// How many rounds are timed together.
const ROUNDS: u32 = 500;

/// The line may change by as much from before to after.
const STEADY: f64 = 1.15;

/// The numbers of lines that one core writes and the other awaits.
const COUNTS: [usize; 4] = [1, 4, 16, 64];

/// A thing that was measured and modelled. In µs.
pub(crate) struct Comparison {
    pub(crate) what: String,
    /// Of how many blocks, of those in which the line did not change.
    pub(crate) blocks: usize,
    /// The block in which measured and modelled have the median ratio.
    pub(crate) median: Block,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// A line that both cores compare-exchange in turn, one way: what the model is given.
    pub(crate) line: f64,
    pub(crate) measured: f64,
    pub(crate) modelled: f64,
}

/// What one core does by itself. In µs; the model is given it.
pub(crate) struct Alone {
    /// A compare-exchange of a line that it has.
    pub(crate) atomic: f64,
    /// From one poll to the next.
    pub(crate) pause: f64,
    /// The library's barrier of one rank: a call's own work.
    pub(crate) barrier: f64,
}

/// Nothing where there are no two processors.
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

/// `measured`: by block, the line and what was measured. `own_work`: of a call, of which the model knows nothing.
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

/// Two ranks that write the same lines in turn; the other awaits them all.
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

/// The first two that this process may use.
fn two_processors() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
    let mut usable = (0..CpuSet::count()).filter(|processor| allowed.is_set(*processor).unwrap_or(false));
    Some([usable.next()?, usable.next()?])
}

/// The calling thread stays on that processor.
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

/// As core-to-core-latency does it: each side waits by trying its own exchange. Takes both sides.
fn exchange(line: &Line, side: usize) -> f64 {
    let (mine, others) = (side as u32, 1 - side as u32);
    per_round_of(|| {
        for _ in 0..ROUNDS / 2 {
            while line.0.compare_exchange(mine, others, Ordering::AcqRel, Ordering::Relaxed).is_err() {}
        }
    })
}

/// What one side measures, by block: the line, and a round of what `rounds` does. Takes both sides.
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
        // Each block begins with round 1, after the block before has ended with an even number.
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
