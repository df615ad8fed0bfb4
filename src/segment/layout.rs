//! The segment's map: every offset and size, by checked arithmetic. Nothing else computes one.
//!
//! ```text
//!        0  preamble   what the segment is: magic, version, word size, ranks, chunk, length
//!      128  cause      one 64-bit word: why the communicator was poisoned
//!      136  wait       one 32-bit word: how ranks sleep
//!      140  shape    one 32-bit word: whether ranks meet in groups
//!      144  single     one 32-bit word: whether ranks try to read each other's memory
//!      148  spread     one 32-bit word: whether the poison has reached all words
//!      152  key        one 64-bit word: the key of the digests of counts
//!      160  notices    one 32-bit word: changes when a rank is found to have died
//!      256  claims     one 32-bit word a rank: which process has taken it
//!        …  spaces     one 32-bit word a rank: the space that the process's number counts in
//!        …  fates      one 32-bit word a rank: whether it is known to have died
//!        …  alive      one slot for each watcher of a rank, a row for each rank
//!        …  slots    two slots a rank (one for each parity), 128 bytes each
//!        …  pairs      mutex and condition variable of the pthread wait
//!        …  staging    two chunks a rank (one for each parity)
//! ```
//!
//! The map follows from the number of ranks and the chunk's size alone, so a rank that has read the preamble
//! needs nothing else, and a file whose length does not fit is refused.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing
)]

use std::fmt;

/// The length of the encoded preamble.
pub const PREAMBLE: usize = 64;

/// How many mutex-and-condition pairs a segment has.
pub const PAIRS: usize = 16;

/// The room for one of them.
pub const PAIR: usize = 128;

/// The most ranks that a segment can have: what fits into the packed cause of a poisoned communicator.
pub const MAX_RANKS: usize = 1 << 16;

/// The room for a word that says whether a rank is alive. The kernel walks a list whose nodes lie as far apart as the
/// words, and a node is a pointer.
pub const ALIVE: usize = 8;

/// The most ranks that watch one rank. Each has a word of its own, because the kernel wakes one sleeper a word. One would
/// do if none were ever stopped, or died at the same time.
pub const WATCHERS: usize = 8;

/// The granularity of chunks. A multiple of every element's size that is reduced.
pub const CHUNK_STEP: usize = 64;

/// The largest chunk.
pub const MAX_CHUNK: usize = 1 << 30;

const CAUSE: usize = 128;
const WAIT: usize = 136;
const SHAPE: usize = 140;
const SINGLE_COPY: usize = 144;
const SPREAD: usize = 148;
const KEY: usize = 152;
const NOTICES: usize = 160;
const CLAIMS: usize = 256;
const SLOT: usize = 128;
const ALIGN: usize = 128;
const STAGING_ALIGN: usize = 4096;
/// So far after a multiple of that staging begins. Large private buffers begin at the beginning of a page, or little after
/// it, and a broadcast into such a buffer, from staging that begins with a page too and has to be read from memory, was
/// measured at more than twice the time.
const STAGING_AWAY: usize = STAGING_ALIGN / 2;

const MAGIC: u64 = u64::from_be_bytes(*b"intranod");
const VERSION: u32 = 3;

/// Where everything lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    ranks: usize,
    chunk: usize,
    spaces: usize,
    fates: usize,
    alive: usize,
    slots: usize,
    pairs: usize,
    staging: usize,
    len: usize,
}

