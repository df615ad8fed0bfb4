//! The heap of this process.

use std::alloc::Layout;

use super::forking::{self, Copied};
use super::heap::Heap;
use super::place::Place;

static HEAP: Heap = Heap::new();
static COPIED: Copied = Copied::new();

/// Where bytes lie, if it is in this process's heap, and others can find that.
pub(crate) fn place_of(bytes: &[u8]) -> Option<Place> {
    let offset = HEAP.offset_of(bytes.as_ptr().addr())?;
    // They are of one allocation, so the last lies there too.
    Some(Place { number: HEAP.number()?, offset })
}

/// Whether others can find the memory at all.
pub(crate) fn is_open() -> bool {
    HEAP.is_open()
}

/// Takes a block, and reports whether it is zeros.
pub(super) fn take(layout: Layout) -> Option<(*mut u8, bool)> {
    HEAP.take((layout.size(), layout.align()), at_forks)
}

/// Whether a block is of this heap.
pub(super) fn owns(block: *mut u8) -> bool {
    HEAP.offset_of(block.addr()).is_some()
}

pub(super) fn release(block: *mut u8) {
    HEAP.release(block.addr());
}

pub(super) fn resize(block: *mut u8, old_len: usize, new_len: usize) -> bool {
    HEAP.resize(block.addr(), (old_len, new_len))
}

extern "C" fn prepare() {
    forking::prepare(&HEAP, &COPIED);
}

extern "C" fn in_parent() {
    forking::in_parent(&HEAP, &COPIED);
}

extern "C" fn in_child() {
    forking::in_child(&HEAP, &COPIED);
}

fn at_forks() -> bool {
    // SAFETY: I20: the functions do not unwind, and in a child make system calls only.
    unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) == 0 }
}
