//! The ring of a channel: one sender, one receiver, FIFO.
//!
//! ```text
//!   sender                                        receiver
//!   1. sent - taken < cells?  (Acquire `taken`)   1. word of the cell has this turn?  (Acquire)
//!   2. write the cell                             2. copy the cell
//!   3. store its word with the turn  (Release)    3. taken += 1  (Release)
//!   4. ring the receiver's bell                   4. ring the sender's bell
//! ```
//!
//! The turn is the lap, so a cell's word says by itself whether it is new: the receiver reads no index of the sender's, and a
//! message of 40 bytes costs one line. Each side counts for itself what it has done; of the other's count only the sender
//! reads anything, and only when the ring seems full (Lamport 1977; the turns are those of Vyukov's bounded queue).
//!
//! The receiver takes a cell at once, also if nobody asks for its message yet: a message that nobody receives does not stand
//! in the way of the others.
//!
//! **Slots.** A short message is in a slot, and up to four share a cell: a line brings several if they follow one another closely, and
//! is written again sooner, by a sender that has it in its cache, if they do not. The word of a slot says whether the next message is
//! in the next slot, whose word the sender has made blank before, or in the next cell. If it said the former, and what comes next has no
//! room in a slot, the next slot is published as closed. A cell is taken, for its sender, with the last of its messages; one that is closed counts as taken with the next.
//! Or it says that the next message is in the [line of the pair](super::pair_line).

use super::super::symmetric::{IntegerCell, SymmetricPlatform};
use super::super::{Failure, Killed, Ordering, Payload};
use super::channel::{
    Next, SLOTS, Slot, blank_word, closed_word, is_closed, is_in_line, is_open, most_under_way,
};
use super::pair_line::{LineIn, LineOut};
use super::{Channel, Envelope, InCell, Post};
use crate::tuning::MESSAGE_PREFETCH_CELLS;
use Ordering::{Acquire, Relaxed, Release};

/// A slot of the ring: those of all cells that have gone through it are numbered one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position(u64);

impl Position {
    const SLOTS: u64 = SLOTS as u64;

    /// How many cells are before it.
    #[inline(always)]
    fn cells(self) -> u64 {
        self.0 / Self::SLOTS
    }

    /// Whether its cell begins with it.
    #[inline(always)]
    fn is_first(self) -> bool {
        self.0.is_multiple_of(Self::SLOTS)
    }

    /// The number of the slot in a ring with this number of cells.
    #[inline(always)]
    fn slot(self, cells: usize) -> usize {
        self.0 as usize % (cells * SLOTS)
    }

    /// The number of its cell.
    #[inline(always)]
    fn cell(self, cells: usize) -> usize {
        self.cells() as usize % cells
    }

    /// How often all cells have been used before its own.
    #[inline(always)]
    fn lap(self, cells: usize) -> u64 {
        self.cells() / cells as u64
    }

    /// The turn of its cell. Never that of one which was not written yet.
    #[inline(always)]
    fn turn(self, cells: usize) -> u8 {
        (self.lap(cells) + 1) as u8
    }

    /// The word that publishes it.
    #[inline(always)]
    fn word<C: Channel>(self, channel: &C) -> &C::Word {
        channel.word(self.slot(channel.cells()))
    }

    /// The word that was read there, if it publishes something at this turn.
    #[inline(always)]
    fn published(self, cells: usize, word: u64) -> Option<u64> {
        (Envelope::turn(word) == self.turn(cells)).then_some(word)
    }

    /// The next slot of the cell, if it has one and that is `open`; otherwise the first of the next cell.
    #[inline(always)]
    fn next(self, open: bool) -> Self {
        let next = Position(self.0.wrapping_add(1));
        if open { next } else { next.next_cell() }
    }

    /// The first slot of the next cell, or this one if it is a first.
    #[inline(always)]
    fn next_cell(self) -> Self {
        Position(self.0.wrapping_add(Self::SLOTS - 1) / Self::SLOTS * Self::SLOTS)
    }
}

/// The sender's side of a channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outbox {
    /// Behind what was published. In the middle of a cell: a slot is open.
    next: Position,
    /// How many cells were taken when the sender last looked.
    taken: u64,
    line: LineOut,
    has_heard: bool,
}

impl Outbox {
    /// That of a channel whose first message is in the line of the pair; [`Inbox::in_line`] is its receiver's.
    pub fn in_line() -> Self {
        Outbox { line: LineOut::first(), ..Outbox::default() }
    }

    /// Whether a message was taken since this was asked.
    #[inline(always)]
    pub fn has_heard(&mut self) -> bool {
        core::mem::take(&mut self.has_heard)
    }

