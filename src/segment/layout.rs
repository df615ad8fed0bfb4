//! The layout of a segment: every offset and size, by checked arithmetic. Nothing else computes one.
//!
//! ```text
//!        0  preamble         magic, version, word size, creator, ranks, chunk, length
//!      128  cause            64 bits: why the communicator was poisoned
//!      136  wait             32 bits: how ranks sleep
//!      140  shape            32 bits: whether ranks meet in groups
//!      144  single copy      32 bits: whether ranks try to read each other's memory (CMA)
//!      148  spread           32 bits: whether all words are poisoned
//!      152  key              64 bits: the key of the digests of counts
//!      160  notices          32 bits: changes when a rank is found to have died
//!      164  swap             32 bits: whether two ranks swap their staging buffers
//!      256  claims           32 bits a rank: its process id
//!        …  PID namespaces   32 bits a rank: the namespace of its process id
//!        …  fates            32 bits a rank: whether its death is known
//!        …  alive            a row of liveness words a rank, one for each of its watchers
//!        …  slots            two slots a rank (one for each parity), 128 bytes each
//!        …  bells            a bell a rank, on which it sleeps until its symmetric memory changes, 128 bytes each
//!        …  pairs            mutexes and condition variables of the pthread wait
//!        …  staging          two buffers a rank
//! ```
//!
//! The layout follows from the number of ranks and the size of a chunk, which are in the preamble. A file of another length
//! is refused.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing
)]

use std::fmt;

/// The length of the encoded preamble.
pub const PREAMBLE: usize = 64;

/// The number of mutex and condition variable pairs.
pub const PAIRS: usize = 16;

/// The space for a pair.
pub const PAIR: usize = 128;

/// The largest number of ranks: the rank field of the packed cause has 16 bits.
pub const MAX_RANKS: usize = 1 << 16;

/// The distance of liveness words: that of the robust list's nodes, which are pointers.
pub const ALIVE: usize = 8;

/// The largest number of watchers of a rank. Each has a word of its own, because the kernel wakes one sleeper per word.
/// There are several because a watcher may be stopped, or die at the same time.
pub const WATCHERS: usize = 8;

/// The granularity of chunks: a multiple of the size of every element that can be reduced.
pub const CHUNK_STEP: usize = 64;

/// The largest chunk.
pub const MAX_CHUNK: usize = 1 << 30;

const CAUSE: usize = 128;
const WAIT: usize = 136;
const BARRIER_SHAPE: usize = 140;
const SINGLE_COPY: usize = 144;
const SPREAD: usize = 148;
const KEY: usize = 152;
const NOTICES: usize = 160;
const SWAP: usize = 164;
const CLAIMS: usize = 256;
/// A slot: two lines.
pub(crate) const SLOT: usize = 128;
const BELL: usize = 128;
const ALIGN: usize = 128;
const STAGING_ALIGN: usize = 4096;
/// The offset of staging from a page boundary, which avoids 4K aliasing: large private buffers begin at a page boundary, or
/// little after it. A broadcast into such a buffer from page-aligned staging in memory took more than twice the time.
const STAGING_OFFSET: usize = STAGING_ALIGN / 2;

const MAGIC: u64 = u64::from_be_bytes(*b"intranod");
const VERSION: u32 = 11;

/// The layout of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    ranks: usize,
    chunk: usize,
    pid_namespaces: usize,
    fates: usize,
    alive: usize,
    slots: usize,
    bells: usize,
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
    /// The file does not begin with the magic number.
    Foreign,
    /// The segment has another version of the layout.
    Version(u32),
    /// The creator has another word size or byte order.
    Abi,
    /// The segment is for another number of ranks.
    Size {
        /// The number of ranks of the segment.
        segment: usize,
        /// The number of ranks that this rank expects.
        expected: usize,
    },
    /// The file's length is not the one that its preamble implies.
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
            LayoutError::Abi => {
                write!(f, "it was made by a program with another word size or byte order")
            }
            LayoutError::Size { segment, expected } => {
                write!(f, "it was made for {segment} ranks, this rank expects {expected}")
            }
            LayoutError::Length { actual, expected } => {
                write!(f, "it is {actual} bytes long and should be {expected}")
            }
        }
    }
}

