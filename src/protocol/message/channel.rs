//! The memory of a channel, and what is in a cell of its ring.
//!
//! ```text
//!   63   55 54  51 50  49 48  47  40 39 28 27                 0
//!  +-------+------+------+---+------+-----+--------------------+
//!  | taken | kind |      |   | turn |     |  length in bytes   |   the word that publishes the cell
//!  +-------+------+------+---+------+-----+--------------------+
//!  |  tag (64 bits)                                            |
//!  +-----------------------------------------------------------+   56 bytes of payload
//!  |  mask of buffers (64 bits); of an offer, a place          |
//!  +-----------------------------------------------------------+
//!  |  40 bytes: a short message, an offer, or where in its     |
//!  |  buffers a message begins, and how much of it is there    |
//!  +-----------------------------------------------------------+
//! ```
//!
//! Or it has four slots of 16 bytes, with a message of up to eight bytes in each, as has the [line of the pair](super::pair_line):
//!
//! ```text
//!   63   55 54  51  50     49  48 47  40 39            4 3    0
//!  +-------+------+------+------+---+------+------------+------+
//!  | taken | kind | open | line |   | turn |    tag     | len  |   the word that publishes the slot
//!  +-------+------+------+------+---+------+------------+------+
//!  |  the message                                              |
//!  +-----------------------------------------------------------+
//! ```
//!
//! The turn wraps: what a cell held one lap before has another one. Every word says how many messages its sender has taken from the
//! other side.

use super::super::Payload;
use super::super::symmetric::IntegerCell;
use crate::codes::{Codes, codes};
use crate::copy::{Sink, Source};

/// The bytes of a message that a cell has room for.
pub const INLINE: usize = 40;

/// The bytes of a cell behind the word that publishes it.
pub const PAYLOAD: usize = 16 + INLINE;

/// The slots of a cell that has some.
pub const SLOTS: usize = 4;

/// The bytes of a message that a slot has room for.
pub const SLOT: usize = 8;

/// The largest tag that a slot has room for.
pub const SLOT_TAG: u64 = (1 << 36) - 1;

/// The slots of the line of a pair, for each direction.
pub const LINE_SLOTS: usize = 2;

/// The most cells of a ring, and the most buffers of a channel.
pub const MOST: usize = 64;

/// The offers of a channel that can be open at a time. A power of two.
pub const OFFERS: usize = 256;

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
        /// A message in buffers of the channel in the other direction, which its sender has received and kept.
        Returned = 13,
        /// Bytes that an endpoint writes to another's memory, in the cell or in buffers: two words in the cell say where.
        Write = 10,
        /// Bytes of an endpoint's memory that another one has asked for, in the cell or in buffers.
        Data = 11,
        /// As [`Kind::Part`], of a [returned](Kind::Returned) message.
        ReturnedPart = 14,
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

/// Where the turn and the kind begin.
const TURN: u32 = 40;
const KIND: u32 = 51;

/// Says of a slot that the next message is in the next slot, not in the next cell.
const OPEN: u64 = 1 << 50;

/// Says of a slot that the next message is in the line of the pair.
const IN_LINE: u64 = 1 << 49;

/// How many messages the sender of the word has taken from the other side, [modulo](Channel::modulus) 512.
const TAKEN: u32 = 55;

/// That of these counts, if a channel says nothing else.
pub const MODULUS: u64 = 1 << (u64::BITS - TAKEN);

const _: () = assert!(MODULUS > most_of(MOST) as u64);
const _: () = assert!(LEN < 1 << TURN && SLOT_TAG << 4 < 1 << TURN);

/// Says, in place of the kind, that a slot stays empty: the next message is in the next cell.
const CLOSED: u64 = 15;

/// Tells the kind of what is in a slot from the kind of a cell.
const IN_SLOT: u64 = 8;

/// A message in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// [`Kind::Expected`], or else [`Kind::Message`].
    pub is_expected: bool,
    /// The sender's tag.
    pub tag: u64,
    /// Its length, in bytes.
    pub len: usize,
    /// The message.
    pub value: [u8; SLOT],
}

impl Slot {
    /// A message that [has room](Self::fits) in a slot.
    #[inline(always)]
    pub fn new(is_expected: bool, tag: u64, message: &[u8]) -> Self {
        // Most are a number.
        let value = message.first_chunk().copied().unwrap_or_else(|| padded(message));
        Slot { is_expected, tag, len: message.len(), value }
    }

    /// Copies the message to the beginning of `target`.
    ///
    /// # Panics
    /// When it is longer.
    #[inline(always)]
    pub fn copy_to(&self, target: &mut [u8]) {
        match target.first_chunk_mut() {
            Some(whole) if self.len == whole.len() => *whole = self.value,
            _ => target[..self.len].copy_from_slice(&self.value[..self.len]),
        }
    }

