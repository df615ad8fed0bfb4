//! The memory of a connection between two endpoints: a channel in each direction, and what wakes each side.
//!
//! ```text
//!   0        128      256        384        512       640       768  4096
//!   │ bell 0 │ bell 1 │ closed 0 │ closed 1 │ token 0 │ token 1 │  …  │ channel of side 0 │ channel of side 1 │
//! ```
//!
//! The other side is a stranger, who may write anything at any time. So the file cannot be truncated, and a cell is copied
//! before it is looked at: what was checked is what is used.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::fs::File;
use std::io;
use std::sync::OnceLock;

use super::message_memory::{ChannelBytes, ChannelLayout, MappedChannel};
use super::platform::ShmPlatform;
use super::unit::Instance;
use crate::copy::{Sink, Source};
use crate::protocol::message::channel::PAYLOAD;
use crate::protocol::message::{Channel, Post};
use crate::protocol::{Bell, Payload, Segment};
use crate::sys::cma::Token;
use crate::sys::memory::headroom::overcommit_is_strict;
use crate::sys::memory::mapping::Mapping;
use crate::sys::memory::memfd;
use crate::sys::shm_file;

/// The number of sides.
const SIDES: usize = 2;

/// Offsets, in bytes.
const CLOSED: usize = SIDES * size_of::<Bell<ShmPlatform>>();
const TOKENS: usize = CLOSED + SIDES * 128;
const CHANNELS: usize = 4096;

const _: () = assert!(size_of::<Bell<ShmPlatform>>() == 128 && TOKENS + SIDES * 128 <= CHANNELS);

/// In place of the memory of connections that have ended: nobody sends anything there.
struct Nowhere {
    mapping: Mapping,
    /// A forked child inherits this, and not the memory.
    of_child: OnceNowhere,
}

/// `None`: the system has none to give.
type OnceNowhere = OnceLock<Option<Box<Nowhere>>>;

static NOWHERE: OnceNowhere = OnceLock::new();

impl Nowhere {
    fn new() -> Option<Box<Self>> {
        let mapping = Mapping::anonymous(PairMemory::file_len()).ok()?;
        Some(Box::new(Nowhere { mapping, of_child: OnceLock::new() }))
    }

    /// That of this process.
    fn own() -> Option<&'static Mapping> {
        let mut place = &NOWHERE;
        loop {
            let nowhere = place.get_or_init(Self::new).as_ref()?;
            if !nowhere.mapping.forked() {
                return Some(&nowhere.mapping);
            }
            place = &nowhere.of_child;
        }
    }
}

/// Where the memory of a connection is.
enum Memory {
    Shared(Mapping),
    Nowhere(&'static Mapping),
}

/// The memory of one connection, as one of its sides sees it.
pub(crate) struct PairMemory {
    mapping: Memory,
    channels: Channels,
    /// 0: the side that has connected; 1: the side that listens.
    side: usize,
}

/// Where the mapping begins, the bells, and both channels, found once, since they are needed for each message. Their lifetime is the mapping's.
struct Channels {
    start: *mut u8,
    segment: Segment<'static, ShmPlatform>,
    outgoing: MappedChannel<'static>,
    incoming: MappedChannel<'static>,
}

/// What the protocols of a job would poison; between strangers nothing does.
static CAUSE: AtomicU64 = AtomicU64::new(0);
static SPREAD: AtomicU32 = AtomicU32::new(0);

// SAFETY: I18: any thread may use a channel, as it could find it anew.
unsafe impl Send for Channels {}
// SAFETY: I18: as above.
unsafe impl Sync for Channels {}

impl Channels {
    /// Those in a mapping as long as the file of a connection, for one side.
    fn of(mapping: &Mapping, side: usize) -> Self {
        let (start, layout) = (mapping.start().wrapping_add(CHANNELS).cast(), PairMemory::layout());
        assert!(mapping.len() >= PairMemory::file_len());
        // SAFETY: I18: in the mapping by `file_len`, aligned to a page, and used by the channels only; the mapping is kept as long as
        // what refers to it, and what is given out does not outlive it.
        let instance = unsafe { Instance::new(start, layout.words) };
        let channel = |sender| MappedChannel::new([instance; SIDES], &layout, sender, 1 - sender);
        let bells = mapping.start().cast::<Bell<ShmPlatform>>();
        let segment = Segment {
            cause: &CAUSE,
            spread: &SPREAD,
            claims: &[],
            slots: &[],
            buffers: &[],
            // SAFETY: I1 and I3: the mapping begins with them, at a page; the other side may change atomics. I18: as above.
            bells: unsafe { core::slice::from_raw_parts(bells, SIDES) },
        };
        Channels { start: mapping.start(), segment, outgoing: channel(side), incoming: channel(1 - side) }
    }
}

impl PairMemory {
    fn layout() -> ChannelLayout {
        ChannelLayout::of_pair()
    }