    /// Whether something that was sent was not taken yet when the other side sent what was received last.
    #[inline(always)]
    pub fn awaits_answer(&self) -> bool {
        !self.line.is_alone()
    }
}

/// The receiver's side of a channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inbox {
    /// Behind what was taken.
    next: Position,
    line: LineIn,
    /// Whether the receiver has waited for what comes next.
    has_waited: bool,
}

impl Inbox {
    /// That of a channel whose first message is in the line of the pair.
    pub fn in_line() -> Self {
        Inbox { line: LineIn::FIRST, ..Inbox::default() }
    }

    /// The receiver waits for what comes next, so that its sender is not ahead.
    #[inline(always)]
    pub fn waits(&mut self) {
        self.has_waited = true;
    }

    /// The cell that is prefetched for read when what comes next is taken: the one behind it, of a sender that is ahead, once. Otherwise its sender would
    /// need an RFO.
    #[inline(always)]
    fn prefetches(&mut self, cells: usize) -> Option<usize> {
        let has_waited = core::mem::take(&mut self.has_waited);
        (self.next.is_first() && !has_waited).then(|| self.next.next(false).cell(cells))
    }

    /// Whether the next message is in the line of the pair.
    #[inline(always)]
    pub fn is_in_line(&self) -> bool {
        self.line.is_next
    }
}

