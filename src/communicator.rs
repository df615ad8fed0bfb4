//! The communicator: what a program calls.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::element;
use crate::error::{Error, Operation};
use crate::liveness::fatal::FatalSignals;
use crate::protocol::Call;
use crate::rank::cma_peers::CmaPeers;
use crate::rank::comm_tree::CommTree;
use crate::rank::groups::Groups;
use crate::rank::job_state::{JobState, Observer};
use crate::rank::rank_state::RankState;
use crate::segment::platform::ShmPlatform;
use crate::sys::wait::threads::Ticker;

/// One rank's membership in a group of ranks.
///
/// An operation that is **collective** blocks: all ranks call the same operations in the same order, and a call returns when
/// this rank's part is done. What a rank wrote before a call, every rank sees after it.
///
/// A communicator can be shared between threads, but calls must not overlap: a second call at the same time is
/// [`Error::ConcurrentUse`]. It can be kept across a panic that is caught. One that is dropped while its thread panics
/// ends the communicator for the others, with an error that names the rank.
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
    pub(crate) seat: Arc<RankState>,
    /// By rank: its number in the communicator that was joined, of which this one is a part.
    pub(crate) joined_as: Arc<[usize]>,
    /// Wakes sleepers for their deadlines, where sleeping itself has none.
    ticker: Option<Arc<Ticker>>,
    fatal_signals: Option<FatalSignals>,
    /// Its watcher ends after `Drop` has said that this rank leaves.
    pub(crate) tree: Arc<CommTree>,
}

impl Communicator {
    /// The communicator of a rank that is joining.
    pub(crate) fn new(seat: RankState, ticker: Option<Arc<Ticker>>) -> Self {
        let joined_as = (0..seat.size()).collect();
        Communicator { seat: Arc::new(seat), joined_as, ticker, fatal_signals: None, tree: Arc::default() }
    }

    /// A communicator of some of the ranks, of which this is one.
    pub(crate) fn child(
        &self,
        seat: RankState,
        joined_as: Arc<[usize]>,
        fatal_signals: Option<FatalSignals>,
    ) -> Self {
        let (seat, tree) = (Arc::new(seat), Arc::clone(&self.tree));
        tree.register(&seat, &joined_as);
        Communicator { seat, joined_as, ticker: None, fatal_signals, tree }
    }

    /// The same rank, watching the others, and telling them of more than they can see.
    pub(crate) fn with_tree(mut self, tree: CommTree, fatal_signals: Option<FatalSignals>) -> Self {
        self.tree = Arc::new(tree);
        self.fatal_signals = fatal_signals;
        self
    }

    /// The same rank, which reports the state of the job at a time-out.
    ///
    /// # Panics
    /// When it has joined already.
    pub(crate) fn with_observer(mut self, observer: Option<Arc<Observer>>) -> Self {
        Arc::get_mut(&mut self.seat).expect("nobody else knows it yet").observer = observer;
        self
    }

    /// The rank when it has joined, with its way to wait, its groups, and in whose memory it can read.
    ///
    /// # Panics
    /// When it has joined already.
    pub(crate) fn joined(
        mut self,
        machine: ShmPlatform,
        groups: Option<Groups>,
        cma_peers: Option<CmaPeers>,
    ) -> Self {
        let seat = Arc::get_mut(&mut self.seat).expect("nobody else knows it yet");
        seat.platform = machine;
        seat.cma_peers = cma_peers;
        seat.set_groups(groups);
        self.tree.register(&self.seat, &self.joined_as);
        self
    }

    /// This rank: 0 to `size() - 1`. Not collective.
    ///
    /// ```
    /// let ranks = intranode::threads(3, |comm| (comm.rank(), comm.size()))?;
    /// assert_eq!(ranks, [(0, 3), (1, 3), (2, 3)]);
    /// # Ok::<(), intranode::Error>(())
    /// ```
    #[inline]
    pub fn rank(&self) -> usize {
        self.seat.rank
    }

    /// The number of ranks. Not collective. Example: [`rank`](Communicator::rank).
    #[inline]
    pub fn size(&self) -> usize {
        self.seat.size()
    }

    /// Takes this rank's part in the other ranks' call of `operation`, only to refuse it: they get [`Error::Refused`], and
    /// the next call can follow. Collective, with that call of the others. For adapters that check arguments of their own.
    ///
    /// ```
    /// use intranode::{Error, Operation};
    ///
    /// let results = intranode::threads(2, |comm| {
    ///     if comm.rank() == 1 {
    ///         return comm.refuse_call(Operation::Barrier);
    ///     }
    ///     comm.barrier()
    /// })?;
    /// assert!(matches!(results[0], Err(Error::Refused { rank: 1, .. })));
    /// assert!(results[1].is_ok());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Any [fatal](Error::is_fatal) error, as of [`barrier`](Communicator::barrier).
    pub fn refuse_call(&self, operation: Operation) -> Result<(), Error> {
        let call = Call { operation: operation as u8, ..Call::default() };
        self.seat.collective(operation, |member| member.refuse(&call))
    }