    /// Whether a message has room in a slot.
    #[inline(always)]
    pub fn fits(tag: u64, message: &[u8]) -> bool {
        message.len() <= SLOT && tag <= SLOT_TAG
    }

    /// The word that publishes it at this turn, and says where the next message is.
    #[inline(always)]
    pub(super) fn word(&self, turn: u8, next: Next) -> u64 {
        debug_assert!(self.tag <= SLOT_TAG && self.len <= SLOT);
        let kind = if self.is_expected { Kind::Expected } else { Kind::Message };
        let next = match next {
            Next::Slot => OPEN,
            Next::Cell => 0,
            Next::Line => IN_LINE,
        };
        u64::from(turn) << TURN
            | (u64::from(kind as u8) | IN_SLOT) << KIND
            | next
            | self.tag << 4
            | self.len as u64
    }

    /// The same without what is in it. `None`: no message is in a slot there.
    #[inline(always)]
    pub(super) fn of(word: u64) -> Option<Self> {
        let is_expected = match code(word) {
            MESSAGE_IN_SLOT => false,
            EXPECTED_IN_SLOT => true,
            _ => return None,
        };
        let (tag, len) = (word >> 4 & SLOT_TAG, (word & 0xF) as usize);
        (len <= SLOT).then_some(Slot { is_expected, tag, len, value: [0; SLOT] })
    }
}

/// Where the message behind one that is in a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// In the next slot of the cell.
    Slot,
    /// In the next cell.
    Cell,
    /// In the line of the pair.
    Line,
}

/// Apart, so that the other values need not be in memory.
#[inline(never)]
fn padded(message: &[u8]) -> [u8; SLOT] {
    let mut value = [0; SLOT];
    value[..message.len()].copy_from_slice(message);
    value
}

const MESSAGE_IN_SLOT: u64 = Kind::Message as u64 | IN_SLOT;
const EXPECTED_IN_SLOT: u64 = Kind::Expected as u64 | IN_SLOT;

/// The word of a slot that stays empty.
pub(super) fn closed_word(turn: u8) -> u64 {
    u64::from(turn) << TURN | CLOSED << KIND
}

/// A word that publishes nothing in this lap, of those that are numbered from 0: it has the turn of the one before.
#[inline(always)]
pub(super) fn blank_word(lap: u64) -> u64 {
    lap << TURN
}

#[inline(always)]
fn code(word: u64) -> u64 {
    word >> KIND & 0xF
}

/// Whether a word says that the next message is in the next cell.
#[inline(always)]
pub(super) fn is_closed(word: u64) -> bool {
    code(word) == CLOSED
}

/// Whether the word of a slot says that the next message is in the next slot.
#[inline(always)]
pub(super) fn is_open(word: u64) -> bool {
    word & OPEN != 0
}

/// Whether it says that the next message is in the line of the pair.
#[inline(always)]
pub(super) fn is_in_line(word: u64) -> bool {
    word & IN_LINE != 0
}

/// A number of messages, as a word says it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count(u64);

impl Count {
    /// One more.
    #[inline(always)]
    pub(super) fn increment(&mut self) {
        self.0 = self.0.wrapping_add(1 << TAKEN);
    }

    /// What a word says if this number of messages was taken.
    #[inline(always)]
    pub(super) fn taken(self) -> u64 {
        self.0
    }
}

/// How many more messages the other side says in this word to have taken than it had `before`: fewer than the modulus.
#[inline(always)]
pub(super) fn taken_since(before: u64, word: u64, modulus: u64) -> u64 {
    (word >> TAKEN).wrapping_sub(before) & (modulus - 1)
}

impl Kind {
    /// Whether the cell says where in its buffers the message begins.
    #[inline]
    pub(super) const fn has_start(self) -> bool {
        matches!(self, Kind::Shifted | Kind::Part | Kind::Returned | Kind::ReturnedPart)
    }

    /// Whether the buffers are those of the channel in the other direction.
    #[inline]
    pub const fn is_returned(self) -> bool {
        matches!(self, Kind::Returned | Kind::ReturnedPart)
    }

    /// The bytes in the cell that are not of the message.
    #[inline]
    pub const fn head(self) -> usize {
        match self {
            Kind::Write => 2 * size_of::<u64>(),
            _ => 0,
        }
    }
}

impl<B: AsRef<[u8]>> Envelope<B> {
    /// The word that publishes it at this turn.
    #[inline]
    pub(super) fn word(&self, turn: u8) -> u64 {
        debug_assert!(self.len as u64 <= LEN);
        u64::from(turn) << TURN | u64::from(self.kind.code()) << KIND | self.len as u64 & LEN
    }

