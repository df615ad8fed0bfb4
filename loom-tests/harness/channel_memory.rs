//! The memory of a channel between two ranks, or between two endpoints.

use std::array;

use intranode::protocol::Payload;
use intranode::protocol::message::{Channel, Envelope, Kind, channel};

use crate::harness::atomic_cells::Cell64;
use crate::harness::cells::Bytes;
use crate::harness::trace::Label;

/// A channel. Labels are by sender.
pub(crate) struct ChannelMemory {
    /// By cell and slot.
    words: Vec<[Cell64; channel::SLOTS]>,
    payloads: Vec<Bytes<{ channel::PAYLOAD }>>,
    /// By cell and slot. They lie in the cell's payload.
    slots: Vec<[Bytes<{ channel::SLOT }>; channel::SLOTS]>,
    /// The slots of the line of the pair: their words, and what is in them.
    line: [(Cell64, Bytes<{ channel::SLOT }>); channel::LINE_SLOTS],
    buffers: Vec<Bytes<8>>,
    modulus: u64,
    taken: Cell64,
    held: Cell64,
    lease: Cell64,
    want: Cell64,
}

impl ChannelMemory {
    /// `modulus`: that of the counts in words.
    pub(crate) fn new(sender: usize, (cells, buffers): (usize, usize), modulus: u64) -> Self {
        let label = |parity| Label { what: "cell", rank: sender, parity };
        let word = || Cell64::new(label(0));
        // What a cell held before may look like a slot of this lap.
        let word_of = |cell, slot| match slot {
            0 => Cell64::new(label(cell)),
            _ => Cell64::holding(label(cell), 1 << 40 | 9 << 51 | 8),
        };
        let bytes = |cell| Bytes::new(Label { what: "slot", rank: sender, parity: cell });
        ChannelMemory {
            words: (0..cells).map(|cell| array::from_fn(|slot| word_of(cell, slot))).collect(),
            slots: (0..cells).map(|cell| array::from_fn(|_| bytes(cell))).collect(),
            payloads: (0..cells)
                .map(|cell| Bytes::new(Label { what: "payload", rank: sender, parity: cell }))
                .collect(),
            line: array::from_fn(|_| (word(), Bytes::new(Label { what: "line", rank: sender, parity: 0 }))),
            buffers: (0..buffers)
                .map(|buffer| Bytes::new(Label { what: "buffer", rank: sender, parity: buffer }))
                .collect(),
            modulus,
            taken: word(),
            held: word(),
            lease: word(),
            want: word(),
        }
    }
}

impl<'m> Channel for &'m ChannelMemory {
    type Word = Cell64;
    type Bytes = Bytes8<'m>;

    fn cells(&self) -> usize {
        self.words.len()
    }

    fn modulus(&self) -> u64 {
        self.modulus
    }

    fn buffers(&self) -> usize {
        self.buffers.len()
    }

    fn buffer_len(&self) -> usize {
        8
    }

    fn word(&self, slot: usize) -> &Cell64 {
        &self.words[slot / channel::SLOTS][slot % channel::SLOTS]
    }

    fn payload(&self, cell: usize) -> Bytes8<'m> {
        Bytes8::Cell(&self.payloads[cell], &self.slots[cell])
    }

    fn slot(&self, slot: usize) -> Bytes8<'m> {
        Bytes8::Buffer(&self.slots[slot / channel::SLOTS][slot % channel::SLOTS])
    }

    fn line_word(&self, slot: usize) -> &Cell64 {
        &self.line[slot].0
    }

    fn line_slot(&self, slot: usize) -> Bytes8<'m> {
        Bytes8::Buffer(&self.line[slot].1)
    }

    fn buffer(&self, buffer: usize) -> Bytes8<'m> {
        Bytes8::Buffer(&self.buffers[buffer])
    }

    fn taken(&self) -> &Cell64 {
        &self.taken
    }

    fn held(&self) -> &Cell64 {
        &self.held
    }

    fn lease(&self, slot: usize) -> &Cell64 {
        assert!(slot == 0, "a model has one offer at a time");
        &self.lease
    }

    fn want(&self, slot: usize) -> &Cell64 {
        assert!(slot == 0, "a model has one offer at a time");
        &self.want
    }
}

/// A payload of either length.
pub(crate) enum Bytes8<'m> {
    /// With the slots that lie in it.
    Cell(&'m Bytes<{ channel::PAYLOAD }>, &'m [Bytes<8>; channel::SLOTS]),
    /// Or a slot.
    Buffer(&'m Bytes<8>),
}

// SAFETY: it is one of two payloads.
unsafe impl Payload for Bytes8<'_> {
    fn write<R>(&self, fill: impl FnOnce(intranode::copy::Sink<'_>) -> R) -> R {
        match self {
            Bytes8::Cell(bytes, slots) => {
                slots.iter().for_each(|slot| slot.write(|_| ()));
                bytes.write(fill)
            }
            Bytes8::Buffer(bytes) => bytes.write(fill),
        }
    }

    fn read<R>(&self, read: impl FnOnce(intranode::copy::Source<'_>) -> R) -> R {
        match self {
            Bytes8::Cell(bytes, slots) => {
                slots.iter().for_each(|slot| slot.read(|_| ()));
                bytes.read(read)
            }
            Bytes8::Buffer(bytes) => bytes.read(read),
        }
    }
}

pub(crate) fn envelope(kind: Kind, mask: u64, value: u64) -> Envelope {
    let mut inline = [0; channel::INLINE];
    inline[..8].copy_from_slice(&value.to_ne_bytes());
    Envelope { kind, len: 8, tag: 7, mask, inline }
}