    /// The length of the file, in bytes.
    pub(crate) fn file_len() -> usize {
        CHANNELS + Self::layout().words * size_of::<u64>()
    }

    /// Makes the memory of a new connection, for the side that connects. The other side gets the file.
    pub(crate) fn create() -> io::Result<(Self, File)> {
        let len = Self::file_len();
        let file = memfd::make(len as u64)?;
        if overcommit_is_strict() {
            // Otherwise a page that the system cannot give would be a SIGBUS when it is first used.
            shm_file::allocate(&file, 0..len)?;
        }
        Ok((Self::map(&file, 0)?, file))
    }

    /// Maps what the other side has made. `None`: it is no such file, or one that could be truncated.
    pub(crate) fn open(file: &File) -> io::Result<Option<Self>> {
        // Of exactly this length, which no file of huge pages can have: those may be missing when they are first used.
        if !memfd::is_sealed(file) || file.metadata()?.len() != Self::file_len() as u64 {
            return Ok(None);
        }
        Self::map(file, 1).map(Some)
    }

    fn map(file: &File, side: usize) -> io::Result<Self> {
        let mapping = Mapping::of(file, Self::file_len())?;
        let channels = Channels::of(&mapping, side);
        Ok(PairMemory { mapping: Memory::Shared(mapping), channels, side })
    }

    /// Gives the memory up, for a connection that has ended: what is done with the channels from now on has no effect. Otherwise it is as before,
    /// since the system has no memory to give.
    pub(crate) fn give_up(&mut self) {
        if let Some(nowhere) = Nowhere::own() {
            // First: what is unmapped then is not referred to any more.
            self.channels = Channels::of(nowhere, self.side);
            self.mapping = Memory::Nowhere(nowhere);
        }
    }

    /// The most memory of its own, in bytes: pages that were not used take none.
    pub(crate) fn bytes(&self) -> usize {
        match self.mapping {
            Memory::Shared(_) => Self::file_len(),
            Memory::Nowhere(_) => 0,
        }
    }

    /// Whether this process is a forked child, in which the memory does not exist.
    pub(crate) fn forked(&self) -> bool {
        match &self.mapping {
            Memory::Shared(mapping) => mapping.forked(),
            Memory::Nowhere(mapping) => mapping.forked(),
        }
    }

    /// The number of the other side.
    #[inline(always)]
    pub(crate) fn other(&self) -> usize {
        1 - self.side
    }

    /// This side's access to the channels. The platform says how the other side is woken.
    #[inline(always)]
    pub(crate) fn post<'a>(&'a self, platform: &'a ShmPlatform) -> Post<'a, ShmPlatform> {
        Post::new(platform, &self.channels.segment, self.side)
    }

    /// The channel to the other side.
    #[inline(always)]
    pub(crate) fn outgoing(&self) -> PairChannel<'_> {
        PairChannel(self.channels.outgoing)
    }

    /// The channel from the other side.
    #[inline(always)]
    pub(crate) fn incoming(&self) -> PairChannel<'_> {
        PairChannel(self.channels.incoming)
    }

    /// Not 0 once a side sends no more.
    fn closed(&self, side: usize) -> &AtomicU64 {
        self.word(CLOSED + 128 * side)
    }

    /// A word before the channels.
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset < CHANNELS && offset.is_multiple_of(size_of::<u64>()));
        // SAFETY: I1 and I3: inside the mapping, aligned; the other side may change it.
        unsafe { AtomicU64::from_ptr(self.channels.start.wrapping_add(offset).cast()) }
    }

    fn token_words(&self, side: usize) -> [&AtomicU64; 2] {
        [0, size_of::<u64>()].map(|at| self.word(TOKENS + 128 * side + at))
    }

    /// Says by what the other side knows this process, before this side sends anything.
    pub(crate) fn show(&self, token: Token) {
        let words = self.token_words(self.side).into_iter().zip([token.address, token.value]);
        // Relaxed: published with the first message.
        words.for_each(|(word, value)| word.store(value, Relaxed));
    }

    /// By what the process of the other side is known, once that has sent something.
    pub(crate) fn token(&self) -> Token {
        let [address, value] = self.token_words(self.other()).map(|word| word.load(Relaxed));
        Token { address, value }
    }

    /// This side sends no more.
    pub(crate) fn close(&self, platform: &ShmPlatform) {
        // An error occurs in tests only.
        let _ = self.post(platform).close(self.closed(self.side));
    }

    /// Whether the other side has said that it sends no more.
    pub(crate) fn is_closed(&self, platform: &ShmPlatform) -> bool {
        self.post(platform).is_closed(self.closed(self.other()))
    }
}

