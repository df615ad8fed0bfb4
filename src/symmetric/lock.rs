//! A lock of all ranks.

use std::fmt;
use std::mem;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};

use crate::codes::Codes;
use crate::communicator::{Communicator, call};
use crate::error::{Error, Operation};
use crate::protocol::Failure;
use crate::protocol::symmetric::lock::{Node, Queue};
use crate::rank::rank_state::EndsByPanic;
use crate::segment::recorder::Lane;
use crate::segment::unit::Instance;
use crate::symmetric::allocate;
use crate::symmetric::handle::Symmetric;
use crate::symmetric::options::SymmetricOptions;
use crate::sys::wait::clock::Moment;

/// A lock that one rank at a time holds, in the order in which they ask for it.
///
/// It is an MCS lock (Mellor-Crummey and Scott 1991): a rank that waits spins on a line of its own, and sleeps after a while.
/// What the last holder wrote is visible to the next.
///
/// If a rank dies that holds the lock, or waits for it, the communicator ends, and all ranks that wait get
/// [`Error::RankDied`]. So does a rank that holds it longer than the communicator's time-out, with [`Error::TimedOut`]: a rank
/// cannot leave the queue. The error names the rank that has the lock, or one that was stopped while it queued up, behind which
/// the lock cannot be handed on.
///
/// ```
/// let results = intranode::threads(4, |comm| {
///     let lock = comm.lock()?;
///     let counter = comm.symmetric::<u64>(1)?;
///     for _ in 0..100 {
///         let _guard = lock.lock()?;
///         let remote = counter.at(0)?;
///         // Not one atomic operation: the lock makes it one.
///         remote.store(0, remote.load(0) + 1);
///     }
///     comm.barrier()?;
///     Ok::<_, intranode::Error>(counter.at(0)?.load(0))
/// })?;
/// for result in results {
///     assert_eq!(result?, 400);
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
pub struct Lock {
    cells: Symmetric<u32>,
    /// Whether this rank has the lock or waits for it: a rank has one place in the queue.
    queued: AtomicBool,
}

/// The lock is held until this is dropped.
///
/// ```
/// use intranode::{Error, Guard, Lock};
///
/// fn enter(lock: &Lock) -> Result<Guard<'_>, Error> {
///     lock.lock()
/// }
///
/// let results = intranode::threads(2, |comm| {
///     let lock = comm.lock()?;
///     drop(enter(&lock)?);
///     comm.barrier() // a rank that leaves ends the waits of the others
/// })?;
/// assert!(results.iter().all(Result::is_ok));
/// # Ok::<(), Error>(())
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard<'a> {
    lock: &'a Lock,
}

/// In rank 0's instance.
const TAIL: usize = 0;
/// In each rank's instance, apart from the tail's line.
const NEXT: usize = 32;
/// In each rank's instance.
const TURN: usize = 33;
/// The length of an instance.
const LEN: usize = 34;

impl Communicator {
    /// Makes a lock of all ranks. Collective. It takes 256 bytes of symmetric memory on each rank. Example: [`Lock`].
    ///
    /// # Errors
    /// As [`symmetric`](Communicator::symmetric).
    pub fn lock(&self) -> Result<Lock, Error> {
        let operation = Operation::LockNew;
        let options = SymmetricOptions::new();
        let cells = allocate::make(&self.rank_state, &call::<u32>(operation), operation, LEN, &options)?;
        Ok(Lock { cells, queued: AtomicBool::new(false) })
    }
}

