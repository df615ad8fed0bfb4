//! A channel of messages in symmetric memory: which bytes of the receiver's instance belong to which sender.
//!
//! ```text
//!   0          4096       5120                         one channel; a rank's instance has one for each sender
//!   │ 64 cells │ words    │ buffers of 4096 bytes … │
//!   └──────────┴──────────┴─────────────────────────┘
//!              taken, held, 64 leases, 64 wants
//! ```

use core::marker::PhantomData;
use core::sync::atomic::AtomicU64;

use super::platform::Buffer;
use super::unit::Instance;
use crate::copy::{Sink, Source};
use crate::protocol::Payload;
use crate::protocol::message::Channel;
use crate::protocol::message::channel::{MOST, PAYLOAD};
use crate::tuning::{MESSAGE_BUFFERS, MESSAGE_LEAST_BUFFERS};

/// The length of a buffer, in bytes: a page, so that a channel takes no more of them than it uses.
pub(crate) const BUFFER: usize = 4096;

/// The number of cells of a ring.
const CELLS: usize = MOST;

/// The length of a cell, in bytes: a line.
const CELL: usize = 64;

/// Offsets, in bytes. What the one writes and what the other writes is in different lines.
const TAKEN: usize = CELLS * CELL;
const HELD: usize = TAKEN + 128;
const LEASES: usize = HELD + 128;
const WANTS: usize = LEASES + 8 * MOST;
const BUFFERS: usize = 5632;

const _: () = assert!(WANTS + 8 * MOST <= BUFFERS && BUFFERS.is_multiple_of(128) && 8 + PAYLOAD == CELL);

/// How a channel is divided: the same for all channels of a communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelLayout {
    ranks: usize,
    /// The number of buffers.
    pub(crate) buffers: usize,
    /// The bytes of a channel.
    stride: usize,
}

impl ChannelLayout {
    /// That of a communicator with this many ranks: the more senders, the fewer buffers has each.
    pub(crate) fn new(ranks: usize) -> Self {
        let buffers = (MESSAGE_BUFFERS / ranks.max(1)).clamp(MESSAGE_LEAST_BUFFERS, MOST);
        ChannelLayout { ranks, buffers, stride: BUFFERS + buffers * BUFFER }
    }

    /// The words of a rank's instance: its channels, and a line for the word that says that the rank sends no more.
    pub(crate) fn words(&self) -> usize {
        (self.ranks * self.stride + CELL) / size_of::<u64>()
    }

    /// Not 0 once the rank whose instance this is sends no more.
    #[inline]
    pub(crate) fn closed<'a>(&self, instance: Instance<'a, u64>) -> &'a AtomicU64 {
        instance.atomic(self.ranks * self.stride / size_of::<u64>())
    }
}

/// The channel from a sender to the rank whose instance it lies in.
#[derive(Clone, Copy)]
pub(crate) struct MappedChannel<'a> {
    instance: Instance<'a, u64>,
    /// Where it begins, in bytes.
    start: usize,
    buffers: usize,
}

impl<'a> MappedChannel<'a> {
    /// Each access to it panics where the instance is too short.
    #[inline]
    pub(crate) fn new(instance: Instance<'a, u64>, layout: &ChannelLayout, sender: usize) -> Self {
        debug_assert!(sender < layout.ranks && instance.len() == layout.words());
        MappedChannel { instance, start: sender * layout.stride, buffers: layout.buffers }
    }

    #[inline]
    fn word(&self, offset: usize) -> &'a AtomicU64 {
        self.instance.atomic((self.start + offset) / size_of::<u64>())
    }

    #[inline]
    fn bytes(&self, offset: usize, len: usize) -> ChannelBytes<'a> {
        let start = self.start + offset;
        assert!(start + len <= size_of::<u64>() * self.instance.len());
        // SAFETY: I16: inside the instance, which is mapped for as long as `'a`; no word of a channel lies here.
        let bytes = unsafe { Buffer::new(self.instance.start().cast::<u8>().wrapping_add(start), len) };
        ChannelBytes { bytes, channel: PhantomData }
    }
}

/// A cell's payload, or a buffer.
pub(crate) struct ChannelBytes<'a> {
    bytes: Buffer,
    channel: PhantomData<&'a ()>,
}

// SAFETY: I16: the view is exactly these bytes, for as long as the channel is mapped.
unsafe impl Payload for ChannelBytes<'_> {
    #[inline]
    fn write<R>(&self, fill: impl FnOnce(Sink<'_>) -> R) -> R {
        self.bytes.write(fill)
    }

    #[inline]
    fn read<R>(&self, read: impl FnOnce(Source<'_>) -> R) -> R {
        self.bytes.read(read)
    }
}

impl<'a> Channel for MappedChannel<'a> {
    type Word = AtomicU64;
    type Bytes = ChannelBytes<'a>;

    #[inline]
    fn cells(&self) -> usize {
        CELLS
    }

    #[inline]
    fn buffers(&self) -> usize {
        self.buffers
    }

    #[inline]
    fn buffer_len(&self) -> usize {
        BUFFER
    }

    #[inline]
    fn turn(&self, cell: usize) -> &AtomicU64 {
        assert!(cell < CELLS);
        self.word(cell * CELL)
    }

    #[inline]
    fn payload(&self, cell: usize) -> ChannelBytes<'a> {
        assert!(cell < CELLS);
        self.bytes(cell * CELL + size_of::<u64>(), PAYLOAD)
    }

    #[inline]
    fn buffer(&self, buffer: usize) -> ChannelBytes<'a> {
        assert!(buffer < self.buffers);
        self.bytes(BUFFERS + buffer * BUFFER, BUFFER)
    }

    #[inline]
    fn taken(&self) -> &AtomicU64 {
        self.word(TAKEN)
    }

    #[inline]
    fn held(&self) -> &AtomicU64 {
        self.word(HELD)
    }

    #[inline]
    fn lease(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < MOST);
        self.word(LEASES + size_of::<u64>() * slot)
    }

    #[inline]
    fn want(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < MOST);
        self.word(WANTS + size_of::<u64>() * slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_ranks_have_fewer_buffers_each() {
        let buffers = [1, 8, 16, 64, 256, 65_536].map(|ranks| ChannelLayout::new(ranks).buffers);
        assert_eq!(buffers, [64, 64, 64, 16, 4, 4]);
    }
}
