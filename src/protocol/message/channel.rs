//! The memory of a channel, and what is in a cell of its ring.
//!
//! ```text
//!   63                           32 31   28 27                 0
//!  +-------------------------------+-------+--------------------+
//!  |  turn (32 bits, wrapping)     | kind  |  length in bytes   |   the word that publishes the cell
//!  +-------------------------------+-------+--------------------+
//!  |  tag (64 bits)                                             |
//!  +------------------------------------------------------------+   56 bytes of payload
//!  |  mask of buffers (64 bits); of an offer, a place           |
//!  +------------------------------------------------------------+
//!  |  40 bytes: a short message, an offer, or where in its      |
//!  |  buffers a message begins, and how much of it is there     |
//!  +------------------------------------------------------------+
//! ```

use super::super::Payload;
use super::super::symmetric::IntegerCell;
use crate::codes::{Codes, codes};
use crate::copy::{Sink, Source};

/// The bytes of a message that a cell has room for.
pub const INLINE: usize = 40;

/// The bytes of a cell behind the word that publishes it.
pub const PAYLOAD: usize = 16 + INLINE;

/// The most cells of a ring, and the most buffers and offers of a channel.
pub const MOST: usize = 64;

/// A set of buffers: bit b is buffer b.
pub type Mask = u64;

codes! {
    /// What a cell holds.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind: u8 {
        /// A message, in the cell or in buffers.
        Message = 1,
        /// An offer: the receiver pulls the bytes.
        Offer = 2,
        /// A part of a message that was offered, in buffers.
        Fragment = 3,
        /// A message between endpoints that its receiver expects, in the cell or in buffers.
        Expected = 4,
        /// What an endpoint asks of another's memory.
        Request = 5,
        /// The answer to that.
        Reply = 6,
        /// What a message whose own cell comes later has in its buffers so far: a receiver may copy that.
        Part = 7,
        /// A message that does not begin at the beginning of its buffers.
        Shifted = 8,
    }
}

/// A cell's contents, without what is in buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<B = [u8; INLINE]> {
    /// What it is.
    pub kind: Kind,
    /// The bytes in the cell or in buffers.
    pub len: usize,
    /// The sender's tag.
    pub tag: u64,
    /// The buffers that belong to it. An offer has none: the number says [where](super::Offer) all ranks have the bytes.
    pub mask: Mask,
    /// A short message, or an offer.
    pub inline: B,
}

/// The most that the word has room for.
const LEN: u64 = (1 << 28) - 1;

impl<B: AsRef<[u8]>> Envelope<B> {
    /// The word that publishes it at this turn.
    #[inline]
    pub(super) fn word(&self, turn: u32) -> u64 {
        debug_assert!(self.len as u64 <= LEN);
        u64::from(turn) << 32 | u64::from(self.kind.code()) << 28 | self.len as u64 & LEN
    }

    #[inline]
    pub(super) fn write(&self, mut sink: Sink<'_>) {
        sink.put(0, &self.tag.to_ne_bytes());
        sink.put(8, &self.mask.to_ne_bytes());
        // What is not used is not written: a short message costs as much as it has bytes.
        let used = match self.kind {
            Kind::Offer => INLINE,
            Kind::Fragment => 0,
            Kind::Part => 2 * size_of::<u64>(),
            Kind::Shifted => size_of::<u64>(),
            _ if self.mask == 0 => self.len.min(INLINE),
            _ => 0,
        };
        sink.put_few(16, &self.inline.as_ref()[..used]);
    }
}

/// Where a message begins that does not begin with its buffers. Apart from the rest, since short messages have none.
#[cold]
fn start_of(cell: &Source<'_>) -> usize {
    usize::try_from(u64::from_ne_bytes(cell.array(16))).unwrap_or(usize::MAX)
}

/// What is in the cell of a message that begins `start` bytes behind the beginning of its buffers, of which `filled` are there.
pub fn shifted(start: usize, filled: usize) -> [u8; INLINE] {
    let mut inline = [0; INLINE];
    inline[..8].copy_from_slice(&(start as u64).to_ne_bytes());
    inline[8..16].copy_from_slice(&(filled as u64).to_ne_bytes());
    inline
}