/// Why there is no such layout, or a file is not a segment that this process can use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// The number of ranks is 0 or too large.
    Ranks(usize),
    /// The chunk is 0, too large, or no multiple of [`CHUNK_STEP`].
    Chunk(usize),
    /// The segment is larger than the address space.
    Overflow,
    /// The file does not begin as a segment does.
    Foreign,
    /// The segment was made by another version of the layout.
    Version(u32),
    /// The segment was made by a process with other words or another byte order.
    ShmPlatform,
    /// The segment is for another number of ranks.
    Size {
        /// What the segment was made for.
        segment: usize,
        /// What this rank was told.
        expected: usize,
    },
    /// The file's length is not what its preamble implies.
    Length {
        /// The file's length.
        actual: u64,
        /// The length that the preamble implies.
        expected: u64,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::Ranks(ranks) => write!(f, "{ranks} ranks, allowed are 1 to {MAX_RANKS}"),
            LayoutError::Chunk(chunk) => {
                write!(f, "chunks of {chunk} bytes, allowed are multiples of {CHUNK_STEP} up to {MAX_CHUNK}")
            }
            LayoutError::Overflow => write!(f, "the segment would be larger than the address space"),
            LayoutError::Foreign => write!(f, "it is not a segment of this library"),
            LayoutError::Version(version) => {
                write!(f, "it has layout version {version}, this program has version {VERSION}")
            }
            LayoutError::ShmPlatform => {
                write!(f, "it was made by a program with another word size or byte order")
            }
            LayoutError::Size { segment, expected } => {
                write!(f, "it was made for {segment} ranks, this rank was told {expected}")
            }
            LayoutError::Length { actual, expected } => {
                write!(f, "it is {actual} bytes long and should be {expected}")
            }
        }
    }
}

impl std::error::Error for LayoutError {}

impl Layout {
    /// The layout for so many ranks with chunks of so many bytes.
    ///
    /// # Errors
    /// When a number is not allowed, or the segment would be larger than the address space.
    pub fn new(ranks: usize, chunk: usize) -> Result<Self, LayoutError> {
        Self::within(ranks, chunk, wide(isize::MAX.unsigned_abs()))
    }

