//! Data that go with what describes them: the eager protocol, as message passing has it for short messages.
//!
//! The first round of a call whose ranks do not know yet how long each other's blocks are brings a header from each rank. What is short
//! need not wait for a second one: a rank also stages its data, or writes them behind its header.
//!
//! ```text
//! turn     t                              t + 1
//! header   length, where the data are
//! staging  write                          read, or write again       every rank, its buffer of that turn
//!          ─round─ read headers, decide
//! ```
//!
//! After the round all ranks have the headers of all, so all decide the same. If every rank's data have come, and some have staged any, these
//! are read, and the round was a [*turn*](super::Turn). If not, because the data of some come later, or what the headers say does not agree,
//! nobody reads what others have staged: it was no turn, and a rank may fill that buffer again for the next round.

use super::prefetch::Then;
use super::staging::Senders;
use super::{Call, Failure, Member, Payload, Platform};
use crate::copy::{Sink, Source};

/// The caller's side of a round that brings data with what describes them.
pub trait EagerBlocks {
    /// How many bytes a rank stages: no more than [`short`](super::Staging::short). Asked for this rank before the round, and for all
    /// others after it, if what was staged is read.
    fn staged(&self, rank: usize) -> usize;
    /// Writes those of this rank.
    fn put(&mut self, staging: Sink<'_>);
    /// Writes this rank's header.
    fn describe(&mut self, header: Sink<'_>);
    /// Reads that of another rank.
    fn read(&mut self, rank: usize, header: Source<'_>);
    /// Whether data in staging are read, once all headers were: the same on every rank.
    fn decide(&mut self) -> bool;
    /// Reads what another rank has staged, which is more than nothing.
    fn get(&mut self, rank: usize, staging: Source<'_>);
}

impl<P: Platform> Member<'_, P> {
    /// One round.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    pub fn exchange_eagerly(&mut self, call: &Call, blocks: &mut impl EagerBlocks) -> Result<(), Failure> {
        let (turn, staging, ranks) = (self.turn(), self.staging, self.size());
        // A rank does not know yet how much the others send.
        let senders = Senders::Several;
        let offset = |staged| staging.offset(staged, senders, ranks, turn);
        let own = blocks.staged(self.rank);
        if own > 0 {
            self.buffer(self.rank, turn.buffers()).write(|staging| blocks.put(staging.after(offset(own))));
        }
        let parity = self.begin_call(call, |header| blocks.describe(header))?;
        for rank in self.others() {
            self.inline(rank, parity, |header| blocks.read(rank, header));
        }
        if !blocks.decide() {
            self.prefetch_next_slot();
            return Ok(());
        }
        self.end(turn);
        self.prefetch_next_round((own, senders), Then::of(own > 0, true));
        for rank in self.others() {
            let theirs = blocks.staged(rank);
            if theirs > 0 {
                self.buffer(rank, turn.buffers())
                    .read(|staging| blocks.get(rank, staging.after(offset(theirs))));
            }
        }
        Ok(())
    }
}