impl Envelope {
    fn number(&self, at: usize) -> usize {
        self.inline[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word) as usize)
    }

    /// How far behind the beginning of its buffers a message begins, in bytes.
    pub fn start(&self) -> usize {
        if matches!(self.kind, Kind::Shifted | Kind::Part) { self.number(0) } else { 0 }
    }

    /// How many bytes of its message are there, says a part.
    pub fn filled(&self) -> usize {
        self.number(8)
    }

    /// The turn of a word that publishes a cell.
    #[inline]
    pub(super) fn turn(word: u64) -> u32 {
        (word >> 32) as u32
    }

    /// The same cell with a copy of what is in line.
    #[inline]
    pub fn of(cell: &Envelope<Source<'_>>) -> Self {
        let Envelope { kind, len, tag, mask, inline } = *cell;
        Envelope { kind, len, tag, mask, inline: inline.array(0) }
    }
}

impl<'a> Envelope<Source<'a>> {
    /// Reads a cell with this word. `None`: another process has overwritten it.
    ///
    /// What follows relies on nothing but these checks: the message fits into the cell or, from where it begins, into the buffers, and these
    /// exist.
    #[inline(always)]
    pub(super) fn read(word: u64, source: Source<'a>, buffers: usize, buffer_len: usize) -> Option<Self> {
        let kind = Kind::from_code((word >> 28 & 0xF) as u8)?;
        let len = usize::try_from(word & LEN).ok()?;
        let tag = u64::from_ne_bytes(source.array(0));
        let mask = u64::from_ne_bytes(source.array(8));
        let in_line = mask == 0 || kind == Kind::Offer;
        let room = if in_line { INLINE } else { mask.count_ones() as usize * buffer_len };
        let possible = len <= room && (in_line || buffers == MOST || mask >> buffers == 0);
        let is_shifted = matches!(kind, Kind::Shifted | Kind::Part);
        if !possible || is_shifted && start_of(&source) > room - len {
            return None;
        }
        Some(Envelope { kind, len, tag, mask, inline: source.after(16) })
    }
}

/// A channel: memory that its sender and its receiver share.
///
/// Zeros are a channel in which nothing has been sent.
pub trait Channel {
    /// A word.
    type Word: IntegerCell<Value = u64>;

    /// A cell's payload, and a buffer.
    type Bytes: Payload;

    /// The number of cells: a power of two, up to [`MOST`].
    fn cells(&self) -> usize;

    /// The number of buffers: 1 to [`MOST`].
    fn buffers(&self) -> usize;

    /// The length of a buffer, in bytes.
    fn buffer_len(&self) -> usize;

    /// The word that publishes a cell. Written by the sender.
    fn turn(&self, cell: usize) -> &Self::Word;

    /// The rest of a cell: [`PAYLOAD`] bytes. Written by the sender.
    fn payload(&self, cell: usize) -> Self::Bytes;

    /// A buffer. Written by the sender.
    fn buffer(&self, buffer: usize) -> Self::Bytes;

    /// Buffers that lie one after the other: of `count` from this one on as many as do, and how many these are. Copied together
    /// they take less time: processors prefetch, and string instructions begin, once.
    #[inline]
    fn adjacent(&self, first: usize, count: usize) -> (Self::Bytes, usize) {
        let _ = count;
        (self.buffer(first), 1)
    }

    /// How many cells have been taken. Written by the receiver.
    fn taken(&self) -> &Self::Word;

    /// The buffers that are held, so that zeros mean that all are free: the sender adds some, the receiver takes them away.
    fn held(&self) -> &Self::Word;

    /// The state of an offer, by its number modulo [`MOST`]. Written by both.
    fn lease(&self, slot: usize) -> &Self::Word;

    /// What the receiver wants of an offer that it cannot pull, by its number modulo [`MOST`]. Written by the receiver.
    fn want(&self, slot: usize) -> &Self::Word;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_behind_its_buffers_is_no_cell() {
        let reads = |kind, start, len, mask| {
            let mut payload = [0; PAYLOAD];
            let envelope = Envelope { kind, len, tag: 1, mask, inline: shifted(start, 0) };
            envelope.write(Sink::of(&mut payload));
            let read = Envelope::<Source<'_>>::read(envelope.word(1), Source::of(&payload), 64, 4096)?;
            Some(Envelope::of(&read).start())
        };
        for kind in [Kind::Shifted, Kind::Part] {
            assert_eq!(reads(kind, 96, 4000, 1), Some(96));
            assert_eq!(reads(kind, 4096, 4096, 0b101), Some(4096));
            assert_eq!(reads(kind, 97, 4000, 1), None);
            assert_eq!(reads(kind, usize::MAX, 1, u64::MAX), None);
        }
        // It has no start, and its bytes are not read.
        assert_eq!(reads(Kind::Message, 97, 4000, 1), Some(0));
    }
}
