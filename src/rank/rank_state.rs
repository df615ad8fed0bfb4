//! One rank's state in a communicator, which its regions share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crossbeam_utils::CachePadded;

use crate::codes::Codes;
use crate::element::size_of_shape;
use crate::error::{CallSummary, Error, Operation, TimeoutInfo};
use crate::protocol::block_transfer::BlockTransfer;
use crate::protocol::eager::EagerBlocks;
use crate::protocol::{
    Barrier, Call, CallLock, Cause, CauseKind, Failure, Generation, Member, Overlap, Payload, Platform,
    Staging, membership,
};
use crate::rank::buffers::Buffers;
use crate::rank::choices::{Choice, ChoiceLog};
use crate::rank::cma_peers::CmaPeers;
use crate::rank::eager_calls::EagerCalls;
use crate::rank::groups::Groups;
use crate::rank::heap::Heap;
use crate::rank::job_state::StateSampler;
use crate::rank::process_settings::ProcessSettings;
use crate::rank::shared_regions::SharedRegions;
use crate::rank::started::Queue;
use crate::rank::unchanged::SentBlocks;
use crate::segment::mapped::MappedSegment;
use crate::segment::platform::ShmPlatform;
use crate::segment::recorder::{self, Awaited, Begun, OperationCounters, Recording};
use crate::segment::unit::Access;

/// The state of one rank in one segment. Regions keep it, so that they can outlive the communicator.
pub(crate) struct RankState {
    pub(crate) mapped: Arc<MappedSegment>,
    pub(crate) platform: ShmPlatform,
    pub(crate) rank: usize,
    /// The name of the job, with which the names of its further files begin.
    pub(crate) job: Arc<str>,
    pub(crate) settings: ProcessSettings,
    /// How calls use the staging buffers: the same on all ranks.
    pub(crate) staging: Staging,
    /// The groups of a hierarchical barrier.
    pub(crate) groups: Option<Groups>,
    /// This rank's part in the barrier.
    pub(crate) barrier: Barrier,
    /// By rank: whether it is bound to the one processor that this rank is bound to.
    pub(crate) co_located: Box<[bool]>,
    /// The peers of single copy, if all ranks can read each other's memory.
    pub(crate) cma_peers: Option<CmaPeers>,
    /// The blocks that were sent last from memory that not all ranks map, where single copy is enabled.
    pub(super) sent: Mutex<SentBlocks>,
    /// Samples the state of all ranks, for reports.
    pub(crate) sampler: Option<Arc<StateSampler>>,
    /// The platform with the fences on which the ranks agree when the first symmetric object is made.
    pub(crate) one_sided: OnceLock<ShmPlatform>,
    /// The memory of symmetric objects.
    pub(crate) heap: Heap,
    /// The regions that exist.
    pub(crate) regions: SharedRegions,
    /// The memory of buffers, of this rank and of others.
    pub(crate) buffers: Buffers,
    /// By rank: whether this process has learnt that it has died.
    dead: Box<[AtomicBool]>,
    /// With `INTRANODE_DEBUG`.
    pub(crate) choices: Option<ChoiceLog>,
    /// The calls that were started and are not complete.
    pub(super) started: Mutex<Queue>,
    /// Where this rank's calls are counted, with `INTRANODE_REPORT`.
    recording: Option<Recording>,
    /// Its counters.
    counters: Option<&'static OperationCounters>,
    /// For the thread that is in a call, and the same on all ranks.
    pub(crate) eager: EagerCalls,
    /// Padded against false sharing between ranks that are threads.
    lock: CachePadded<CallLock<ShmPlatform>>,
    /// This rank's [`Turn`](crate::protocol::Turn): for the thread that is in a call. Not in the line of the lock (docs/adr/0040).
    turn: CachePadded<AtomicU32>,
}

impl RankState {
    pub(crate) fn new(
        mapped: Arc<MappedSegment>,
        platform: ShmPlatform,
        rank: usize,
        job: Arc<str>,
        settings: ProcessSettings,
        completed: Generation,
    ) -> Self {
        let lock = CallLock::new(AtomicU32::new(CallLock::<ShmPlatform>::initial_word(completed)));
        let ranks = mapped.layout().ranks();
        let dead = (0..ranks).map(|_| AtomicBool::new(false)).collect();
        RankState {
            staging: mapped.staging(),
            mapped,
            platform,
            rank,
            job,
            settings,
            groups: None,
            barrier: Barrier::Flat,
            co_located: vec![false; ranks].into(),
            cma_peers: None,
            sent: Mutex::default(),
            sampler: None,
            one_sided: OnceLock::new(),
            heap: Heap::default(),
            regions: SharedRegions::default(),
            buffers: Buffers::default(),
            dead,
            choices: settings.debug.then(|| ChoiceLog::new(rank)),
            started: Mutex::new(Queue { calls: VecDeque::new(), completed }),
            recording: None,
            counters: None,
            eager: EagerCalls::default(),
            lock: CachePadded::new(lock),
            turn: CachePadded::new(AtomicU32::new(0)),
        }
    }

