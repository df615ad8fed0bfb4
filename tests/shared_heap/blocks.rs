//! Allocations of one process.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};

use super::{Program, job};
use crate::HEAP;

pub(super) const PROGRAMS: &[Program] = &[
    ("large_blocks_lie_in_the_file_and_small_ones_do_not", 0, where_blocks_lie),
    ("blocks_keep_what_is_stored_in_any_order", 0, random_blocks),
    ("blocks_of_several_threads_are_apart", 0, threads),
    ("blocks_are_aligned", 0, alignments),
    ("zeroed_blocks_are_zeros", 0, zeros),
    ("a_zeroed_block_takes_no_memory_before_it_is_written", 0, lazy_zeros),
    ("freed_memory_goes_back_to_the_system", 0, given_back),
    ("blocks_in_a_loop_keep_their_pages", 0, loops),
    ("a_vector_grows_where_it_is", 0, growth),
    ("what_exceeds_the_window_is_the_systems", 0, too_large),
    ("a_full_window_is_used_again_once_it_is_free", 0, full_window),
    ("threads_that_end_and_panics_allocate", 0, ends),
];

pub(super) const MIB: usize = 1 << 20;

/// Whether an address lies in the file of the heap.
pub(super) fn is_shared<T>(place: *const T) -> Result<bool> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    for line in maps.lines().filter(|line| line.contains("/memfd:intranode_heap_")) {
        let (start, end) =
            line.split_once(' ').and_then(|(range, _)| range.split_once('-')).context("a range")?;
        let range = usize::from_str_radix(start, 16)?..usize::from_str_radix(end, 16)?;
        if range.contains(&place.addr()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The memory of this process, in bytes: what it shares, and all.
pub(super) fn memory() -> Result<[usize; 2]> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| -> Result<usize> {
        let value = status.lines().find_map(|line| line.strip_prefix(name)).context("a field")?;
        Ok(1024 * value.trim().trim_end_matches("kB").trim().parse::<usize>()?)
    };
    Ok([field("RssShmem:")?, field("VmRSS:")?])
}

fn where_blocks_lie() -> Result<()> {
    ensure!(!std::fs::read_to_string("/proc/self/maps")?.contains("intranode_heap"), "it is there unused");
    let (small, large) = (vec![1u8; (64 << 10) - 1], vec![1u8; 64 << 10]);
    ensure!(!is_shared(small.as_ptr())? && is_shared(large.as_ptr())?);
    let mut moved = small;
    moved.push(1);
    ensure!(moved.iter().all(|byte| *byte == 1) && is_shared(moved.as_ptr())?, "it has grown");
    moved.truncate(100);
    moved.shrink_to_fit();
    ensure!(moved == [1; 100] && !is_shared(moved.as_ptr())?, "it has become small");
    Ok(())
}

/// A number that each byte of a block follows from.
fn fill(block: &mut [u8], seed: u8) {
    for (index, byte) in block.iter_mut().enumerate().step_by(61) {
        *byte = seed.wrapping_add(index as u8);
    }
}

fn ensure_filled(block: &[u8], seed: u8) -> Result<()> {
    let wrong =
        block.iter().enumerate().step_by(61).find(|(index, byte)| **byte != seed.wrapping_add(*index as u8));
    ensure!(wrong.is_none(), "{wrong:?} in a block of {}", block.len());
    Ok(())
}

fn random_length(random: &mut fastrand::Rng) -> usize {
    1 << random.u32(10..23) | random.usize(..1 << 10)
}

/// Until the time is over: blocks of any length, made, grown, cut and dropped.
pub(super) fn play(random: &mut fastrand::Rng, turns: usize) -> Result<()> {
    let mut blocks: Vec<(u8, Vec<u8>)> = Vec::new();
    for _ in 0..turns {
        let (seed, len) = (random.u8(..), random_length(random));
        match random.u32(..10) {
            0..4 => {
                let zeros = random.bool();
                let mut block = if zeros { vec![0; len] } else { Vec::with_capacity(len) };
                ensure!(block.iter().all(|byte| *byte == 0), "a new block of {len} is not zeros");
                block.resize(len, 0);
                fill(&mut block, seed);
                blocks.push((seed, block));
            }
            4..7 if !blocks.is_empty() => {
                let index = random.usize(..blocks.len());
                let (seed, block) = blocks.swap_remove(index);
                ensure_filled(&block, seed)?;
            }
            _ if !blocks.is_empty() => {
                let index = random.usize(..blocks.len());
                let (seed, block) = &mut blocks[index];
                let kept = block.len().min(len);
                block.resize(len, 0);
                if random.bool() {
                    block.shrink_to_fit();
                }
                ensure_filled(&block[..kept], *seed)?;
                fill(block, *seed);
            }
            _ => {}
        }
        if blocks.len() > 40 {
            blocks.drain(..20);
        }
    }
    blocks.iter().try_for_each(|(seed, block)| ensure_filled(block, *seed))
}

fn random_blocks() -> Result<()> {
    let seed = fastrand::u64(..);
    play(&mut fastrand::Rng::with_seed(seed), 4000).with_context(|| format!("seed {seed}"))
}

fn threads() -> Result<()> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let thread = |seed: u64| {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while start.elapsed() < job::stress() {
                    play(&mut random, 100)?;
                }
                anyhow::Ok(())
            })
        };
        let all: Vec<_> = (0..4).map(thread).collect();
        all.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

