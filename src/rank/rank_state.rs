//! One rank's place in a group of ranks: what a communicator and its regions have in common.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crossbeam_utils::CachePadded;

use crate::error::{CallSummary, Error, Operation, TimeoutInfo};
use crate::protocol::block_transfer::BlockTransfer;
use crate::protocol::{
    Barrier, Call, CallLock, Cause, CauseKind, Failure, Generation, Member, Overlap, membership,
};
use crate::rank::choices::{Choice, ChoiceLog};
use crate::rank::cma_peers::CmaPeers;
use crate::rank::groups::Groups;
use crate::rank::job_state::Observer;
use crate::rank::process_settings::ProcessSettings;
use crate::segment::mapped::MappedSegment;
use crate::segment::platform::ShmPlatform;

/// The state of one rank in one segment. Regions keep it, so that they can outlive the communicator.
pub(crate) struct RankState {
    pub(crate) world: Arc<MappedSegment>,
    pub(crate) machine: ShmPlatform,
    pub(crate) rank: usize,
    /// The name of the job, from which further parts of it have theirs.
    pub(crate) job: Arc<str>,
    pub(crate) settings: ProcessSettings,
    /// Where ranks meet in groups: all of them, and what this rank has to know.
    pub(crate) groups: Option<Groups>,
    /// How this rank meets the others.
    pub(crate) barrier: Barrier,
    /// Where ranks can read each other's memory.
    pub(crate) cma_peers: Option<CmaPeers>,
    /// Looks at all ranks now and then, for reports of the job's state.
    pub(crate) observer: Option<Arc<Observer>>,
    /// Where it is written which way calls go, if that was asked for.
    pub(crate) choices: Option<ChoiceLog>,
    /// On a cache line of its own: ranks that are threads may keep their communicators side by side.
    lock: CachePadded<CallLock<ShmPlatform>>,
}

impl RankState {
    pub(crate) fn new(
        world: Arc<MappedSegment>,
        machine: ShmPlatform,
        rank: usize,
        job: Arc<str>,
        settings: ProcessSettings,
        completed: Generation,
    ) -> Self {
        let lock = CallLock::new(AtomicU32::new(CallLock::<ShmPlatform>::initial_word(completed)));
        RankState {
            world,
            machine,
            rank,
            job,
            settings,
            groups: None,
            barrier: Barrier::Flat,
            cma_peers: None,
            observer: None,
            choices: ChoiceLog::if_wanted(settings.debug, rank),
            lock: CachePadded::new(lock),
        }
    }

    /// The same rank, where ranks meet in groups if there are any. Before a round that is the same on all ranks.
    pub(crate) fn set_groups(&mut self, groups: Option<Groups>) {
        self.barrier =
            groups.as_ref().map_or(Barrier::Flat, |groups| Barrier::Hierarchical(groups.of(self.rank)));
        self.groups = groups;
    }

