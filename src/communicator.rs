//! The communicator: what a program calls.

use std::ops::Range;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bytemuck::Pod;
use crossbeam_utils::CachePadded;

use crate::blocks;
use crate::buffers::{FromRoot, Gather, Reduce};
use crate::element::{self, Number, ReduceOp};
use crate::error::{Called, Error, Operation, TimeOut};
use crate::protocol::allreduce::Plan;
use crate::protocol::{Call, Cause, CauseKind, Failure, Generation, Member, membership};
use crate::state::{JobState, Observer};
use crate::sys::fatal::FatalSignals;
use crate::sys::machine::Machine;
use crate::sys::thread_wait::Ticker;
use crate::sys::watcher::Watcher;
use crate::sys::world::World;

/// One rank's membership in a group of ranks.
///
/// Every operation is **collective and blocking**: all ranks call the same operations in the same order, and a call
/// returns when this rank's part is done. Nothing a rank does before a call is seen by another rank before the other
/// has been in the same call; everything is afterwards.
///
/// A communicator can be shared between threads, but calls must not overlap: a second call at the same time is
/// [`Error::ConcurrentUse`]. It can be kept across a panic that is caught. One that is dropped while its thread panics
/// tells the others so.
///
/// ```
/// use intranode::ReduceOp;
///
/// let sums = intranode::threads(4, |comm| {
///     let mut sum = [0.0];
///     comm.allreduce(&[comm.rank() as f64], &mut sum, ReduceOp::Sum)?;
///     Ok::<f64, intranode::Error>(sum[0])
/// })?;
/// for sum in sums {
///     assert_eq!(sum?, 6.0);
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
pub struct Communicator {
    world: Arc<World>,
    machine: Machine,
    rank: usize,
    /// On a cache line of its own: ranks that are threads may keep their communicators side by side.
    state: CachePadded<State>,
    /// Wakes sleepers for their deadlines, where sleeping itself has none.
    ticker: Option<Arc<Ticker>>,
    /// Tells when another rank dies, and the others when this one does. Ends after `Drop` has said that this rank
    /// leaves.
    watcher: Option<Watcher>,
    fatal_signals: Option<FatalSignals>,
    /// Looks at all ranks now and then, for reports of the job's state.
    observer: Option<Arc<Observer>>,
}

struct State {
    /// The last completed round. Only the holder of `busy` changes it.
    completed: AtomicU32,
    busy: AtomicBool,
}

impl Communicator {
    /// The communicator of a rank that has joined.
    pub(crate) fn new(
        world: Arc<World>,
        machine: Machine,
        rank: usize,
        completed: Generation,
        ticker: Option<Arc<Ticker>>,
    ) -> Self {
        Communicator {
            world,
            machine,
            rank,
            state: CachePadded::new(State {
                completed: AtomicU32::new(completed.number()),
                busy: AtomicBool::new(false),
            }),
            ticker,
            watcher: None,
            fatal_signals: None,
            observer: None,
        }
    }

    /// The same rank, watching the others, and telling them of more than they can see.
    pub(crate) fn with_watcher(mut self, watcher: Watcher, fatal_signals: Option<FatalSignals>) -> Self {
        self.watcher = Some(watcher);
        self.fatal_signals = fatal_signals;
        self
    }

    /// The same rank, which reports the state of the job at a time-out.
    pub(crate) fn with_observer(mut self, observer: Option<Arc<Observer>>) -> Self {
        self.observer = observer;
        self
    }

    /// The same rank with another way to wait.
    pub(crate) fn with_machine(mut self, machine: Machine) -> Self {
        self.machine = machine;
        self
    }

    /// The staging's capacity in bytes.
    pub(crate) fn chunk(&self) -> usize {
        self.world.layout().chunk()
    }

    /// Joins the job that the environment names: [`Config::from_env`](crate::Config::from_env), then
    /// [`Config::join`](crate::Config::join).
    ///
    /// # Errors
    /// As those two.
    pub fn from_env() -> Result<Self, Error> {
        crate::Config::from_env()?.join()
    }

    /// This rank: 0 to `size() - 1`.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks.
    #[inline]
    pub fn size(&self) -> usize {
        self.world.layout().ranks()
    }