fn alignments() -> Result<()> {
    let mut blocks = Vec::new();
    for power in 0..26 {
        for len in [64 << 10, 100_000, MIB] {
            let layout = Layout::from_size_align(len, 1 << power)?;
            // SAFETY: the length is not zero.
            let block = unsafe { HEAP.alloc(layout) };
            ensure!(!block.is_null() && block.addr().is_multiple_of(1 << power), "{layout:?}");
            // SAFETY: it has this length.
            unsafe { block.write_bytes(power, len) };
            // The range of addresses is not aligned further.
            ensure!(is_shared(block)? == (power <= 21), "{layout:?}");
            blocks.push((block, layout, power));
        }
    }
    for (block, layout, power) in blocks {
        // SAFETY: all of it was written.
        let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
        ensure!(bytes.iter().all(|byte| *byte == power), "{layout:?}");
        // SAFETY: it was allocated with this layout, and is used no more.
        unsafe { HEAP.dealloc(block, layout) };
    }
    Ok(())
}

/// Also where the pages were used before, and kept or given back.
fn zeros() -> Result<()> {
    for len in [MIB, 30 * MIB, 100 * MIB] {
        for turn in 0..4 {
            let mut block = vec![0u8; len];
            ensure!(is_shared(block.as_ptr())?);
            ensure!(block.iter().all(|byte| *byte == 0), "{len} bytes in turn {turn}");
            block.fill(7);
        }
    }
    Ok(())
}

fn lazy_zeros() -> Result<()> {
    let before = memory()?;
    let mut zeros = vec![0u8; 1000 * MIB];
    zeros[500 * MIB] = 1;
    ensure!(is_shared(zeros.as_ptr())?);
    let after = memory()?;
    ensure!(after[1] < before[1] + 8 * MIB, "{before:?}, then {after:?}");
    Ok(())
}

fn given_back() -> Result<()> {
    let blocks: Vec<Vec<u8>> = (0..100).map(|_| vec![1; MIB]).collect();
    let [full, _] = memory()?;
    ensure!(full >= 100 * MIB, "{full} bytes are used");
    drop(blocks);
    let [rest, _] = memory()?;
    // Some stay for the next allocations.
    ensure!(rest <= 65 * MIB, "{rest} bytes are kept");
    drop(vec![1u8; 100 * MIB]);
    let [rest, _] = memory()?;
    ensure!(rest <= 65 * MIB, "{rest} bytes are kept");
    Ok(())
}

/// Without a fault a page, and so without a call of the system.
fn loops() -> Result<()> {
    let turn = |len: usize| std::hint::black_box(vec![1u8; len])[len / 2];
    for len in [64 << 10, 10 * MIB] {
        turn(len);
        let before = getrusage(UsageWho::RUSAGE_SELF)?.minor_page_faults();
        let sum: usize = (0..200).map(|_| usize::from(turn(len))).sum();
        let faults = getrusage(UsageWho::RUSAGE_SELF)?.minor_page_faults() - before;
        ensure!(sum == 200 && faults < 100, "{faults} faults with {len} bytes");
    }
    Ok(())
}