    #[inline]
    pub(super) fn write(&self, mut sink: Sink<'_>) {
        sink.put(0, &self.tag.to_ne_bytes());
        sink.put(8, &self.mask.to_ne_bytes());
        // What is not used is not written: a short message costs as much as it has bytes.
        let used = match self.kind {
            Kind::Offer => INLINE,
            Kind::Fragment => 0,
            Kind::Part | Kind::ReturnedPart => 2 * size_of::<u64>(),
            Kind::Shifted | Kind::Returned => size_of::<u64>(),
            kind if self.mask == 0 => (kind.head() + self.len).min(INLINE),
            kind => kind.head(),
        };
        sink.put_few(16, &self.inline.as_ref()[..used]);
    }
}

/// What is in line in a cell that was not copied yet.
#[derive(Clone, Copy, Debug)]
pub struct InCell<'a> {
    source: Source<'a>,
    /// Where the message begins in its buffers, as it was checked: in the cell, another process could write something else since.
    start: usize,
}

impl InCell<'_> {
    /// Copies a message that is in the cell.
    ///
    /// # Panics
    /// When it is longer than a cell.
    #[inline(always)]
    pub fn copy_to(&self, target: &mut [u8]) {
        self.source.get(0, target);
    }

    /// The same for what is often a single number.
    ///
    /// # Panics
    /// When it is longer than a cell.
    #[cfg(target_os = "linux")]
    #[inline(always)]
    pub fn copy_few_to(&self, target: &mut [u8]) {
        self.source.get_few(0, target);
    }
}

/// Where a message begins that does not begin with its buffers. Apart from the rest, since short messages have none, and so that it is
/// read once.
#[cold]
#[inline(never)]
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

impl From<Slot> for Envelope {
    fn from(slot: Slot) -> Self {
        let kind = if slot.is_expected { Kind::Expected } else { Kind::Message };
        let mut inline = [0; INLINE];
        inline[..SLOT].copy_from_slice(&slot.value);
        Envelope { kind, len: slot.len, tag: slot.tag, mask: 0, inline }
    }
}

impl Envelope {
    fn number(&self, at: usize) -> usize {
        self.inline[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word) as usize)
    }

    /// How far behind the beginning of its buffers a message begins, in bytes.
    pub fn start(&self) -> usize {
        if self.kind.has_start() { self.number(0) } else { 0 }
    }

    /// How many bytes of its message are there, says a part.
    pub fn filled(&self) -> usize {
        self.number(8)
    }

    /// Where in another's memory its bytes are to be written, as two words.
    pub fn place(&self) -> [u64; 2] {
        [0, 8].map(|at| self.inline[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word)))
    }

    /// A message that is in the cell.
    ///
    /// # Panics
    /// When it is in buffers, and longer than a cell.
    pub fn short(&self) -> &[u8] {
        &self.inline[self.kind.head()..][..self.len]
    }

    /// The turn of a word that publishes a cell.
    #[inline]
    pub(super) fn turn(word: u64) -> u8 {
        (word >> TURN) as u8
    }

    /// The same cell with a copy of what is in line.
    #[inline]
    pub fn of(cell: &Envelope<InCell<'_>>) -> Self {
        let Envelope { kind, len, tag, mask, inline: InCell { source, start } } = *cell;
        let mut inline = source.array(0);
        if kind.has_start() {
            inline[..8].copy_from_slice(&(start as u64).to_ne_bytes());
        }
        Envelope { kind, len, tag, mask, inline }
    }
}

impl<'a> Envelope<InCell<'a>> {
    /// Reads a cell with this word. `None`: another process has overwritten it.
    ///
    /// What follows relies on nothing but these checks: the message fits into the cell or, from where it begins, into the buffers, and these
    /// exist.
    #[inline(always)]
    pub(super) fn read(word: u64, source: Source<'a>, buffers: usize, buffer_len: usize) -> Option<Self> {
        let kind = Kind::from_code(code(word) as u8)?;
        let len = usize::try_from(word & LEN).ok()?;
        let tag = u64::from_ne_bytes(source.array(0));
        let mask = u64::from_ne_bytes(source.array(8));
        let in_line = mask == 0 || kind == Kind::Offer;
        let room = if in_line { INLINE - kind.head() } else { mask.count_ones() as usize * buffer_len };
        let possible = len <= room && (in_line || buffers == MOST || mask >> buffers == 0);
        // Those lie in buffers.
        if !possible || mask == 0 && kind.has_start() {
            return None;
        }
        let start = if kind.has_start() { start_of(&source) } else { 0 };
        (start <= room - len).then(|| Envelope {
            kind,
            len,
            tag,
            mask,
            inline: InCell { source: source.after(16), start },
        })
    }
}

/// The most messages that a channel holds.
pub fn most_under_way(channel: &impl Channel) -> usize {
    most_of(channel.cells())
}