    /// The number of ranks.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.world.layout().ranks()
    }

    /// Says that this rank goes: after the last round that it has completed, or because its thread panics.
    pub(crate) fn go(&self) {
        if std::thread::panicking() {
            self.poison(CauseKind::Panicked, 0);
        } else {
            self.poison(CauseKind::Left, self.lock.completed(&self.machine).number());
        }
    }

    /// Writes down which way a call goes, if that was asked for.
    #[inline]
    pub(crate) fn chosen(&self, bytes: usize, choice: impl FnOnce() -> Choice) {
        if let Some(choices) = &self.choices {
            choices.record(bytes, choice());
        }
    }

    /// Tells the others that this rank can not take part, and returns what this rank reports.
    #[cold]
    pub(crate) fn refuse(&self, call: &Call, error: Error) -> Error {
        match self.begin(error.operation()) {
            Ok(mut open) => open.refuse(call, error),
            Err(fatal) => fatal,
        }
    }

    /// A call of one transfer.
    #[inline]
    pub(crate) fn collective<R>(
        &self,
        operation: Operation,
        call: impl FnOnce(&mut Member<'_, ShmPlatform>) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        self.begin(operation)?.run(call)
    }

    /// Begins a call by this thread, which lasts until what this returns is dropped.
    ///
    /// # Errors
    /// [`Error::Forked`]; [`Error::ConcurrentUse`], after which the communicator has ended.
    #[inline]
    pub(crate) fn begin(&self, operation: Operation) -> Result<OpenCall<'_>, Error> {
        if self.world.forked() {
            return Err(Error::Forked { operation });
        }
        let member = self.lock.begin(&self.machine, self.world.segment(), self.rank);
        let member = member.map_err(|Overlap| Error::ConcurrentUse { operation })?;
        Ok(OpenCall { seat: self, operation, member, phase: 0, running: false })
    }

    /// Why a call has failed, or must be taken to have failed.
    #[cold]
    fn failed(
        &self,
        operation: Operation,
        member: &Member<'_, ShmPlatform>,
        failure: Option<Failure>,
    ) -> Error {
        match failure {
            Some(failure) if !self.world.torn() => self.report(operation, member, failure),
            _ => self.torn(operation, member),
        }
    }

    fn torn(&self, operation: Operation, member: &Member<'_, ShmPlatform>) -> Error {
        let reason = "another program has cut the file of its segment short";
        Error::Poisoned { operation, round: member.completed().next().number(), rank: self.rank, reason }
    }

    /// Ends the communicator for all ranks, because of this one.
    pub(crate) fn poison(&self, kind: CauseKind, detail: u32) {
        self.poison_for(kind, self.rank, detail);
    }

    /// The same because of any rank.
    pub(crate) fn poison_for(&self, kind: CauseKind, rank: usize, detail: u32) {
        // Only tests stop a rank in between.
        let _ = membership::poison(&self.machine, self.world.segment(), Cause { kind, rank, detail });
    }

    /// The process that is a rank.
    pub(crate) fn pid(&self, rank: usize) -> u32 {
        membership::owner(&self.machine, self.world.segment(), rank)
    }

    #[cold]
    fn report(&self, operation: Operation, member: &Member<'_, ShmPlatform>, failure: Failure) -> Error {
        match failure {
            // What they say was consumed.
            Failure::Refused(rank) => Error::Refused { operation, rank, round: member.completed().number() },
            Failure::Mismatch(calls) => Error::Mismatch {
                operation,
                round: member.completed().number(),
                calls: CallSummary::all(&calls),
            },
            // A rank that was told another size may have any number; all others are among these.
            Failure::Dead(Some(cause)) if cause.kind == CauseKind::WrongSize || cause.rank < self.size() => {
                self.report_end(operation, member, cause)
            }
            Failure::Dead(_) | Failure::Killed => {
                let reason = "the segment's memory was overwritten";
                Error::Poisoned {
                    operation,
                    round: member.completed().next().number(),
                    rank: self.rank,
                    reason,
                }
            }
        }
    }

    fn report_end(&self, operation: Operation, member: &Member<'_, ShmPlatform>, cause: Cause) -> Error {
        let Cause { kind, rank, detail } = cause;
        let round = member.completed().next().number();
        let poisoned = |reason| Error::Poisoned { operation, round, rank, reason };
        match kind {
            CauseKind::TimedOut => {
                let mut late = member.late(Generation::new(detail));
                if late.is_empty() {
                    // It came after all, too late for the rank that had given up.
                    late.push(rank);
                }
                // Nobody advances any more, so all agree on who writes.
                if let Some(observer) = &self.observer
                    && (0..self.size()).find(|rank| !late.contains(rank)) == Some(self.rank)
                {
                    observer.write();
                }
                let pids = late.iter().map(|rank| self.pid(*rank)).collect();
                let info = Box::new(TimeoutInfo { timeout: self.machine.timeout, pids, round: detail });
                Error::TimedOut { operation, late: late.into_boxed_slice(), info }
            }
            CauseKind::Left => Error::RankLeft { operation, round, rank, rounds: detail },
            CauseKind::Aborted => Error::Aborted { operation, round, rank, code: detail as i32 },
            CauseKind::Died => Error::RankDied { operation, round, rank, pid: self.pid(rank) },
            CauseKind::Panicked => poisoned("its thread panicked"),
            CauseKind::ConcurrentUse => poisoned("two of its threads called at the same time"),
            CauseKind::WrongSize => poisoned("it was told another number of ranks"),
        }
    }
}

/// A call that is under way on this thread, and on no other of this rank. It may consist of several transfers, which are told
/// apart by their number: one that meets another of the same call, or of another, is a mismatch.
pub(crate) struct OpenCall<'s> {
    seat: &'s RankState,
    operation: Operation,
    member: Member<'s, ShmPlatform>,
    /// How many transfers there were.
    phase: u8,
    /// Whether a step of the call has begun and not returned.
    running: bool,
}

impl<'s> OpenCall<'s> {
    /// What is called.
    pub(crate) fn operation(&self) -> Operation {
        self.operation
    }

    /// The rank's place in the communicator.
    pub(crate) fn seat(&self) -> &'s RankState {
        self.seat
    }

    /// Does something that all ranks do.
    #[inline]
    pub(crate) fn run<R>(
        &mut self,
        call: impl FnOnce(&mut Member<'_, ShmPlatform>) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        let OpenCall { seat, operation, member, .. } = self;
        self.running = true;
        let result = call(member);
        self.running = false;
        match result {
            Ok(value) if !seat.world.torn() => Ok(value),
            other => Err(seat.failed(*operation, member, other.err())),
        }
    }

    /// The next transfer of the call.
    pub(crate) fn transfer(&mut self, call: &Call, blocks: &mut impl BlockTransfer) -> Result<(), Error> {
        let call = call.phase(self.phase);
        self.phase += 1;
        self.run(|member| member.transfer(&call, blocks))
    }

    /// Tells the others that this rank can not take part in the next transfer, and returns what this rank reports.
    #[cold]
    pub(crate) fn refuse(&mut self, call: &Call, error: Error) -> Error {
        let call = call.phase(self.phase);
        match self.run(|member| member.refuse(&call)) {
            Ok(()) => error,
            Err(fatal) => fatal,
        }
    }
}

impl Drop for OpenCall<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.running {
            // A panic: others may still read what the next call of this rank would write.
            self.seat.poison(CauseKind::Panicked, 0);
        }
        self.seat.lock.end(&self.seat.machine, &self.member);
    }
}
