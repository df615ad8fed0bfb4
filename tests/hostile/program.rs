//! A program as data.
//!
//! Tables are indexed by the rank in the communicator of a step, which is less than [`MAX_RANKS`]. A step whose slot is
//! empty does nothing.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// The largest number of ranks of a program.
pub(crate) const MAX_RANKS: usize = 5;

/// The largest number of threads of a rank.
pub(crate) const MAX_THREADS: usize = 4;

/// The numbers of slots of a rank.
pub(crate) const COMMS: usize = 3;
pub(crate) const REGIONS: usize = 3;
pub(crate) const EXCHANGES: usize = 3;
pub(crate) const BUFFERS: usize = 3;
pub(crate) const SYMMETRICS: usize = 3;

/// The steps of all threads of all ranks, and the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) seed: u64,
    pub(crate) timeout: Duration,
    pub(crate) staging: Option<usize>,
    pub(crate) group: Option<usize>,
    pub(crate) single_copy: Option<bool>,
    /// The threads of a rank call one at a time.
    pub(crate) serialized: bool,
    /// A rank whose process is killed, and when: in microseconds after joining.
    pub(crate) killed: Option<(usize, u64)>,
    /// By rank, by thread.
    pub(crate) threads: Vec<Vec<Vec<Step>>>,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Program { seed, timeout, staging, group, single_copy, serialized, killed, threads } = self;
        writeln!(f, "seed {seed}: {timeout:?}, staging {staging:?}, group {group:?}")?;
        writeln!(f, "single copy {single_copy:?}, serialized: {serialized}, killed: {killed:?}")?;
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

/// A step of a thread.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) act: Act,
    /// The number of repetitions after recoverable errors.
    pub(crate) retries: u8,
}

/// An action on slots.
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
        counts: [usize; MAX_RANKS],
        gap: usize,
    },
    Broadcast {
        comm: usize,
        len: usize,
        root: usize,
    },
    Blocks {
        comm: usize,
        len: usize,
        root: usize,
        call: Blocks,
        in_place: bool,
    },
    Folded {
        comm: usize,
        len: usize,
        root: usize,
        call: Folded,
    },
    Started {
        comm: usize,
        len: usize,
        root: usize,
        call: Started,
        tests: u8,
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
        ranges: [Vec<Range<usize>>; MAX_RANKS],
        style: RangeStyle,
    },
    Write {
        region: usize,
        rereads: u8,
    },
    Publish {
        region: usize,
    },
    Read {
        region: usize,
        rereads: u8,
    },
    Reclaim {
        region: usize,
    },
    MakeExchange {
        comm: usize,
        to: usize,
        counts: [usize; MAX_RANKS],
    },
    Share {
        exchange: usize,
        writes: bool,
        rereads: u8,
    },
    MakeBuffer {
        comm: usize,
        to: usize,
        len: usize,
    },
    SendBuffer {
        comm: usize,
        buffer: usize,
        root: usize,
        call: Sent,
    },
    MakeSymmetric {
        comm: usize,
        to: usize,
        len: usize,
    },
    BeginPhase {
        symmetric: usize,
        phase: Phase,
    },
    UseSymmetric {
        symmetric: usize,
        rereads: u8,
    },
    FreeSymmetric {
        symmetric: usize,
    },
    Split {
        comm: usize,
        to: usize,
        colors: [usize; MAX_RANKS],
        keys: [usize; MAX_RANKS],
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
    /// Panics while it holds the slot's contents.
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
    /// Waits until the rank has completed some rounds, possibly in the middle of a call, and then spins.
    AwaitRounds {
        comm: usize,
        rounds: u32,
        spins: u32,
    },
}

/// A reduction. The results of all but the last identify the participants.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Sum,
    BitOr,
    BitXor,
    Max,
}

/// A call that brings blocks. An allgather is in place here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Blocks {
    Gather,
    Scatter,
    Alltoall,
    Allgather,
}

/// A call that brings sums.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Folded {
    Reduce,
    Scan,
    ReduceScatter,
}

/// A call that is started, and completed later.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Started {
    Barrier,
    Allreduce,
    Broadcast,
    Allgatherv,
}

/// A call that sends a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sent {
    Allgather,
    Broadcast,
    Allreduce,
}

/// A phase of a symmetric object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    Own,
    Read,
}

/// The iterator of ranges that a rank passes to `set_ownership`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeStyle {
    Plain,
    /// An iterator that calls a collective.
    Calling,
    /// An iterator that panics, and then a plain one.
    Panicking,
    /// Many empty ranges, which take time between the rounds of the call.
    Long,
}

/// A slot of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handle {
    Comm(usize),
    Region(usize),
    Exchange(usize),
    Buffer(usize),
    Symmetric(usize),
}

/// Calls with invalid arguments, or with another element type than those of most ranks.
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
