//! Waiting until this rank's own instance has changed, and signals.

use crate::codes::Codes;
use crate::error::{Error, Operation, WaitTimeout};
use crate::protocol::Failure;
use crate::protocol::symmetric::access::Signalling;
use crate::segment::atom::{Atom, AtomInt};
use crate::segment::recorder::Lane;
use crate::segment::unit::Instance;
use crate::symmetric::handle::Symmetric;
use crate::symmetric::remote::{access_begins, access_ends};
use crate::sys::wait::clock::Moment;
use bytemuck::Pod;
use std::sync::Arc;
use std::time::Duration;

/// What a rank waits for in an element of its own.
///
/// ```
/// use intranode::Until;
///
/// assert!(Until::Ge(3).holds(3) && !Until::Ge(3).holds(2));
/// // A NaN is not equal to anything.
/// assert!(Until::Ne(1.0).holds(f64::NAN));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Until<T> {
    /// It is equal to this value.
    Eq(T),
    /// It is not equal to this value.
    Ne(T),
    /// It is greater than this value.
    Gt(T),
    /// It is greater than this value or equal to it.
    Ge(T),
    /// It is less than this value.
    Lt(T),
    /// It is less than this value or equal to it.
    Le(T),
}

impl<T: PartialOrd> Until<T> {
    /// Whether a value is what is waited for. Not collective. Example: [`Until`].
    #[inline]
    pub fn holds(&self, value: T) -> bool {
        match self {
            Until::Eq(other) => value == *other,
            Until::Ne(other) => value != *other,
            Until::Gt(other) => value > *other,
            Until::Ge(other) => value >= *other,
            Until::Lt(other) => value < *other,
            Until::Le(other) => value <= *other,
        }
    }
}

/// What a [`put_signal`](Symmetric::put_signal) does to the signal.
///
/// ```
/// use intranode::{Signal, Until};
///
/// let results = intranode::threads(3, |comm| {
///     let data = comm.symmetric::<f32>(3)?;
///     let arrived = comm.symmetric::<u64>(1)?;
///     data.put_signal(0, comm.rank(), &[comm.rank() as f32], &arrived, 0, Signal::Add(1))?;
///     let mut all = [0.0; 3];
///     if comm.rank() == 0 {
///         arrived.wait_until(0, Until::Eq(3))?;
///         data.at(0)?.get(0, &mut all);
///     }
///     comm.barrier()?; // a rank that leaves ends the waits of the others
///     Ok::<_, intranode::Error>(all)
/// })?;
/// let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(results[0], [0.0, 1.0, 2.0]);
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Signal<S> {
    /// It becomes this value.
    Set(S),
    /// This value is added.
    Add(S),
}

impl<T: Pod> Symmetric<T> {
    /// Writes elements of `rank`'s instance from `index` on, and then changes an element of `rank`'s instance of `signals`.
    /// A rank that has seen that change, by a wait, a test or a load, sees the elements. Without elements it only signals. Not
    /// collective. Example: [`Signal`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`]; [`Error::ForeignHandle`] if `signals` belongs to another communicator; [`Error::Forked`] in a
    /// forked child. Nothing was written then.
    ///
    /// # Panics
    /// When the elements reach past the end, or there is no such signal.
    #[inline]
    #[track_caller]
    pub fn put_signal<S: AtomInt>(
        &self,
        rank: usize,
        index: usize,
        values: &[T],
        signals: &Symmetric<S>,
        signal_index: usize,
        signal: Signal<S>,
    ) -> Result<(), Error> {
        if !Arc::ptr_eq(self.rank_state(), signals.rank_state()) {
            return Err(Error::ForeignHandle { operation: Operation::PutSignal });
        }
        let instance = self.instance(rank)?;
        let cell = signals.instance(rank)?.atomic(signal_index);
        let signal = match signal {
            Signal::Set(value) => (Signalling::Set, value.to_cell()),
            Signal::Add(value) => (Signalling::Add, value.to_cell()),
        };
        let (access, bytes) = (self.access(), size_of_val(values));
        let start = access_begins(&access, Operation::PutSignal, bytes);
        instance.put_signal(&access, rank, (index, values), cell, signal);
        access_ends(&access, Operation::PutSignal, bytes, start);
        Ok(())
    }
}

