//! The communicator of several nodes: its life, and its queries.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::collective::rooted::Ranks;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::nodes::connector::Connector;
use crate::nodes::desk::Desk;
use crate::nodes::leaders::Leaders;
use crate::nodes::local::LocalLeaders;
use crate::nodes::map::NodeMap;
use crate::nodes::notice::Notice;
use crate::nodes::queue::Queue;
use crate::nodes::waiting::SEEN_WITHIN;

/// A communicator whose ranks are on several nodes. The ranks of a node share a segment; its leader, the node's first rank,
/// speaks for it with the other [`Leaders`].
///
/// It has the collectives of a [`Communicator`] by the same names, with the same arguments and errors, and **the same bits** as
/// those of a communicator over the same ranks. Two errors are its own: [`Error::NodeLate`] and [`Error::LeadersFailed`].
/// On one node it hands every call to the node's communicator.
///
/// ```
/// use intranode::{Hierarchical, NodeMap, ReduceOp};
///
/// // Four ranks, as if three were on one machine, and one on another.
/// let map = NodeMap::new(&[3, 1])?;
/// let sums = intranode::threads(4, |comm| {
///     let comm = Hierarchical::simulated(comm, &map)?;
///     let mut sum = [[1e16, 1.0, -1e16, 1.0][comm.rank()]];
///     comm.allreduce_in_place(&mut sum, ReduceOp::Sum)?;
///     Ok::<_, intranode::Error>(sum[0])
/// })?;
/// for sum in sums {
///     assert_eq!(sum?, 1.0); // in rank order, as on one machine
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
pub struct Hierarchical<L: Leaders = LocalLeaders> {
    pub(super) node: Arc<Communicator>,
    pub(super) map: Arc<NodeMap>,
    /// This rank's node.
    pub(super) own: usize,
    /// For digests, the same on all ranks.
    pub(super) key: u64,
    pub(super) timeout: Option<Duration>,
    pub(super) sizes: Sizes,
    /// For subsets of the ranks.
    pub(super) connector: Option<Box<dyn Connector<L>>>,
    /// Where the calls that were started ask for exchanges.
    pub(super) desk: Arc<Desk>,
    /// On a leader of several nodes, until it fails. Locked for as long as an exchange takes: an operation of the program's own, in the
    /// midst of a call, may end the job.
    pub(super) leaders: Mutex<Option<L>>,
    /// Locked for as long as a call takes.
    pub(super) state: Mutex<State>,
}

/// What changes from call to call.
pub(super) struct State {
    /// The number of the last call.
    pub(super) round: u32,
    /// Why no more calls are possible.
    pub(super) failed: Option<Notice>,
    /// The calls that were started and are not complete.
    pub(super) queue: Queue,
}

/// From where on a call takes another form. None of it changes a result. The same on all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The bytes of all ranks' contributions from which on a reduction goes from node to node.
    pub(super) chain_from: usize,
    /// The bytes that go from node to node at once.
    pub(super) chunk: usize,
}

impl<L: Leaders> Hierarchical<L> {
    /// This rank, among those of all nodes. Not collective. Example: [`size`](Hierarchical::size).
    pub fn rank(&self) -> usize {
        self.map.leader_of(self.own) + self.node.rank()
    }

    /// The number of ranks of all nodes. Not collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let places = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     assert_eq!((comm.map().nodes(), comm.local().size()), (2, [2, 2, 1][comm.rank()]));
    ///     Ok::<_, intranode::Error>((comm.rank(), comm.size(), comm.node()))
    /// })?;
    /// let places = places.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(places, [(0, 3, 0), (1, 3, 0), (2, 3, 1)]);
    /// # Ok::<(), intranode::Error>(())
    /// ```
    pub fn size(&self) -> usize {
        self.map.ranks()
    }

    /// This rank's node. Not collective. Example: [`size`](Hierarchical::size).
    pub fn node(&self) -> usize {
        self.own
    }

    /// Which ranks are on which node. Not collective. Example: [`size`](Hierarchical::size).
    pub fn map(&self) -> &NodeMap {
        &self.map
    }

