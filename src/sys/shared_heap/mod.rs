//! A heap whose large blocks other processes can read: the global allocator of programs that want that.
//!
//! | file | |
//! | --- | --- |
//! | [`ranges`] | which pages belong to which block: numbers only |
//! | [`window`] | the memory: a sealed memfd over a range of addresses |
//! | [`state`] | both together |
//! | [`lock`], [`freed`], [`heap`] | the state under a lock that a fork closes |
//! | [`forking`] | the child's copy |
//! | [`place`] | where others find a block |

#[cfg(all(target_os = "linux", not(miri)))]
mod forking;
#[cfg(target_os = "linux")]
#[cfg_attr(miri, allow(dead_code, reason = "only its tests run"))]
mod freed;
#[cfg(all(target_os = "linux", not(miri)))]
mod heap;
#[cfg(target_os = "linux")]
#[cfg_attr(miri, allow(dead_code, reason = "only its tests run"))]
mod lock;
pub(crate) mod place;
#[cfg_attr(any(not(target_os = "linux"), miri), allow(dead_code, reason = "only its tests run"))]
mod ranges;
#[cfg(all(target_os = "linux", not(miri)))]
mod state;
#[cfg(all(target_os = "linux", not(miri)))]
mod window;

#[cfg_attr(any(not(target_os = "linux"), miri), path = "none.rs")]
mod process;

use std::alloc::{GlobalAlloc, Layout, System};

pub(crate) use process::{is_open, place_of};

use crate::tuning::HEAP_FROM_BYTES;

/// A global allocator whose allocations of 64 KiB and more the other ranks read in place, as those of a
/// [`Buffer`](crate::Buffer). Smaller ones are those of [`System`]. Linux only: elsewhere all are.
///
/// ```
/// #[global_allocator]
/// static HEAP: intranode::SharedHeap = intranode::SharedHeap::new();
///
/// let results = intranode::threads(4, |comm| {
///     let own = vec![comm.rank() as f64; 200_000];
///     let mut all = vec![0.0; 800_000];
///     comm.allgather(&own, &mut all)?;            // the others read `own` where it lies
///     Ok::<f64, intranode::Error>(all[600_000])
/// })?;
/// for last in results {
///     assert_eq!(last?, 3.0);
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
///
/// Nothing else changes in the program, and ranks of one job may differ in it: blocks of one that has another allocator go through
/// staging. What is said of a [`Buffer`](crate::Buffer) holds for such memory: others map it read-only when they first need it, they
/// read it only during a call that it was given to, and where they cannot map it, it goes through staging.
///
/// * **Memory** is that of a memfd, in pages. Up to 64 MiB of what was freed keep their pages, for the next allocations;
///   what is freed beyond that goes back to the system at once. The addresses, twice the machine's memory and at most a TiB, are
///   reserved with the first large allocation.
/// * **`realloc`** goes on in place if what is behind is free, and else copies: shared memory cannot be moved to another address.
/// * **`fork`**: a child gets a copy of all large allocations, which is made at once, and takes a second or so for each GiB that was written,
///   and that much memory. `vfork` and `posix_spawn`, and so [`std::process::Command`] without `pre_exec`, do not. In a process of several
///   threads what another thread writes during the fork may be missing in the copy; POSIX allows a child of such a process nothing
///   that could depend on it. A child of the bare system call does not have the memory. If there is not enough memory for the copy,
///   a line on standard error says so, and a child that touches what was allocated before ends by SIGSEGV.
/// * Where the system refuses memfds, limits addresses (`RLIMIT_AS`) below four times the range, or promises no more memory than it has
///   (`vm.overcommit_memory` 2), and when the range is full, allocations are those of [`System`].
///
/// It does not pay in programs that fork without executing another program, or that make and drop many large allocations of which
/// few are sent: pages of shared memory cost more to fault in than private ones, and are huge only where the administrator allows it
/// (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`).
#[derive(Debug, Default)]
pub struct SharedHeap(());

impl SharedHeap {
    /// The allocator. All values of this type are one heap, that of the process.
    ///
    /// ```
    /// #[global_allocator]
    /// static HEAP: intranode::SharedHeap = intranode::SharedHeap::new();
    ///
    /// assert!(vec![0u8; 1 << 20].iter().all(|byte| *byte == 0));
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        SharedHeap(())
    }

    /// A new block with the contents of the old one, which is free then.
    ///
    /// # Safety
    /// As [`GlobalAlloc::realloc`].
    unsafe fn copy(&self, old: *mut u8, layout: Layout, new_len: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_len, layout.align()) };
        // SAFETY: the length is not zero: the caller's promise.
        let new = unsafe { self.alloc(new_layout) };
        if !new.is_null() {
            // SAFETY: I20: both blocks are that long, and the new one belongs to nobody else.
            unsafe { new.copy_from_nonoverlapping(old, layout.size().min(new_len)) };
            // SAFETY: the caller's promise.
            unsafe { self.dealloc(old, layout) };
        }
        new
    }
}

// SAFETY: I20: a block of the window belongs to one allocation, from the call that takes it to the one that frees it; all others are the
// system's. By address and length a call knows whose a block is. Nothing unwinds.
unsafe impl GlobalAlloc for SharedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= HEAP_FROM_BYTES
            && let Some((block, _)) = process::take(layout)
        {
            return block;
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= HEAP_FROM_BYTES
            && let Some((block, zeros)) = process::take(layout)
        {
            if !zeros {
                // SAFETY: I20: the block is that long, and belongs to nobody else.
                unsafe { block.write_bytes(0, layout.size()) };
            }
            return block;
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.size() >= HEAP_FROM_BYTES && process::owns(block) {
            return process::release(block);
        }
        // SAFETY: the caller's promise; the block is not of the window.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_len: usize) -> *mut u8 {
        let was_large = layout.size() >= HEAP_FROM_BYTES;
        let is_large = new_len >= HEAP_FROM_BYTES;
        if was_large && process::owns(block) {
            if is_large && process::resize(block, layout.size(), new_len) {
                return block;
            }
            // SAFETY: the caller's promise.
            return unsafe { self.copy(block, layout, new_len) };
        }
        if is_large && !was_large {
            // SAFETY: the caller's promise.
            return unsafe { self.copy(block, layout, new_len) };
        }
        // SAFETY: the caller's promise; the block is not of the window.
        unsafe { System.realloc(block, layout, new_len) }
    }
}