impl<T: Atom> Symmetric<T> {
    /// Waits until an element of this rank's own instance is as it should be, and returns its value. Not collective.
    ///
    /// It spins for as long as a barrier does, and then sleeps. [`Remote`](crate::Remote)'s writes, atomics and signals wake
    /// it; writes through [`atomics`](crate::Remote::atomics) are found within 10 ms. What the writer wrote before a
    /// [`store`](crate::Remote::store), a signal or a fence is visible afterwards.
    ///
    /// ```
    /// use intranode::Until;
    ///
    /// let results = intranode::threads(2, |comm| {
    ///     let flag = comm.symmetric::<u32>(1)?;
    ///     flag.at(1 - comm.rank())?.store(0, 10 + comm.rank() as u32);
    ///     flag.wait_until(0, Until::Ne(0))
    /// })?;
    /// let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(results, [11, 10]);
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the element is not as it should be: [`Error::RankDied`], [`Error::RankLeft`], [`Error::Aborted`],
    /// [`Error::Interrupted`], [`Error::TimedOut`] (a collective call of another rank, or the lock) and [`Error::Poisoned`] when
    /// the communicator has ended; [`Error::WaitTimedOut`] after the communicator's time-out, which ends nothing;
    /// [`Error::Forked`] in a forked child. A wait that is satisfied succeeds also in a communicator that has ended.
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn wait_until(&self, index: usize, until: Until<T>) -> Result<T, Error> {
        let own = self.own()?;
        let cell = own.atomic(index);
        let deadline = self.rank_state().platform.timeout.map(Moment::after);
        match self.wait(&deadline, || Some(self.look(cell)).filter(|value| until.holds(*value)))? {
            Some(value) => Ok(value),
            None => Err(self.timed_out(index, until, own)),
        }
    }

    /// The same for at most `duration`, whatever the communicator's time-out is. `None`: the time is over. Not collective.
    ///
    /// ```
    /// use intranode::Until;
    /// use std::time::Duration;
    ///
    /// let results = intranode::threads(2, |comm| {
    ///     let flag = comm.symmetric::<i64>(1)?;
    ///     flag.wait_timeout(0, Until::Lt(0), Duration::from_millis(1))
    /// })?;
    /// assert!(matches!(results[..], [Ok(None) | Err(_), Ok(None) | Err(_)]));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`wait_until`](Symmetric::wait_until), but for the time-out.
    ///
    /// # Panics
    /// When there is no such element.
    #[track_caller]
    pub fn wait_timeout(&self, index: usize, until: Until<T>, duration: Duration) -> Result<Option<T>, Error> {
        let own = self.own()?;
        let cell = own.atomic(index);
        self.wait(&Some(Moment::after(duration)), || Some(self.look(cell)).filter(|value| until.holds(*value)))
    }

    /// Waits until one of several elements of this rank's own instance is as it should be. Returns its place in the list, and
    /// its value; `None` if the list is empty. Not collective.
    ///
    /// ```
    /// use intranode::Until::{Ge, Ne};
    ///
    /// let results = intranode::threads(2, |comm| {
    ///     let flags = comm.symmetric::<u64>(4)?;
    ///     flags.at(1 - comm.rank())?.store(2, 7);
    ///     let any = flags.wait_any(&[(1, Ne(0)), (2, Ge(7))])?;
    ///     flags.wait_all(&[(0, Ne(1)), (2, Ge(7))])?;
    ///     Ok::<_, intranode::Error>((any, flags.wait_some(&[(2, Ne(0)), (3, Ne(0))])?))
    /// })?;
    /// for result in results {
    ///     assert_eq!(result?, (Some((1, 7)), vec![0]));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`wait_until`](Symmetric::wait_until).
    ///
    /// # Panics
    /// When there is no such element.
    #[track_caller]
    pub fn wait_any(&self, list: &[(usize, Until<T>)]) -> Result<Option<(usize, T)>, Error> {
        if list.is_empty() {
            return Ok(None);
        }
        self.wait_for(list, |own| self.first(own, list)).map(Some)
    }

    /// Waits until at least one of several elements is as it should be. Returns the places in the list of all that are; none
    /// if the list is empty. Not collective. Example: [`wait_any`](Symmetric::wait_any).
    ///
    /// # Errors
    /// As [`wait_until`](Symmetric::wait_until).
    ///
    /// # Panics
    /// When there is no such element.
    #[track_caller]
    pub fn wait_some(&self, list: &[(usize, Until<T>)]) -> Result<Vec<usize>, Error> {
        if list.is_empty() {
            return Ok(Vec::new());
        }
        self.wait_for(list, |own| Some(self.some(own, list)).filter(|places| !places.is_empty()))
    }

    /// Waits until each of several elements has been as it should be. Returns at once if the list is empty. Not collective.
    /// Example: [`wait_any`](Symmetric::wait_any).
    ///
    /// # Errors
    /// As [`wait_until`](Symmetric::wait_until).
    ///
    /// # Panics
    /// When there is no such element.
    #[track_caller]
    pub fn wait_all(&self, list: &[(usize, Until<T>)]) -> Result<(), Error> {
        let mut rest = list;
        self.wait_for(list, |own| {
            while let [(index, until), behind @ ..] = rest
                && until.holds(self.look(own.atomic(*index)))
            {
                rest = behind;
            }
            rest.is_empty().then_some(())
        })
    }

