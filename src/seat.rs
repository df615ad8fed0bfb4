//! One rank's place in a group of ranks: what a communicator and its regions have in common.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crossbeam_utils::CachePadded;

use crate::buffers::Gather;
use crate::error::{Called, Error, Operation, TimeOut};
use crate::groups::Groups;
use crate::protocol::{Call, Cause, CauseKind, Failure, Generation, Group, Member, membership};
use crate::reach::Reach;
use crate::state::Observer;
use crate::sys::machine::Machine;
use crate::sys::world::World;

/// The state of one rank in one segment. Regions keep it, so that they can outlive the communicator.
pub(crate) struct Seat {
    pub(crate) world: Arc<World>,
    pub(crate) machine: Machine,
    pub(crate) rank: usize,
    /// The name of the job, from which further parts of it have theirs.
    pub(crate) job: Arc<str>,
    /// Where ranks meet in groups: all of them, and what this rank has to know.
    pub(crate) groups: Option<(Groups, Group)>,
    /// Where ranks can read each other's memory.
    pub(crate) reach: Option<Reach>,
    /// Looks at all ranks now and then, for reports of the job's state.
    pub(crate) observer: Option<Arc<Observer>>,
    /// On a cache line of its own: ranks that are threads may keep their communicators side by side.
    state: CachePadded<State>,
}

struct State {
    /// The last completed round. Only the holder of `busy` changes it.
    completed: AtomicU32,
    busy: AtomicBool,
}

impl Seat {
    pub(crate) fn new(
        world: Arc<World>,
        machine: Machine,
        rank: usize,
        job: Arc<str>,
        completed: Generation,
    ) -> Self {
        let state = State { completed: AtomicU32::new(completed.number()), busy: AtomicBool::new(false) };
        Seat {
            world,
            machine,
            rank,
            job,
            groups: None,
            reach: None,
            observer: None,
            state: CachePadded::new(state),
        }
    }

    /// The same rank, where ranks meet in groups if there are any. Before a round that is the same on all ranks.
    pub(crate) fn meet_in(&mut self, groups: Option<Groups>) {
        self.groups = groups.map(|groups| {
            let own = groups.of(self.rank);
            (groups, own)
        });
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
            self.poison(CauseKind::Left, self.state.completed.load(Ordering::Relaxed));
        }
    }

    /// Blocks of bytes from every rank to every rank: that of a rank at `place` in `recv`.
    pub(crate) fn gather(
        &self,
        operation: Operation,
        call: &Call,
        send: &[u8],
        recv: &mut [u8],
        place: impl Fn(usize) -> Range<usize>,
    ) -> Result<(), Error> {
        let mut blocks = Gather::new(send, recv, self.rank, place, self.reach.as_ref());
        self.collective(operation, |member| member.transfer(call, &mut blocks))
    }

    /// Some words from every rank to every rank.
    pub(crate) fn exchange<const N: usize>(
        &self,
        operation: Operation,
        call: &Call,
        own: [u64; N],
    ) -> Result<Vec<[u64; N]>, Error> {
        let mut all = vec![[0; N]; self.size()];
        let width = size_of::<[u64; N]>();
        let recv = bytemuck::cast_slice_mut(all.as_flattened_mut());
        self.gather(operation, call, bytemuck::cast_slice(&own), recv, |rank| {
            rank * width..(rank + 1) * width
        })?;
        Ok(all)
    }

    /// Tells the others that this rank can not take part, and returns what this rank reports.
    #[cold]
    pub(crate) fn refuse(&self, call: &Call, error: Error) -> Error {
        let operation = error.operation();
        match self.collective(operation, |member| member.refuse(call)) {
            Ok(()) => error,
            Err(fatal) => fatal,
        }
    }

    /// One call, by one thread.
    #[inline]
    pub(crate) fn collective<R>(
        &self,
        operation: Operation,
        call: impl FnOnce(&mut Member<'_, Machine>) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        if self.world.forked() {
            return Err(Error::Forked { operation });
        }
        if self.state.busy.swap(true, Ordering::Acquire) {
            self.poison(CauseKind::ConcurrentUse, 0);
            return Err(Error::ConcurrentUse { operation });
        }
        let completed = Generation::new(self.state.completed.load(Ordering::Relaxed));
        let group = self.groups.as_ref().map(|(_, own)| own);
        let mut member = Member::new(&self.machine, self.world.segment(), self.rank, completed).grouped(group);
        let result = call(&mut member);
        self.state.completed.store(member.completed().number(), Ordering::Relaxed);
        let result = match result {
            Ok(value) if !self.world.torn() => {
                self.state.busy.store(false, Ordering::Release);
                return Ok(value);
            }
            other => Err(self.failed(operation, &member, other.err())),
        };
        self.state.busy.store(false, Ordering::Release);
        result
    }

    /// Why a call has failed, or must be taken to have failed.
    #[cold]
    fn failed(&self, operation: Operation, member: &Member<'_, Machine>, failure: Option<Failure>) -> Error {
        match failure {
            Some(failure) if !self.world.torn() => self.report(operation, member, failure),
            _ => self.torn(operation, member),
        }
    }

    fn torn(&self, operation: Operation, member: &Member<'_, Machine>) -> Error {
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
    fn report(&self, operation: Operation, member: &Member<'_, Machine>, failure: Failure) -> Error {
        match failure {
            // What they say was consumed.
            Failure::Refused(rank) => Error::Refused { operation, rank, round: member.completed().number() },
            Failure::Mismatch(calls) => {
                let calls = calls.iter().enumerate().map(|(rank, call)| Called::new(rank, call)).collect();
                Error::Mismatch { operation, round: member.completed().number(), calls }
            }
            // A rank that was told another size may have any number; all others are among these.
            Failure::Dead(Some(cause)) if cause.kind == CauseKind::WrongSize || cause.rank < self.size() => {
                self.report_end(operation, member, cause)
            }
            Failure::Dead(_) | Failure::Stopped => {
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

    fn report_end(&self, operation: Operation, member: &Member<'_, Machine>, cause: Cause) -> Error {
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
                let info = Box::new(TimeOut { timeout: self.machine.patience, pids, round: detail });
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
