//! A token that goes round more ranks than there are processors: by signals, and by what the system itself offers.
//!
//! Each rank has to run once a circuit, so two ranks that share a processor take two context switches of it. They may
//! overlap with those of the other processor; a circuit takes no less than the switches of one.

use std::env;
use std::error::Error;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;

use intranode::{Communicator, Signal, Until};
use nix::sched::sched_yield;
use nix::sys::resource::{UsageWho, getrusage};

use super::{Outcome, bind, sleep, wake};

/// Two for each of two processors.
pub(crate) const RANKS: usize = 4;
pub(crate) const BLOCKS: &str = "SYMMETRIC_TOKEN_BLOCKS";

/// Circuits of a block: few, so that some blocks are not disturbed.
const CIRCUITS: u32 = 200;
/// What takes as long as a context switch, or longer.
const POLLS: u32 = 100;
/// Words that are in lines of their own.
const APART: usize = 64;

/// How a rank waits for the token, and passes it on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    PutSignal,
    Futex,
    Yield,
    YieldAndPoll,
}

const WAYS: [(&str, Way); 4] = [
    ("circuit: put_signal 8", Way::PutSignal),
    ("circuit: futex", Way::Futex),
    ("circuit: sched_yield", Way::Yield),
    ("circuit: sched_yield, 100 polls", Way::YieldAndPoll),
];

pub(crate) fn be_a_rank() -> Outcome {
    let comm = Communicator::from_env()?;
    bind(comm.rank() % 2)?;
    let blocks: usize = env::var(BLOCKS)?.parse()?;
    let ring = Ring::new(&comm)?;
    let mut measured = [(); WAYS.len()].map(|()| Vec::new());
    // The first block warms up.
    for block in 0..=blocks {
        for ((_, way), measured) in WAYS.iter().zip(&mut measured) {
            let figures = ring.circuits(*way, block as u32)?;
            if block > 0 {
                measured.push(figures);
            }
        }
    }
    if comm.rank() == 0 {
        println!("{:<34} {:>12} {:>12}   fastest and slowest block, ns", "", "ns", "switches");
        for ((name, _), mut blocks) in WAYS.iter().zip(measured) {
            blocks.sort_by(|a, b| a.0.total_cmp(&b.0));
            let ((time, switches), (least, _)) = (blocks[blocks.len() / 2], blocks[0]);
            let (most, _) = blocks[blocks.len() - 1];
            println!("{name:<34} {time:>12.0} {switches:>12.1}   {least:.0}–{most:.0}");
        }
    }
    comm.leave()?;
    Ok(())
}

struct Ring<'a> {
    comm: &'a Communicator,
    data: intranode::Symmetric<u64>,
    signals: intranode::Symmetric<u64>,
    words: intranode::Symmetric<u32>,
}

impl<'a> Ring<'a> {
    fn new(comm: &'a Communicator) -> Result<Self, intranode::Error> {
        Ok(Ring { comm, data: comm.symmetric(1)?, signals: comm.symmetric(1)?, words: comm.symmetric(APART)? })
    }

    /// The time of a circuit in nanoseconds, and the context switches that all ranks have made in it.
    fn circuits(&self, way: Way, block: u32) -> Outcome<(f64, f64)> {
        let Ring { comm, data, signals, words } = self;
        let next = (comm.rank() + 1) % comm.size();
        let word = |rank: usize| Ok::<_, Box<dyn Error>>(&words.at(rank)?.atomics()[0]);
        let (own, other) = (word(comm.rank())?, word(next)?);
        own.store(block * CIRCUITS, Release);
        comm.barrier()?;
        let (before, begin) = (switches()?, Instant::now());
        for circuit in 1..=CIRCUITS {
            let turn = block * CIRCUITS + circuit;
            let signal = u64::from(turn);
            let pass_on = || match way {
                Way::PutSignal => data.put_signal(next, 0, &[signal], signals, 0, Signal::Set(signal)),
                Way::Futex => {
                    wake(other, turn);
                    Ok(())
                }
                Way::Yield | Way::YieldAndPoll => {
                    other.store(turn, Release);
                    Ok(())
                }
            };
            if comm.rank() == 0 {
                pass_on()?;
            }
            match way {
                Way::PutSignal => drop(signals.wait_until(0, Until::Eq(signal))?),
                Way::Futex => sleep(own, turn),
                Way::Yield => yields_until(own, turn, 0)?,
                Way::YieldAndPoll => yields_until(own, turn, POLLS)?,
            }
            if comm.rank() != 0 {
                pass_on()?;
            }
        }
        let time = begin.elapsed().as_nanos() as f64 / f64::from(CIRCUITS);
        let mut all = [(switches()? - before) as f64 / f64::from(CIRCUITS)];
        comm.allreduce_in_place(&mut all, intranode::ReduceOp::Sum)?;
        Ok((time, all[0]))
    }
}

/// Yields the processor until the token is here; polls so often after each time.
fn yields_until(word: &AtomicU32, turn: u32, polls: u32) -> Outcome {
    while word.load(Acquire) != turn {
        sched_yield()?;
        for _ in 0..polls {
            if word.load(Acquire) == turn {
                break;
            }
            std::hint::spin_loop();
        }
    }
    Ok(())
}

/// The context switches of this process so far. A yield counts as one that was forced.
fn switches() -> Outcome<i64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok(usage.voluntary_context_switches() + usage.involuntary_context_switches())
}
