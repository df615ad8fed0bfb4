//! A lock with a queue: ranks get it in the order in which they asked for it.
//!
//! The MCS lock (Mellor-Crummey and Scott 1991). Each rank has a node, in its own memory, and waits for a change of that
//! alone. The tail names the rank that asked last.
//!
//! ```text
//!   tail ──────────────────────────┐
//!                                  ▼
//!   rank 2 ──next──▶ rank 0 ──next──▶ rank 3
//!   holds it         waits for its    waits
//!                    `granted`
//! ```
//!
//! A rank that asks swaps itself into the tail, and links itself behind the rank that it found there. Between the two steps
//! the queue has a gap, in which the predecessor waits for the link before it hands the lock on. A rank cannot leave the
//! queue; so a time-out ends the communicator, with the rank that was waited for.

use super::super::{Cause, CauseKind, Failure, Ordering};
use super::{AtomicCell, OneSided, SymmetricPlatform};
use Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Nobody, in a tail and in a link. A rank is its number plus one.
const NOBODY: u32 = 0;

/// A rank's place in the queue.
pub struct Node<'l, C> {
    /// Who is behind this rank.
    pub next: &'l C,
    /// Not 0: this rank has been handed the lock.
    pub granted: &'l C,
}

/// The cells of a lock.
pub trait Queue<C> {
    /// Who asked last.
    fn tail(&self) -> &C;

    /// Who holds it: a hint for the report of a time-out.
    fn holder(&self) -> &C;

    /// A rank's node; `None` where there is no such rank.
    fn node(&self, rank: usize) -> Option<Node<'_, C>>;
}

impl<P: SymmetricPlatform> OneSided<'_, P> {
    /// Takes the lock, after all ranks that asked for it before.
    ///
    /// # Errors
    /// When the communicator has ended, also by this rank's time-out.
    pub fn lock<C: AtomicCell<Value = u32>>(
        &self,
        queue: &impl Queue<C>,
        deadline: &P::Deadline,
    ) -> Result<(), Failure> {
        let node = self.reset(queue)?;
        // Release: the node is reset before the next rank finds it. Acquire: the last holder's writes, where that has left.
        let before = self.platform.swap_cell("lock-queue", queue.tail(), number(self.rank), AcqRel);
        self.platform.fail_point("queued-unlinked")?;
        if before != NOBODY {
            let ahead = self.node(queue, before)?;
            self.platform.store_cell("lock-link", ahead.next, number(self.rank), Release);
            self.ring(rank(before))?;
            let granted =
                || (self.platform.load_cell("lock-granted", node.granted, Acquire) != 0).then_some(());
            if self.wait(deadline, granted)?.is_none() {
                let holder = self.platform.load_cell("lock-holder", queue.holder(), Relaxed);
                // A holder that has just got the lock may not have said so yet: this rank may find itself there.
                let known = holder != NOBODY && holder != number(self.rank);
                return self.give_up(if known { holder } else { before });
            }
        } else {
            self.platform.store_cell("lock-hold", queue.holder(), number(self.rank), Relaxed);
        }
        self.platform.fail_point("locked")?;
        Ok(())
    }

    /// Takes the lock if nobody has it. Returns whether that was so.
    ///
    /// # Errors
    /// When a test stops this rank, or the lock's memory was overwritten.
    pub fn try_lock<C: AtomicCell<Value = u32>>(&self, queue: &impl Queue<C>) -> Result<bool, Failure> {
        self.reset(queue)?;
        let me = number(self.rank);
        let taken = self.platform.exchange_cell("lock-try", queue.tail(), NOBODY, me, AcqRel, Relaxed).is_ok();
        if taken {
            self.platform.store_cell("lock-hold-tried", queue.holder(), me, Relaxed);
        }
        Ok(taken)
    }

    /// Hands the lock to the next rank, if one has asked for it.
    ///
    /// # Errors
    /// When the communicator has ended, also by this rank's time-out: a rank has asked, and does not link itself.
    pub fn unlock<C: AtomicCell<Value = u32>>(
        &self,
        queue: &impl Queue<C>,
        deadline: &P::Deadline,
    ) -> Result<(), Failure> {
        let node = self.node(queue, number(self.rank))?;
        let mut next = self.next(&node);
        if next.is_none() {
            let me = number(self.rank);
            // Release: whoever takes the lock next sees this rank's writes.
            let left = self.platform.exchange_cell("lock-leave", queue.tail(), me, NOBODY, Release, Relaxed);
            let Err(last) = left else { return Ok(()) };
            self.platform.fail_point("unlock-unlinked")?;
            next = self.wait(deadline, || self.next(&node))?;
            if next.is_none() {
                return self.give_up(last);
            }
        }
        let next = next.unwrap_or(NOBODY);
        let behind = self.node(queue, next)?;
        // Here, and not when the next rank has noticed: it may be frozen, and then it is the one that the others wait for.
        self.platform.store_cell("lock-hold-next", queue.holder(), next, Relaxed);
        self.platform.store_cell("lock-grant", behind.granted, 1, Release);
        self.ring(rank(next))?;
        Ok(())
    }

    /// The rank that has linked itself behind this one. Acquire: its node was reset before.
    fn next<C: AtomicCell<Value = u32>>(&self, node: &Node<'_, C>) -> Option<u32> {
        let next = self.platform.load_cell("lock-next", node.next, Acquire);
        (next != NOBODY).then_some(next)
    }

    /// This rank's node, as at the end of the queue.
    fn reset<'q, C: AtomicCell<Value = u32>>(&self, queue: &'q impl Queue<C>) -> Result<Node<'q, C>, Failure> {
        let node = self.node(queue, number(self.rank))?;
        self.platform.store_cell("lock-unlink", node.next, NOBODY, Relaxed);
        self.platform.store_cell("lock-ungrant", node.granted, 0, Relaxed);
        Ok(node)
    }

    /// The node of the rank with this number. No such rank: the memory was overwritten.
    fn node<'q, C>(&self, queue: &'q impl Queue<C>, number: u32) -> Result<Node<'q, C>, Failure> {
        queue.node(rank(number)).ok_or(Failure::Dead(None))
    }

    #[cold]
    fn give_up(&self, late: u32) -> Result<(), Failure> {
        self.poison(Cause { kind: CauseKind::LockTimedOut, rank: rank(late), detail: 0 })?;
        Err(self.failure())
    }
}

/// A rank in a tail or a link.
fn number(rank: usize) -> u32 {
    rank as u32 + 1
}

fn rank(number: u32) -> usize {
    number.wrapping_sub(1) as usize
}
