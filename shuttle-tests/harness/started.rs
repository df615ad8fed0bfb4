//! The calls of a rank in their order, of which some are started and completed later: by a test, by the next call, or at the
//! end. The rank keeps them, as [`Pending`](intranode::Pending) has them kept: only the first has begun its rounds.

use std::collections::VecDeque;

use intranode::copy::Sink;
use intranode::protocol::allreduce::Shape;
use intranode::protocol::started::{ReduceScatterSteps, ReductionSteps, Started, Steps, TransferSteps};
use intranode::protocol::{Call, Failure, Member};

use crate::harness::choice;
use crate::harness::perform::{
    Lent, Sums, Transfer, block, check_blocks, check_own_block, check_reduction, contributed, perform, settle,
};
use crate::harness::script::{Operation, Script};
use crate::harness::segment::SegmentMemory;
use crate::harness::simulation::Simulation;

/// A rank, and what it has started.
pub struct Calls<'s> {
    script: &'s Script,
    rank: usize,
    simulation: &'s Simulation,
    outstanding: VecDeque<Outstanding>,
    /// The number of calls that are complete.
    pub complete: usize,
}

/// A call that was started and is not complete.
struct Outstanding {
    index: usize,
    call: Call,
    /// `None`: one that was started before is not complete.
    started: Option<Started>,
    /// When a test that has found it incomplete gives up who is missing.
    deadline: Option<u64>,
    steps: AnySteps,
}