impl std::error::Error for LayoutError {}

impl Layout {
    /// The layout for `ranks` ranks with chunks of `chunk` bytes.
    ///
    /// # Errors
    /// When a number is not allowed, or the segment would be larger than the address space.
    pub fn new(ranks: usize, chunk: usize) -> Result<Self, LayoutError> {
        Self::within(ranks, chunk, wide(isize::MAX.unsigned_abs()))
    }

    /// The same for mappings of at most `max_len` bytes.
    ///
    /// The arithmetic has 64 bits on every system, so that a 32-bit process's layouts can be tested in any.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn within(ranks: usize, chunk: usize, max_len: u64) -> Result<Self, LayoutError> {
        if !(1..=MAX_RANKS).contains(&ranks) {
            return Err(LayoutError::Ranks(ranks));
        }
        if !(CHUNK_STEP..=MAX_CHUNK).contains(&chunk) || !chunk.is_multiple_of(CHUNK_STEP) {
            return Err(LayoutError::Chunk(chunk));
        }
        Self::checked(ranks, chunk, max_len).ok_or(LayoutError::Overflow)
    }

    fn checked(ranks: usize, chunk: usize, max_len: u64) -> Option<Self> {
        let cells = wide(ranks).checked_mul(2)?;
        let words = wide(ranks).checked_mul(wide(size_of::<u32>()))?;
        let pid_namespaces = wide(CLAIMS).checked_add(words)?.checked_next_multiple_of(wide(ALIGN))?;
        let fates = pid_namespaces.checked_add(words)?.checked_next_multiple_of(wide(ALIGN))?;
        let alive = fates.checked_add(words)?.checked_next_multiple_of(wide(ALIGN))?;
        let rows = wide(ranks).checked_mul(wide(watchers(ranks)))?.checked_mul(wide(ALIVE))?;
        let slots = alive.checked_add(rows)?.checked_next_multiple_of(wide(ALIGN))?;
        let bells = slots.checked_add(cells.checked_mul(wide(SLOT))?)?;
        let pairs = bells.checked_add(wide(ranks).checked_mul(wide(BELL))?)?;
        let after_pairs = pairs.checked_add(wide(PAIRS).checked_mul(wide(PAIR))?)?;
        let staging =
            after_pairs.checked_next_multiple_of(wide(STAGING_ALIGN))?.checked_add(wide(STAGING_OFFSET))?;
        let len = staging.checked_add(cells.checked_mul(wide(chunk))?)?;
        let offset = |offset: u64| usize::try_from(offset).ok();
        let (pid_namespaces, fates, alive) = (offset(pid_namespaces)?, offset(fates)?, offset(alive)?);
        let (slots, bells) = (offset(slots)?, offset(bells)?);
        let (pairs, staging) = (offset(pairs)?, offset(staging)?);
        let len = offset(len).filter(|len| wide(*len) <= max_len && isize::try_from(*len).is_ok())?;
        Some(Layout { ranks, chunk, pid_namespaces, fates, alive, slots, bells, pairs, staging, len })
    }

    /// The default size of a chunk: larger than a core's private cache, see [`crate::protocol::staging`], and smaller for
    /// more than 8 ranks.
    pub fn default_chunk(ranks: usize) -> usize {
        const LARGE: usize = 3 << 19;
        const STAGING: usize = 24 << 20;
        let share = STAGING.checked_div(ranks.saturating_mul(2)).unwrap_or(LARGE);
        share.clamp(STAGING_ALIGN, LARGE).next_multiple_of(STAGING_ALIGN)
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

    /// The offset of the word for how ranks sleep.
    pub fn wait(&self) -> usize {
        WAIT
    }

    /// The offset of the word for whether ranks meet in groups.
    pub fn barrier_shape(&self) -> usize {
        BARRIER_SHAPE
    }

    /// The offset of the word for whether ranks try single copy.
    pub fn single_copy(&self) -> usize {
        SINGLE_COPY
    }

    /// The offset of the word that is set when all words are poisoned.
    pub fn spread(&self) -> usize {
        SPREAD
    }

    /// The offset of the key of the digests of counts.
    pub fn key(&self) -> usize {
        KEY
    }

    /// The offset of the word for whether two ranks swap their staging buffers.
    pub fn swap(&self) -> usize {
        SWAP
    }

    /// The offset of the claims.
    pub fn claims(&self) -> usize {
        CLAIMS
    }

    /// The offset of the PID namespaces.
    pub fn pid_namespaces(&self) -> usize {
        self.pid_namespaces
    }

    /// The offset of the word that changes when a rank is found to have died.
    pub fn notices(&self) -> usize {
        NOTICES
    }

    /// The offset of the fates.
    pub fn fates(&self) -> usize {
        self.fates
    }

    /// The number of watchers, and of liveness words, of each rank.
    pub fn watchers(&self) -> usize {
        watchers(self.ranks)
    }

    /// The offset of a liveness word of `owner`; `None` if there is no such rank or slot. A rank's words are [`ALIVE`] bytes
    /// apart, and the next rank's follow them.
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

    /// The offset of the bells.
    pub fn bells(&self) -> usize {
        self.bells
    }

    /// The offset of a pair; `None` if there is no such pair.
    pub fn pair(&self, index: usize) -> Option<usize> {
        let offset = index.checked_mul(PAIR)?;
        (index < PAIRS).then(|| self.pairs.checked_add(offset)).flatten()
    }

    /// The pair for the word at this offset: the same on every rank.
    pub fn pair_of(&self, offset: usize) -> usize {
        offset.checked_div(ALIGN).and_then(|line| line.checked_rem(PAIRS)).unwrap_or(0)
    }

    /// The offset of one of a rank's two staging buffers; `None` if there is no such rank or buffer.
    pub fn staging(&self, rank: usize, buffer: usize) -> Option<usize> {
        if rank >= self.ranks || buffer >= 2 {
            return None;
        }
        let cell = rank.checked_mul(2)?.checked_add(buffer)?;
        self.staging.checked_add(cell.checked_mul(self.chunk)?)
    }

    /// The first bytes of a segment that process `pid` has created.
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

    /// Whether these are the first bytes of a segment, of any version.
    pub fn is_segment(preamble: &[u8]) -> bool {
        Fields(preamble).take().is_ok_and(|magic| u64::from_ne_bytes(magic) == MAGIC)
    }

    /// The process that has created a segment, if its preamble has this version.
    pub fn holder(preamble: &[u8]) -> Option<u32> {
        let mut fields = Fields(preamble);
        let magic = u64::from_ne_bytes(fields.take().ok()?);
        let [version, _, pid] = [fields.take().ok()?, fields.take().ok()?, fields.take().ok()?];
        (magic == MAGIC && u32::from_ne_bytes(version) == VERSION).then_some(u32::from_ne_bytes(pid))
    }

    /// The layout that a preamble describes, if the length of its file is not known.
    ///
    /// # Errors
    /// As [`decode`](Self::decode), but for the length.
    pub fn of_preamble(preamble: &[u8]) -> Result<Self, LayoutError> {
        let mut fields = Fields(preamble);
        let _before: [[u8; 4]; 5] =
            [fields.take()?, fields.take()?, fields.take()?, fields.take()?, fields.take()?];
        let _ranks_and_chunk: [[u8; 8]; 2] = [fields.take()?, fields.take()?];
        let stated = u64::from_ne_bytes(fields.take()?);
        Self::decode(preamble, stated).map(|(layout, _)| layout)
    }

    /// The layout and the creator from the preamble of a file of `length` bytes. All fields are checked.
    ///
    /// # Errors
    /// When it is not a segment that this process can use.
    pub fn decode(preamble: &[u8], length: u64) -> Result<(Self, u32), LayoutError> {
        let mut fields = Fields(preamble);
        let magic = u64::from_ne_bytes(fields.take()?);
        if magic == MAGIC.swap_bytes() {
            return Err(LayoutError::Abi);
        }
        if magic != MAGIC {
            return Err(LayoutError::Foreign);
        }
        let version = u32::from_ne_bytes(fields.take()?);
        if version != VERSION {
            return Err(LayoutError::Version(version));
        }
        if u32::from_ne_bytes(fields.take()?) != usize::BITS {
            return Err(LayoutError::Abi);
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

/// The number of watchers of each of `ranks` ranks.
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
#[expect(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "the numbers are the tests' own")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All parts as (offset, length), in the order of the layout.
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
            (layout.swap(), 4),
        ];
        parts.push((layout.claims(), 4 * layout.ranks()));
        parts.push((layout.pid_namespaces(), 4 * layout.ranks()));
        parts.push((layout.fates(), 4 * layout.ranks()));
        for owner in 0..layout.ranks() {
            parts.extend((0..layout.watchers()).map(|slot| (layout.alive(owner, slot).unwrap(), ALIVE)));
        }
        parts.push((layout.slots(), 2 * SLOT * layout.ranks()));
        parts.push((layout.bells(), BELL * layout.ranks()));
        parts.extend((0..PAIRS).map(|pair| (layout.pair(pair).unwrap(), PAIR)));
        for rank in 0..layout.ranks() {
            parts.extend((0..2).map(|parity| (layout.staging(rank, parity).unwrap(), layout.chunk())));
        }
        parts
    }

    proptest! {
        #[test]
        fn parts_are_disjoint_and_inside(ranks in 1usize..300, steps in 1usize..100) {
            let layout = Layout::new(ranks, steps * CHUNK_STEP).unwrap();
            let mut end = 0;
            for (start, len) in parts(&layout) {
                prop_assert!(start >= end, "{layout:?}: {start} < {end}");
                end = start + len;
            }
            prop_assert!(end <= layout.len());
            prop_assert_eq!(layout.slots() % ALIGN, 0);
            prop_assert_eq!(layout.bells() % ALIGN, 0);
            prop_assert_eq!(layout.claims() % 4, 0);
            prop_assert_eq!(layout.pid_namespaces() % 4, 0);
            prop_assert_eq!(layout.staging(0, 0).unwrap() % STAGING_ALIGN, STAGING_OFFSET);
        }

        #[test]
        fn liveness_words_are_in_rows(ranks in 1usize..300, owner in 0usize..310, slot in 0usize..12) {
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
            // Nothing depends on the creator's pid, nor on the unused tail.
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
        other[8..12].copy_from_slice(&(VERSION - 1).to_ne_bytes());
        assert_eq!(Layout::decode(&other, wide(layout.len())), Err(LayoutError::Version(VERSION - 1)));
        let mut other = layout.preamble(1);
        other[..8].reverse();
        assert_eq!(Layout::decode(&other, wide(layout.len())), Err(LayoutError::Abi));
        let short = Layout::decode(&layout.preamble(1), 100);
        assert_eq!(short, Err(LayoutError::Length { actual: 100, expected: wide(layout.len()) }));
    }

    #[test]
    fn staging_stays_small_for_many_ranks() {
        for ranks in [1, 2, 4, 8, 16, 64, 128, 256] {
            let chunk = Layout::default_chunk(ranks);
            let layout = Layout::new(ranks, chunk).unwrap();
            let limit = if ranks <= 4 { 13 << 20 } else { 25 << 20 };
            assert!(layout.len() <= limit, "{ranks} ranks take {} bytes", layout.len());
        }
    }

    #[test]
    fn what_does_not_exist_has_no_offset() {
        let layout = Layout::new(3, CHUNK_STEP).unwrap();
        assert!(layout.staging(2, 1).is_some() && layout.pair(PAIRS - 1).is_some());
        assert_eq!([layout.staging(3, 0), layout.staging(0, 2), layout.staging(usize::MAX, 1)], [None; 3]);
        assert_eq!([layout.pair(PAIRS), layout.pair(usize::MAX)], [None; 2]);
    }
}
