//! The operations that can be measured, and their default sizes.

use clap::ValueEnum;
use intranode::{Communicator, Error};
use serde::Serialize;

use super::blocks::{Blockwise, Kind};
use super::collective::{Allgatherv, Allreduce, Barrier, Broadcast, Collective, Op};
use super::message::{Direction, Pair, WakeUp};
use super::one_sided::{FetchAdd, Get, Put, PutSignal};
use super::payload::Memory;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    Barrier,
    Allreduce,
    /// An allreduce by an operation of the program's own
    #[serde(rename = "allreduce-with")]
    AllreduceWith,
    Allgatherv,
    Broadcast,
    Reduce,
    Gather,
    Scatter,
    Alltoall,
    Gatherv,
    Scatterv,
    Alltoallv,
    #[value(name = "reduce-scatter")]
    #[serde(rename = "reduce-scatter")]
    ReduceScatter,
    Exscan,
    Put,
    Get,
    #[value(name = "fetch-add")]
    #[serde(rename = "fetch-add")]
    FetchAdd,
    #[value(name = "put-signal")]
    #[serde(rename = "put-signal")]
    PutSignal,
    #[value(name = "ping-pong")]
    #[serde(rename = "ping-pong")]
    PingPong,
    Stream,
    #[value(name = "wake-up")]
    #[serde(rename = "wake-up")]
    WakeUp,
}

impl Operation {
    /// Inline, in the cache, larger than the cache, and the largest sizes in practice.
    pub(super) fn default_bytes(self) -> &'static [usize] {
        match self {
            Operation::Barrier => &[0],
            Operation::Allreduce => &[32, 8 << 10, 1 << 20, 32 << 20],
            Operation::AllreduceWith => &[1 << 20],
            Operation::Allgatherv => &[1 << 10, 64 << 10, 3_200_000, 206_000_000],
            Operation::Broadcast => &[10 << 10, 1 << 20, 64 << 20],
            Operation::Reduce
            | Operation::Gather
            | Operation::Scatter
            | Operation::Alltoall
            | Operation::Alltoallv
            | Operation::ReduceScatter => &[8, 1 << 10, 64 << 10, 1 << 20],
            Operation::Gatherv | Operation::Scatterv => &[8, 64 << 10, 1 << 20],
            Operation::Exscan => &[8],
            Operation::Put | Operation::Get => &[8, 4 << 10, 64 << 10, 1 << 20, 64 << 20],
            Operation::FetchAdd => &[8],
            Operation::PutSignal => &[8, 64 << 10],
            Operation::PingPong => &[8, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20],
            Operation::Stream => &[8],
            Operation::WakeUp => &[16],
        }
    }

    /// Whether there is nothing to choose about its size.
    pub(super) fn has_one_size(self) -> bool {
        matches!(self, Operation::Barrier | Operation::FetchAdd | Operation::WakeUp)
    }

    /// Whether it has a payload that can lie in shared memory.
    pub(super) fn has_payload(self) -> bool {
        self.has_two_definitions() || self == Operation::Stream
    }

    /// Whether its payload can also stay unchanged.
    pub(super) fn has_two_definitions(self) -> bool {
        use Operation::{Barrier, FetchAdd, Get, Put, PutSignal, Stream, WakeUp};
        !matches!(self, Barrier | Put | Get | FetchAdd | PutSignal | Stream | WakeUp)
    }

    pub(super) fn collective(
        self,
        bytes: usize,
        memory: Memory,
        comm: &Communicator,
    ) -> Result<Box<dyn Collective + '_>, Error> {
        let elements = bytes / size_of::<f64>();
        Ok(match self {
            Operation::Barrier => Box::new(Barrier),
            Operation::Allreduce => Box::new(Allreduce::new(Op::Library, elements, memory, comm)?),
            Operation::AllreduceWith => Box::new(Allreduce::new(Op::Own, elements, memory, comm)?),
            Operation::Allgatherv => Box::new(Allgatherv::new(elements, memory, comm)?),
            Operation::Broadcast => Box::new(Broadcast::new(elements, memory, comm)?),
            Operation::Reduce => Box::new(Blockwise::new(Kind::Reduce, elements, memory, comm)?),
            Operation::Gather => Box::new(Blockwise::new(Kind::Gather, elements, memory, comm)?),
            Operation::Scatter => Box::new(Blockwise::new(Kind::Scatter, elements, memory, comm)?),
            Operation::Alltoall => Box::new(Blockwise::new(Kind::Alltoall, elements, memory, comm)?),
            Operation::Gatherv => Box::new(Blockwise::new(Kind::Gatherv, elements, memory, comm)?),
            Operation::Scatterv => Box::new(Blockwise::new(Kind::Scatterv, elements, memory, comm)?),
            Operation::Alltoallv => Box::new(Blockwise::new(Kind::Alltoallv, elements, memory, comm)?),
            Operation::ReduceScatter => Box::new(Blockwise::new(Kind::ReduceScatter, elements, memory, comm)?),
            Operation::Exscan => Box::new(Blockwise::new(Kind::Exscan, elements, memory, comm)?),
            Operation::Put => Box::new(Put::new(elements, comm)?),
            Operation::Get => Box::new(Get::new(elements, comm)?),
            Operation::FetchAdd => Box::new(FetchAdd::new(comm)?),
            Operation::PutSignal => Box::new(PutSignal::new(elements, comm)?),
            Operation::PingPong => Box::new(Pair::new(Direction::There, elements, memory, comm)?),
            Operation::Stream => Box::new(Pair::new(Direction::Onwards, elements, memory, comm)?),
            Operation::WakeUp => Box::new(WakeUp::new(comm)?),
        })
    }
}