fn growth() -> Result<()> {
    let mut values: Vec<u64> = Vec::with_capacity(MIB);
    let (start, mut moves) = (Instant::now(), 0);
    let mut place = values.as_ptr();
    for value in 0..20_000_000 {
        values.push(value);
        moves += usize::from(values.as_ptr() != place);
        place = values.as_ptr();
    }
    ensure!(moves == 0, "it has moved {moves} times in {:?}", start.elapsed());
    ensure!(values.iter().enumerate().all(|(index, value)| *value == index as u64));
    values.truncate(100_000);
    values.shrink_to_fit();
    ensure!(values.as_ptr() == place && memory()?[0] < 65 * MIB, "its end is given back");
    Ok(())
}

fn too_large() -> Result<()> {
    let block: Vec<u8> = Vec::with_capacity(64);
    for bytes in [1 << 41, isize::MAX as usize] {
        let mut huge: Vec<u8> = Vec::new();
        // Whether there are enough addresses is the system's decision.
        let done = huge.try_reserve_exact(bytes).is_ok();
        ensure!(!done || !is_shared(huge.as_ptr())?);
    }
    drop(block);
    ensure!(is_shared(vec![1u8; MIB].as_ptr())?, "later ones are shared");
    Ok(())
}

/// Blocks that take addresses only, until there are none left. A child of a fork has them, too.
fn full_window() -> Result<()> {
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).context("a field")?;
    let len = total.trim().trim_end_matches("kB").trim().parse::<usize>()? / 4 * 1024;
    let first = vec![7u8; MIB];
    for turn in 0..3 {
        let mut blocks: Vec<Vec<u8>> = Vec::new();
        let systems = loop {
            let mut block = Vec::new();
            // Whether there are enough addresses beside the window is the system's decision.
            if block.try_reserve_exact(len).is_err() || !is_shared(block.as_ptr())? {
                break block;
            }
            ensure!(blocks.len() < 16, "{} blocks of {len} bytes", blocks.len());
            block.extend([turn; 100]);
            blocks.push(block);
        };
        ensure!(blocks.len() > 4, "{} blocks of {len} bytes", blocks.len());
        drop(systems);
        // What is left is given out, and nothing else.
        let small: Vec<Vec<u8>> = (0..100).map(|number| vec![number; MIB]).collect();
        ensure!(small.iter().zip(0..).all(|(block, number)| block.iter().all(|byte| *byte == number)));
        ensure!(blocks.iter().all(|block| *block == [turn; 100]));
        ensure!(first.iter().all(|byte| *byte == 7));
    }
    Ok(())
}

/// What a thread has when it ends: it allocates then.
struct AtTheEnd;

static RIGHT: AtomicUsize = AtomicUsize::new(0);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let mut block = vec![7u8; MIB];
        block.resize(3 * MIB, 7);
        let right = block.iter().all(|byte| *byte == 7) && is_shared(block.as_ptr()).is_ok_and(|shared| shared);
        RIGHT.fetch_add(usize::from(right), Ordering::Relaxed);
    }
}

fn ends() -> Result<()> {
    thread_local! {
        static END: AtTheEnd = const { AtTheEnd };
    }
    ensure!(!std::fs::read_to_string("/proc/self/maps")?.contains("intranode_heap"), "it is there unused");
    // The first of them makes the heap.
    for number in 1..=20 {
        let thread = std::thread::spawn(|| END.with(|_| ()));
        thread.join().expect("no panic");
        // Its destructors run before it is joined.
        ensure!(RIGHT.load(Ordering::Relaxed) == number, "{number} threads, {RIGHT:?} right");
    }
    for _ in 0..20 {
        let thread = std::thread::spawn(|| std::panic::resume_unwind(Box::new([5u8; MIB])));
        let payload = thread.join().expect_err("a panic");
        let block = payload.downcast_ref::<[u8; MIB]>().context("a block")?;
        ensure!(is_shared(block.as_ptr())? && block.iter().all(|byte| *byte == 5));
    }
    Ok(())
}
