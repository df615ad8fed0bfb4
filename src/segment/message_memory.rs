//! A channel of messages in symmetric memory: which bytes of the receiver's instance belong to which sender.
//!
//! ```text
//!   0          4096       9728                         one channel; a rank's instance has one for each sender
//!   │ 64 cells │ words    │ buffers of one length … │
//!   └──────────┴──────────┴─────────────────────────┘
//!              taken, held, 256 leases, 256 wants, line of the pair
//! ```

use core::marker::PhantomData;
use core::sync::atomic::AtomicU64;

use super::platform::Buffer;
use super::unit::Instance;
use crate::copy::{Sink, Source, lines};
use crate::protocol::Payload;
use crate::protocol::message::Channel;
use crate::protocol::message::channel::{LINE_SLOTS, MOST, OFFERS, PAYLOAD, SLOT, SLOTS};
use crate::tuning::{MESSAGE_BYTES, MESSAGE_LEAST_BUFFERS, MESSAGE_MOST_BUFFER_BYTES};

/// The least length of a buffer, in bytes: a page, so that a channel takes no more of them than it uses.
pub(crate) const BUFFER: usize = 4096;

/// The length of a buffer of a connection between two endpoints, in bytes: as of a channel between two ranks.
#[cfg(any(target_os = "linux", test))]
pub(crate) const PAIR_BUFFER: usize = MESSAGE_MOST_BUFFER_BYTES;

/// The number of cells of a ring.
const CELLS: usize = MOST;

/// The length of a cell, in bytes: a line.
const CELL: usize = 64;

/// Offsets, in bytes. What the one writes and what the other writes is in different lines.
const TAKEN: usize = CELLS * CELL;
const HELD: usize = TAKEN + 128;
const LEASES: usize = HELD + 128;
const WANTS: usize = LEASES + 8 * OFFERS;
const LINE: usize = WANTS + 8 * OFFERS;
const BUFFERS: usize = 9728;

const _: () = assert!(LINE + 128 <= BUFFERS && BUFFERS.is_multiple_of(128) && 8 + PAYLOAD == CELL);
const _: () = assert!(SLOTS * (8 + SLOT) == CELL && LINE.is_multiple_of(128) && LINE_SLOTS * 2 == SLOTS);

/// Where a slot begins, in bytes.
#[inline]
fn slot_offset(slot: usize) -> usize {
    assert!(slot < CELLS * SLOTS);
    slot * (CELL / SLOTS)
}

/// Where a slot of the line of the pair begins in the slots of its direction, in bytes.
#[inline]
fn line_offset(slot: usize) -> usize {
    assert!(slot < LINE_SLOTS);
    slot * (8 + SLOT)
}

/// How a channel is divided: the same for all channels of a communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelLayout {
    ranks: usize,
    /// The words of a rank's instance: its channels, and a line for the word that says that the rank sends no more.
    pub(crate) words: usize,
    /// The number of buffers.
    pub(crate) buffers: usize,
    /// The length of each, in bytes.
    pub(crate) buffer_len: usize,
    /// The bytes of a channel.
    stride: usize,
}

impl ChannelLayout {
    /// That of a communicator with this many ranks: the more senders, the shorter are the buffers of each, and then the fewer.
    pub(crate) fn new(ranks: usize) -> Self {
        let bytes = MESSAGE_BYTES / ranks.max(1);
        let buffer_len = (bytes / MOST).clamp(BUFFER, MESSAGE_MOST_BUFFER_BYTES);
        let buffers = (bytes / buffer_len).clamp(MESSAGE_LEAST_BUFFERS, MOST);
        Self::with(ranks, buffers, 1 << buffer_len.ilog2())
    }

    /// That of a connection between two endpoints. Of these a process may have very many: short messages take few pages, and only what is
    /// long may take all in turn.
    #[cfg(any(target_os = "linux", test))]
    pub(crate) fn of_pair() -> Self {
        Self::with(2, MOST, PAIR_BUFFER)
    }

