//! The phases of a symmetric object: see [`protocol::symmetric::phase`](crate::protocol::symmetric::phase).

use std::fmt;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;

use crate::error::{Error, Operation};
use crate::protocol::{Barrier, Call, Failure, Member};
use crate::segment::platform::ShmPlatform;
use crate::segment::symmetric_memory::{Own, Read, SymmetricMemory, Transition};
use crate::symmetric::handle::Symmetric;

impl<T: Pod> Symmetric<T> {
    /// Begins the phase in which each rank has `&mut [T]` of its own instance, and no rank has access to another's. Collective;
    /// it costs one round. What was put into an instance before is visible to its owner.
    ///
    /// ```
    /// let results = intranode::threads(2, |comm| {
    ///     let mut own = comm.symmetric::<f64>(3)?.into_own()?;
    ///     own.copy_from_slice(&[0.5, 1.5, 2.5]);
    ///     own[0] = 1.0;
    ///     own.open().map(drop)
    /// })?;
    /// assert!(results.iter().all(Result::is_ok));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the ranks name different objects; otherwise as [`barrier`](crate::Communicator::barrier). This rank
    /// has dropped the object then.
    pub fn into_own(self) -> Result<Symmetric<T, Own>, Error> {
        self.turn(
            Operation::OwnPhase,
            |member, barrier, call| member.into_own(barrier, call),
            |memory, all_own| memory.own(&all_own),
        )
    }

    /// Begins the phase in which every rank has `&[T]` of all instances, and no rank writes. Collective; it costs one round, and
    /// nothing is copied. What was put into an instance before is visible to all ranks.
    ///
    /// ```
    /// let results = intranode::threads(2, |comm| {
    ///     let all = comm.symmetric::<f64>(3)?.into_read()?;
    ///     let other = all.of(1 - comm.rank()).to_vec();
    ///     all.open()?;
    ///     Ok::<_, intranode::Error>(other)
    /// })?;
    /// for other in results {
    ///     assert_eq!(other?, [0.0; 3]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`into_own`](Symmetric::into_own).
    pub fn into_read(self) -> Result<Symmetric<T, Read>, Error> {
        self.turn(
            Operation::ReadPhase,
            |member, barrier, call| member.into_read(barrier, call),
            |memory, all_read| memory.read(all_read),
        )
    }
}

impl<T: Pod> Symmetric<T, Own> {
    /// Begins the open phase: any rank accesses any instance. What each rank has written is visible to all. Collective; it costs
    /// one round. Example: [`into_own`](Symmetric::into_own).
    ///
    /// # Errors
    /// As [`into_own`](Symmetric::into_own).
    pub fn open(self) -> Result<Symmetric<T>, Error> {
        self.turn(
            Operation::OpenPhase,
            |member, barrier, call| member.open(barrier, call),
            |memory, all_open| memory.open(all_open),
        )
    }
}

impl<T: Pod> Symmetric<T, Read> {
    /// The instance of a rank. Not collective. Example: [`into_read`](Symmetric::into_read).
    ///
    /// # Panics
    /// If there is no such rank. In a forked child, in which the object does not exist.
    pub fn of(&self, rank: usize) -> &[T] {
        self.memory.values_of(rank)
    }

    /// Begins the open phase, as [`Symmetric<T, Own>::open`](Symmetric::open). Collective. Example:
    /// [`into_read`](Symmetric::into_read).
    ///
    /// # Errors
    /// As [`into_own`](Symmetric::into_own).
    pub fn open(self) -> Result<Symmetric<T>, Error> {
        self.turn(
            Operation::OpenPhase,
            |member, barrier, call| member.open(barrier, call),
            |memory, all_open| memory.open(all_open),
        )
    }
}

impl<T: Pod, P> Symmetric<T, P> {
    /// Ends one phase and begins another: `round` between them, then `enter`.
    fn turn<N, Proof>(
        self,
        operation: Operation,
        round: impl FnOnce(&mut Member<'_, ShmPlatform>, &Barrier, &Call) -> Result<Proof, Failure>,
        enter: impl FnOnce(SymmetricMemory<T, Transition>, Proof) -> SymmetricMemory<T, N>,
    ) -> Result<Symmetric<T, N>, Error> {
        let Symmetric { object, memory } = self;
        let call = object.call::<T>(operation, memory.len());
        let memory = memory.leave();
        // The release store of the round does not order non-temporal stores.
        crate::copy::lines::fence();
        let rank_state = &object.rank_state;
        let proof = rank_state.collective(operation, |member| round(member, &rank_state.barrier, &call))?;
        Ok(Symmetric { object, memory: enter(memory, proof) })
    }
}

impl<T: Pod> Deref for Symmetric<T, Own> {
    type Target = [T];

    /// # Panics
    /// In a forked child, in which the object does not exist.
    fn deref(&self) -> &[T] {
        self.memory.values()
    }
}

impl<T: Pod> DerefMut for Symmetric<T, Own> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.memory.values_mut()
    }
}

impl<T: Pod> AsRef<[T]> for Symmetric<T, Own> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: Pod> AsMut<[T]> for Symmetric<T, Own> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T: Pod + fmt::Debug> fmt::Debug for Symmetric<T, Own> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Pod> fmt::Debug for Symmetric<T, Read> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symmetric").field("len", &self.memory.len()).finish_non_exhaustive()
    }
}