const fn most_of(cells: usize) -> usize {
    cells * SLOTS + LINE_SLOTS
}

/// A channel: memory that its sender and its receiver share.
///
/// Zeros are a channel in which nothing has been sent.
pub trait Channel {
    /// A word.
    type Word: IntegerCell<Value = u64>;

    /// A cell's payload, and a buffer.
    type Bytes: Payload;

    /// The number of cells: a power of two, up to [`MOST`]; two at least, if slots are left open.
    fn cells(&self) -> usize;

    /// Words say modulo this how many messages were taken: a power of two, up to 512, and more than the channel [holds](most_under_way).
    #[inline(always)]
    fn modulus(&self) -> u64 {
        MODULUS
    }

    /// The number of buffers: 1 to [`MOST`].
    fn buffers(&self) -> usize;

    /// The length of a buffer, in bytes.
    fn buffer_len(&self) -> usize;

    /// The word that publishes a slot, of the [`SLOTS`] of each cell; the first of a cell publishes the cell. Written by the sender.
    fn word(&self, slot: usize) -> &Self::Word;

    /// The rest of a cell: [`PAYLOAD`] bytes. Written by the sender.
    fn payload(&self, cell: usize) -> Self::Bytes;

    /// Prefetches a cell for read. A hint.
    #[inline(always)]
    fn prefetch_for_read(&self, cell: usize) {
        let _ = cell;
    }

    /// The rest of a slot, which is a part of the cell's: [`SLOT`] bytes. Written by the sender.
    fn slot(&self, slot: usize) -> Self::Bytes;

    /// The word that publishes a slot of the line of the pair, of the [`LINE_SLOTS`] of this direction. Written by the sender.
    fn line_word(&self, slot: usize) -> &Self::Word;

    /// The rest of that slot: [`SLOT`] bytes. Written by the sender.
    fn line_slot(&self, slot: usize) -> Self::Bytes;

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

    /// The state of an offer, by its number modulo [`OFFERS`]. Written by both.
    fn lease(&self, slot: usize) -> &Self::Word;

    /// What the receiver wants of an offer that it cannot pull, by its number modulo [`OFFERS`]. Written by the receiver.
    fn want(&self, slot: usize) -> &Self::Word;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_has_less_room_in_its_cell() {
        let reads = |len: usize, mask| {
            let mut payload = [0; PAYLOAD];
            let mut inline = [7; INLINE];
            inline[..16].copy_from_slice(&shifted(1, 2)[..16]);
            let envelope = Envelope { kind: Kind::Write, len, tag: 1, mask, inline };
            envelope.write(Sink::of(&mut payload));
            let read = Envelope::<InCell<'_>>::read(envelope.word(1), Source::of(&payload), 64, 4096)?;
            Some(Envelope::of(&read))
        };
        let short = reads(INLINE - 16, 0).unwrap();
        assert_eq!((short.place(), short.short()), ([1, 2], &[7; INLINE - 16][..]));
        assert_eq!(reads(INLINE - 15, 0), None);
        assert_eq!(reads(8192, 0b101).map(|cell| cell.place()), Some([1, 2]));
        assert_eq!(reads(8193, 0b101), None);
    }

    #[test]
    fn what_would_end_behind_its_buffers_is_no_cell() {
        let reads = |kind, start, len, mask| {
            let mut payload = [0; PAYLOAD];
            let envelope = Envelope { kind, len, tag: 1, mask, inline: shifted(start, 0) };
            envelope.write(Sink::of(&mut payload));
            let read = Envelope::<InCell<'_>>::read(envelope.word(1), Source::of(&payload), 64, 4096)?;
            Some(Envelope::of(&read).start())
        };
        for kind in [Kind::Shifted, Kind::Part, Kind::Returned, Kind::ReturnedPart] {
            assert_eq!(reads(kind, 96, 4000, 1), Some(96));
            assert_eq!(reads(kind, 4096, 4096, 0b101), Some(4096));
            assert_eq!(reads(kind, 97, 4000, 1), None);
            assert_eq!(reads(kind, usize::MAX, 1, u64::MAX), None);
        }
        // It has no start, and its bytes are not read.
        assert_eq!(reads(Kind::Message, 97, 4000, 1), Some(0));
    }

    #[test]
    fn where_a_message_begins_is_what_was_checked() {
        let overwritten = shifted(4096, 3);
        let inline = InCell { source: Source::of(&overwritten), start: 96 };
        let cell = Envelope { kind: Kind::Part, len: 4000, tag: 1, mask: 1, inline };
        assert_eq!((Envelope::of(&cell).start(), Envelope::of(&cell).filled()), (96, 3));
        let whole = Envelope { kind: Kind::Message, mask: 0, ..cell };
        assert_eq!(Envelope::of(&whole).inline, overwritten);
    }
}