    /// Waits until every rank has called it. One round, as in `protocol::barrier`.
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Mismatch`], after which the communicator can be used further; any fatal
    /// error.
    pub fn barrier(&self) -> Result<(), Error> {
        let call = Call { operation: Operation::Barrier as u8, ..Call::default() };
        self.collective(Operation::Barrier, |member| member.open(&call, |_| ()).map(drop))
    }

    /// Combines `send[i]` of all ranks into `recv[i]`, on every rank, in rank order: the same bits on every rank and
    /// in every run. Both buffers have the same length, on all ranks.
    ///
    /// Small values travel with the arrival word, in one round. Large ones are folded in slices, one a rank, and
    /// exchanged (Rabenseifner 2004).
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if the lengths differ, [`Error::InvalidReduction`] for a bitwise reduction of
    /// floating-point values; otherwise as [`barrier`](Communicator::barrier).
    pub fn allreduce<T: Number>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let operation = Operation::Allreduce;
        let call = self.reduction::<T>(send.len(), op);
        if send.len() != recv.len() {
            let error = Error::InvalidBufferSize { operation, expected: send.len(), actual: recv.len() };
            return Err(self.refuse(&call, error));
        }
        self.reduce(&call, Reduce { send: Some(send), recv, op })
    }

    /// The same with the result in place of the contribution.
    ///
    /// # Errors
    /// As [`allreduce`](Communicator::allreduce).
    pub fn allreduce_in_place<T: Number>(&self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let call = self.reduction::<T>(data.len(), op);
        self.reduce(&call, Reduce { send: None, recv: data, op })
    }

    /// Brings the `send` of every rank to every rank: that of rank `r`, which has `counts[r]` elements, to
    /// `recv[displs[r]..]`. Counts and displacements are in elements. `counts` is the same on all ranks; each rank
    /// places the blocks as it likes, without overlap. What lies between them is not touched.
    ///
    /// Blocks stream through staging in chunks, one round a chunk; a write by the owner, a read by every other rank.
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if `counts` or `displs` do not have one entry a rank, `send` does not have
    /// `counts[rank]` elements, or a block reaches past the end of `recv`; [`Error::OverlappingBlocks`]. Nothing is
    /// written then. Otherwise as [`barrier`](Communicator::barrier).
    pub fn allgatherv<T: Pod>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        displs: &[usize],
    ) -> Result<(), Error> {
        let operation = Operation::Allgatherv;
        let total = counts.iter().fold(0u64, |sum, count| sum.wrapping_add(*count as u64));
        let call = Call { length: total, extra: blocks::digest(counts), ..call::<T>(operation) };
        if let Err(error) = blocks::check(self.rank, self.size(), send.len(), recv.len(), counts, displs) {
            return Err(self.refuse(&call, error));
        }
        let width = size_of::<T>();
        let place = |rank: usize| displs[rank] * width..(displs[rank] + counts[rank]) * width;
        self.gather(&call, operation, send, recv, place)
    }

    /// Brings the `send` of every rank to every rank, in rank order. `send` has the same length on all ranks, and
    /// `recv` that times the number of ranks.
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if `recv` has another length; otherwise as [`barrier`](Communicator::barrier).
    pub fn allgather<T: Pod>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        let operation = Operation::Allgather;
        let call = Call { length: send.len() as u64, ..call::<T>(operation) };
        let expected = send.len().saturating_mul(self.size());
        if recv.len() != expected {
            let error = Error::InvalidBufferSize { operation, expected, actual: recv.len() };
            return Err(self.refuse(&call, error));
        }
        let width = size_of_val(send);
        self.gather(&call, operation, send, recv, |rank| rank * width..(rank + 1) * width)
    }

    /// Brings `buffer` of rank `root` to all ranks. It has the same length on all of them.
    ///
    /// The root writes chunk after chunk into its staging, and everybody reads; while one chunk is read, the next is
    /// written.
    ///
    /// # Errors
    /// [`Error::InvalidRoot`] if there is no such rank; otherwise as [`barrier`](Communicator::barrier).
    pub fn broadcast<T: Pod>(&self, buffer: &mut [T], root: usize) -> Result<(), Error> {
        let operation = Operation::Broadcast;
        let call = Call { length: buffer.len() as u64, extra: root as u64, ..call::<T>(operation) };
        let size = self.size();
        if root >= size {
            return Err(self.refuse(&call, Error::InvalidRoot { root, size }));
        }
        let chunk = self.chunk();
        let mut blocks = FromRoot { buffer: bytemuck::cast_slice_mut(buffer), root };
        self.collective(operation, |member| member.transfer(&call, chunk, &mut blocks))
    }

    /// Takes part in the other ranks' call of `operation`, only to say that this rank can not: they get
    /// [`Error::Refused`], and all can go on. For adapters that check arguments of their own.
    ///
    /// # Errors
    /// When the communicator has ended.
    pub fn refuse_call(&self, operation: Operation) -> Result<(), Error> {
        let call = Call { operation: operation as u8, ..Call::default() };
        self.collective(operation, |member| member.refuse(&call))
    }

    /// Ends the job, with every rank.
    ///
    /// This process exits with the code. Every other rank gets [`Error::Aborted`] with it, at once if it is in a call,
    /// otherwise from the next that it makes, and should end too: it can write what has to be written before.
    /// `intranode run` ends the ranks that are still there after a second, those that make no call among them. The
    /// library itself ends no process but this one: others may have more to do than to be a rank.
    ///
    /// An abort is never a success: where the system would see status 0, since it keeps only 8 bits of the code, this
    /// process exits with 1.
    pub fn abort(&self, code: i32) -> ! {
        if !self.world.forked() {
            self.poison(CauseKind::Aborted, code as u32);
        }
        let success = code & 0xFF == 0;
        std::process::exit(if success { 1 } else { code })
    }

    /// Leaves in order. What all ranks have called is complete; a rank that calls more gets [`Error::RankLeft`].
    /// Dropping the communicator does the same.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child, which is no rank.
    pub fn leave(self) -> Result<(), Error> {
        if self.world.forked() {
            return Err(Error::Forked { operation: Operation::Init });
        }
        Ok(())
    }

    /// What can be seen of all ranks from here: who waits in which operation, and for whom. No other rank takes part.
    ///
    /// [`Config::state_reports`](crate::Config::state_reports) has it written when a call times out, and on a signal;
    /// then it also says since when.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn state(&self) -> Result<JobState, Error> {
        if self.world.forked() {
            return Err(Error::Forked { operation: Operation::Init });
        }
        Ok(match &self.observer {
            Some(observer) => observer.state(),
            None => Observer::new(&self.world, "the job", self.rank).state(),
        })
    }

    fn reduction<T: Number>(&self, length: usize, op: ReduceOp) -> Call {
        Call { reduction: op as u8, length: length as u64, ..call::<T>(Operation::Allreduce) }
    }

    fn reduce<T: Number>(&self, call: &Call, mut data: Reduce<'_, T>) -> Result<(), Error> {
        let reduction = data.op;
        if T::FLOAT && reduction.is_bitwise() {
            let element = std::any::type_name::<T>();
            return Err(self.refuse(call, Error::InvalidReduction { reduction, element }));
        }
        let plan = Plan { chunk: self.chunk(), slices_from: slices_from(self.size()) };
        self.collective(Operation::Allreduce, |member| member.allreduce(call, plan, &mut data))
    }

    fn gather<T: Pod>(
        &self,
        call: &Call,
        operation: Operation,
        send: &[T],
        recv: &mut [T],
        place: impl Fn(usize) -> Range<usize>,
    ) -> Result<(), Error> {
        let (send, recv) = (bytemuck::cast_slice(send), bytemuck::cast_slice_mut(recv));
        let mut blocks = Gather::new(send, recv, self.rank, place);
        let chunk = self.chunk();
        self.collective(operation, |member| member.transfer(call, chunk, &mut blocks))
    }

    /// Tells the others that this rank can not take part, and returns what this rank reports.
    #[cold]
    fn refuse(&self, call: &Call, error: Error) -> Error {
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
        let mut member = Member::new(&self.machine, self.world.segment(), self.rank, completed);
        let result = call(&mut member);
        self.state.completed.store(member.completed().number(), Ordering::Relaxed);
        let mut result = result.map_err(|failure| self.report(operation, &member, failure));
        if self.world.torn() {
            result = Err(self.torn(operation, &member));
        }
        self.state.busy.store(false, Ordering::Release);
        result
    }

    #[cold]
    fn torn(&self, operation: Operation, member: &Member<'_, Machine>) -> Error {
        let reason = "another program has cut the file of its segment short";
        Error::Poisoned { operation, round: member.completed().next().number(), rank: self.rank, reason }
    }

    fn poison(&self, kind: CauseKind, detail: u32) {
        let cause = Cause { kind, rank: self.rank, detail };
        // Only tests stop a rank in between.
        let _ = membership::poison(&self.machine, self.world.segment(), cause);
    }

    fn pid(&self, rank: usize) -> u32 {
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

impl Drop for Communicator {
    fn drop(&mut self) {
        if self.world.forked() {
            // Its thread does not exist here, so nobody can wait for its end.
            std::mem::forget(self.ticker.take());
            return;
        }
        if std::thread::panicking() {
            self.poison(CauseKind::Panicked, 0);
        } else {
            self.poison(CauseKind::Left, self.state.completed.load(Ordering::Relaxed));
        }
    }
}

// A panic that is caught does not disturb a communicator that is kept: calls take plain data and run no code of the
// program, so none can unwind half-way; and another rank never depends on what this one has not finished.
impl UnwindSafe for Communicator {}
impl RefUnwindSafe for Communicator {}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Communicator").field("rank", &self.rank).field("size", &self.size()).finish()
    }
}

/// What all calls with elements of `T` say.
fn call<T: 'static>(operation: Operation) -> Call {
    Call {
        operation: operation as u8,
        element: element::code::<T>(),
        shape: element::shape::<T>(),
        ..Call::default()
    }
}

/// From how many bytes on folding in slices pays for its second round. With two ranks it never does: each would
/// still read and write as much.
fn slices_from(ranks: usize) -> usize {
    if ranks <= 2 { usize::MAX } else { 16 << 10 }
}
