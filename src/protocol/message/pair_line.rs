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
//! A word may be much older than what is under way: it lies in the ring while the side that it is for sends on, and the other one takes all
//! of that. So a side counts what it has published since the word that it has received last. Once that is as much as the modulus, words do
//! not tell how much was taken, and it does not use the line until no word is left that was sent before. Those that come later were sent
//! behind the last cell that it knows was taken: what they do not say is taken is at most what a channel holds.
//!
//! **Turns.** The line is used if at each of the last two sends nothing was under way. Streams, and calls with several in flight, use the
//! ring, where a line brings several messages.

use super::super::Ordering::{Acquire, Relaxed, Release};
use super::super::symmetric::{IntegerCell, SymmetricPlatform};
use super::super::{Killed, Payload};
use super::channel::{Count, LINE_SLOTS, Next, Slot, closed_word, is_closed, is_in_line, taken_since};
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
    published: u64,
    /// How many of these the other side has said to have taken, at least.
    told: u64,
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

    /// A message was published, there or in the ring.
    #[inline(always)]
    pub(super) fn publishes(&mut self) {
        self.published = self.published.wrapping_add(1);
    }

    /// A message with this word was taken from the other side: what is sent from now on says so. `modulus`: that of counts. False: the word
    /// may mean any of several, and is not looked at.
    #[inline(always)]
    pub(super) fn hears(&mut self, word: u64, modulus: u64) -> bool {
        self.received.increment();
        let is_clear = self.published.wrapping_sub(self.told) < modulus;
        if is_clear {
            self.told = self.told.wrapping_add(taken_since(self.told, word, modulus));
        }
        is_clear
    }

    /// No word is left that was sent before the other side had taken all but as many messages as these.
    pub(super) fn catches_up(&mut self, most_under_way: usize) {
        self.told = self.published.wrapping_sub(most_under_way as u64);
    }

    /// Whether nothing is under way: the other side had taken all when it sent what was received last.
    #[inline(always)]
    pub(super) fn is_alone(&self) -> bool {
        self.published == self.told
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
        line.publishes();
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const MODULUS: u64 = 16;
    const MOST_UNDER_WAY: usize = 10;

    /// One of two sides.
    #[derive(Default)]
    struct Side {
        line: LineOut,
        published: u64,
        taken: u64,
        /// How many of those that it has published the other side had taken, says the word that it has received last.
        told: u64,
        /// The words that come to it, and what they mean.
        incoming: VecDeque<(u64, u64)>,
    }

    /// Side `one` sends a message if there is room.
    fn send(sides: &mut [Side; 2], one: usize) {
        if sides[1 - one].incoming.len() < MOST_UNDER_WAY {
            let Side { line, published, taken, .. } = &mut sides[one];
            line.publishes();
            *published += 1;
            let word = (line.received.taken(), *taken);
            sides[1 - one].incoming.push_back(word);
        }
    }

    /// It takes one, if one has come.
    fn take(side: &mut Side) {
        let Some((word, told)) = side.incoming.pop_front() else { return };
        (side.taken, side.told) = (side.taken + 1, told);
        if !side.line.hears(word, MODULUS) && side.incoming.is_empty() {
            side.line.catches_up(MOST_UNDER_WAY);
        }
    }

    proptest! {
        #[test]
        fn a_side_is_alone_only_if_all_was_taken(
            steps in prop::collection::vec((0..2usize, any::<bool>(), 1..10), 1..300),
        ) {
            let mut sides = <[Side; 2]>::default();
            for (one, sends, times) in steps {
                for _ in 0..times {
                    if sends { send(&mut sides, one) } else { take(&mut sides[one]) }
                    let Side { line, published, told, .. } = &sides[one];
                    prop_assert!(!line.is_alone() || told == published, "{told} of {published} were taken");
                }
            }
        }
    }

    #[test]
    fn sides_that_take_turns_are_alone_again_behind_any_number_of_messages() {
        let mut sides = <[Side; 2]>::default();
        for one_way in [0, MODULUS - 1, MODULUS, 2 * MODULUS, 100] {
            for _ in 0..one_way {
                send(&mut sides, 0);
                take(&mut sides[1]);
            }
            for _ in 0..2 {
                send(&mut sides, 1);
                take(&mut sides[0]);
            }
            assert!(sides[0].line.is_alone(), "behind {one_way}");
        }
    }
}