enum AnySteps {
    Barrier,
    Reduction(Shape, Box<ReductionSteps<Sums<'static>>>),
    /// By rank, the length of its block.
    ReduceScatter(Vec<usize>, Box<ReduceScatterSteps<Sums<'static>>>),
    Transfer(Box<TransferSteps<Transfer<'static>>>),
}

impl<'s> Calls<'s> {
    pub fn new(script: &'s Script, rank: usize, simulation: &'s Simulation) -> Self {
        Calls { script, rank, simulation, outstanding: VecDeque::new(), complete: 0 }
    }

    /// Makes a call, or starts it and tests it a few times.
    ///
    /// # Errors
    /// Where the communicator has ended, or this rank.
    ///
    /// # Panics
    /// Where a call had another outcome than it had to.
    pub fn make(
        &mut self,
        index: usize,
        member: &mut Member<'_, Simulation>,
        memory: &SegmentMemory,
    ) -> Result<(), Failure> {
        let Operation::Started(operation) = self.script.operation(index, self.rank) else {
            self.finish(member)?;
            perform(self.script, index, self.rank, member, memory)?;
            self.complete += 1;
            return Ok(());
        };
        let call = self.script.call(index, self.rank);
        let steps = self.steps(index, *operation, call.refused);
        self.outstanding.push_back(Outstanding { index, call, started: None, deadline: None, steps });
        // The first has arrived when its start returns. One in five waits at once.
        self.begin(member)?;
        match choice::below(5) {
            4 => self.finish(member),
            tests => (0..tests).try_for_each(|_| self.test(member)),
        }
    }

    /// Completes what was started.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn finish(&mut self, member: &mut Member<'_, Simulation>) -> Result<(), Failure> {
        while !self.outstanding.is_empty() {
            self.begin(member)?;
            let Outstanding { started, steps, .. } = &mut self.outstanding[0];
            let started = started.as_mut().expect("it has begun");
            let outcome = member.finish(started, steps);
            self.completed(outcome)?;
        }
        Ok(())
    }

    /// Goes on as far as that takes no waiting.
    fn test(&mut self, member: &mut Member<'_, Simulation>) -> Result<(), Failure> {
        while !self.outstanding.is_empty() {
            self.begin(member)?;
            let now = self.simulation.now();
            let Outstanding { started, steps, deadline, .. } = &mut self.outstanding[0];
            let started = started.as_mut().expect("it has begun");
            match member.test(started, steps) {
                Ok(true) => self.completed(Ok(()))?,
                Ok(false) => {
                    let late = now >= *deadline.get_or_insert(now.saturating_add(1));
                    return if late { member.expire(started) } else { Ok(()) };
                }
                Err(failure) => self.completed(Err(failure))?,
            }
        }
        Ok(())
    }

    /// Begins the rounds of the first call, if it has not.
    fn begin(&mut self, member: &mut Member<'_, Simulation>) -> Result<(), Failure> {
        if let Some(Outstanding { call, started: started @ None, steps, .. }) = self.outstanding.front_mut() {
            *started = Some(member.start(call, steps)?);
        }
        Ok(())
    }

    /// The first call has ended: checks how.
    fn completed(&mut self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        let Some(Outstanding { index, call, steps, .. }) = self.outstanding.pop_front() else { return Ok(()) };
        let is_whole = outcome.is_ok();
        // A rank that takes part only to refuse is told of its refusal by nobody else.
        let outcome = match outcome {
            Err(Failure::Refused(_)) if call.refused => Ok(()),
            outcome => outcome,
        };
        settle(self.script, index, self.rank, outcome)?;
        self.complete += 1;
        if is_whole {
            match steps {
                AnySteps::Barrier => (),
                AnySteps::Reduction(shape, steps) => {
                    check_reduction(self.script, index, self.rank, shape, &steps.data);
                }
                AnySteps::ReduceScatter(lengths, steps) => {
                    check_own_block(self.script, index, self.rank, &lengths, &steps.data);
                }
                AnySteps::Transfer(steps) => check_blocks(index, self.rank, &steps.blocks.received),
            }
        }
        Ok(())
    }

    fn steps(&self, index: usize, operation: Operation, refused: bool) -> AnySteps {
        match operation {
            _ if refused => AnySteps::Barrier,
            Operation::Barrier => AnySteps::Barrier,
            Operation::Allreduce(elements) => {
                self.steps(index, Operation::Reduction(Shape::All, elements), refused)
            }
            Operation::Reduction(shape, elements) => {
                let sums = Sums::new(index, self.rank, elements);
                let steps = ReductionSteps::new(sums, shape, self.script.slices_from);
                AnySteps::Reduction(shape, Box::new(steps))
            }
            Operation::ReduceScatter(lengths) => {
                let sums = Sums::new(index, self.rank, lengths.iter().sum());
                let blocks = (0..lengths.len()).map(|rank| block(&lengths, rank)).collect();
                AnySteps::ReduceScatter(lengths, Box::new(ReduceScatterSteps::new(sums, blocks)))
            }
            Operation::Transfer(lengths) => {
                let mut received: Vec<_> = lengths.iter().map(|len| vec![0; *len]).collect();
                let own = contributed(index, self.rank, lengths[self.rank]);
                // As the caller has it there before the start.
                received[self.rank].clone_from(&own);
                let (rank, lent) = (self.rank, Lent::default());
                let transfer =
                    Transfer { rank, own, received, blocks: &[], is_barred: false, lent, reads: true };
                AnySteps::Transfer(Box::new(TransferSteps::new(transfer)))
            }
            other => unreachable!("{other:?} is not started"),
        }
    }
}

impl Steps<Simulation> for AnySteps {
    fn first(&mut self, member: &Member<'_, Simulation>, header: Sink<'_>) {
        match self {
            AnySteps::Barrier => ().first(member, header),
            AnySteps::Reduction(_, steps) => steps.first(member, header),
            AnySteps::ReduceScatter(_, steps) => steps.first(member, header),
            AnySteps::Transfer(steps) => steps.first(member, header),
        }
    }

    fn next(&mut self, member: &Member<'_, Simulation>, parity: usize) -> bool {
        match self {
            AnySteps::Barrier => ().next(member, parity),
            AnySteps::Reduction(_, steps) => steps.next(member, parity),
            AnySteps::ReduceScatter(_, steps) => steps.next(member, parity),
            AnySteps::Transfer(steps) => steps.next(member, parity),
        }
    }
}
