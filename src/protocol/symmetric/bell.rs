//! How a rank sleeps until one of its cells has changed: one bell a rank.
//!
//! ```text
//!   31                                2   1        0
//!  +-----------------------------------+--------+--------+
//!  |  count (30 bits, wrapping)        | POISON | WAITER |
//!  +-----------------------------------+--------+--------+
//!
//!   a write to rank t                     a wait of rank t
//!   1. write the cell                     1. set WAITER in the own bell
//!   2. light fence                        2. heavy fence
//!   3. look for WAITER in t's bell        3. look at the cells; sleep on the bell if they have not changed
//!      if it is there: take it away,
//!      count, wake all
//! ```
//!
//! Each side writes, fences, and reads what the other side has written: Dekker's pattern, by which at least one of them sees
//! the other. So either the writer finds the sleeper, or the sleeper finds the new value. The fences are asymmetric: a write
//! happens often and its fence costs nothing, a sleep is expensive anyway (Dice, Huang and Yang 2001; membarrier(2)).
//!
//! A rank never sleeps on the cells themselves, so their size, and how many there are, does not matter. Who rings takes
//! `WAITER` away, so there is at most one wake-up for each sleep, however many write. The count makes the bell a new value,
//! so that a rank which is about to sleep does not; it would have to come round to the same one, 2³⁰ wake-ups later, within
//! that moment.
//!
//! The bell is one of the words that poison reaches. **The value wins over poison**: a wait whose cells are as they should
//! be succeeds even if a rank has died or left.

use super::super::generation::{POISON, WAITER};
use super::super::{Failure, Killed, Ordering};
use super::{Cell, OneSided, SymmetricPlatform};
use Ordering::{Acquire, Relaxed};

/// One wake-up in the count.
const COUNT: u32 = 4;

impl<P: SymmetricPlatform> OneSided<'_, P> {
    /// Wakes the threads of `target` that sleep, after a write into its memory. To be called directly only for writes of
    /// which this core knows nothing.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    ///
    /// # Panics
    /// When there is no such rank.
    #[inline(always)]
    pub fn ring(&self, target: usize) -> Result<(), Killed> {
        self.platform.fail_point("written-unrung")?;
        self.platform.fence_light("ring-fence");
        let bell = &self.segment.bells[target].word;
        let seen = self.platform.load("ring", bell, Relaxed);
        if seen & WAITER == 0 { Ok(()) } else { wake(self.platform, bell, seen) }
    }

    /// Reads a cell that this rank waits for.
    #[inline]
    pub fn test<C: Cell>(&self, cell: &C) -> C::Value {
        self.platform.load_cell("test", cell, Acquire)
    }

    /// Waits until `poll` has a result, which it finds by [`test`](Self::test) in this rank's cells. `None`: the deadline has
    /// passed.
    ///
    /// # Errors
    /// When the communicator has ended, and there is no result.
    #[inline]
    pub fn wait<R>(
        &self,
        deadline: &P::Deadline,
        mut poll: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>, Failure> {
        match self.platform.poll("poll", &mut poll) {
            Some(found) => Ok(Some(found)),
            None => self.sleep(deadline, poll),
        }
    }

    /// Whether the communicator goes on, as far as this rank can know.
    ///
    /// # Errors
    /// When it has ended.
    #[inline]
    pub fn check(&self) -> Result<(), Failure> {
        // Relaxed: reporting the failure acquires what comes with poison.
        let seen = self.platform.load("bell-ended", &self.segment.bells[self.rank].word, Relaxed);
        if seen & POISON == 0 { Ok(()) } else { Err(self.failure()) }
    }

    #[cold]
    fn sleep<R>(
        &self,
        deadline: &P::Deadline,
        mut poll: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>, Failure> {
        let bell = &self.segment.bells[self.rank].word;
        loop {
            // Relaxed: the fence acquires what comes with poison.
            let seen = self.platform.fetch_or("wait-mark", bell, WAITER, Relaxed) | WAITER;
            self.platform.fence_heavy("wait-fence");
            if let Some(found) = poll() {
                return Ok(Some(found));
            }
            if seen & POISON != 0 {
                return Err(self.failure());
            }
            if self.platform.has_passed(deadline) {
                return Ok(None);
            }
            self.platform.fail_point("wait-marked")?;
            // An expired nap is no reason to end: the cells are looked at once more before the deadline counts.
            let _ = self.platform.wait("wait-sleep", bell, seen, &self.platform.nap(deadline));
            self.end_if_interrupted()?;
            // What it was woken for is found without another fence, which costs as much as the wake-up.
            if let Some(found) = poll() {
                return Ok(Some(found));
            }
        }
    }
}

// No method: what a rank has at hand in registers while it writes would have to be in memory for this.
#[cold]
fn wake<P: SymmetricPlatform>(platform: &P, bell: &P::Word, mut seen: u32) -> Result<(), Killed> {
    while seen & WAITER != 0 {
        let rung = (seen & !WAITER).wrapping_add(COUNT);
        match platform.compare_exchange("ring-take", bell, seen, rung, Relaxed, Relaxed) {
            Ok(_) => {
                platform.fail_point("taken-unwoken")?;
                platform.wake_all("ring-wake", bell);
                return Ok(());
            }
            // Another rank has rung, or poisoned.
            Err(now) => seen = now,
        }
    }
    Ok(())
}