impl Lock {
    /// Takes the lock, after all ranks that asked for it before. Not collective. Example: [`Lock`].
    ///
    /// # Errors
    /// [`Error::WouldDeadlock`] if this rank, perhaps another thread of it, has the lock or waits for it. When a rank
    /// has it and the communicator has ended, or ends now because of the time-out, as [`barrier`](Communicator::barrier): what
    /// nobody has is taken also after the end. [`Error::Forked`] in a forked child.
    pub fn lock(&self) -> Result<Guard<'_>, Error> {
        self.check_fork()?;
        self.enter()?;
        let place = self.waits();
        let taken = match self.cells.rank_state().platform.recorder {
            None => self.cells.access().lock(self, &self.deadline()),
            Some(lane) => self.lock_recorded(lane),
        };
        mem::forget(place);
        taken.map_err(|failure| self.cells.rank_state().one_sided_failed(Operation::LockAcquire, failure))?;
        Ok(Guard { lock: self })
    }

    /// Takes the lock if nobody has it. `None`: a rank has it. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(2, |comm| {
    ///     let lock = comm.lock()?;
    ///     let guard = lock.try_lock()?;
    ///     comm.barrier()?;
    ///     Ok::<_, intranode::Error>(guard.is_some())
    /// })?;
    /// let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// assert!(results[0] != results[1]);
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WouldDeadlock`] if this rank, perhaps another thread of it, has the lock or waits for it. When a rank has it and the
    /// communicator has ended, as [`barrier`](Communicator::barrier): it may never be free again. [`Error::Forked`] in a forked child.
    pub fn try_lock(&self) -> Result<Option<Guard<'_>>, Error> {
        self.check_fork()?;
        self.enter()?;
        if let Some(lane) = self.cells.rank_state().platform.recorder {
            lane.count(Operation::LockAcquire.code(), 0);
        }
        let access = self.cells.access();
        let taken = access.try_lock(self).and_then(|taken| {
            if taken {
                return Ok(Some(Guard { lock: self }));
            }
            self.queued.store(false, Release);
            // Who asks again and again would not learn that its holder has died.
            access.check().map(|()| None)
        });
        taken.map_err(|failure| self.cells.rank_state().one_sided_failed(Operation::LockAcquire, failure))
    }

    /// Takes the lock, with `INTRANODE_REPORT`: a rank that does not get it at once waits.
    #[cold]
    fn lock_recorded(&self, lane: &Lane) -> Result<(), Failure> {
        let (operation, access) = (Operation::LockAcquire.code(), self.cells.access());
        let entered = lane.enter(operation);
        let taken = match access.try_lock(self) {
            Ok(true) => Ok(()),
            Ok(false) => lane.wait_for(operation, None, || access.lock(self, &self.deadline())),
            Err(failure) => Err(failure),
        };
        lane.leave(&entered, 0);
        taken
    }

    /// Takes this rank's place in the queue.
    fn enter(&self) -> Result<(), Error> {
        match self.queued.swap(true, Acquire) {
            false => Ok(()),
            true => Err(self.would_deadlock()),
        }
    }

    /// Why this rank cannot queue up: it is in the queue, perhaps for ever, since the communicator has ended.
    #[cold]
    fn would_deadlock(&self) -> Error {
        let operation = Operation::LockAcquire;
        match self.cells.access().check() {
            Ok(()) => Error::WouldDeadlock { operation },
            Err(failure) => self.cells.rank_state().one_sided_failed(operation, failure),
        }
    }

    fn check_fork(&self) -> Result<(), Error> {
        match self.cells.rank_state().mapped.forked() {
            true => Err(Error::Forked { operation: Operation::LockAcquire }),
            false => Ok(()),
        }
    }

    fn deadline(&self) -> Option<Moment> {
        self.cells.rank_state().platform.timeout.map(Moment::after)
    }

    /// A rank's cells.
    fn instance(&self, rank: usize) -> Option<Instance<'_, u32>> {
        self.cells.instance(rank).ok()
    }
}

impl Lock {
    /// While this rank waits in the queue, which it cannot leave: where a hook panics the communicator ends, since the ranks behind it
    /// would wait for a rank that has no guard to hand the lock on.
    fn waits(&self) -> EndsByPanic<'_> {
        EndsByPanic(self.cells.rank_state())
    }
}

impl Queue<AtomicU32> for Lock {
    fn tail(&self) -> &AtomicU32 {
        self.instance(0).expect("there is a rank 0").atomic(TAIL)
    }

    fn node(&self, rank: usize) -> Option<Node<'_, AtomicU32>> {
        let instance = self.instance(rank)?;
        Some(Node { next: instance.atomic(NEXT), turn: instance.atomic(TURN) })
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let Guard { lock } = self;
        let place = lock.waits();
        // An error ends the communicator; each later call reports it. In a forked child there is no instance, and nothing is written.
        let _ = lock.cells.access().unlock(*lock, &lock.deadline());
        mem::forget(place);
        lock.queued.store(false, Release);
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

impl fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}
