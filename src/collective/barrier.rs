//! barrier: a round without data.

use crate::communicator::Communicator;
use crate::error::{Error, Operation};
use crate::protocol::Call;

impl Communicator {
    /// Waits until every rank has called it. Collective.
    ///
    /// It takes one round: each rank advances its own word and polls the words of all others, the all-to-all form of a
    /// dissemination barrier (Hensgen, Finkel and Manber 1988; Mellor-Crummey and Scott 1991). With
    /// [groups](crate::Config::group) it is a combining tree of two levels (Yew, Tzeng and Lawrie 1987).
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    ///
    /// let arrived = AtomicUsize::new(0);
    /// let seen = intranode::threads(4, |comm| {
    ///     arrived.fetch_add(1, Relaxed);
    ///     comm.barrier()?;
    ///     Ok::<_, intranode::Error>(arrived.load(Relaxed))
    /// })?;
    /// for count in seen {
    ///     assert_eq!(count?, 4);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Mismatch`], after which the communicator can be used further. Any
    /// [fatal](Error::is_fatal) error: [`Error::TimedOut`], [`Error::RankDied`], [`Error::RankLeft`], [`Error::Aborted`],
    /// [`Error::Interrupted`], [`Error::Poisoned`], [`Error::ConcurrentUse`], [`Error::Forked`].
    pub fn barrier(&self) -> Result<(), Error> {
        let call = Call { operation: Operation::Barrier as u8, ..Call::default() };
        self.rank_state.collective(Operation::Barrier, |member| self.rank_state.barrier.enter(member, &call))
    }
}
