//! What ranks that send messages share: a channel for each ordered pair of ranks, and what a receiver pulls.

use std::array;
use std::sync::Arc;

use intranode::protocol::message::Channel;
use intranode::protocol::message::channel::{LINE_SLOTS, PAYLOAD, SLOT, SLOTS, most_under_way};
use shuttle::sync::atomic::AtomicU64;

use crate::harness::cell::Cell;
use crate::harness::ordered_cell::Ordered64;
use crate::harness::segment::SegmentMemory;
use crate::harness::shared_cell::Cell64;
use crate::harness::simulation::Simulation;

/// The bytes of a buffer, and of a message that is pulled.
pub const BUFFER: usize = 8;

const CELLS: usize = 2;
const BUFFERS: usize = 3;

pub struct ChannelMemory {
    /// By cell and slot.
    words: Vec<[Ordered64; SLOTS]>,
    payloads: Vec<Cell>,
    /// By cell and slot. They lie in the cell's payload.
    slots: Vec<[Cell; SLOTS]>,
    /// The slots of the line of the pair: their words, and what is in them.
    line: [(Ordered64, Cell); LINE_SLOTS],
    buffers: Vec<Cell>,
    taken: Ordered64,
    held: Ordered64,
    lease: Ordered64,
    want: Ordered64,
    /// The sender's memory from which the receiver pulls, as long as the sender does not take the offer back.
    pub own: Cell,
    /// The same where it does. What it changes to while it is read is thrown away, so this is not race-checked.
    pub changing: Cell64,
}

impl ChannelMemory {
    fn new(simulation: &Arc<Simulation>, sender: usize, receiver: usize) -> Self {
        let word = || Ordered64::new(simulation);
        let bytes =
            |what, sites, len| Cell::new(simulation, format!("{what} from {sender} to {receiver}"), sites, len);
        ChannelMemory {
            words: (0..CELLS).map(|_| array::from_fn(|_| word())).collect(),
            slots: (0..CELLS)
                .map(|_| array::from_fn(|_| bytes("slot", ["slot-write", "slot-read"], SLOT)))
                .collect(),
            payloads: (0..CELLS).map(|_| bytes("cell", ["cell-write", "cell-read"], PAYLOAD)).collect(),
            line: array::from_fn(|_| (word(), bytes("line", ["line-write", "line-read"], SLOT))),
            buffers: (0..BUFFERS).map(|_| bytes("buffer", ["buffer-write", "buffer-read"], BUFFER)).collect(),
            taken: word(),
            held: word(),
            lease: word(),
            want: word(),
            own: bytes("what is pulled", ["own-write", "own-read"], BUFFER),
            changing: Cell64::default(),
        }
    }
}

impl Channel for &ChannelMemory {
    type Word = Ordered64;
    type Bytes = Cell;

    fn cells(&self) -> usize {
        CELLS
    }

    /// As small as it can be, so that counts wrap.
    fn modulus(&self) -> u64 {
        (most_under_way(self) as u64 + 1).next_power_of_two()
    }

    fn buffers(&self) -> usize {
        BUFFERS
    }

    fn buffer_len(&self) -> usize {
        BUFFER
    }

    fn word(&self, slot: usize) -> &Ordered64 {
        &self.words[slot / SLOTS][slot % SLOTS]
    }

    fn payload(&self, cell: usize) -> Cell {
        self.payloads[cell].clone()
    }

    fn slot(&self, slot: usize) -> Cell {
        self.slots[slot / SLOTS][slot % SLOTS].clone()
    }

    fn line_word(&self, slot: usize) -> &Ordered64 {
        &self.line[slot].0
    }

    fn line_slot(&self, slot: usize) -> Cell {
        self.line[slot].1.clone()
    }

    fn buffer(&self, buffer: usize) -> Cell {
        self.buffers[buffer].clone()
    }

    fn taken(&self) -> &Ordered64 {
        &self.taken
    }

    fn held(&self) -> &Ordered64 {
        &self.held
    }

    /// There is one offer at a time.
    fn lease(&self, _: usize) -> &Ordered64 {
        &self.lease
    }

    fn want(&self, _: usize) -> &Ordered64 {
        &self.want
    }
}

pub struct Channels {
    pub segment: SegmentMemory,
    /// By sender and receiver.
    channels: Vec<Vec<ChannelMemory>>,
    /// By rank: whether it sends no more.
    pub closed: Vec<Ordered64>,
    /// A bit for each rank that is known to be dead.
    pub dead: AtomicU64,
}

impl Channels {
    pub fn new(simulation: &Arc<Simulation>, ranks: usize) -> Self {
        let to_all = |sender| (0..ranks).map(|rank| ChannelMemory::new(simulation, sender, rank)).collect();
        Channels {
            segment: SegmentMemory::of_bells(simulation, ranks),
            channels: (0..ranks).map(to_all).collect(),
            closed: (0..ranks).map(|_| Ordered64::new(simulation)).collect(),
            dead: AtomicU64::new(0),
        }
    }

    pub fn ranks(&self) -> usize {
        self.closed.len()
    }

    pub fn between(&self, sender: usize, receiver: usize) -> &ChannelMemory {
        &self.channels[sender][receiver]
    }
}
