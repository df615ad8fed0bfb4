//! A fork: the child gets a copy of all blocks, as of any heap.
//!
//! A shared mapping would be the same memory in parent and child. So before the fork the blocks are copied into private memory, which
//! the child then moves to where they were. The system copies, from the file: a copy by this thread could race with stores of others.
//! Pages that were never written are no memory there, and are left out.
//!
//! `vfork` and `posix_spawn` call none of this: their child has no memory of its own before it executes a program. A child of the bare
//! system call does not have the window at all (MADV_DONTFORK).

use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use super::heap::{Heap, give_up, warn};
use super::state::State;
use super::window::{Private, map};
use crate::sys::memory::headroom::{Headroom, min_headroom};

/// The copy for the next child, between the functions below; the heap is closed meanwhile, so there is one.
#[derive(Debug)]
pub(super) struct Copied {
    start: AtomicPtr<u8>,
    len: AtomicUsize,
}

/// No copy was possible.
const FAILED: usize = usize::MAX;

impl Copied {
    pub(super) const fn new() -> Self {
        Copied { start: AtomicPtr::new(ptr::null_mut()), len: AtomicUsize::new(0) }
    }

    fn set(&self, copy: Option<(*mut u8, usize)>) {
        let (start, len) = copy.unwrap_or((ptr::null_mut(), FAILED));
        self.start.store(start, Relaxed);
        self.len.store(len, Relaxed);
    }

    fn get(&self) -> Option<(*mut u8, usize)> {
        let len = self.len.load(Relaxed);
        (len != FAILED).then(|| (self.start.load(Relaxed), len))
    }
}

/// In the parent, before.
pub(super) fn prepare(heap: &Heap, copied: &Copied) {
    // Before the lock is taken: it allocates.
    let room = heap.number().and_then(|_| min_headroom());
    heap.before_fork(|state| {
        if state.window.is_shared() {
            // The child has it until it replaces it, so that nothing else gets its addresses.
            let inherited = state.window.inherit(true);
            copied.set(if inherited { copy(state, room) } else { None });
        }
    });
}

/// In the parent, after.
pub(super) fn in_parent(heap: &Heap, copied: &Copied) {
    heap.after_fork(|state| {
        if !state.window.is_shared() {
            return true;
        }
        if let Some((start, len)) = copied.get().filter(|(_, len)| *len > 0) {
            // SAFETY: I20: this process has mapped it for the child, and does not use it.
            unsafe { libc::munmap(start.cast(), len) };
        }
        state.window.inherit(false);
        true
    });
}

/// In the child: one thread, and system calls only.
pub(super) fn in_child(heap: &Heap, copied: &Copied) {
    heap.after_fork(|state| {
        if !state.window.is_shared() {
            return true;
        }
        let private = state.window.make_private(copied.get());
        match private {
            Private::All | Private::Blocks => {}
            Private::Nothing => {
                warn("what was allocated before the fork does not exist in this child: there was no memory for a copy, or the program has closed the \
                     heap's descriptor\n");
            }
            Private::Shared => give_up("a forked child cannot be kept out of its parent's memory\n"),
        }
        private == Private::All
    });
}

/// The blocks, in private memory that is as long as what is in use. `None`: there is not enough, or the file is gone.
fn copy(state: &State, room: Option<Headroom>) -> Option<(*mut u8, usize)> {
    let page = state.window.page;
    let Some((start, len)) = state.ranges.live().last() else { return Some((ptr::null_mut(), 0)) };
    let len = (start + len) as usize * page;
    let file = state.window.file()?;
    // What was freed, and keeps its pages, is not copied.
    let kept = u64::from(state.ranges.dirty_pages()) * page as u64;
    let written = (file.metadata().ok()?.blocks() * 512).saturating_sub(kept);
    if room.is_some_and(|room| room.bytes < written) {
        return None;
    }
    let file = file.as_raw_fd();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE;
    let target = map(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)?;
    let blocks = state.ranges.live().map(|(start, len)| (start as usize * page, (start + len) as usize * page));
    for (start, end) in blocks {
        if !copy_block(file, target, (start, end)) {
            // SAFETY: I20: just mapped, and nothing refers to it.
            unsafe { libc::munmap(target.cast(), len) };
            return None;
        }
    }
    Some((target, len))
}

/// Copies what there is of a range of the file to the same range behind `target`.
fn copy_block(file: libc::c_int, target: *mut u8, (mut start, end): (usize, usize)) -> bool {
    let seek = |from: usize, whence| {
        // SAFETY: I7: no memory is involved. The position of this descriptor is used here only.
        let found = unsafe { libc::lseek(file, from as libc::off_t, whence) };
        usize::try_from(found).ok()
    };
    while start < end {
        // Behind the last data it fails.
        let Some(data) = seek(start, libc::SEEK_DATA).filter(|data| *data < end) else {
            return true;
        };
        let Some(hole) = seek(data, libc::SEEK_HOLE) else { return false };
        start = data;
        let until = hole.min(end);
        while start < until {
            let place = target.wrapping_add(start).cast();
            // SAFETY: I20: the range lies in memory that was mapped for it, and that nothing refers to.
            let read = unsafe { libc::pread(file, place, until - start, start as libc::off_t) };
            match usize::try_from(read) {
                Ok(read @ 1..) => start += read,
                Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
                _ => return false,
            }
        }
    }
    true
}
