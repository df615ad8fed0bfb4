//! Blocks of the allocator whose every byte is known, and that are made, changed and freed at random.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};

use super::blocks::MIB;
use crate::HEAP;

/// The longest block, in bytes.
const LONGEST: usize = 64 * MIB;

/// How much a thread keeps, in bytes.
const KEPT: usize = 32 * MIB;

/// What is stored in blocks: from some place on, again and again. Its length has no common divisor with that of a page.
pub(super) struct Pattern(Vec<u8>);

impl Pattern {
    pub(super) fn new() -> Self {
        let mut random = fastrand::Rng::with_seed(7);
        Pattern((0..60_013).map(|_| random.u8(..)).collect())
    }

    pub(super) fn from(&self, seed: usize) -> usize {
        seed.wrapping_mul(7919) % self.0.len()
    }

    pub(super) fn fill(&self, mut block: &mut [u8], seed: usize) {
        let mut start = self.from(seed);
        while !block.is_empty() {
            let len = block.len().min(self.0.len() - start);
            let (part, rest) = block.split_at_mut(len);
            part.copy_from_slice(&self.0[start..][..len]);
            (block, start) = (rest, 0);
        }
    }

    pub(super) fn is_in(&self, mut block: &[u8], seed: usize) -> bool {
        let mut start = self.from(seed);
        while !block.is_empty() {
            let len = block.len().min(self.0.len() - start);
            if block[..len] != self.0[start..][..len] {
                return false;
            }
            (block, start) = (&block[len..], 0);
        }
        true
    }

    pub(super) fn ensure_in(&self, block: &[u8], seed: usize) -> Result<()> {
        if self.is_in(block, seed) {
            return Ok(());
        }
        let mut expected = vec![0; block.len()];
        self.fill(&mut expected, seed);
        let differ = |(found, expected): (&u8, &u8)| found != expected;
        let first = block.iter().zip(&expected).position(differ).unwrap_or(0);
        let wrong = block.iter().zip(&expected).filter(|pair| differ(*pair)).count();
        let found = &block[first..block.len().min(first + 8)];
        anyhow::bail!("{wrong} of {} bytes are wrong, from {first} on: {found:?}", block.len())
    }
}

/// A block of the allocator, all of which is the pattern from a seed on.
pub(super) struct Block {
    start: *mut u8,
    pub(super) layout: Layout,
    pub(super) seed: usize,
}

// SAFETY: it is the only one that refers to its memory.
unsafe impl Send for Block {}

impl Block {
    pub(super) fn zeros(layout: Layout) -> Result<Self> {
        // SAFETY: the length is not zero.
        let start = unsafe { HEAP.alloc_zeroed(layout) };
        ensure!(!start.is_null() && start.addr().is_multiple_of(layout.align()), "{layout:?}");
        let mut block = Block { start, layout, seed: 0 };
        ensure!(block.bytes().iter().all(|byte| *byte == 0), "no zeros in a new block, {layout:?}");
        Ok(block)
    }

    pub(super) fn new(pattern: &Pattern, layout: Layout, seed: usize, zeroed: bool) -> Result<Self> {
        let mut block = if zeroed {
            Block::zeros(layout)?
        } else {
            // SAFETY: the length is not zero.
            let start = unsafe { HEAP.alloc(layout) };
            ensure!(!start.is_null() && start.addr().is_multiple_of(layout.align()), "{layout:?}");
            // SAFETY: it has this length, and belongs to nobody else.
            unsafe { start.write_bytes(0, layout.size()) };
            Block { start, layout, seed: 0 }
        };
        block.seed = seed;
        pattern.fill(block.bytes(), seed);
        Ok(block)
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: it is this long, was written, and belongs to this.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.layout.size()) }
    }

    pub(super) fn check(&mut self, pattern: &Pattern) -> Result<()> {
        let seed = self.seed;
        pattern.ensure_in(self.bytes(), seed)
    }

    pub(super) fn resize(&mut self, pattern: &Pattern, len: usize, seed: usize) -> Result<()> {
        let kept = len.min(self.layout.size());
        // SAFETY: a block of this layout, and a length that is not zero.
        let start = unsafe { HEAP.realloc(self.start, self.layout, len) };
        ensure!(!start.is_null(), "{len} bytes");
        self.start = start;
        self.layout = Layout::from_size_align(len, self.layout.align())?;
        ensure!(start.addr().is_multiple_of(self.layout.align()), "{:?}", self.layout);
        // SAFETY: the part that was written before.
        let old = unsafe { std::slice::from_raw_parts(start, kept) };
        pattern.ensure_in(old, self.seed).with_context(|| format!("after a resize to {len}"))?;
        // SAFETY: what comes after it belongs to this, too.
        unsafe { start.wrapping_add(kept).write_bytes(0, len - kept) };
        self.seed = seed;
        pattern.fill(self.bytes(), seed);
        Ok(())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { HEAP.dealloc(self.start, self.layout) };
    }
}

pub(super) fn length(random: &mut fastrand::Rng) -> usize {
    let end = if random.u32(..12) == 0 { 27 } else { 21 };
    let most = 1 << random.u32(4..end);
    random.usize(1..=most).min(LONGEST)
}

pub(super) fn layout(random: &mut fastrand::Rng, len: usize) -> Result<Layout> {
    let power = if random.u32(..3) == 0 { random.u32(..22) } else { 3 };
    Ok(Layout::from_size_align(len, 1 << power)?)
}

/// What all threads of a process have.
pub(super) struct Shared {
    pub(super) pattern: Pattern,
    pub(super) done: AtomicBool,
    /// Blocks that one thread has made, and another frees or changes.
    pub(super) handed_on: Mutex<Vec<Block>>,
}

/// Makes, changes, checks and frees blocks.
pub(super) fn allocate(shared: &Shared, random: &mut fastrand::Rng, kept: &mut Vec<Block>) -> Result<()> {
    let pattern = &shared.pattern;
    let len = length(random);
    match random.u32(..8) {
        0..3 => kept.push(Block::new(pattern, layout(random, len)?, random.usize(..), random.bool())?),
        3..5 if !kept.is_empty() => {
            let index = random.usize(..kept.len());
            kept[index].check(pattern)?;
            kept[index].resize(pattern, len, random.usize(..))?;
        }
        5 if !kept.is_empty() => {
            let block = kept.swap_remove(random.usize(..kept.len()));
            shared.handed_on.lock().expect("no panic").push(block);
        }
        6 => {
            let taken = shared.handed_on.lock().expect("no panic").pop();
            kept.extend(taken);
        }
        _ if !kept.is_empty() => kept.swap_remove(random.usize(..kept.len())).check(pattern)?,
        _ => {
            // Of no length, and of one that no vector needs memory for.
            ensure!(Vec::<u8>::new().is_empty() && vec![(); 1 << 20].len() == 1 << 20);
        }
    }
    while kept.iter().map(|block| block.layout.size()).sum::<usize>() > KEPT {
        kept.swap_remove(random.usize(..kept.len())).check(pattern)?;
    }
    Ok(())
}