/// A channel whose other side is not trusted.
#[derive(Clone, Copy)]
pub(crate) struct PairChannel<'a>(MappedChannel<'a>);

/// A cell's payload, or what is nothing but a message: a buffer, or a slot.
pub(crate) enum PairBytes<'a> {
    Cell(ChannelBytes<'a>),
    Message(ChannelBytes<'a>),
}

// SAFETY: I18: the view is exactly these bytes, or a copy of them.
unsafe impl Payload for PairBytes<'_> {
    #[inline(always)]
    fn write<R>(&self, fill: impl FnOnce(Sink<'_>) -> R) -> R {
        let (PairBytes::Cell(bytes) | PairBytes::Message(bytes)) = self;
        bytes.write(fill)
    }

    #[inline(always)]
    fn prefetch_for_write(&self, start: usize, len: usize) {
        let (PairBytes::Cell(bytes) | PairBytes::Message(bytes)) = self;
        bytes.prefetch_for_write(start, len);
    }

    #[inline(always)]
    fn read<R>(&self, read: impl FnOnce(Source<'_>) -> R) -> R {
        match self {
            PairBytes::Cell(bytes) => {
                // What is checked here must be what is used: the compiler may not read it again from the channel.
                let copy = core::hint::black_box(bytes.read(|source| source.array::<PAYLOAD>(0)));
                // SAFETY: I18: a private copy, of this length, which outlives the call.
                read(unsafe { Source::new(copy.as_ptr(), PAYLOAD) })
            }
            // Its bytes are handed on, and not looked at.
            PairBytes::Message(bytes) => bytes.read(read),
        }
    }
}

impl<'a> Channel for PairChannel<'a> {
    type Word = AtomicU64;
    type Bytes = PairBytes<'a>;

    #[inline]
    fn cells(&self) -> usize {
        self.0.cells()
    }

    #[inline]
    fn buffers(&self) -> usize {
        self.0.buffers()
    }

    #[inline]
    fn buffer_len(&self) -> usize {
        self.0.buffer_len()
    }

    #[inline]
    fn word(&self, slot: usize) -> &AtomicU64 {
        self.0.word(slot)
    }

    #[inline(always)]
    fn payload(&self, cell: usize) -> PairBytes<'a> {
        PairBytes::Cell(self.0.payload(cell))
    }

    #[inline(always)]
    fn prefetch_for_read(&self, cell: usize) {
        self.0.prefetch_for_read(cell);
    }

    #[inline(always)]
    fn slot(&self, slot: usize) -> PairBytes<'a> {
        PairBytes::Message(self.0.slot(slot))
    }

    #[inline]
    fn line_word(&self, slot: usize) -> &AtomicU64 {
        self.0.line_word(slot)
    }

    #[inline(always)]
    fn line_slot(&self, slot: usize) -> PairBytes<'a> {
        PairBytes::Message(self.0.line_slot(slot))
    }

    #[inline]
    fn buffer(&self, buffer: usize) -> PairBytes<'a> {
        PairBytes::Message(self.0.buffer(buffer))
    }

    #[inline]
    fn adjacent(&self, first: usize, count: usize) -> (PairBytes<'a>, usize) {
        let (bytes, count) = self.0.adjacent(first, count);
        (PairBytes::Message(bytes), count)
    }

    #[inline]
    fn taken(&self) -> &AtomicU64 {
        self.0.taken()
    }

    #[inline]
    fn held(&self) -> &AtomicU64 {
        self.0.held()
    }

    #[inline]
    fn lease(&self, slot: usize) -> &AtomicU64 {
        self.0.lease(slot)
    }

    #[inline]
    fn want(&self, slot: usize) -> &AtomicU64 {
        self.0.want(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn only_a_sealed_file_of_this_length_is_mapped() {
        let (_own, file) = PairMemory::create().unwrap();
        assert!(PairMemory::open(&file).unwrap().is_some());
        let longer = memfd::make(PairMemory::file_len() as u64 + 1).unwrap();
        assert!(PairMemory::open(&longer).unwrap().is_none());
        let unsealed = tempfile::tempfile().unwrap();
        unsealed.set_len(PairMemory::file_len() as u64).unwrap();
        assert!(PairMemory::open(&unsealed).unwrap().is_none());
    }

    #[test]
    fn pages_that_nobody_has_used_take_no_memory() {
        use std::os::unix::fs::MetadataExt;
        let (_own, file) = PairMemory::create().unwrap();
        file.write_all_at(&[1], 0).unwrap();
        assert!(overcommit_is_strict() || file.metadata().unwrap().blocks() <= 8);
    }
}
