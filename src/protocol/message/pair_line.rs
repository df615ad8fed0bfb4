//! The line of a pair: one line that both sides of two channels write, for short messages where the sides take turns.
//!
//! ```text
//!   side 0: slot 0, slot 1        side 1: slot 0, slot 1
//! ```
//!
//! A message and its answer go over one line, which each side takes from the other once: over a line for each direction they take up to
//! twice the time (docs/adr/0037).
//!
//! **Protocol.** The messages of a direction that are in the line are numbered from one. Message n is in slot n modulo 2, and its word has
//! n as its turn. Its word says where the next one is: in the line again, or in the ring, as each word of a slot of the ring does. So the
//! receiver polls one word. A sender says that the next one is in the line only if it knows that the receiver has taken all that it has
//! sent before: then that slot is free, for a message or, if it has no room there, for a word that says that the line is closed and the
//! next message is in the ring.
//!
//! **Acknowledgements.** Each word that a side publishes, also of a cell, says how many messages it has taken, modulo more than can be under
//! way. So no side reads a count of the other's, and one that only receives is sent what comes by the ring.
//!
//! **Turns.** The line is used if at each of the last two sends nothing was under way. Streams, and calls with several in flight, use the
//! ring, where a line brings several messages.

use super::super::Ordering::{Acquire, Relaxed, Release};
use super::super::symmetric::{IntegerCell, SymmetricPlatform};
use super::super::{Killed, Payload};
use super::channel::{Count, LINE_SLOTS, Next, Slot, closed_word, is_closed, is_in_line};
use super::{Channel, Envelope, Post};

/// The sender's side.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineOut {
    /// How many messages were published there, and closings.
    sent: u8,
    /// Whether the next message is there.
    pub(super) is_next: bool,
    /// Whether nothing was under way when the last message was sent, and it fitted into a slot.
    was_alone: bool,
    /// How many messages were published, there or in the ring.
    pub(super) published: Count,
    /// The last word of the other side's: how many of these it had taken.
    heard: u64,
    /// How many messages were taken from the other side.
    pub(super) received: Count,
}

/// The receiver's side.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineIn {
    /// How many messages were taken there, and closings.
    taken: u8,
    /// Whether the next message is there.
    pub(super) is_next: bool,
}

impl LineOut {
    /// That of two sides which begin in the line.
    pub(super) fn first() -> Self {
        LineOut { is_next: true, was_alone: true, ..LineOut::default() }
    }

    /// A message with this word was taken from the other side: what is sent from now on says so.
    #[inline(always)]
    pub(super) fn hears(&mut self, word: u64) {
        self.heard = word;
        self.received.increment();
    }

    /// Whether nothing is under way: the other side had taken all when it sent what was received last.
    #[inline(always)]
    pub(super) fn is_alone(&self) -> bool {
        self.published.is_taken(self.heard)
    }

    /// A message in a slot is about to be sent. Whether the one behind it may be in the line: nothing is under way, as nothing was when the
    /// last one was sent.
    #[inline(always)]
    pub(super) fn takes_turns(&mut self) -> bool {
        let is_alone = self.is_alone();
        is_alone & core::mem::replace(&mut self.was_alone, is_alone)
    }

    #[inline(always)]
    fn advance(&mut self) -> (u8, usize) {
        self.sent = self.sent.wrapping_add(1);
        (self.sent, slot_of(self.sent))
    }
}

impl LineIn {
    /// That of two sides which begin in the line.
    pub(super) const FIRST: Self = LineIn { taken: 0, is_next: true };

    /// The turn of the next message there.
    #[inline(always)]
    fn turn(&self) -> u8 {
        self.taken.wrapping_add(1)
    }

    /// The slot of the next message there.
    #[inline(always)]
    pub(super) fn slot(&self) -> usize {
        slot_of(self.turn())
    }

    /// It has taken a message of the line that had this word.
    #[inline(always)]
    pub(super) fn pass(&mut self, word: u64) {
        self.taken = self.turn();
        self.is_next = is_in_line(word);
    }
}

#[inline(always)]
fn slot_of(turn: u8) -> usize {
    usize::from(turn) % LINE_SLOTS
}

/// Says that the next message is not in the line, but in the ring. No method, as the one that
/// [wakes](super::super::symmetric::bell).
#[cold]
fn close<P: SymmetricPlatform>(platform: &P, word: &impl IntegerCell<Value = u64>, turn: u8) {
    // Relaxed: it brings nothing with it.
    platform.store_cell("close-line", word, closed_word(turn), Relaxed);
}

impl<P: SymmetricPlatform> Post<'_, P> {
    /// Publishes a message in the line, and says whether the next one is there, too.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    #[inline(always)]
    pub(super) fn publish_in_line<C: Channel>(
        &self,
        channel: &C,
        line: &mut LineOut,
        message: &Slot,
    ) -> Result<(), Killed> {
        let (turn, slot) = line.advance();
        let stays = line.takes_turns();
        let word = message.word(turn, if stays { Next::Line } else { Next::Cell }) | line.received.taken();
        channel.line_slot(slot).write(|mut sink| sink.put(0, &message.value));
        self.0.platform.fail_point("line-written")?;
        self.0.platform.store_cell("publish-line", channel.line_word(slot), word, Release);
        line.is_next = stays;
        line.published.increment();
        Ok(())
    }

    /// The next message has no slot: it is in the ring.
    #[inline(always)]
    pub(super) fn leave_line<C: Channel>(&self, channel: &C, line: &mut LineOut) {
        line.was_alone = false;
        if line.is_next {
            let (turn, slot) = line.advance();
            line.is_next = false;
            close(self.0.platform, channel.line_word(slot), turn);
        }
    }

    /// Whether something has come in the line, which is next.
    #[inline]
    pub(super) fn has_arrived_in_line<C: Channel>(&self, channel: &C, line: &LineIn) -> bool {
        // Relaxed: it is read again before anything else is.
        let word = self.0.platform.load_cell("has-arrived-line", channel.line_word(line.slot()), Relaxed);
        Envelope::turn(word) == line.turn()
    }

    /// The word of the message that comes next in the line, if it has come. If it is closed, the ring is next.
    #[inline(always)]
    pub(super) fn arrived_in_line<C: Channel>(&self, channel: &C, line: &mut LineIn) -> Option<u64> {
        let word = self.0.platform.load_cell("arrived-line", channel.line_word(line.slot()), Acquire);
        if Envelope::turn(word) != line.turn() {
            return None;
        }
        if is_closed(word) {
            line.pass(word);
            return None;
        }
        Some(word)
    }
}