    /// The same for a process whose mappings have at most `most` bytes.
    ///
    /// The arithmetic is in 64 bits everywhere, so that what a process of 32 bits computes can be tested in any.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn within(ranks: usize, chunk: usize, most: u64) -> Result<Self, LayoutError> {
        if !(1..=MAX_RANKS).contains(&ranks) {
            return Err(LayoutError::Ranks(ranks));
        }
        if !(CHUNK_STEP..=MAX_CHUNK).contains(&chunk) || !chunk.is_multiple_of(CHUNK_STEP) {
            return Err(LayoutError::Chunk(chunk));
        }
        Self::checked(ranks, chunk, most).ok_or(LayoutError::Overflow)
    }

    fn checked(ranks: usize, chunk: usize, most: u64) -> Option<Self> {
        let cells = wide(ranks).checked_mul(2)?;
        let words = wide(ranks).checked_mul(wide(size_of::<u32>()))?;
        let spaces = wide(CLAIMS).checked_add(words)?.checked_next_multiple_of(wide(ALIGN))?;
        let fates = spaces.checked_add(words)?.checked_next_multiple_of(wide(ALIGN))?;
        let alive = fates.checked_add(words)?.checked_next_multiple_of(wide(ALIGN))?;
        let rows = wide(ranks).checked_mul(wide(watchers(ranks)))?.checked_mul(wide(ALIVE))?;
        let slots = alive.checked_add(rows)?.checked_next_multiple_of(wide(ALIGN))?;
        let pairs = slots.checked_add(cells.checked_mul(wide(SLOT))?)?;
        let after_pairs = pairs.checked_add(wide(PAIRS).checked_mul(wide(PAIR))?)?;
        let staging =
            after_pairs.checked_next_multiple_of(wide(STAGING_ALIGN))?.checked_add(wide(STAGING_AWAY))?;
        let len = staging.checked_add(cells.checked_mul(wide(chunk))?)?;
        let offset = |offset: u64| usize::try_from(offset).ok();
        let (spaces, fates, alive) = (offset(spaces)?, offset(fates)?, offset(alive)?);
        let slots = offset(slots)?;
        let (pairs, staging) = (offset(pairs)?, offset(staging)?);
        // What a mapping can be at most.
        let len = offset(len).filter(|len| wide(*len) <= most && isize::try_from(*len).is_ok())?;
        Some(Layout { ranks, chunk, spaces, fates, alive, slots, pairs, staging, len })
    }

    /// The chunk's size where none is asked for: more than a core's own cache, see [`crate::protocol::staging`], and
    /// less for many ranks.
    pub fn default_chunk(ranks: usize) -> usize {
        const LARGE: usize = 3 << 19;
        const STAGING: usize = 6 << 20;
        match STAGING.checked_div(ranks.saturating_mul(2)) {
            Some(share) if ranks > 4 => share.max(STAGING_ALIGN).next_multiple_of(STAGING_ALIGN),
            _ => LARGE,
        }
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// The size of one staging buffer in bytes.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// The length of the segment in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a segment is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The offset of the cause word.
    pub fn cause(&self) -> usize {
        CAUSE
    }

    /// The offset of the word that says how ranks sleep.
    pub fn wait(&self) -> usize {
        WAIT
    }

    /// The offset of the word that says whether ranks meet in groups.
    pub fn barrier_shape(&self) -> usize {
        SHAPE
    }

    /// The word that says whether ranks try to read each other's memory.
    pub fn single_copy(&self) -> usize {
        SINGLE_COPY
    }

    /// The offset of the word that says whether the poison has reached all words.
    pub fn spread(&self) -> usize {
        SPREAD
    }

    /// The offset of the key of the digests.
    pub fn key(&self) -> usize {
        KEY
    }

    /// The offset of the claims.
    pub fn claims(&self) -> usize {
        CLAIMS
    }

    /// The offset of the spaces.
    pub fn spaces(&self) -> usize {
        self.spaces
    }

    /// The offset of the word that changes when a rank is found to have died.
    pub fn notices(&self) -> usize {
        NOTICES
    }

    /// The offset of the fates.
    pub fn fates(&self) -> usize {
        self.fates
    }

    /// How many words say whether a rank is alive: one for each of its watchers.
    pub fn watchers(&self) -> usize {
        watchers(self.ranks)
    }

    /// The offset of one of the words that say whether `owner` is alive; `None` if there is no such rank or slot. A rank's
    /// words lie [`ALIVE`] bytes apart, and the next rank's follow them.
    pub fn alive(&self, owner: usize, slot: usize) -> Option<usize> {
        if owner >= self.ranks || slot >= self.watchers() {
            return None;
        }
        let word = owner.checked_mul(self.watchers())?.checked_add(slot)?.checked_mul(ALIVE)?;
        self.alive.checked_add(word)
    }

    /// The offset of the slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The offset of a mutex-and-condition pair; `None` if there is no such pair.
    pub fn pair(&self, index: usize) -> Option<usize> {
        let offset = index.checked_mul(PAIR)?;
        (index < PAIRS).then(|| self.pairs.checked_add(offset)).flatten()
    }

    /// The pair that serves the word at this offset of the segment: some pair, the same on every rank.
    pub fn pair_of(&self, offset: usize) -> usize {
        offset.checked_div(ALIGN).and_then(|line| line.checked_rem(PAIRS)).unwrap_or(0)
    }

    /// The offset of a rank's staging buffer; `None` if there is no such rank or parity.
    pub fn staging(&self, rank: usize, parity: usize) -> Option<usize> {
        if rank >= self.ranks || parity >= 2 {
            return None;
        }
        let cell = rank.checked_mul(2)?.checked_add(parity)?;
        self.staging.checked_add(cell.checked_mul(self.chunk)?)
    }

    /// The bytes at the start of a segment that say what it is. `pid` made it.
    pub fn preamble(&self, pid: u32) -> [u8; PREAMBLE] {
        let mut bytes = [0; PREAMBLE];
        let fields: [&[u8]; 7] = [
            &MAGIC.to_ne_bytes(),
            &VERSION.to_ne_bytes(),
            &usize::BITS.to_ne_bytes(),
            &pid.to_ne_bytes(),
            &wide(self.ranks).to_ne_bytes(),
            &wide(self.chunk).to_ne_bytes(),
            &wide(self.len).to_ne_bytes(),
        ];
        for (target, byte) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
            *target = *byte;
        }
        bytes
    }

    /// Whether these first bytes of a file are those of a segment, of whatever version.
    pub fn is_segment(preamble: &[u8]) -> bool {
        Fields(preamble).take().is_ok_and(|magic| u64::from_ne_bytes(magic) == MAGIC)
    }

    /// The process that made a segment, if its preamble can be read.
    pub fn holder(preamble: &[u8]) -> Option<u32> {
        let mut fields = Fields(preamble);
        let magic = u64::from_ne_bytes(fields.take().ok()?);
        let [version, _, pid] = [fields.take().ok()?, fields.take().ok()?, fields.take().ok()?];
        (magic == MAGIC && u32::from_ne_bytes(version) == VERSION).then_some(u32::from_ne_bytes(pid))
    }

    /// Reads what a file of `length` bytes says of itself. Nothing in it is believed unchecked.
    ///
    /// # Errors
    /// When it is not a segment that this process can use.
    pub fn decode(preamble: &[u8], length: u64) -> Result<(Self, u32), LayoutError> {
        let mut fields = Fields(preamble);
        let magic = u64::from_ne_bytes(fields.take()?);
        if magic == MAGIC.swap_bytes() {
            return Err(LayoutError::ShmPlatform);
        }
        if magic != MAGIC {
            return Err(LayoutError::Foreign);
        }
        let version = u32::from_ne_bytes(fields.take()?);
        if version != VERSION {
            return Err(LayoutError::Version(version));
        }
        if u32::from_ne_bytes(fields.take()?) != usize::BITS {
            return Err(LayoutError::ShmPlatform);
        }
        let pid = u32::from_ne_bytes(fields.take()?);
        let ranks = narrow(u64::from_ne_bytes(fields.take()?));
        let chunk = narrow(u64::from_ne_bytes(fields.take()?));
        let stated = u64::from_ne_bytes(fields.take()?);
        let layout = Layout::new(ranks, chunk)?;
        let expected = wide(layout.len);
        match [stated, length].into_iter().find(|len| *len != expected) {
            Some(actual) => Err(LayoutError::Length { actual, expected }),
            None => Ok((layout, pid)),
        }
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], LayoutError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(LayoutError::Foreign)?;
        self.0 = rest;
        Ok(*field)
    }
}