impl<P: SymmetricPlatform> Post<'_, P> {
    /// Whether the ring has room for a cell.
    #[inline]
    pub fn has_room<C: Channel>(&self, channel: &C, outbox: &mut Outbox) -> bool {
        self.has_room_for(channel, outbox, 1)
    }

    /// The same for `count` cells.
    #[inline]
    pub fn has_room_for<C: Channel>(&self, channel: &C, outbox: &mut Outbox, count: usize) -> bool {
        let (cells, count) = (channel.cells() as u64, count as u64);
        // Saturating: a receiver's count may be wrong by its own mistake.
        let used = outbox.next.next_cell().cells();
        let free = |outbox: &Outbox| cells.saturating_sub(used.wrapping_sub(outbox.taken));
        if free(outbox) >= count {
            return true;
        }
        // Acquire: the receiver has read what this rank is about to overwrite.
        outbox.taken = self.0.platform.load_cell("credit", channel.taken(), Acquire);
        free(outbox) >= count
    }

    /// Whether there is room for a message in a slot.
    #[inline(always)]
    pub fn has_slot<C: Channel>(&self, channel: &C, outbox: &mut Outbox) -> bool {
        outbox.line.is_next || !outbox.next.is_first() || self.has_room(channel, outbox)
    }

    /// Publishes a message in a slot, for which there is [room](Self::has_slot). `is_followed`: in the ring, the next slot of the cell stays
    /// open for the next message.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    #[inline(always)]
    pub fn publish_slot<C: Channel>(
        &self,
        channel: &C,
        outbox: &mut Outbox,
        target: usize,
        message: &Slot,
        is_followed: bool,
    ) -> Result<(), Killed> {
        if outbox.line.is_next {
            self.publish_in_line(channel, &mut outbox.line, message)?;
        } else {
            self.publish_in_ring(channel, outbox, message, is_followed)?;
        }
        self.ring(target)
    }

    #[inline(always)]
    fn publish_in_ring<C: Channel>(
        &self,
        channel: &C,
        outbox: &mut Outbox,
        message: &Slot,
        is_followed: bool,
    ) -> Result<(), Killed> {
        let (platform, cells, at) = (self.0.platform, channel.cells(), outbox.next);
        let (slot, turn) = (at.slot(cells), at.turn(cells));
        channel.slot(slot).write(|mut sink| sink.put(0, &message.value));
        let next = if outbox.line.takes_turns() {
            outbox.line.is_next = true;
            Next::Line
        } else if is_followed && slot % SLOTS + 1 < SLOTS {
            // Relaxed: published with the word of this slot, behind which the receiver reads it.
            platform.store_cell("blank-slot", channel.word(slot + 1), blank_word(at.lap(cells)), Relaxed);
            Next::Slot
        } else {
            Next::Cell
        };
        platform.fail_point("slot-written")?;
        let word = message.word(turn, next) | outbox.line.received.taken();
        platform.store_cell("publish-slot", channel.word(slot), word, Release);
        outbox.line.publishes();
        outbox.next = at.next(next == Next::Slot);
        if at.is_first() {
            prefetch_ahead(channel, at.cell(cells));
        }
        Ok(())
    }

    /// Publishes a cell for `target`, and with it what was written to its buffers. There is [room](Self::has_room).
    ///
    /// # Errors
    /// Only when a test stops this rank.
    #[inline(always)]
    pub fn publish<C: Channel, B: AsRef<[u8]>>(
        &self,
        channel: &C,
        outbox: &mut Outbox,
        target: usize,
        envelope: &Envelope<B>,
    ) -> Result<(), Killed> {
        let cells = channel.cells();
        self.leave_line(channel, &mut outbox.line);
        if !outbox.next.is_first() {
            close(self.0.platform, outbox.next.word(channel), outbox.next.turn(cells));
            outbox.next = outbox.next.next_cell();
        }
        let at = outbox.next;
        channel.payload(at.cell(cells)).write(|sink| envelope.write(sink));
        self.0.platform.fail_point("message-written")?;
        let word = envelope.word(at.turn(cells)) | outbox.line.received.taken();
        self.0.platform.store_cell("publish-cell", at.word(channel), word, Release);
        outbox.next = at.next(false);
        outbox.line.publishes();
        prefetch_ahead(channel, at.cell(cells));
        self.ring(target)
    }

    /// Whether there is something to be taken: a message, or that the next one is elsewhere.
    #[inline]
    pub fn has_arrived<C: Channel>(&self, channel: &C, inbox: &Inbox) -> bool {
        if inbox.line.is_next {
            return self.has_arrived_in_line(channel, &inbox.line);
        }
        let at = inbox.next;
        // Relaxed: it is read again before anything else is.
        let word = self.0.platform.load_cell("has-arrived", at.word(channel), Relaxed);
        at.published(channel.cells(), word).is_some()
    }

    /// The word of what comes next, if that has come.
    #[inline(always)]
    pub fn arrived<C: Channel>(&self, channel: &C, inbox: &mut Inbox) -> Option<u64> {
        if inbox.line.is_next {
            let word = self.arrived_in_line(channel, &mut inbox.line);
            if inbox.line.is_next {
                return word;
            }
        }
        let (platform, at, cells) = (self.0.platform, inbox.next, channel.cells());
        let Some(word) = at.published(cells, platform.load_cell("arrived", at.word(channel), Acquire)) else {
            inbox.waits();
            return None;
        };
        if !is_closed(word) || at.is_first() {
            return Some(word);
        }
        let at = at.next_cell();
        inbox.next = at;
        at.published(cells, platform.load_cell("arrived-behind", at.word(channel), Acquire))
    }

    /// The message that has [arrived](Self::arrived) with this word, if it is in a slot. It is not taken yet.
    #[inline(always)]
    pub fn read_slot<C: Channel>(&self, channel: &C, inbox: &Inbox, word: u64) -> Option<Slot> {
        let slot = Slot::of(word)?;
        let value = if inbox.line.is_next {
            channel.line_slot(inbox.line.slot())
        } else {
            channel.slot(inbox.next.slot(channel.cells()))
        };
        Some(Slot { value: value.read(|source| source.array(0)), ..slot })
    }

    /// Takes the message in a slot that has arrived with this word, and wakes a sender that waits for room if there is some.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    #[inline(always)]
    pub fn take_slot<C: Channel>(
        &self,
        channel: &C,
        inbox: &mut Inbox,
        outbox: &mut Outbox,
        source: usize,
        word: u64,
    ) -> Result<(), Killed> {
        let makes_room = !inbox.line.is_next;
        self.pass_slot(channel, inbox, outbox, word)?;
        if makes_room && inbox.next.is_first() { self.ring(source) } else { Ok(()) }
    }

    #[inline(always)]
    fn pass_slot<C: Channel>(
        &self,
        channel: &C,
        inbox: &mut Inbox,
        outbox: &mut Outbox,
        word: u64,
    ) -> Result<(), Killed> {
        self.0.platform.fail_point("slot-copied")?;
        if inbox.line.is_next {
            inbox.line.pass(word);
        } else {
            self.pass(channel, inbox, is_open(word));
            inbox.line.is_next = is_in_line(word);
        }
        self.hears(channel, inbox, outbox, word);
        Ok(())
    }

    /// A message from the other side was taken: what is sent from now on says so.
    #[inline(always)]
    fn hears<C: Channel>(&self, channel: &C, inbox: &Inbox, outbox: &mut Outbox, word: u64) {
        outbox.has_heard = true;
        if !outbox.line.hears(word, channel.modulus()) {
            self.catch_up(channel, inbox, &mut outbox.line);
        }
    }

    #[cold]
    fn catch_up<C: Channel>(&self, channel: &C, inbox: &Inbox, line: &mut LineOut) {
        // Relaxed: what was sent before the last cell was taken that `credit` has told of is visible.
        if !self.has_arrived(channel, inbox) {
            line.catches_up(most_under_way(channel));
        }
    }

    #[inline(always)]
    fn pass<C: Channel>(&self, channel: &C, inbox: &mut Inbox, is_open: bool) {
        if let Some(cell) = inbox.prefetches(channel.cells()) {
            channel.prefetch_for_read(cell);
        }
        let behind = inbox.next.next(is_open);
        inbox.next = behind;
        if behind.is_first() {
            // Release: the copy is made.
            self.0.platform.store_cell("take-cell", channel.taken(), behind.cells(), Release);
        }
    }

    /// Takes the cell that has arrived with this word, with what `read` makes of it, before its sender may use it again, and does not wake
    /// the sender.
    ///
    /// # Errors
    /// [`Failure::Dead`] without a cause where another process has overwritten the cell; otherwise only when a test stops this
    /// rank.
    #[inline(always)]
    pub fn take_cell<C: Channel, R>(
        &self,
        channel: &C,
        inbox: &mut Inbox,
        outbox: &mut Outbox,
        word: u64,
        read: impl FnOnce(Envelope<InCell<'_>>) -> R,
    ) -> Result<R, Failure> {
        let (buffers, buffer_len) = (channel.buffers(), channel.buffer_len());
        let at = inbox.next;
        if !at.is_first() || inbox.line.is_next {
            return Err(Failure::Dead(None));
        }
        let read = channel
            .payload(at.cell(channel.cells()))
            .read(|source| Envelope::<InCell<'_>>::read(word, source, buffers, buffer_len).map(read));
        self.0.platform.fail_point("cell-copied")?;
        self.pass(channel, inbox, false);
        self.hears(channel, inbox, outbox, word);
        read.ok_or(Failure::Dead(None))
    }

    /// Takes the next message, if there is one, without waking its sender: who takes several [rings](Self::ring) behind the last, before it
    /// does anything else. Its buffers are the receiver's until it [releases](Self::release) them.
    ///
    /// # Errors
    /// As [`take_cell`](Self::take_cell).
    #[inline]
    pub fn take_unrung<C: Channel>(
        &self,
        channel: &C,
        inbox: &mut Inbox,
        outbox: &mut Outbox,
    ) -> Result<Option<Envelope>, Failure> {
        let Some(word) = self.arrived(channel, inbox) else { return Ok(None) };
        if let Some(slot) = self.read_slot(channel, inbox, word) {
            self.pass_slot(channel, inbox, outbox, word)?;
            return Ok(Some(slot.into()));
        }
        self.take_cell(channel, inbox, outbox, word, |cell| Envelope::of(&cell)).map(Some)
    }

    /// The same, and wakes a sender that waits for room.
    ///
    /// # Errors
    /// As [`take_cell`](Self::take_cell).
    #[inline]
    pub fn take<C: Channel>(
        &self,
        channel: &C,
        inbox: &mut Inbox,
        outbox: &mut Outbox,
        source: usize,
    ) -> Result<Option<Envelope>, Failure> {
        let Some(word) = self.arrived(channel, inbox) else { return Ok(None) };
        if let Some(slot) = self.read_slot(channel, inbox, word) {
            self.take_slot(channel, inbox, outbox, source, word)?;
            return Ok(Some(slot.into()));
        }
        let envelope = self.take_cell(channel, inbox, outbox, word, |cell| Envelope::of(&cell))?;
        self.ring(source)?;
        Ok(Some(envelope))
    }
}

/// Says of an open slot that it stays empty, and that the next message is in the next cell. No method, as the one that
/// [wakes](super::super::symmetric::bell).
#[cold]
fn close<P: SymmetricPlatform>(platform: &P, word: &impl IntegerCell<Value = u64>, turn: u8) {
    // Relaxed: it brings nothing with it.
    platform.store_cell("close-slot", word, closed_word(turn), Relaxed);
}

/// Prefetches for write a cell that comes later: the receiver has read it one lap before, so it needs an RFO. It does not poll it yet.
#[inline(always)]
fn prefetch_ahead<C: Channel>(channel: &C, cell: usize) {
    channel.payload((cell + MESSAGE_PREFETCH_CELLS) % channel.cells()).prefetch_for_write(0, 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_prefetched_once_by_a_receiver_that_has_not_waited() {
        const CELLS: usize = 4;
        let mut inbox = Inbox::default();
        let mut take = |waits: bool, is_open: bool| {
            if waits {
                inbox.waits();
            }
            let cell = inbox.prefetches(CELLS);
            inbox.next = inbox.next.next(is_open);
            cell
        };
        // Three slots of the first cell, and then whole cells.
        assert_eq!([true, true, false].map(|is_open| take(false, is_open)), [Some(1), None, None]);
        assert_eq!(
            [false, true, false, false].map(|waits| take(waits, false)),
            [Some(2), None, Some(0), Some(1)]
        );
        // It has waited for the second slot, not for what comes then.
        assert_eq!(take(false, true), Some(2));
        assert_eq!([take(true, false), take(false, false)], [None, Some(3)]);
    }
}
