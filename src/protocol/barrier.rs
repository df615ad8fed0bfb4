//! The barrier, and the round that every collective is made of: arrive, then wait until all ranks have arrived.
//!
//! ```text
//!  rank 0's words      rank 1's words      rank 2's words        round 6, all ranks
//!  even     odd        even     odd        even     odd
//!  [ 4 ]   [ 5 ]       [ 4 ]   [ 5 ]       [ 4 ]   [ 5 ]
//!    │                   ┆                   ┆
//!    │ 1. publish: header, staging           ┆                    own memory only
//!    ▼ 2. arrive: 4 → 6, Release             ┆                    one compare-exchange
//!  [ 6 ] ◀───────────────┼───────────────────┤
//!    │ 3. wait: poll each other word until it holds 6, Acquire    │
//!    └──────────────▶  [ 6 ] ────────────▶ [ 6 ]   4. read what they published
//! ```
//!
//! There is no counter that all ranks write: each word has one writer that advances it, so arriving costs one
//! cache line and a rank that is missing can be named. This is the all-to-all ("flat") form of a dissemination
//! barrier; two words a rank, alternating as in a sense-reversing barrier (Hensgen, Finkel and Manber 1988;
//! Mellor-Crummey and Scott 1991), replace the reset of a counter.
//!
//! **Oversubscription.** Where there are fewer processors than ranks, a rank that waits calls sched_yield. That helps the
//! ranks on the same processor, so it polls their words first. When they have arrived a yield only costs two context
//! switches, and spinning for a moment is better. So a round takes as few switches on each processor as it has other
//! ranks. Ranks publish their processor with each arrival: the scheduler may move them.
//!
//! **Parking.** A rank that has spun long enough sets `WAITER` in the word that it waits for, and sleeps on that word. The
//! owner's compare-exchange then fails once, returns the bit, and is followed by a wake-up. An owner makes no system call
//! for a word without a waiter.
//!
//! **Poison.** A rank that finds that a round cannot complete sets `POISON` in all words: see [`super::membership`].
//! It makes the owner's compare-exchange fail for ever, so a frozen word's generation is final, and a waiter
//! polls no second word: both "arrived" and "will never arrive" appear in the word that it waits for.

use super::call::PROCESSOR;
use super::generation::{POISON, WAITER};
use super::{Call, CauseKind, Expired, Failure, Generation, Member, Ordering, Payload, Platform, Slot};
use Ordering::{Acquire, Relaxed, Release};