    fn with(ranks: usize, buffers: usize, buffer_len: usize) -> Self {
        let stride = BUFFERS + buffers * buffer_len;
        ChannelLayout { ranks, words: (ranks * stride + CELL) / size_of::<u64>(), buffers, buffer_len, stride }
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
    /// [`BUFFERS`] bytes of cells and words, then the buffers: all of it inside the instance.
    start: *mut u8,
    /// The [`LINE_SLOTS`] slots of this direction in the line of the pair: inside the one's or the other's instance.
    line: *mut u8,
    buffers: usize,
    buffer_len: usize,
    instance: PhantomData<Instance<'a, u64>>,
}

impl<'a> MappedChannel<'a> {
    /// `instances`: those of the sender and of the receiver. Two ranks share the line of the pair, which lies in the channel from the
    /// lower to the higher one.
    ///
    /// # Panics
    /// When there are no such ranks, or an instance has another length.
    #[inline(always)]
    pub(crate) fn new(
        instances: [Instance<'a, u64>; 2],
        layout: &ChannelLayout,
        sender: usize,
        receiver: usize,
    ) -> Self {
        assert!(sender.max(receiver) < layout.ranks);
        let channel = |instance: &Instance<'a, u64>, sender: usize| {
            assert!(instance.len() == layout.words);
            instance.start().cast::<u8>().wrapping_add(sender * layout.stride)
        };
        let [senders, receivers] = &instances;
        let start = channel(receivers, sender);
        let line = if sender <= receiver {
            start.wrapping_add(LINE)
        } else {
            channel(senders, receiver).wrapping_add(LINE + LINE_SLOTS * (8 + SLOT))
        };
        let ChannelLayout { buffers, buffer_len, .. } = *layout;
        MappedChannel { start, line, buffers, buffer_len, instance: PhantomData }
    }

    #[inline]
    fn atomic(&self, offset: usize) -> &'a AtomicU64 {
        assert!(offset < BUFFERS && offset.is_multiple_of(size_of::<u64>()));
        // SAFETY: I16: inside the instance, by `new`, and aligned; what is in this place of a channel is atomic.
        unsafe { AtomicU64::from_ptr(self.start.wrapping_add(offset).cast()) }
    }

    /// Prefetches the word of the buffers, for a sender that has received a message: before it takes a buffer for the next that it
    /// sends, it would wait for this line, which the receiver of its last one has written since.
    #[inline]
    pub(crate) fn prefetch_held(&self) {
        lines::prefetchw(core::ptr::from_ref(self.held()).cast());
    }

    /// They lie inside the instance, by `new`.
    #[inline]
    fn bytes(&self, offset: usize, len: usize) -> ChannelBytes<'a> {
        // SAFETY: I16: inside the instance, which is mapped for as long as `'a`; no word of a channel lies here.
        let bytes = unsafe { Buffer::new(self.start.wrapping_add(offset), len) };
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
    #[inline(always)]
    fn write<R>(&self, fill: impl FnOnce(Sink<'_>) -> R) -> R {
        self.bytes.write(fill)
    }

    #[inline]
    fn prefetch_for_write(&self, start: usize, len: usize) {
        self.bytes.prefetch_for_write(start, len);
    }

    #[inline(always)]
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
        self.buffer_len
    }

    #[inline]
    fn word(&self, slot: usize) -> &AtomicU64 {
        self.atomic(slot_offset(slot))
    }