    /// Ends the job, with every rank: all communicators that were joined or split together with this one. Not collective:
    /// one rank is enough.
    ///
    /// This process exits with `code`. Every other rank gets [`Error::Aborted`] with it, at once if it is in a call,
    /// otherwise from its next call, and should end too: it can write what has to be written before.
    /// `intranode run` ends the ranks that are still there after a second, with or without a call. The library itself ends no
    /// process but this one: others may have more to do than to be a rank.
    ///
    /// An abort is never a success: where the system would see status 0, since it keeps only 8 bits of the code, this
    /// process exits with 1.
    ///
    /// ```no_run
    /// let comm = intranode::Communicator::from_env()?;
    /// let input = std::fs::read("input.bin").unwrap_or_else(|error| {
    ///     eprintln!("rank {}: input.bin: {error}", comm.rank());
    ///     comm.abort(2)
    /// });
    /// # drop(input);
    /// # Ok::<(), intranode::Error>(())
    /// ```
    pub fn abort(&self, code: i32) -> ! {
        if !self.seat.mapped.forked() {
            self.tree.abort(code);
        }
        let success = code & 0xFF == 0;
        std::process::exit(if success { 1 } else { code })
    }

    /// Leaves in order. What all ranks have called is complete; a rank that calls more gets [`Error::RankLeft`].
    /// Dropping the communicator does the same. Communicators split from this one go on. Not collective: it does not wait for
    /// the others.
    ///
    /// What is never dropped never leaves. Rust does not drop what is in a `static` when the program ends, so a rank that
    /// keeps its communicator there, and returns from `main`, has died as far as the others can tell
    /// ([`Error::RankDied`]): it has to leave before, as by `take()` from a `static Mutex<Option<Communicator>>`.
    ///
    /// ```
    /// use intranode::Error;
    ///
    /// let results = intranode::threads(2, |comm| {
    ///     comm.barrier()?;
    ///     if comm.rank() == 0 { comm.leave() } else { comm.barrier() }
    /// })?;
    /// assert!(results[0].is_ok());
    /// assert!(matches!(results[1], Err(Error::RankLeft { rank: 0, .. })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child, which is no rank.
    pub fn leave(self) -> Result<(), Error> {
        if self.seat.mapped.forked() {
            return Err(Error::Forked { operation: Operation::Init });
        }
        Ok(())
    }

    /// A snapshot of all ranks: who waits in which operation, and for whom. Not collective: no other rank takes part.
    ///
    /// [`Config::state_reports`](crate::Config::state_reports) has it written when a call times out, and on a signal;
    /// then it also says since when.
    ///
    /// ```
    /// use intranode::Operation;
    ///
    /// let states = intranode::threads(2, |comm| {
    ///     comm.barrier()?;
    ///     let state = comm.state()?;
    ///     comm.barrier()?; // no rank leaves before
    ///     Ok::<_, intranode::Error>(state)
    /// })?;
    /// for (rank, state) in states.into_iter().enumerate() {
    ///     let state = state?;
    ///     assert_eq!((state.seen_by, state.ranks.len(), state.ended), (rank, 2, false));
    ///     assert_eq!(state.ranks[rank].operation, Some(Operation::Barrier));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn state(&self) -> Result<JobState, Error> {
        if self.seat.mapped.forked() {
            return Err(Error::Forked { operation: Operation::Init });
        }
        Ok(match &self.seat.observer {
            Some(observer) => observer.state(),
            None => Observer::new(&self.seat.mapped, "the job", self.seat.rank).state(),
        })
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if self.seat.mapped.forked() {
            // Its thread does not exist here, so nobody can wait for its end.
            std::mem::forget(self.ticker.take());
            return;
        }
        self.seat.leave();
    }
}

// A panic that is caught does not disturb a communicator that is kept: calls take plain data and run no code of the
// program, so none can unwind half-way; and another rank never depends on what this one has not finished.
impl UnwindSafe for Communicator {}
impl RefUnwindSafe for Communicator {}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Communicator").field("rank", &self.seat.rank).field("size", &self.size()).finish()
    }
}

/// What all calls with elements of `T` say.
pub(crate) fn call<T: 'static>(operation: Operation) -> Call {
    Call {
        operation: operation as u8,
        element: element::code::<T>(),
        shape: element::shape::<T>(),
        ..Call::default()
    }
}
