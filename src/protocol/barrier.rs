//! One round: arrive, then wait until everybody has arrived.
//!
//! ```text
//!  rank 0's words      rank 1's words      rank 2's words        round 6, all ranks
//!  even     odd        even     odd        even     odd
//!  [ 4 ]   [ 5 ]       [ 4 ]   [ 5 ]       [ 4 ]   [ 5 ]
//!    │                   ┆                   ┆
//!    │ 1. publish: header, staging             ┆                    own memory only
//!    ▼ 2. arrive: 4 → 6, Release             ┆                    one compare-exchange
//!  [ 6 ] ◀───────────────┼───────────────────┤
//!    │ 3. wait: look at each other word until it holds 6, Acquire │
//!    └──────────────▶  [ 6 ] ────────────▶ [ 6 ]   4. read what they published
//! ```
//!
//! There is no counter that all ranks write: each word has one writer that advances it, so arriving costs one
//! cache line and a rank that is missing can be named. This is the all-to-all ("flat") form of a dissemination
//! barrier; two words a rank, alternating as in a sense-reversing barrier (Hensgen, Finkel and Manber 1988;
//! Mellor-Crummey and Scott 1991), replace the reset of a counter.
//!
//! **Sharing a processor.** Where there are fewer processors than ranks, a rank that waits gives its own away. That
//! helps those beside it, which it therefore looks at first; as soon as they have arrived it only costs two switches,
//! and looking for a moment is better. So a round takes as few switches on each processor as there are other ranks.
//! Ranks show where they are with each arrival: they may be moved.
//!
//! **Sleeping.** A rank that has spun long enough sets `WAITER` in the word that it waits for, and sleeps on that
//! very word. The owner's compare-exchange then fails once, shows the bit, and is followed by a wake-up. An owner
//! that nobody waits for makes no system call.
//!
//! **Poison.** Whoever finds that a round can not complete sets `POISON` in all words: see [`super::membership`].
//! It makes the owner's compare-exchange fail for ever, so a frozen word's generation is final, and a waiter
//! needs no second word to watch: both "arrived" and "will never arrive" appear in the word that it looks at.

use super::call::PROCESSOR;
use super::generation::{POISON, WAITER};
use super::{Expired, Failure, Generation, Member, Ordering, Payload, Platform, Slot};
use crate::tuning::PREFETCH_FOR_WRITE_BYTES;
use Ordering::{Acquire, Relaxed, Release};