    /// The communicator of this rank's node: for regions, and for what concerns a node alone. Not collective. Example:
    /// [`size`](Hierarchical::size).
    ///
    /// All its ranks make the same calls of both communicators in the same order. While a call of several nodes that was started
    /// is not complete they make no collective call of the node's, also not of regions that were made by it: the steps of both would
    /// meet. A blocking call of this communicator completes what was started.
    pub fn local(&self) -> &Communicator {
        &self.node
    }

    /// Ends the job: this process exits with `code`, as by [`Communicator::abort`]. All other ranks get [`Error::Aborted`]; those
    /// of other nodes when their leaders learn of it. Not collective: one rank calls it. In the hook of
    /// [`Config::interrupt`](crate::Config::interrupt) return `true` in its place: from there a leader cannot tell the other nodes, which
    /// learn it by their time-out.
    ///
    /// ```no_run
    /// let comm = intranode::Hierarchical::from_env()?;
    /// let input = std::fs::read("input.bin").unwrap_or_else(|error| {
    ///     eprintln!("rank {}: input.bin: {error}", comm.rank());
    ///     comm.abort(2)
    /// });
    /// # drop(input);
    /// # Ok::<(), intranode::Error>(())
    /// ```
    pub fn abort(&self, code: i32) -> ! {
        // A forked child is no leader.
        if !self.node.rank_state.mapped.forked()
            && let Some(mut leaders) = self.leaders_at_last(code)
        {
            let (operation, rank) = (crate::error::Operation::Init, self.rank());
            let round = self.state.try_lock().map_or(0, |state| state.round);
            let error = Error::Aborted { operation, round, rank, code };
            tell(&mut leaders, &Notice::of_error(&error, rank));
        }
        self.node.abort(code)
    }

    /// The leaders, also where another thread is in an exchange: that ends as soon as it sees that the node's communicator has.
    /// `None`: it does not, or the exchange is this thread's own, which aborts in the hook of its wait.
    fn leaders_at_last(&self, code: i32) -> Option<MutexGuard<'_, Option<L>>> {
        let begun = Instant::now();
        loop {
            match self.leaders.try_lock() {
                Ok(leaders) => return Some(leaders),
                // Something has panicked in an exchange, of which nobody has told yet.
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => self.node.end_by_abort(code),
            }
            if begun.elapsed() > SEEN_WITHIN {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Leaves in order, as by [`Communicator::leave`]. Dropping it does the same. Not collective.
    ///
    /// ```
    /// use intranode::{Error, Hierarchical, NodeMap};
    ///
    /// let results = intranode::threads(2, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::even(2, 2)?)?;
    ///     if comm.rank() == 1 { comm.leave() } else { comm.barrier() }
    /// })?;
    /// assert!(matches!(results[0], Err(Error::RankLeft { rank: 1, .. })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn leave(self) -> Result<(), Error> {
        let Hierarchical { node, state, .. } = self;
        // With the calls that were started, which have the node's communicator too.
        drop(state.into_inner().unwrap_or_else(PoisonError::into_inner));
        Arc::into_inner(node).map_or(Ok(()), Communicator::leave)
    }

    /// From how many bytes of all ranks on a reduction goes from node to node, and in chunks of how many: for tests of both forms.
    #[doc(hidden)]
    #[must_use]
    pub fn chain(mut self, from_bytes: usize, chunk_bytes: usize) -> Self {
        self.sizes = Sizes { chain_from: from_bytes, chunk: chunk_bytes.max(1) };
        self
    }
}

impl<L: Leaders> Ranks for Hierarchical<L> {
    fn rank(&self) -> usize {
        self.rank()
    }

    fn size(&self) -> usize {
        self.size()
    }
}

/// Tells the other nodes of a failure, if this rank is a leader, once.
pub(super) fn tell<L: Leaders>(leaders: &mut Option<L>, notice: &Notice) {
    if let Some(mut leaders) = leaders.take() {
        leaders.fail(bytemuck::cast_slice(notice.words()));
    }
}

impl<L: Leaders> std::fmt::Debug for Hierarchical<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = self.size();
        f.debug_struct("Hierarchical")
            .field("rank", &self.rank())
            .field("size", &size)
            .field("node", &self.own)
            .finish()
    }
}
