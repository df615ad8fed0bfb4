//! A program as data.
//!
//! Tables are by the rank in the communicator that a step finds in its slot, of which there are at most [`MOST_RANKS`]. A
//! step whose slot is empty does nothing.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// The most ranks of a program.
pub(crate) const MOST_RANKS: usize = 5;

/// The most threads of a rank.
pub(crate) const MOST_THREADS: usize = 4;

/// Communicators, regions and exchanges that a rank holds at a time.
pub(crate) const COMMS: usize = 3;
pub(crate) const REGIONS: usize = 3;
pub(crate) const EXCHANGES: usize = 3;

/// What each thread of each rank does, and how the ranks join.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) seed: u64,
    pub(crate) timeout: Duration,
    pub(crate) staging: Option<usize>,
    pub(crate) group: Option<usize>,
    pub(crate) single_copy: Option<bool>,
    /// The threads of a rank take turns with their calls.
    pub(crate) orderly: bool,
    /// A rank whose process is killed, and how many microseconds after it has joined.
    pub(crate) killed: Option<(usize, u64)>,
    /// By rank, by thread.
    pub(crate) threads: Vec<Vec<Vec<Step>>>,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Program { seed, timeout, staging, group, single_copy, orderly, killed, threads } = self;
        writeln!(f, "seed {seed}: {timeout:?}, staging {staging:?}, group {group:?}")?;
        writeln!(f, "single copy {single_copy:?}, orderly: {orderly}, killed: {killed:?}")?;
        for (rank, threads) in threads.iter().enumerate() {
            for (thread, steps) in threads.iter().enumerate() {
                writeln!(f, "rank {rank}, thread {thread}:")?;
                for Step { act, retries } in steps {
                    writeln!(f, "    {act:?}, retries {retries}")?;
                }
            }
        }
        Ok(())
    }
}

/// Something that a thread does.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) act: Act,
    /// How often it is done again after an error after which the communicator can be used.
    pub(crate) retries: u8,
}

/// Something to do with what is in a slot.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Barrier {
        comm: usize,
    },
    Allreduce {
        comm: usize,
        len: usize,
        op: Op,
        in_place: bool,
    },
    Allgather {
        comm: usize,
        len: usize,
    },
    Allgatherv {
        comm: usize,
        counts: [usize; MOST_RANKS],
        gap: usize,
    },
    Broadcast {
        comm: usize,
        len: usize,
        root: usize,
    },
    RefuseCall {
        comm: usize,
        operation: intranode::Operation,
    },
    State {
        comm: usize,
    },
    Wrong {
        comm: usize,
        wrong: Wrong,
    },
    MakeRegion {
        comm: usize,
        to: usize,
        len: usize,
        distributed: bool,
    },
    Distribute {
        region: usize,
    },
    SetOwnership {
        region: usize,
        asked: [Vec<Range<usize>>; MOST_RANKS],
        asks: Asks,
    },
    Write {
        region: usize,
        looks: u8,
    },
    Publish {
        region: usize,
    },
    Read {
        region: usize,
        looks: u8,
    },
    Reclaim {
        region: usize,
    },
    MakeExchange {
        comm: usize,
        to: usize,
        counts: [usize; MOST_RANKS],
    },
    Turn {
        exchange: usize,
        writes: bool,
        looks: u8,
    },
    Split {
        comm: usize,
        to: usize,
        colors: [usize; MOST_RANKS],
        keys: [usize; MOST_RANKS],
    },
    SplitLocal {
        comm: usize,
        to: usize,
    },
    Leave {
        comm: usize,
    },
    Drop {
        handle: Handle,
    },
    Forget {
        handle: Handle,
    },
    /// Panics with what is in the slot.
    Panic {
        handle: Handle,
        caught: bool,
    },
    /// Ends the process.
    Exit,
    /// Ends the job.
    Abort {
        comm: usize,
    },
    Pause {
        micros: u64,
    },
    /// Waits until the rank has completed some rounds, which may be in the middle of a call, and then a moment.
    Lurk {
        comm: usize,
        rounds: u32,
        spins: u32,
    },
}

/// A reduction whose result shows who took part, or one whose result does not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Sum,
    BitOr,
    BitXor,
    Max,
}

/// How a rank asks for its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    Plainly,
    /// Through an iterator that calls something itself.
    Calling,
    /// Through an iterator that panics, and then plainly.
    Panicking,
    /// With many empty ranges, which take their time between the rounds of the call.
    AtLength,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handle {
    Comm(usize),
    Region(usize),
    Exchange(usize),
}

/// Calls that can not be a success, or are of another type than those of most ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wrong {
    Root,
    Receive,
    Counts,
    Overlap,
    Far,
    Bitwise,
    ExchangeCounts,
    HugeRegion,
    HugeExchange,
    WideRegion,
    RegionOfNothing,
}

/// All of them.
pub(crate) const WRONGS: [Wrong; 11] = [
    Wrong::Root,
    Wrong::Receive,
    Wrong::Counts,
    Wrong::Overlap,
    Wrong::Far,
    Wrong::Bitwise,
    Wrong::ExchangeCounts,
    Wrong::HugeRegion,
    Wrong::HugeExchange,
    Wrong::WideRegion,
    Wrong::RegionOfNothing,
];
