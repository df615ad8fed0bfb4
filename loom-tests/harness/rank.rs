//! A rank in an execution: the steps that it can take, and what has come of them.

use intranode::protocol::{Barrier, Call, Failure, Member, Payload};

use crate::harness::cells::Buffer;
use crate::harness::mutant::Simulated;
use crate::harness::segment::SegmentMemory;

/// A step of a rank: a call, or the rank's end. It checks the data that the call has brought; the verdict is recorded.
pub(crate) type Step = fn(&mut Rank<'_>) -> Result<(), Failure>;

/// What a call publishes as its operation.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Round,
    Barrier,
    Allreduce,
    Gather,
    Broadcast,
    Refuse,
    Publish,
    Reclaim,
    Exchange,
    Fetch,
    SetOwnership,
    InPlace,
    Reduce,
    Scan,
    ReduceScatter,
    Alltoall,
    Started,
    Eager,
}

impl Operation {
    /// A call of this operation, of `numbers` numbers. `extra` has to be equal on all ranks too.
    pub(crate) fn call(self, numbers: usize, extra: usize) -> Call {
        let size = size_of::<u64>() as u32;
        Call {
            operation: self as u8,
            shape: size,
            length: numbers as u64,
            extra: extra as u64,
            ..Call::default()
        }
    }
}

/// A call that a rank has made.
#[derive(Debug)]
pub(crate) struct CallMade {
    pub(crate) call: Call,
    /// Whether the rank took part only to refuse, and so is not told of refusals.
    pub(crate) refuses: bool,
    pub(crate) verdict: Result<(), Failure>,
}

/// What one thread has seen.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// In order.
    pub(crate) calls: Vec<CallMade>,
    /// After the communicator has ended: the last round completed, and which ranks were late at the next.
    pub(crate) late: Option<(u32, Vec<usize>)>,
}

/// One rank, on its thread.
pub(crate) struct Rank<'s> {
    pub(crate) number: usize,
    pub(crate) member: Member<'s, Simulated>,
    memory: &'s SegmentMemory,
    pub(crate) outcome: Outcome,
}

impl<'s> Rank<'s> {
    pub(crate) fn new(number: usize, member: Member<'s, Simulated>, memory: &'s SegmentMemory) -> Self {
        Rank { number, member, memory, outcome: Outcome::default() }
    }

    /// The number of ranks.
    pub(crate) fn size(&self) -> usize {
        self.member.size()
    }

    /// The number of calls that this rank has made: what is sent in each is different.
    pub(crate) fn nth(&self) -> usize {
        self.outcome.calls.len()
    }

    /// Makes a call, and records its verdict.
    pub(crate) fn call<T>(
        &mut self,
        call: Call,
        make: impl FnOnce(&mut Member<'_, Simulated>, &Call) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let result = make(&mut self.member, &call);
        let verdict = result.as_ref().map(|_| ()).map_err(Failure::clone);
        self.outcome.calls.push(CallMade { call, refuses: false, verdict });
        result
    }

    /// Takes part in a call only to refuse, and records that.
    pub(crate) fn refuse(&mut self, call: Call) -> Result<(), Failure> {
        let verdict = self.member.refuse(&call);
        let call = Call { refused: true, ..call };
        self.outcome.calls.push(CallMade { call, refuses: true, verdict: verdict.clone() });
        verdict
    }

    /// How this rank meets the others.
    pub(crate) fn barrier(&self) -> &'s Barrier {
        &self.memory.barriers[self.number]
    }

    /// By rank: the blocks that others see in place.
    pub(crate) fn blocks(&self) -> &'s [[Buffer; 2]] {
        &self.memory.blocks
    }

    /// Writes a block of this rank's that others see in place.
    pub(crate) fn write_block(&self, index: usize, numbers: &[u64]) {
        self.memory.blocks[self.number][index].write(|mut view| view.put(0, bytemuck::cast_slice(numbers)));
    }

    /// Reads the beginning of such a block of any rank.
    pub(crate) fn read_block(&self, owner: usize, index: usize) -> u64 {
        self.memory.blocks[owner][index].read(|view| u64::from_ne_bytes(view.array(0)))
    }
}
