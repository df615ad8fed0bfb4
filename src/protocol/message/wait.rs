//! How a rank waits for messages, and what ends its wait.
//!
//! It sleeps on its [bell](super::super::symmetric::bell), like a rank that waits for a cell, and the pattern is the same: mark
//! the bell, fence, look, sleep. Another thing ends it:
//!
//! * **What is published is found first.** A rank that has left or died may have sent before.
//! * **A rank that leaves does not end the others' messages.** In collectives every rank waits for every other; here two ranks
//!   may go on when a third has no more to say. So poison whose cause is that a rank has left does not end a wait. A rank that
//!   sends no more *closes* its side, and who waits for it looks at that.
//! * Any other cause ends all waits.
//! * **Who does not want to wait any longer** ends with its own cause where a rank has left before: the communicator keeps the first.

use super::super::generation::{POISON, WAITER};
use super::super::symmetric::SymmetricPlatform;
use super::super::symmetric::{AtomicCell, Cell};
use super::super::{Cause, CauseKind, Failure, Killed, Ordering, membership};
use super::Post;
use Ordering::{Acquire, Relaxed, Release};

impl<P: SymmetricPlatform> Post<'_, P> {
    /// Waits until `poll` has a result, which it finds in this rank's channels. `None`: the deadline has passed.
    ///
    /// # Errors
    /// When the communicator has ended, but for a rank that has left, and there is no result.
    #[inline]
    pub fn wait<R>(
        &self,
        deadline: &P::Deadline,
        mut poll: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>, Failure> {
        match self.0.platform.poll("message-poll", &mut poll) {
            Some(found) => Ok(Some(found)),
            None => self.sleep(deadline, poll),
        }
    }

    #[cold]
    fn sleep<R>(
        &self,
        deadline: &P::Deadline,
        mut poll: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>, Failure> {
        let mut interrupted = false;
        loop {
            let seen = self.mark();
            if let Some(found) = poll() {
                return Ok(Some(found));
            }
            if seen & POISON != 0 {
                self.go_on()?;
            }
            if interrupted {
                return Err(Failure::Dead(Some(self.0.interrupted())));
            }
            if self.0.platform.has_passed(deadline) {
                return Ok(None);
            }
            self.0.platform.fail_point("message-marked")?;
            // An expired nap is no reason to end: the channels are looked at once more before the deadline counts.
            self.doze(seen, &self.0.platform.nap(deadline));
            interrupted = self.0.end_if_interrupted()?;
            // What it was woken for is found without another fence, which costs as much as the wake-up.
            if let Some(found) = poll() {
                return Ok(Some(found));
            }
        }
    }

    /// Marks this rank's bell as that of a rank that is about to sleep. Returns what it is now. Whatever is published and not
    /// seen by looking afterwards changes it.
    pub fn mark(&self) -> u32 {
        let bell = &self.0.segment.bells[self.0.rank].word;
        // Relaxed: the fence behind it acquires what was published before poison.
        let seen = self.0.platform.fetch_or("message-mark", bell, WAITER, Relaxed) | WAITER;
        self.0.platform.fence_heavy("message-fence");
        seen
    }

    /// Sleeps until this rank's bell changes that was [marked](Self::mark), on any thread of the rank, at most for as long as
    /// a rank waits. Returns whether it has changed.
    pub fn is_rung(&self, seen: u32) -> bool {
        self.doze(seen, &self.0.platform.deadline());
        self.bell() != seen
    }

    /// The same for a nap.
    pub fn is_rung_soon(&self, seen: u32) -> bool {
        let nap = self.0.platform.nap(&self.0.platform.deadline());
        while self.bell() == seen && !self.0.platform.has_passed(&nap) {
            self.doze(seen, &nap);
        }
        self.bell() != seen
    }

    fn doze(&self, seen: u32, deadline: &P::Deadline) {
        let bell = &self.0.segment.bells[self.0.rank].word;
        let _ = self.0.platform.wait("message-sleep", bell, seen, deadline);
    }

    /// This rank's bell.
    #[inline]
    fn bell(&self) -> u32 {
        // Relaxed: a rank that has seen poison acquires the cause by poisoning too, and a ring publishes nothing.
        self.0.platform.load("message-ended", &self.0.segment.bells[self.0.rank].word, Relaxed)
    }

    /// Whether this rank's bell is poisoned: then [`check`](Self::check) may fail.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.bell() & POISON != 0
    }

    /// Whether messages go on, as far as this rank can know.
    ///
    /// # Errors
    /// When the communicator has ended, but for a rank that has left.
    #[inline]
    pub fn check(&self) -> Result<(), Failure> {
        if self.is_poisoned() { self.go_on() } else { Ok(()) }
    }

    /// The same for who has seen that a rank has [closed](Self::is_closed) its side: it may have done so because the communicator has
    /// ended, which this rank has not seen yet.
    ///
    /// # Errors
    /// When the communicator has ended, but for a rank that has left.
    #[cold]
    pub fn check_closed(&self) -> Result<(), Failure> {
        // Relaxed: a rank that closes its side because of it has acquired the cause before.
        match self.0.platform.load64("closed-cause", self.0.segment.cause, Relaxed) {
            0 => Ok(()),
            _ => self.go_on(),
        }
    }

    #[cold]
    fn go_on(&self) -> Result<(), Failure> {
        match membership::failure(self.0.platform, self.0.segment) {
            Failure::Dead(Some(Cause { kind: CauseKind::Left, .. })) => Ok(()),
            failure => Err(failure),
        }
    }

    /// This rank publishes nothing more. Its peers are to be rung afterwards: [`ring`](Self::ring).
    #[inline]
    pub fn close<C: AtomicCell<Value = u64>>(&self, closed: &C) -> Result<(), Killed> {
        // Release: what it has published comes before.
        self.0.platform.store_cell("close", closed, 1, Release);
        self.0.platform.fail_point("closed-unrung")
    }

    /// Whether a rank publishes nothing more: what it has published can be seen afterwards.
    #[inline]
    pub fn is_closed<C: Cell<Value = u64>>(&self, closed: &C) -> bool {
        // Acquire: what it has published comes before.
        self.0.platform.load_cell("closed", closed, Acquire) != 0
    }
}