    /// Sets the barrier's shape. All ranks do so before the same round.
    pub(crate) fn set_groups(&mut self, groups: Option<Groups>) {
        self.barrier =
            groups.as_ref().map_or(Barrier::Flat, |groups| Barrier::Hierarchical(groups.of(self.rank)));
        self.groups = groups;
    }

    /// Counts this rank's calls from now on.
    pub(crate) fn record(&mut self, recording: Option<Recording>) {
        self.platform.recorder = recording.as_ref().map(Recording::lane);
        if let Some(lane) = self.platform.recorder {
            lane.oversubscribed(self.platform.spin.yields());
        }
        self.counters = recording.as_ref().map(Recording::counters);
        self.recording = recording;
    }

    /// A recording for a communicator that is split from this one, if this one has one.
    pub(crate) fn recording_of_child(&self, awaited: impl FnOnce() -> Box<dyn Awaited>) -> Option<Recording> {
        self.recording.as_ref().and_then(|own| own.sibling(awaited()))
    }

    /// The number of ranks.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.mapped.layout().ranks()
    }

    /// Poisons the communicator because this rank leaves, after the last round that it has completed, or panics.
    pub(crate) fn leave(&self) {
        if std::thread::panicking() {
            self.poison(CauseKind::Panicked, 0);
        } else {
            self.poison(CauseKind::Left, self.completed().number());
        }
    }

    /// The last round that this rank has completed, as far as this thread knows.
    fn completed(&self) -> Generation {
        match (self.lock.completed(&self.platform), self.started.try_lock()) {
            ((_, true), Ok(queue)) => queue.completed,
            ((completed, _), _) => completed,
        }
    }

    /// Logs the choices for a call, with `INTRANODE_DEBUG`.
    #[inline]
    pub(crate) fn chosen(&self, bytes: usize, choice: impl FnOnce() -> Choice) {
        if let Some(choices) = &self.choices
            && !self.mapped.forked()
        {
            choices.record(bytes, choice());
        }
    }

    /// This rank's access to symmetric memory.
    #[inline]
    pub(crate) fn access(&self) -> Access<'_> {
        let platform = self.one_sided.get().unwrap_or(&self.platform);
        Access::new(platform, self.mapped.segment(), self.rank)
    }

    /// Takes part in the call as refused, so that all other ranks get an error. Returns this rank's error.
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
        // Made in its place: also a short one that is moved costs some nanoseconds.
        let (completed, started) = self.lock_call(operation)?;
        let mut open = self.open(operation, completed, started);
        open.count();
        if open.started {
            open.finish_started();
        }
        open.run(call)
    }

    /// Begins a call by this thread, and completes those that were started before. It ends when the result is dropped.
    ///
    /// # Errors
    /// [`Error::Forked`]; [`Error::ConcurrentUse`], after which the communicator has ended.
    // Inlined, so that the call is made in its place: see `collective`.
    #[inline(always)]
    pub(crate) fn begin(&self, operation: Operation) -> Result<OpenCall<'_>, Error> {
        let mut open = self.enter(operation)?;
        if open.started {
            open.finish_started();
        }
        Ok(open)
    }

    /// The same without completing any.
    #[inline(always)]
    pub(crate) fn enter(&self, operation: Operation) -> Result<OpenCall<'_>, Error> {
        let mut open = self.enter_uncounted(operation)?;
        open.count();
        Ok(open)
    }

    /// The same for what is no call of the program, or a part of one that was counted before.
    #[inline(always)]
    pub(crate) fn enter_uncounted(&self, operation: Operation) -> Result<OpenCall<'_>, Error> {
        self.lock_call(operation).map(|(completed, started)| self.open(operation, completed, started))
    }

    /// Takes the lock for a call that is [opened](Self::open) next. The last round that is complete, and whether a call was started.
    #[inline(always)]
    fn lock_call(&self, operation: Operation) -> Result<(Generation, bool), Error> {
        if self.mapped.forked() {
            return Err(Error::Forked { operation });
        }
        let begun = self.lock.begin(&self.platform, self.mapped.segment(), self.rank);
        begun.map_err(|Overlap| Error::ConcurrentUse { operation })
    }

    #[inline(always)]
    fn open(&self, operation: Operation, completed: Generation, started: bool) -> OpenCall<'_> {
        OpenCall {
            rank_state: self,
            operation,
            completed,
            phase: 0,
            started,
            recorded: Begun::default(),
            bytes: 0,
        }
    }

    /// Runs a collective step, on the thread that has this rank's place in the rounds.
    #[inline(always)]
    pub(super) fn run<R>(
        &self,
        operation: Operation,
        completed: &mut Generation,
        step: impl FnOnce(&mut Member<'_, ShmPlatform>) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        let (segment, staging) = (self.mapped.segment(), &self.staging);
        let member = Member::new(&self.platform, segment, staging, self.rank, *completed, &self.turn);
        let mut running = Running { rank_state: self, member, completed, returned: false };
        let result = step(&mut running.member);
        running.returned = true;
        drop(running);
        match result {
            Ok(value) if !self.mapped.torn() => Ok(value),
            other => Err(self.failed(operation, *completed, other.err())),
        }
    }

    /// The error of a call that has failed, or that has succeeded in a truncated segment.
    #[cold]
    fn failed(&self, operation: Operation, completed: Generation, failure: Option<Failure>) -> Error {
        match failure {
            Some(failure) if !self.mapped.torn() => self.report(operation, completed, failure),
            _ => self.torn(operation, completed),
        }
    }

    fn torn(&self, operation: Operation, completed: Generation) -> Error {
        let reason = "another program has cut the file of its segment short";
        Error::Poisoned { operation, round: completed.next().number(), rank: self.rank, reason }
    }

    /// Ends the communicator for all ranks, with this one as the cause.
    pub(crate) fn poison(&self, kind: CauseKind, detail: u32) {
        self.poison_for(kind, self.rank, detail);
    }

    /// The same with any rank as the cause.
    pub(crate) fn poison_for(&self, kind: CauseKind, rank: usize, detail: u32) {
        // An error occurs in tests only.
        let _ = membership::poison(&self.platform, self.mapped.segment(), Cause { kind, rank, detail });
    }

    /// Ends the communicator for all ranks if the program of this one does not want to wait any longer.
    pub(crate) fn end_if_interrupted(&self) {
        if self.platform.is_interrupted() {
            self.poison(CauseKind::Interrupted, 0);
        }
    }

    /// This process has learnt that a rank has died: the communicator ends, unless it has ended before.
    pub(crate) fn learns_of_death(&self, rank: usize) {
        self.dead[rank].store(true, Ordering::Release);
        self.poison_for(CauseKind::Died, rank, 0);
        // Where it has ended before, a rank that waits for messages is not woken by that. An error occurs in tests only.
        let _ = self.access().ring(self.rank);
    }

    /// Why the communicator has ended.
    pub(crate) fn ended_by(&self) -> Option<Cause> {
        membership::ended(&self.platform, self.mapped.segment())
    }

    /// Whether this process has learnt that a rank has died, also after the communicator has ended for another reason.
    #[inline]
    pub(crate) fn has_died(&self, rank: usize) -> bool {
        self.dead[rank].load(Ordering::Acquire)
    }

    /// The process id of a rank.
    pub(crate) fn pid(&self, rank: usize) -> u32 {
        membership::owner(&self.platform, self.mapped.segment(), rank)
    }

    #[cold]
    fn report(&self, operation: Operation, completed: Generation, failure: Failure) -> Error {
        match failure {
            // The round was completed.
            Failure::Refused(rank) => Error::Refused { operation, rank, round: completed.number() },
            Failure::Mismatch(calls) => {
                Error::Mismatch { operation, round: completed.number(), calls: CallSummary::all(&calls) }
            }
            Failure::Dead(cause) => self.report_end(operation, completed, cause),
            Failure::Killed => self.report_end(operation, completed, None),
        }
    }

    /// The error of an operation that is not collective, after the communicator has ended.
    #[cold]
    pub(crate) fn one_sided_failed(&self, operation: Operation, failure: Failure) -> Error {
        let cause = if let Failure::Dead(cause) = failure { cause } else { None };
        self.report_end(operation, self.completed(), cause)
    }

    fn report_end(&self, operation: Operation, completed: Generation, cause: Option<Cause>) -> Error {
        let round = completed.next().number();
        // A process that expects another size may have any rank. Any other cause with a rank out of range was overwritten.
        let possible = |cause: &Cause| cause.kind == CauseKind::WrongSize || cause.rank < self.size();
        let Some(Cause { kind, rank, detail }) = cause.filter(possible) else {
            let reason = "the segment's memory was overwritten";
            return Error::Poisoned { operation, round, rank: self.rank, reason };
        };
        let poisoned = |reason| Error::Poisoned { operation, round, rank, reason };
        match kind {
            CauseKind::LockTimedOut => self.timed_out(operation, Box::new([rank]), round),
            CauseKind::TimedOut => {
                let mut late = membership::late(&self.platform, self.mapped.segment(), Generation::new(detail));
                if late.is_empty() {
                    // The rank arrived after another one had timed out.
                    late.push(rank);
                }
                // No rank advances any more, so all agree which of them writes the report.
                if let Some(sampler) = &self.sampler
                    && (0..self.size()).find(|rank| !late.contains(rank)) == Some(self.rank)
                {
                    sampler.write();
                }
                self.timed_out(operation, late.into_boxed_slice(), detail)
            }
            CauseKind::Left => Error::RankLeft { operation, round, rank, rounds: detail },
            CauseKind::Aborted => Error::Aborted { operation, round, rank, code: detail as i32 },
            CauseKind::Died => Error::RankDied { operation, round, rank, pid: self.pid(rank) },
            CauseKind::Interrupted => Error::Interrupted { operation, round, rank },
            CauseKind::Panicked => poisoned("its thread panicked"),
            CauseKind::ConcurrentUse => poisoned(
                "two of its calls overlapped, of two threads or one inside the operation of a reduction",
            ),
            CauseKind::WrongSize => poisoned("it expects another number of ranks"),
        }
    }

    fn timed_out(&self, operation: Operation, late: Box<[usize]>, round: u32) -> Error {
        let pids = late.iter().map(|rank| self.pid(*rank)).collect();
        let info = Box::new(TimeoutInfo { timeout: self.platform.timeout, pids, round });
        Error::TimedOut { operation, late, info }
    }
}

