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

use super::super::symmetric::SymmetricPlatform;
use super::super::{Failure, Killed, Ordering, Payload};
use super::{Channel, Envelope, Post};
use crate::copy::Source;
use crate::tuning::MESSAGE_PREFETCH_CELLS;
use Ordering::{Acquire, Relaxed, Release};

/// The sender's side of a channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outbox {
    /// The cells that were published.
    sent: u64,
    /// How many of them were taken when the sender last looked.
    taken: u64,
}

/// The receiver's side of a channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inbox {
    taken: u64,
}

/// The turn of the cell with this number, of all that go through the ring. Never that of a cell which was not written yet.
fn turn(number: u64, cells: usize) -> u32 {
    (number / cells as u64 + 1) as u32
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
        let free = |outbox: &Outbox| cells.saturating_sub(outbox.sent.wrapping_sub(outbox.taken));
        if free(outbox) >= count {
            return true;
        }
        // Acquire: the receiver has read what this rank is about to overwrite.
        outbox.taken = self.0.platform.load_cell("credit", channel.taken(), Acquire);
        free(outbox) >= count
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
        let cell = outbox.sent as usize % cells;
        channel.payload(cell).write(|sink| envelope.write(sink));
        self.0.platform.fail_point("message-written")?;
        let word = envelope.word(turn(outbox.sent, cells));
        self.0.platform.store_cell("publish-cell", channel.turn(cell), word, Release);
        outbox.sent = outbox.sent.wrapping_add(1);
        // The receiver has read it one lap before, so it needs an RFO. It does not poll it yet.
        channel.payload((outbox.sent as usize + MESSAGE_PREFETCH_CELLS - 1) % cells).prefetch_for_write(1);
        self.ring(target)
    }

    /// Whether there is a cell to be taken.
    #[inline]
    pub fn has_arrived<C: Channel>(&self, channel: &C, inbox: &Inbox) -> bool {
        let cells = channel.cells();
        // Relaxed: it is read again before anything else is.
        let word =
            self.0.platform.load_cell("has-arrived", channel.turn(inbox.taken as usize % cells), Relaxed);
        Envelope::turn(word) == turn(inbox.taken, cells)
    }

    /// Takes the next cell, if there is one, and wakes a sender that waits for room. Its buffers are the receiver's until it
    /// [releases](Self::release) them.
    ///
    /// # Errors
    /// [`Failure::Dead`] without a cause where another process has overwritten the cell; otherwise only when a test stops this
    /// rank.
    #[inline]
    pub fn take<C: Channel>(
        &self,
        channel: &C,
        inbox: &mut Inbox,
        source: usize,
    ) -> Result<Option<Envelope>, Failure> {
        let envelope = self.take_unrung(channel, inbox)?;
        if envelope.is_some() {
            self.ring(source)?;
        }
        Ok(envelope)
    }

    /// The same without waking the sender: who takes several cells [rings](Self::ring) behind the last, before it does anything
    /// else.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    #[inline]
    pub fn take_unrung<C: Channel>(&self, channel: &C, inbox: &mut Inbox) -> Result<Option<Envelope>, Failure> {
        self.take_with(channel, inbox, |cell| Envelope::of(&cell))
    }

    /// The same with what `read` makes of the cell, before its sender may use it again.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    #[inline(always)]
    pub fn take_with<C: Channel, R>(
        &self,
        channel: &C,
        inbox: &mut Inbox,
        read: impl FnOnce(Envelope<Source<'_>>) -> R,
    ) -> Result<Option<R>, Failure> {
        let cells = channel.cells();
        let cell = inbox.taken as usize % cells;
        let word = self.0.platform.load_cell("arrived", channel.turn(cell), Acquire);
        if Envelope::turn(word) != turn(inbox.taken, cells) {
            return Ok(None);
        }
        let (buffers, buffer_len) = (channel.buffers(), channel.buffer_len());
        let read = channel
            .payload(cell)
            .read(|source| Envelope::<Source<'_>>::read(word, source, buffers, buffer_len).map(read));
        inbox.taken = inbox.taken.wrapping_add(1);
        self.0.platform.fail_point("cell-copied")?;
        // Release: the copy is made.
        self.0.platform.store_cell("take-cell", channel.taken(), inbox.taken, Release);
        read.map(Some).ok_or(Failure::Dead(None))
    }
}