    #[inline]
    fn payload(&self, cell: usize) -> ChannelBytes<'a> {
        self.bytes(slot_offset(cell * SLOTS) + size_of::<u64>(), PAYLOAD)
    }

    #[inline(always)]
    fn prefetch_for_read(&self, cell: usize) {
        self.payload(cell).read(|source| source.prefetch(1));
    }

    #[inline]
    fn slot(&self, slot: usize) -> ChannelBytes<'a> {
        self.bytes(slot_offset(slot) + size_of::<u64>(), SLOT)
    }

    #[inline]
    fn line_word(&self, slot: usize) -> &AtomicU64 {
        // SAFETY: I16: inside an instance, by `new`, and aligned; this place of a line is atomic.
        unsafe { AtomicU64::from_ptr(self.line.wrapping_add(line_offset(slot)).cast()) }
    }

    #[inline]
    fn line_slot(&self, slot: usize) -> ChannelBytes<'a> {
        let start = self.line.wrapping_add(line_offset(slot) + size_of::<u64>());
        // SAFETY: I16: inside an instance, by `new`, which is mapped for as long as `'a`; no word lies here.
        let bytes = unsafe { Buffer::new(start, SLOT) };
        ChannelBytes { bytes, channel: PhantomData }
    }

    #[inline]
    fn buffer(&self, buffer: usize) -> ChannelBytes<'a> {
        self.adjacent(buffer, 1).0
    }

    #[inline]
    fn adjacent(&self, first: usize, count: usize) -> (ChannelBytes<'a>, usize) {
        assert!(first < self.buffers && count <= self.buffers - first);
        (self.bytes(BUFFERS + first * self.buffer_len, count * self.buffer_len), count)
    }

    #[inline]
    fn taken(&self) -> &AtomicU64 {
        self.atomic(TAKEN)
    }

    #[inline]
    fn held(&self) -> &AtomicU64 {
        self.atomic(HELD)
    }

    #[inline]
    fn lease(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < OFFERS);
        self.atomic(LEASES + size_of::<u64>() * slot)
    }

    #[inline]
    fn want(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < OFFERS);
        self.atomic(WANTS + size_of::<u64>() * slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::message::buffers;

    #[test]
    fn more_ranks_have_fewer_buffers_each() {
        let buffers = [1, 2, 3, 8, 16, 64, 256, 65_536].map(|ranks| {
            let layout = ChannelLayout::new(ranks);
            (layout.buffers, layout.buffer_len / 1024)
        });
        assert_eq!(buffers, [(64, 32), (64, 32), (64, 16), (64, 8), (64, 4), (16, 4), (4, 4), (4, 4)]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri would take minutes to read them")]
    fn the_documents_say_what_a_channel_takes() {
        let kib = |bytes: usize| format!("{} KiB", bytes as f64 / 1024.0);
        let many = ChannelLayout::new(257);
        let (few, many) = (kib(BUFFERS), kib(many.stride));
        let docs = [include_str!("../message/mod.rs"), include_str!("../../docs/messages.md")];
        for text in docs.map(|text| text.replace("///", " ").split_whitespace().collect::<Vec<_>>().join(" ")) {
            assert!(text.contains(&format!("and {few} for each")), "{few}");
            assert!(text.contains(&format!("with more than 256 ranks, {many} for each")), "{many}");
        }
    }

    #[test]
    fn adjacent_buffers_are_copied_together_and_others_one_by_one() {
        let layout = ChannelLayout::of_pair();
        let mut memory = vec![0u64; layout.words];
        // SAFETY: I16: these words, which nothing else accesses.
        let instance = unsafe { Instance::new(memory.as_mut_ptr(), layout.words) };
        let channel = MappedChannel::new([instance, instance], &layout, 1, 0);
        let bytes: Vec<u8> = (0..5 * PAIR_BUFFER - 9).map(|at| (at / PAIR_BUFFER * 31 + at) as u8).collect();
        for mask in [0b1011_0110, 0b11111 << 59, 0b1_1111, 1 << 63 | 0b1111 << 20] {
            buffers::fill(&channel, mask, &bytes);
            let numbers = (0..64).filter(|buffer| mask >> buffer & 1 == 1);
            for (number, part) in numbers.zip(bytes.chunks(PAIR_BUFFER)) {
                let mut found = vec![0; part.len()];
                channel.buffer(number).read(|source| source.get(0, &mut found));
                assert!(found == part, "buffer {number} of {mask:#b}");
            }
            let mut found = vec![0; bytes.len()];
            buffers::read(&channel, mask, &mut found);
            assert!(found == bytes, "{mask:#b}");
        }
    }
}