/// A call in progress, the only one of this rank. It may consist of several transfers, each with its number in the call's
/// header, so that different transfers are a mismatch.
pub(crate) struct OpenCall<'s> {
    rank_state: &'s RankState,
    operation: Operation,
    /// The last round that this rank has completed.
    pub(super) completed: Generation,
    /// The number of the next transfer.
    phase: u8,
    /// Whether calls that were started are not complete.
    pub(super) started: bool,
    /// What the recorder is told at the end.
    recorded: Begun,
    /// The bytes that are not in the header of the first round.
    bytes: u64,
}

// It is returned by value. What is long, or has padding, is copied in other units than it was written in: that stalls until its stores
// have left the store buffer (store forwarding), which with a member in it took as long as a barrier.
const _: () = assert!(size_of::<OpenCall<'_>>() <= 24);

impl<'s> OpenCall<'s> {
    pub(crate) fn operation(&self) -> Operation {
        self.operation
    }

    pub(crate) fn rank_state(&self) -> &'s RankState {
        self.rank_state
    }

    /// Goes on with a call that was counted when it was started, for the recorder.
    pub(crate) fn resumes(&mut self) {
        if let Some(lane) = self.rank_state.platform.recorder {
            self.recorded = lane.resume(self.operation.code());
        }
    }

    /// How many bytes the call moves, if its header does not say so.
    #[inline]
    pub(crate) fn moves(&mut self, bytes: usize) {
        self.bytes = bytes as u64;
    }

    /// The call is to be started, perhaps after its end: what it moves. For the recorder.
    pub(super) fn starts(&mut self, bytes: impl FnOnce() -> u64) {
        if self.recorded.needs_end() {
            self.recorded = self.recorded.with_stated_bytes();
            self.bytes = bytes();
        }
    }

    /// The first round of the call comes after those of calls that were started. For the recorder.
    pub(super) fn begins_later(&mut self) {
        self.recorded = self.recorded.begins_later(self.completed.next().parity() == 1);
    }

    /// Counts the call, if this rank's calls are counted.
    #[inline(always)]
    fn count(&mut self) {
        if let Some(counters) = self.rank_state.counters {
            let is_timed = recorder::count(counters, self.operation.code());
            if is_timed || !self.operation.has_only_rounds() {
                self.record_begin(is_timed);
            }
        }
    }

    /// The call begins: what the recorder needs to know at its end.
    #[inline(never)]
    fn record_begin(&mut self, is_timed: bool) {
        if !self.operation.has_only_rounds() {
            let first_round = self.completed.next();
            self.recorded = Begun::with_data(first_round.parity() == 1);
        }
        if let (Some(lane), true) = (self.rank_state.platform.recorder, is_timed) {
            self.recorded = lane.begin_timed(self.operation.code(), self.recorded);
        }
    }

    /// The call has ended: tells the recorder how long it took, and how many bytes it had.
    #[cold]
    fn record_end(&self) {
        let OpenCall { rank_state, recorded, .. } = self;
        let in_header = || {
            let header = &rank_state.mapped.segment().slots[rank_state.rank][recorded.parity()].header;
            // Written by this rank, for the first round of the call.
            let (shape, length) = header.read(|header| Call::size_in(&header));
            size_of_shape(shape).saturating_mul(length)
        };
        let bytes = match self.operation.has_only_rounds() {
            true => 0,
            false if recorded.is_stated() => self.bytes,
            false => in_header().max(self.bytes),
        };
        if let Some(lane) = rank_state.platform.recorder {
            lane.end(self.operation.code(), *recorded, bytes);
        }
    }

    /// Runs a collective step.
    #[inline]
    pub(crate) fn run<R>(
        &mut self,
        call: impl FnOnce(&mut Member<'_, ShmPlatform>) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        self.rank_state.run(self.operation, &mut self.completed, call)
    }

    /// Leaves out a transfer that other calls of the operation have.
    pub(crate) fn skip_transfer(&mut self) {
        self.phase += 1;
    }

    /// The call with the number of its next transfer.
    #[inline]
    fn next_phase(&mut self, call: &Call) -> Call {
        let call = call.phase(self.phase);
        self.phase += 1;
        call
    }

    /// The next transfer of the call.
    pub(crate) fn transfer(&mut self, call: &Call, blocks: &mut impl BlockTransfer) -> Result<(), Error> {
        let call = self.next_phase(call);
        self.run(|member| member.transfer(&call, blocks))
    }

    /// The same of one that may bring its data with what describes them.
    pub(crate) fn transfer_eagerly(&mut self, call: &Call, blocks: &mut impl EagerBlocks) -> Result<(), Error> {
        let call = self.next_phase(call);
        self.run(|member| member.exchange_eagerly(&call, blocks))
    }

    /// The next round of the call, without data.
    pub(crate) fn round<R>(
        &mut self,
        call: &Call,
        round: impl FnOnce(&mut Member<'_, ShmPlatform>, &Barrier, &Call) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        let (call, rank_state) = (self.next_phase(call), self.rank_state);
        self.run(|member| round(member, &rank_state.barrier, &call))
    }

    /// Takes part in the next transfer as refused, so that all other ranks get an error. Returns this rank's error.
    #[cold]
    pub(crate) fn refuse(&mut self, call: &Call, error: Error) -> Error {
        let call = call.phase(self.phase);
        match self.run(|member| member.refuse(&call)) {
            Ok(()) => error,
            Err(fatal) => fatal,
        }
    }
}

/// Code of the program's own runs, and others wait for what comes after it. It is dropped only by a panic: then the communicator ends.
pub(crate) struct EndsByPanic<'a>(pub(crate) &'a RankState);

impl Drop for EndsByPanic<'_> {
    fn drop(&mut self) {
        self.0.poison(CauseKind::Panicked, 0);
    }
}

/// A member for the time of a step. Made where it is used: it is long.
struct Running<'a, 's> {
    rank_state: &'s RankState,
    member: Member<'s, ShmPlatform>,
    completed: &'a mut Generation,
    /// Whether the step has returned.
    returned: bool,
}

impl Drop for Running<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        *self.completed = self.member.completed();
        if !self.returned {
            // A panic in a transfer: other ranks may still read what the next call would overwrite.
            self.rank_state.poison(CauseKind::Panicked, 0);
        }
    }
}

impl Drop for OpenCall<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.recorded.needs_end() {
            self.record_end();
        }
        self.rank_state.lock.end(&self.rank_state.platform, self.completed, self.started);
    }
}
