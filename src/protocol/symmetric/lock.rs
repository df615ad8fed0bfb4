//! A lock with a queue: ranks get it in the order in which they asked for it.
//!
//! The MCS lock (Mellor-Crummey and Scott 1991). Each rank has a node, in its own memory, and waits for a change of that
//! alone. The tail names the rank that asked last.
//!
//! ```text
//!   tail ──────────────────────────┐
//!                                  ▼
//!   rank 2 ──next──▶ rank 0 ──next──▶ rank 3
//!   holds it ◀─turn─ waits   ◀─turn─ waits
//! ```
//!
//! A rank that asks swaps itself into the tail, and links itself behind the rank that it found there. Between the two steps
//! the queue has a gap, in which the predecessor waits for the link before it hands the lock on. A rank cannot leave the
//! queue; so a time-out ends the communicator, with the rank that was waited for.
//!
//! Nobody notes who holds the lock. A rank that waits notes behind whom, in the cell in which it is handed the lock later.
//! So a rank that has noted nothing has taken a free lock, or has not linked itself yet: in either case it is the one that
//! the ranks behind it wait for. Who is late follows these notes from the end of the queue towards its head.

use super::super::{Cause, CauseKind, Failure, Ordering};
use super::{AtomicCell, OneSided, SymmetricPlatform};
use Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Nobody, in a tail and in a link. A rank is its number plus one.
const NOBODY: u32 = 0;

/// In a turn: this rank has been handed the lock. No rank has this number.
const GRANTED: u32 = u32::MAX;

/// A rank's place in the queue.
pub struct Node<'l, C> {
    /// Who is behind this rank.
    pub next: &'l C,
    /// Nobody at first; then the rank that this one waits for, if there is one; then `GRANTED`, if it has waited.
    pub turn: &'l C,
}

/// The cells of a lock.
pub trait Queue<C> {
    /// Who asked last.
    fn tail(&self) -> &C;

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
            // Before the link, behind which the grant comes.
            self.platform.store_cell("lock-behind", node.turn, before, Relaxed);
            self.platform.store_cell("lock-link", ahead.next, number(self.rank), Release);
            self.ring(rank(before))?;
            let granted =
                || (self.platform.load_cell("lock-granted", node.turn, Acquire) == GRANTED).then_some(());
            if self.wait(deadline, granted)?.is_none() {
                return self.give_up(queue, before);
            }
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
        Ok(self.platform.exchange_cell("lock-try", queue.tail(), NOBODY, me, AcqRel, Relaxed).is_ok())
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
            // Release: the rank that takes the lock next sees this rank's writes.
            let left = self.platform.exchange_cell("lock-leave", queue.tail(), me, NOBODY, Release, Relaxed);
            let Err(last) = left else { return Ok(()) };
            self.platform.fail_point("unlock-unlinked")?;
            next = self.wait(deadline, || self.next(&node))?;
            if next.is_none() {
                return self.give_up(queue, last);
            }
        }
        let next = next.unwrap_or(NOBODY);
        let behind = self.node(queue, next)?;
        self.platform.store_cell("lock-grant", behind.turn, GRANTED, Release);
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
        self.platform.store_cell("lock-ungrant", node.turn, NOBODY, Relaxed);
        Ok(node)
    }

    /// The node of the rank with this number. No such rank: the memory was overwritten.
    fn node<'q, C>(&self, queue: &'q impl Queue<C>, number: u32) -> Result<Node<'q, C>, Failure> {
        queue.node(rank(number)).ok_or(Failure::Dead(None))
    }

    /// Ends the communicator: the rank at this place of the queue has waited for too long, or does not link itself.
    #[cold]
    fn give_up<C: AtomicCell<Value = u32>>(&self, queue: &impl Queue<C>, from: u32) -> Result<(), Failure> {
        let late = self.late(queue, from)?;
        self.poison(Cause { kind: CauseKind::LockTimedOut, rank: rank(late), detail: 0 })?;
        Err(self.failure())
    }

    /// Who keeps the queue from moving: the rank that has the lock, or one that has not linked itself. It is sought from this
    /// rank's place on. A hint where the queue moves after all.
    fn late<C: AtomicCell<Value = u32>>(&self, queue: &impl Queue<C>, from: u32) -> Result<u32, Failure> {
        let turn = |number| {
            Ok::<_, Failure>(self.platform.load_cell("lock-turn", self.node(queue, number)?.turn, Relaxed))
        };
        let (mut found, mut behind) = (from, None);
        // A queue that moves might be followed round and round.
        for _ in 0..self.segment.bells.len() {
            let ahead = turn(found)?;
            // Handed on meanwhile, so the rank that was ahead may stand at another place by now.
            if let Some(behind) = behind
                && turn(behind)? == GRANTED
            {
                return Ok(behind);
            }
            if [NOBODY, GRANTED, number(self.rank)].contains(&ahead) {
                break;
            }
            (found, behind) = (ahead, Some(found));
        }
        Ok(found)
    }
}

/// A rank in a tail or a link.
fn number(rank: usize) -> u32 {
    rank as u32 + 1
}

fn rank(number: u32) -> usize {
    number.wrapping_sub(1) as usize
}