impl<P: Platform> Member<'_, P> {
    /// Waits until every rank has called it with an equal `call`, which brings no data.
    ///
    /// # Errors
    /// As [`begin_call`](Member::begin_call).
    #[inline]
    pub fn barrier(&mut self, call: &Call) -> Result<(), Failure> {
        self.write_header(call, |_| ());
        let parity = self.round()?;
        // Before the calls are compared: the next call cannot begin before its line is here.
        self.prefetch_next_slot();
        self.check_calls(call, parity)
    }

    /// Arrives at the next round and waits for all ranks. Returns the round's parity.
    ///
    /// After `Ok`, what every rank published for this parity before it arrived may be read, until this rank
    /// arrives at the next round.
    ///
    /// # Errors
    /// [`Failure::Dead`] when the round did not and will not complete on any rank.
    #[inline]
    pub fn round(&mut self) -> Result<usize, Failure> {
        self.round_while(|| ())
    }

    /// The same with something to do between arriving and waiting, when the other ranks' words are on their way: work
    /// that no other rank waits for.
    #[inline]
    pub(super) fn round_while(&mut self, work: impl FnOnce()) -> Result<usize, Failure> {
        let (generation, processor) = self.arrive()?;
        work();
        if let Some(here) = processor {
            self.yield_to_co_located(here, generation);
        }
        self.others().try_for_each(|rank| self.wait_for(rank, generation))?;
        self.complete(generation)
    }

    /// Arrives at the next round. Returns its generation, and which processor this rank is on, if ranks share them.
    #[inline]
    pub(super) fn arrive(&mut self) -> Result<(Generation, Option<u8>), Failure> {
        let generation = self.completed.next();
        self.platform.fail_point("round")?;
        let processor = self.platform.processor();
        if let Some(here) = processor {
            self.header(self.rank, generation.parity())
                .write(|mut header| header.store_relaxed(PROCESSOR, here));
        }
        // From its previous value and from nothing else: a swap would erase poison.
        let state = &self.slots[self.rank][generation.parity()].state;
        let (previous, next) = (generation.previous().previous().word(), generation.word());
        if let Err(seen) = self.platform.compare_exchange("arrive", state, previous, next, Release, Relaxed) {
            self.arrive_and_wake(state, seen, next)?;
        }
        self.platform.fail_point("arrived")?;
        Ok((generation, processor))
    }

    /// The rest of an arrival when a rank sleeps on the word, or has poisoned it, or this rank's progress is in it.
    #[cold]
    fn arrive_and_wake(&self, state: &P::Word, seen: u32, next: u32) -> Result<(), Failure> {
        if self.advance(state, seen, next)? { Ok(()) } else { Err(self.failure()) }
    }

    /// Advances a word that only this rank advances, and that held `seen` a moment ago. False: it is poisoned.
    pub(super) fn advance(&self, state: &P::Word, mut seen: u32, next: u32) -> Result<bool, Failure> {
        while seen & POISON == 0 {
            match self.platform.compare_exchange("arrive-waiter", state, seen, next, Release, Relaxed) {
                Ok(_) => {
                    if seen & WAITER != 0 {
                        self.platform.fail_point("arrived-unwoken")?;
                        self.platform.wake_all("arrive-wake", state);
                    }
                    return Ok(true);
                }
                Err(now) => seen = now,
            }
        }
        Ok(false)
    }

    /// Ends a round at which all ranks have arrived. Returns its parity.
    #[inline]
    pub(super) fn complete(&mut self, generation: Generation) -> Result<usize, Failure> {
        self.completed = generation;
        self.platform.fail_point("completed")?;
        Ok(generation.parity())
    }

    /// Gives this processor to the ranks that share it, which have not arrived yet, for as long as that pays. Nothing is
    /// known afterwards: their words are read again, with the others.
    pub(super) fn yield_to_co_located(&self, here: u8, generation: Generation) {
        for rank in self.others() {
            let Slot { state, header } = &self.slots[rank][generation.parity()];
            if self.platform.peek(header) == here {
                let _ = self.platform.spin("co-located", state, Relaxed, true, generation.is_decided());
            }
        }
    }

    /// Waits until a rank has arrived.
    #[inline]
    pub(super) fn wait_for(&self, rank: usize, generation: Generation) -> Result<(), Failure> {
        let state = &self.slots[rank][generation.parity()].state;
        match self.wait_on(state, P::deadline, generation.is_decided()) {
            Ok(seen) if Generation::of_word(seen) == generation => Ok(()),
            Ok(_) => Err(self.failure()),
            Err(Stopping::Expired(Expired)) => self.give_up(rank, generation),
            Err(Stopping::Failure(failure)) => Err(failure),
        }
    }

    /// Polls a word until it is decided, and sleeps if that takes long.
    #[inline]
    pub(super) fn wait_on(
        &self,
        state: &P::Word,
        deadline: fn(&P) -> P::Deadline,
        is_decided: impl Fn(u32) -> bool + Copy,
    ) -> Result<u32, Stopping> {
        match self.platform.spin("spin", state, Acquire, false, is_decided) {
            Ok(seen) => Ok(seen),
            Err(seen) => self.sleep_until(state, deadline, seen, is_decided),
        }
    }

    /// Sleeps on a word until it is decided. `seen` is what spinning has read last.
    #[cold]
    fn sleep_until(
        &self,
        state: &P::Word,
        deadline: fn(&P) -> P::Deadline,
        mut seen: u32,
        is_decided: impl Fn(u32) -> bool,
    ) -> Result<u32, Stopping> {
        let deadline = deadline(self.platform);
        loop {
            // Only a word that shows `WAITER` is slept on.
            while seen & WAITER == 0 {
                let marked = seen | WAITER;
                match self.platform.compare_exchange("waiter", state, seen, marked, Relaxed, Acquire) {
                    Ok(_) => seen = marked,
                    Err(now) if is_decided(now) => return Ok(now),
                    Err(now) => seen = now,
                }
            }
            self.platform.fail_point("sleeping").map_err(|killed| Stopping::Failure(killed.into()))?;
            let slept = self.platform.wait("sleep", state, seen, &deadline);
            if self.platform.is_interrupted() {
                // It reaches the word that this rank waits for too, if that is not decided before.
                self.poison(CauseKind::Interrupted, self.rank, self.completed.number())
                    .map_err(|killed| Stopping::Failure(killed.into()))?;
            }
            seen = self.platform.load("woken", state, Acquire);
            if is_decided(seen) {
                return Ok(seen);
            }
            slept.map_err(Stopping::Expired)?;
        }
    }
}

/// Why a sleep ended without an answer.
pub(super) enum Stopping {
    Expired(Expired),
    Failure(Failure),
}
