//! When a rank may use plain references to symmetric memory.
//!
//! While an object is open, any rank accesses any instance, by atomics only. The other phases are those of a region's epochs
//! (see [`region`](crate::protocol::region)), and a round lies between any two:
//!
//! ```text
//!              open                   own                    open                  read
//! rank 0    puts, gets, … ─┐   ┌── writes its own ──┐   ┌── puts, gets, … ─┐   ┌── reads all
//! rank 1    puts, gets, … ─┼───┼── writes its own ──┼───┼── puts, gets, … ─┼───┼── reads all
//! rank 2    puts, gets, … ─┘   └── writes its own ──┘   └── puts, gets, … ─┘   └── reads all
//!                       into_own                  open                 into_read
//! ```
//!
//! **Own.** A rank arrives when it has made its last access as one of many, to any instance. After the round no rank touches an
//! instance but its owner, and all that was put is visible to it.
//!
//! **Read.** A rank arrives in the same way. After the round no rank writes, and all that was put is visible to all.
//!
//! **Open.** A rank arrives when it has no reference any more. After the round nobody has one, so any rank may write again.
//!
//! Memory that is given out anew is in the phase `own` first, in which each rank clears its instance. The round before that
//! is the one in which the ranks compare their requests: a block is given out only if all ranks have dropped what was in it,
//! and each of them dropped it before it arrived.
//!
//! What a round has shown is a value that can be had in no other way, and that the memory asks for: see
//! `segment::symmetric_memory`.

use crate::protocol::block_transfer::BlockTransfer;
use crate::protocol::{Barrier, Call, Failure, Member, Platform};

/// No rank has a reference: every rank has said so.
#[derive(Debug)]
pub struct AllOpen(());

/// No rank uses an instance but its own: every rank has said so, after its last access to another's.
#[derive(Debug)]
pub struct AllOwn(());

/// No rank writes: every rank has said so, after its last store.
#[derive(Debug)]
pub struct AllRead(());

impl<P: Platform> Member<'_, P> {
    /// Ends the open phase: each rank owns its instance.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    pub fn into_own(&mut self, barrier: &Barrier, call: &Call) -> Result<AllOwn, Failure> {
        barrier.enter(self, call)?;
        Ok(AllOwn(()))
    }

    /// The same for memory that is given out anew, with a transfer of what the ranks have to know for that: which objects
    /// each has dropped.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    pub fn own_with(&mut self, call: &Call, blocks: &mut impl BlockTransfer) -> Result<AllOwn, Failure> {
        self.transfer(call, blocks)?;
        Ok(AllOwn(()))
    }

    /// Ends the open phase: every rank reads all instances.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    pub fn into_read(&mut self, barrier: &Barrier, call: &Call) -> Result<AllRead, Failure> {
        barrier.enter(self, call)?;
        Ok(AllRead(()))
    }

    /// Begins the open phase.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    pub fn open(&mut self, barrier: &Barrier, call: &Call) -> Result<AllOpen, Failure> {
        barrier.enter(self, call)?;
        Ok(AllOpen(()))
    }
}