/// How many ranks watch one, if there are `ranks`.
fn watchers(ranks: usize) -> usize {
    ranks.saturating_sub(1).min(WATCHERS)
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn narrow(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "the tests' own numbers")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every part as (offset, length), in the order of the map.
    fn parts(layout: &Layout) -> Vec<(usize, usize)> {
        let mut parts = vec![
            (0, PREAMBLE),
            (layout.cause(), 8),
            (layout.wait(), 4),
            (layout.barrier_shape(), 4),
            (layout.single_copy(), 4),
            (layout.spread(), 4),
            (layout.key(), 8),
            (layout.notices(), 4),
        ];
        parts.push((layout.claims(), 4 * layout.ranks()));
        parts.push((layout.spaces(), 4 * layout.ranks()));
        parts.push((layout.fates(), 4 * layout.ranks()));
        for owner in 0..layout.ranks() {
            parts.extend((0..layout.watchers()).map(|slot| (layout.alive(owner, slot).unwrap(), ALIVE)));
        }
        parts.push((layout.slots(), 2 * SLOT * layout.ranks()));
        parts.extend((0..PAIRS).map(|pair| (layout.pair(pair).unwrap(), PAIR)));
        for rank in 0..layout.ranks() {
            parts.extend((0..2).map(|parity| (layout.staging(rank, parity).unwrap(), layout.chunk())));
        }
        parts
    }

    proptest! {
        #[test]
        fn parts_are_apart_and_inside(ranks in 1usize..300, steps in 1usize..100) {
            let layout = Layout::new(ranks, steps * CHUNK_STEP).unwrap();
            let mut end = 0;
            for (start, len) in parts(&layout) {
                prop_assert!(start >= end, "{layout:?}: {start} < {end}");
                end = start + len;
            }
            prop_assert!(end <= layout.len());
            prop_assert_eq!(layout.slots() % ALIGN, 0);
            prop_assert_eq!(layout.claims() % 4, 0);
            prop_assert_eq!(layout.spaces() % 4, 0);
            prop_assert_eq!(layout.staging(0, 0).unwrap() % STAGING_ALIGN, STAGING_AWAY);
        }

        #[test]
        fn liveness_words_are_apart_and_in_rows(ranks in 1usize..300, owner in 0usize..310, slot in 0usize..12) {
            let layout = Layout::new(ranks, CHUNK_STEP).unwrap();
            prop_assert_eq!(layout.watchers(), (ranks - 1).min(WATCHERS));
            let word = layout.alive(owner, slot);
            prop_assert_eq!(word.is_some(), owner < ranks && slot < layout.watchers());
            if let Some(word) = word {
                prop_assert_eq!(word % ALIVE, 0);
                let first = layout.alive(0, 0).unwrap();
                prop_assert_eq!(word, first + (owner * layout.watchers() + slot) * ALIVE);
            }
        }

        #[test]
        fn any_numbers_give_a_layout_or_an_error(ranks in any::<usize>(), chunk in any::<usize>()) {
            if let Ok(layout) = Layout::new(ranks, chunk) {
                prop_assert!(layout.len() > ranks);
            }
        }

        #[test]
        fn a_preamble_round_trips(ranks in 1usize..MAX_RANKS, steps in 1usize..1000, pid in any::<u32>()) {
            let layout = Layout::new(ranks, steps * CHUNK_STEP).unwrap();
            let length = wide(layout.len());
            prop_assert_eq!(Layout::decode(&layout.preamble(pid), length), Ok((layout, pid)));
        }

        #[test]
        fn a_flipped_bit_is_refused_or_harmless(byte in 0usize..PREAMBLE, bit in 0u32..8) {
            let layout = Layout::new(4, 4096).unwrap();
            let mut preamble = layout.preamble(77);
            preamble[byte] ^= 1 << bit;
            let decoded = Layout::decode(&preamble, wide(layout.len()));
            // Only the creator's pid and the unused tail may change without notice: nothing depends on them.
            let free = (16..20).contains(&byte) || byte >= 44;
            prop_assert_eq!(decoded.is_ok(), free);
        }

        #[test]
        fn any_bytes_are_refused_or_consistent(bytes in prop::collection::vec(any::<u8>(), 0..100), len in any::<u64>()) {
            prop_assert!(Layout::decode(&bytes, len).is_err());
        }
    }

    #[test]
    fn the_errors_name_what_is_wrong() {
        assert_eq!(Layout::new(0, 4096), Err(LayoutError::Ranks(0)));
        assert_eq!(Layout::new(MAX_RANKS + 1, 4096), Err(LayoutError::Ranks(MAX_RANKS + 1)));
        assert_eq!(Layout::new(2, 100), Err(LayoutError::Chunk(100)));
        assert_eq!(Layout::new(2, 0), Err(LayoutError::Chunk(0)));
        let layout = Layout::new(2, 4096).unwrap();
        let mut other = layout.preamble(1);
        other[8..12].copy_from_slice(&9u32.to_ne_bytes());
        assert_eq!(Layout::decode(&other, wide(layout.len())), Err(LayoutError::Version(9)));
        let mut other = layout.preamble(1);
        other[..8].reverse();
        assert_eq!(Layout::decode(&other, wide(layout.len())), Err(LayoutError::ShmPlatform));
        let short = Layout::decode(&layout.preamble(1), 100);
        assert_eq!(short, Err(LayoutError::Length { actual: 100, expected: wide(layout.len()) }));
    }

    #[test]
    fn staging_stays_small_for_many_ranks() {
        for ranks in [1, 2, 4, 8, 16, 64, 128, 256] {
            let chunk = Layout::default_chunk(ranks);
            let layout = Layout::new(ranks, chunk).unwrap();
            let most = if ranks <= 4 { 13 << 20 } else { 7 << 20 };
            assert!(layout.len() <= most, "{ranks} ranks take {} bytes", layout.len());
        }
    }
}