impl<P: Platform> Member<'_, P> {
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
        self.round_by(|member, generation, processor| {
            work();
            if let Some(here) = processor {
                member.yield_to_co_located(here, generation);
            }
            member.others().try_for_each(|rank| member.wait_for(rank, generation))?;
            Ok(generation.parity())
        })
    }

    /// A round in which `wait` sees to it that all ranks have arrived. It is told where this rank is, if that matters.
    #[inline]
    pub(super) fn round_by<R>(
        &mut self,
        wait: impl FnOnce(&Self, Generation, Option<u8>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let generation = self.completed.next();
        self.platform.fail_point("round")?;
        let processor = self.platform.processor();
        if let Some(here) = processor {
            self.header(self.rank, generation.parity()).write(|mut header| header.show(PROCESSOR, here));
        }
        self.arrive(generation)?;
        self.platform.fail_point("arrived")?;
        let result = wait(self, generation, processor)?;
        self.completed = generation;
        self.platform.fail_point("completed")?;
        Ok(result)
    }

    /// To be called after a round by whoever has something to do first: meanwhile the lines that the next call will write
    /// come back from those that have read them. `staged` bytes of staging are taken to be written, as by this call.
    #[inline]
    pub(super) fn prefetch_next_round(&self, staged: usize) {
        if staged <= PREFETCH_FOR_WRITE_BYTES {
            let parity = self.next_parity();
            self.platform.prefetch_for_write(&self.segment.slots[self.rank][parity].state);
            self.buffer(self.rank, parity).prefetch_for_write(staged);
        }
    }

    /// Advances this rank's own word, from its previous value and from nothing else: a swap would erase poison.
    #[inline]
    fn arrive(&self, generation: Generation) -> Result<(), Failure> {
        let word = &self.segment.slots[self.rank][generation.parity()].state;
        let (previous, next) = (generation.previous().previous().word(), generation.word());
        match self.platform.compare_exchange("arrive", word, previous, next, Release, Relaxed) {
            Ok(_) => Ok(()),
            Err(seen) => self.arrive_and_wake(word, seen, next),
        }
    }

    /// The rest of an arrival when somebody sleeps on the word, or has poisoned it.
    #[cold]
    fn arrive_and_wake(&self, word: &P::Word, seen: u32, next: u32) -> Result<(), Failure> {
        if self.advance(word, seen, next)? { Ok(()) } else { Err(self.failure()) }
    }

    /// Advances a word that only this rank advances, and that held `seen` a moment ago. False: it is poisoned.
    pub(super) fn advance(&self, word: &P::Word, mut seen: u32, next: u32) -> Result<bool, Failure> {
        while seen & POISON == 0 {
            match self.platform.compare_exchange("arrive-waiter", word, seen, next, Release, Relaxed) {
                Ok(_) => {
                    if seen & WAITER != 0 {
                        self.platform.fail_point("arrived-unwoken")?;
                        self.platform.wake_all("arrive-wake", word);
                    }
                    return Ok(true);
                }
                Err(now) => seen = now,
            }
        }
        Ok(false)
    }

    /// Lets the ranks arrive that share this one's processor, for as long as it is worth while. Nothing is known afterwards:
    /// they are looked at again, with the others.
    fn yield_to_co_located(&self, here: u8, generation: Generation) {
        for rank in self.others() {
            let Slot { state, header } = &self.segment.slots[rank][generation.parity()];
            if self.platform.peek(header) == here {
                let _ = self.platform.spin("co-located", state, Relaxed, true, generation.is_decided());
            }
        }
    }

    #[inline]
    pub(super) fn wait_for(&self, rank: usize, generation: Generation) -> Result<(), Failure> {
        let word = &self.segment.slots[rank][generation.parity()].state;
        match self.wait_on(word, false, generation.is_decided()) {
            Ok(seen) if Generation::of_word(seen) == generation => Ok(()),
            Ok(_) => Err(self.failure()),
            Err(Stopping::Expired(Expired)) => self.give_up(rank, generation),
            Err(Stopping::Failure(failure)) => Err(failure),
        }
    }

    /// Looks at a word until it is settled, and sleeps if that takes long. `brief`: but not for very long.
    #[inline]
    pub(super) fn wait_on(
        &self,
        word: &P::Word,
        brief: bool,
        settled: impl Fn(u32) -> bool + Copy,
    ) -> Result<u32, Stopping> {
        match self.platform.spin("spin", word, Acquire, false, settled) {
            Ok(seen) => Ok(seen),
            Err(seen) => self.sleep_until(word, brief, seen, settled),
        }
    }

    /// Sleeps on the word until it is settled. `seen` is what the spinning saw last.
    #[cold]
    fn sleep_until(
        &self,
        word: &P::Word,
        brief: bool,
        mut seen: u32,
        settled: impl Fn(u32) -> bool,
    ) -> Result<u32, Stopping> {
        let deadline = self.platform.deadline(brief);
        loop {
            // Two values are unsettled, with and without the bit, so a failed exchange shows either the bit,
            // set by another waiter, or the end of the wait.
            if seen & WAITER == 0 {
                let marked = seen | WAITER;
                match self.platform.compare_exchange("waiter", word, seen, marked, Relaxed, Acquire) {
                    Ok(_) => seen = marked,
                    Err(now) if settled(now) => return Ok(now),
                    Err(now) => seen = now,
                }
            }
            self.platform.fail_point("sleeping").map_err(|stopped| Stopping::Failure(stopped.into()))?;
            let slept = self.platform.wait("sleep", word, seen, &deadline);
            seen = self.platform.load("woken", word, Acquire);
            if settled(seen) {
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
