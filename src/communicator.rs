//! The communicator: its life, and its queries. `collective` contains the collectives.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::element;
use crate::error::{Error, Operation};
use crate::liveness::fatal::FatalSignals;
use crate::protocol::Call;
use crate::rank::cma_peers::CmaPeers;
use crate::rank::comm_tree::CommTree;
use crate::rank::job_state::{JobState, StateSampler};
use crate::rank::rank_state::RankState;
use crate::rank::shared_processors::SharedProcessors;
use crate::segment::platform::ShmPlatform;
use crate::segment::recorder::Recording;

/// One rank's handle of a group of ranks.
///
/// **Collective** operations block. All ranks call the same operations in the same order, and a call returns when this rank's
/// part is complete. What a rank wrote before a call, every rank sees after it.
///
/// A communicator can be shared between threads, but calls must not overlap: a concurrent call is
/// [`Error::ConcurrentUse`]. It can be used after a caught panic; where that has left out calls which other ranks make, as a
/// panic of a `Deserialize` does, these get [`Error::Mismatch`]. If it is dropped while its thread panics, the communicator
/// ends on all ranks, with an error that names this rank; others of this rank end when they are dropped, too.
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
    pub(crate) rank_state: Arc<RankState>,
    /// By rank: its rank in the joined communicator, from which this one was split.
    pub(crate) joined_as: Arc<[usize]>,
    fatal_signals: Option<FatalSignals>,
    /// Fields are dropped after `drop`, so the watcher ends after this rank has left.
    pub(crate) tree: Arc<CommTree>,
}

impl Communicator {
    /// The communicator of a rank that is joining.
    pub(crate) fn new(rank_state: RankState) -> Self {
        let joined_as = (0..rank_state.size()).collect();
        Communicator { rank_state: Arc::new(rank_state), joined_as, fatal_signals: None, tree: Arc::default() }
    }

    /// A communicator that was split from this one.
    pub(crate) fn child(
        &self,
        rank_state: RankState,
        joined_as: Arc<[usize]>,
        fatal_signals: Option<FatalSignals>,
    ) -> Self {
        let (rank_state, tree) = (Arc::new(rank_state), Arc::clone(&self.tree));
        tree.register(&rank_state, &joined_as);
        Communicator { rank_state, joined_as, fatal_signals, tree }
    }

    /// Adds the tree with its watcher, and the handler of fatal signals.
    pub(crate) fn with_tree(mut self, tree: CommTree, fatal_signals: Option<FatalSignals>) -> Self {
        self.tree = Arc::new(tree);
        self.fatal_signals = fatal_signals;
        self
    }

    /// Adds the sampler, for reports of the job's state.
    ///
    /// # Panics
    /// If the rank has joined already.
    pub(crate) fn with_sampler(mut self, sampler: Option<Arc<StateSampler>>) -> Self {
        Arc::get_mut(&mut self.rank_state).expect("the state is shared after joining only").sampler = sampler;
        self
    }

    /// Completes joining, with the settings that follow from the properties of all ranks.
    ///
    /// # Panics
    /// If the rank has joined already.
    pub(crate) fn joined(
        mut self,
        platform: ShmPlatform,
        processors: SharedProcessors,
        cma_peers: Option<CmaPeers>,
        recording: Option<Recording>,
    ) -> Self {
        let rank_state = Arc::get_mut(&mut self.rank_state).expect("the state is shared after joining only");
        rank_state.platform = platform;
        let SharedProcessors { groups, oversubscribed, co_located } = processors;
        if oversubscribed {
            rank_state.staging = rank_state.staging.oversubscribed();
        }
        rank_state.cma_peers = cma_peers;
        rank_state.co_located = co_located;
        rank_state.set_groups(groups);
        rank_state.record(recording);
        self.tree.register(&self.rank_state, &self.joined_as);
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
        self.rank_state.rank
    }

    /// The number of ranks. Not collective. Example: [`rank`](Communicator::rank).
    #[inline]
    pub fn size(&self) -> usize {
        self.rank_state.size()
    }

    /// Takes part in the other ranks' call of `operation` and refuses it: they get [`Error::Refused`], and the communicator
    /// can be used further. Collective, together with that call. It is for adapters that check arguments of their own.
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
        self.rank_state.collective(operation, |member| member.refuse(&call))
    }

    /// Ends the joined communicator, and of those that were split from it all that this rank still has. Not collective: one rank calls
    /// it.
    ///
    /// This process exits with `code`. Every other rank gets [`Error::Aborted`] with the code from these communicators, at once if it is
    /// in a call, otherwise from its next call. It should save its data and exit too. A communicator without this rank goes on, until
    /// its ranks leave. `intranode run` kills ranks that have not ended after a second. The library itself ends no other process.
    ///
    /// The system keeps only 8 bits of the code. If these are 0, this process exits with 1, so that an abort never appears as
    /// a success.
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
        self.end_by_abort(code);
        let success = code & 0xFF == 0;
        std::process::exit(if success { 1 } else { code })
    }

    /// Ends it on all ranks, as if this one had aborted, and those that were split from it.
    pub(crate) fn end_by_abort(&self, code: i32) {
        if !self.rank_state.mapped.forked() {
            self.tree.abort(code);
        }
    }

    /// Leaves in order. Calls that all ranks have made are complete; a rank that makes further calls gets
    /// [`Error::RankLeft`]. Dropping the communicator does the same. Communicators that were split from this one can be used
    /// further. Not collective: it does not wait for other ranks.
    ///
    /// Rust does not drop the value of a `static` when the program ends. If a rank keeps its communicator there and returns
    /// from `main`, the other ranks get [`Error::RankDied`]. So it has to leave before, for example by `take()` from a
    /// `static Mutex<Option<Communicator>>`.
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
    /// [`Error::Forked`] in a forked child, which is not a rank.
    pub fn leave(self) -> Result<(), Error> {
        if self.rank_state.mapped.forked() {
            return Err(Error::Forked { operation: Operation::Leave });
        }
        Ok(())
    }

    /// A snapshot of all ranks: which ranks wait in which operation, and for which ranks. Not collective: no other rank takes
    /// part.
    ///
    /// With [`Config::state_reports`](crate::Config::state_reports) it is written to standard error after a time-out, and on
    /// a signal. Then it also contains since when.
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
        if self.rank_state.mapped.forked() {
            return Err(Error::Forked { operation: Operation::State });
        }
        Ok(match &self.rank_state.sampler {
            Some(sampler) => sampler.state(),
            None => StateSampler::new(&self.rank_state.mapped, "the job", self.rank_state.rank).state(),
        })
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if !self.rank_state.mapped.forked() {
            self.tree.pass_on();
            self.rank_state.leave();
        }
    }
}

// A caught panic leaves a communicator consistent: calls take plain data. The program's code runs in them only as an operation of
// its own or a hook, where a panic ends the communicator, and to encode and decode values, which is between transfers.
impl UnwindSafe for Communicator {}
impl RefUnwindSafe for Communicator {}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Communicator").field("rank", &self.rank_state.rank).field("size", &self.size()).finish()
    }
}

/// The header of a call with elements of `T`.
pub(crate) fn call<T: 'static>(operation: Operation) -> Call {
    Call {
        operation: operation as u8,
        element: element::code::<T>(),
        shape: element::shape::<T>(),
        ..Call::default()
    }
}
