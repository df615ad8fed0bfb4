//! The order of puts, and what else a rank does with all of its symmetric memory.

use std::sync::Arc;

use crate::communicator::Communicator;
use crate::error::{Error, Operation};

impl Communicator {
    /// What this rank has put before is seen before what it puts afterwards, on every rank: `shmem_fence`. Not collective; it
    /// costs nothing on x86-64.
    ///
    /// ```
    /// use intranode::Until;
    ///
    /// let results = intranode::threads(2, |comm| {
    ///     let (data, flag) = (comm.symmetric::<u64>(100)?, comm.symmetric::<u64>(1)?);
    ///     if comm.rank() == 0 {
    ///         data.at(1)?.put(0, &[7; 100]);
    ///         comm.fence();
    ///         flag.at(1)?.put(0, &[1]);
    ///         return Ok::<_, intranode::Error>(7);
    ///     }
    ///     flag.wait_until(0, Until::Eq(1))?;
    ///     Ok(data.at(1)?.load(99))
    /// })?;
    /// for result in results {
    ///     assert_eq!(result?, 7);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    #[inline]
    pub fn fence(&self) {
        self.rank_state.access().fence();
    }

    /// What this rank has put before is complete, and every rank sees it: `shmem_quiet`. Unlike a
    /// [`fence`](Communicator::fence) it also orders puts before later loads. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(2, |comm| {
    ///     let flags = comm.symmetric::<u32>(2)?;
    ///     flags.at(1 - comm.rank())?.store(0, 1);
    ///     comm.quiet()?;
    ///     // At least one of the two ranks sees what the other has stored.
    ///     let seen = flags.at(comm.rank())?.load(0);
    ///     comm.barrier()?;
    ///     Ok::<_, intranode::Error>(seen)
    /// })?;
    /// let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// assert_ne!(results, [0, 0]);
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::RankDied`], and the other errors of a communicator that has ended, if this is known by now. The puts are
    /// complete all the same. [`Error::Forked`] in a forked child.
    #[inline]
    pub fn quiet(&self) -> Result<(), Error> {
        if self.rank_state.mapped.forked() {
            return Err(Error::Forked { operation: Operation::Quiet });
        }
        let access = self.rank_state.access();
        access.quiet();
        access.check().map_err(|failure| self.rank_state.one_sided_failed(Operation::Quiet, failure))
    }

    /// Wakes the threads of `rank` that wait in [`wait_until`](crate::Symmetric::wait_until) and the like, so that they look
    /// again: after writes through [`atomics`](crate::Remote::atomics) or a pointer. Not collective.
    ///
    /// ```
    /// use intranode::Until;
    /// use std::sync::atomic::Ordering::Release;
    ///
    /// let results = intranode::threads(2, |comm| {
    ///     let flag = comm.symmetric::<u32>(1)?;
    ///     let other = 1 - comm.rank();
    ///     flag.at(other)?.atomics()[0].store(1, Release);
    ///     comm.notify(other)?;
    ///     flag.wait_until(0, Until::Eq(1))
    /// })?;
    /// for result in results {
    ///     assert_eq!(result?, 1);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRank`]; [`Error::Forked`] in a forked child.
    pub fn notify(&self, rank: usize) -> Result<(), Error> {
        if self.rank_state.mapped.forked() {
            return Err(Error::Forked { operation: Operation::Remote });
        }
        if rank >= self.size() {
            return Err(Error::InvalidRank { operation: Operation::Remote, rank, size: self.size() });
        }
        // Only tests stop a rank in between.
        let _ = self.rank_state.access().ring(rank);
        Ok(())
    }

    /// The number that a rank of this communicator has in another one, which was split from the same job, or is the job's;
    /// `None` if it does not belong to it. Not collective. It corresponds to `shmem_team_translate_pe`.
    ///
    /// ```
    /// let results = intranode::threads(4, |comm| {
    ///     let odd = comm.split(comm.rank() % 2, 0)?;
    ///     Ok::<_, intranode::Error>((comm.translate(3, &odd), odd.translate(1, &comm)))
    /// })?;
    /// let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(results[0], (None, Some(2)));
    /// assert_eq!(results[1], (Some(1), Some(3)));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    pub fn translate(&self, rank: usize, other: &Communicator) -> Option<usize> {
        let joined_as = self.joined_as.get(rank)?;
        let same_job = Arc::ptr_eq(&self.tree, &other.tree);
        other.joined_as.iter().position(|other| other == joined_as).filter(|_| same_job)
    }
}
