//! The words that the kernel marks when a thread ends: its robust list.
//!
//! The list was made for mutexes: those that a thread holds when it ends are marked, and one waiter of each is woken. A
//! watcher's thread "holds" the words of its rank's row for as long as the rank is there.
//!
//! ```text
//!     head ──▶ node 0 ──▶ node 1 ──▶ node 2 ──▶ head       private memory: no peer can damage the list
//!                ┊ offset   ┊ offset   ┊ offset            one distance for all
//!              word 0     word 1     word 2                the row in the segment
//! ```

use core::ptr;
use std::sync::Arc;

use crate::protocol::watch::{self, DIED, LEFT, WAITERS};
use crate::segment::layout::{ALIVE, WATCHERS};
use crate::segment::mapped::MappedSegment;
use crate::segment::platform::ShmPlatform;

// What the kernel writes, and what no thread's number is.
const _: () = assert!(DIED == libc::FUTEX_WAITERS | libc::FUTEX_OWNER_DIED);
const _: () = assert!(LEFT == libc::FUTEX_TID_MASK && WAITERS == libc::FUTEX_WAITERS);

/// What the kernel calls `struct robust_list`, as far apart as the words.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Node {
    next: *const Node,
}

const _: () = assert!(size_of::<Node>() == ALIVE);

/// What the kernel calls `struct robust_list_head`.
#[repr(C)]
struct Head {
    first: Node,
    /// From a node to its word.
    offset: libc::c_long,
    pending: *const Node,
}

#[repr(C)]
struct List {
    head: Head,
    nodes: [Node; WATCHERS],
}

impl List {
    /// A list of `len` nodes, the first of which stands for the word at an address.
    fn new(len: usize, word: *const u32) -> Box<Self> {
        let nowhere = Node { next: ptr::null() };
        let head = Head { first: nowhere, offset: 0, pending: ptr::null() };
        let mut list = Box::new(List { head, nodes: [nowhere; WATCHERS] });
        let nodes = list.nodes.as_ptr();
        list.head.offset = word.addr().wrapping_sub(nodes.addr()) as libc::c_long;
        list.head.first.next = nodes;
        for index in 0..len {
            list.nodes[index].next = nodes.wrapping_add(index + 1);
        }
        list.nodes[len - 1].next = &raw const list.head.first;
        list
    }
}

/// The calling thread's presence as a rank. On drop the rank has left; if the thread ends before, it has died.
pub(super) struct Registration {
    world: Arc<MappedSegment>,
    machine: ShmPlatform,
    rank: usize,
    /// The kernel has its address.
    list: *mut List,
}

impl Registration {
    /// Lets the words of `rank` stand for the calling thread. None where the system has no such lists, or nobody watches.
    pub(super) fn new(world: &Arc<MappedSegment>, machine: ShmPlatform, rank: usize) -> Option<Self> {
        let row = world.roll().row(rank);
        let first = row.first()?.word.as_ptr();
        let list = Box::into_raw(List::new(row.len(), first));
        if !set_list(list) {
            // SAFETY: I10: just made, and the kernel has not taken it.
            drop(unsafe { Box::from_raw(list) });
            return None;
        }
        let registration = Registration { world: Arc::clone(world), machine, rank, list };
        // SAFETY: I7: always succeeds, and touches no memory.
        let thread = unsafe { libc::gettid() } as u32;
        // Last: from here on the thread's end is seen. The bit is set in advance: it makes the kernel wake. Only tests
        // stop a rank in between.
        let _ = watch::come(&machine, registration.world.roll(), rank, WAITERS | thread);
        Some(registration)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // First: whatever happens next, this was no death. Only tests stop a rank in between.
        let _ = watch::depart(&self.machine, self.world.roll(), self.rank);
        set_list(ptr::null_mut());
        // SAFETY: I10: `new` made it; the kernel has just forgotten it.
        drop(unsafe { Box::from_raw(self.list) });
    }
}

/// Makes this the list of the calling thread.
fn set_list(list: *mut List) -> bool {
    // SAFETY: I10: null, or a list that outlives its registration; the length is that of its head.
    unsafe { libc::syscall(libc::SYS_set_robust_list, list, size_of::<Head>()) == 0 }
}