    /// The value of an element of this rank's own instance, if it is as it should be. It never waits. What the writer wrote
    /// before is visible, as after a wait. Not collective.
    ///
    /// It says nothing of a rank that has died: a loop of tests also calls [`quiet`](crate::Communicator::quiet), which does.
    ///
    /// ```
    /// use intranode::Until;
    ///
    /// let results = intranode::threads(1, |comm| {
    ///     let flags = comm.symmetric::<u8>(3)?;
    ///     drop(flags);
    ///     let flags = comm.symmetric::<i32>(3)?;
    ///     flags.at(0)?.store(1, 4);
    ///     assert_eq!(flags.test(1, Until::Gt(4))?, None);
    ///     assert_eq!(flags.test_any(&[(0, Until::Ne(0)), (1, Until::Ge(4))])?, Some((1, 4)));
    ///     assert_eq!(flags.test_some(&[(0, Until::Eq(0)), (1, Until::Le(4))])?, [0, 1]);
    ///     assert!(!flags.test_all(&[(0, Until::Ne(0)), (1, Until::Ge(4))])?);
    ///     flags.test(1, Until::Eq(4))
    /// })?;
    /// for result in results {
    ///     assert_eq!(result?, Some(4));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn test(&self, index: usize, until: Until<T>) -> Result<Option<T>, Error> {
        let value = self.look(self.own()?.atomic(index));
        Ok(Some(value).filter(|value| until.holds(*value)))
    }

    /// The place in the list, and the value, of the first element that is as it should be. Not collective. Example:
    /// [`test`](Symmetric::test).
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    ///
    /// # Panics
    /// When there is no such element.
    #[track_caller]
    pub fn test_any(&self, list: &[(usize, Until<T>)]) -> Result<Option<(usize, T)>, Error> {
        Ok(self.first(self.own()?, list))
    }

    /// The places in the list of all elements that are as they should be. Not collective. Example:
    /// [`test`](Symmetric::test).
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    ///
    /// # Panics
    /// When there is no such element.
    #[track_caller]
    pub fn test_some(&self, list: &[(usize, Until<T>)]) -> Result<Vec<usize>, Error> {
        Ok(self.some(self.own()?, list))
    }

    /// Whether all elements are as they should be. Not collective. Example: [`test`](Symmetric::test).
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    ///
    /// # Panics
    /// When there is no such element.
    #[track_caller]
    pub fn test_all(&self, list: &[(usize, Until<T>)]) -> Result<bool, Error> {
        let own = self.own()?;
        Ok(list.iter().all(|(index, until)| until.holds(self.look(own.atomic(*index)))))
    }

    /// Reads an element of this rank's own.
    #[inline]
    fn look(&self, cell: &T::Atomic) -> T {
        T::from_cell(self.access().test(cell))
    }

    fn first(&self, own: Instance<'_, T>, list: &[(usize, Until<T>)]) -> Option<(usize, T)> {
        list.iter().enumerate().find_map(|(place, (index, until))| {
            let value = self.look(own.atomic(*index));
            until.holds(value).then_some((place, value))
        })
    }

    fn some(&self, own: Instance<'_, T>, list: &[(usize, Until<T>)]) -> Vec<usize> {
        let holds = |(index, until): &(usize, Until<T>)| until.holds(self.look(own.atomic(*index)));
        list.iter().enumerate().filter(|(_, condition)| holds(condition)).map(|(place, _)| place).collect()
    }

    /// This rank's own instance.
    #[inline]
    fn own(&self) -> Result<Instance<'_, T>, Error> {
        self.instance(self.rank_state().rank)
    }

    fn wait_for<R>(
        &self,
        list: &[(usize, Until<T>)],
        mut poll: impl FnMut(Instance<'_, T>) -> Option<R>,
    ) -> Result<R, Error> {
        let own = self.own()?;
        let deadline = self.rank_state().platform.timeout.map(Moment::after);
        match self.wait(&deadline, || poll(own))? {
            Some(found) => Ok(found),
            None => {
                let missing = list.iter().find(|(index, until)| !until.holds(self.look(own.atomic(*index))));
                let (index, until) = *missing.unwrap_or(&list[0]);
                Err(self.timed_out(index, until, own))
            }
        }
    }

    #[inline]
    fn wait<R>(&self, deadline: &Option<Moment>, poll: impl FnMut() -> Option<R>) -> Result<Option<R>, Error> {
        let waited = match self.rank_state().platform.recorder {
            None => self.access().wait(deadline, poll),
            Some(lane) => self.wait_recorded(lane, deadline, poll),
        };
        waited.map_err(|failure| self.rank_state().one_sided_failed(Operation::Wait, failure))
    }

    /// The same, with `INTRANODE_REPORT`.
    #[cold]
    fn wait_recorded<R>(
        &self,
        lane: &Lane,
        deadline: &Option<Moment>,
        mut poll: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>, Failure> {
        let operation = Operation::Wait.code();
        let entered = lane.enter(operation);
        let waited = match poll() {
            Some(found) => Ok(Some(found)),
            None => lane.wait_for(operation, None, || self.access().wait(deadline, poll)),
        };
        lane.leave(&entered, 0);
        waited
    }

    #[cold]
    fn timed_out(&self, index: usize, until: Until<T>, own: Instance<'_, T>) -> Error {
        Error::WaitTimedOut(Box::new(WaitTimeout {
            rank: self.rank_state().rank,
            index,
            condition: format!("{until:?}"),
            last: format!("{:?}", self.look(own.atomic(index))),
            timeout: self.rank_state().platform.timeout.unwrap_or_default(),
        }))
    }
}
