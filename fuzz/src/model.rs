//! A second implementation of the segment's layout and header, from their description: in 128 bits, without overflow, and
//! with the literal numbers of version 11.

use std::ops::Range;

/// The magic number that a header begins with.
pub const MAGIC: u64 = 0x696E_7472_616E_6F64;

/// The version that is described here.
pub const VERSION: u32 = 11;

/// The largest mapping of a process with this many bits.
pub fn address_space(bits: u32) -> u128 {
    (1 << (bits - 1)) - 1
}

/// The expected layout.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    pub chunk: u128,
    pub spaces: u128,
    pub fates: u128,
    pub alive: u128,
    pub watchers: u128,
    pub slots: u128,
    pub bells: u128,
    pub pairs: u128,
    pub staging: u128,
    pub len: u128,
}

impl Map {
    /// The layout for these ranks and chunks; `None` if one of the two is out of range.
    pub fn new(ranks: u128, chunk: u128) -> Option<Self> {
        if ranks == 0 || ranks > 65_536 || chunk == 0 || chunk > 1 << 30 || !chunk.is_multiple_of(64) {
            return None;
        }
        let up = |offset: u128, step: u128| offset.div_ceil(step) * step;
        let spaces = up(256 + 4 * ranks, 128);
        let fates = up(spaces + 4 * ranks, 128);
        let alive = up(fates + 4 * ranks, 128);
        // Each rank has up to 8 watchers, and 8 bytes for each of them.
        let watchers = (ranks - 1).min(8);
        let slots = up(alive + ranks * watchers * 8, 128);
        let bells = slots + 2 * 128 * ranks;
        let pairs = bells + 128 * ranks;
        let staging = up(pairs + 16 * 128, 4096) + 2048;
        let len = staging + 2 * ranks * chunk;
        Some(Map { chunk, spaces, fates, alive, watchers, slots, bells, pairs, staging, len })
    }

    /// A rank's staging buffer.
    pub fn staging(&self, rank: u128, parity: u128) -> Range<u128> {
        let start = self.staging + (2 * rank + parity) * self.chunk;
        start..start + self.chunk
    }
}

/// A decoded header, if this process can use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub pid: u32,
    pub ranks: u64,
    pub chunk: u64,
}

impl Header {
    /// Reads the header of a file of `length` bytes; `None` if it must be refused.
    pub fn read(bytes: &[u8], length: u64) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (magic, version, bits, pid) = (long(0)?, word(8)?, word(12)?, word(16)?);
        let (ranks, chunk, stated) = (long(20)?, long(28)?, long(36)?);
        let map = Map::new(ranks.into(), chunk.into())?;
        let fits = map.len <= address_space(usize::BITS);
        let right = magic == MAGIC && version == VERSION && bits == usize::BITS && fits;
        (right && map.len == stated.into() && map.len == length.into()).then_some(Header { pid, ranks, chunk })
    }
}
