//! The robust list of a watcher's thread.
//!
//! The kernel's robust list serves mutexes: those that a thread holds when it ends are marked, and one waiter of each is
//! woken. A watcher's thread "holds" the words of its rank's row for as long as the rank lives.
//!
//! ```text
//!     head ──▶ node 0 ──▶ node 1 ──▶ node 2 ──▶ head       private memory: no other rank can damage the list
//!                ┊ offset   ┊ offset   ┊ offset            the same for all nodes
//!              word 0     word 1     word 2                the row in the segment
//! ```

use core::ptr;
use std::sync::Arc;

use crate::protocol::watch::{self, DIED, LEFT, WAITERS};
use crate::segment::layout::{ALIVE, WATCHERS};
use crate::segment::mapped::MappedSegment;
use crate::segment::platform::ShmPlatform;

// DIED is what the kernel writes; LEFT is no valid thread id.
const _: () = assert!(DIED == libc::FUTEX_WAITERS | libc::FUTEX_OWNER_DIED);
const _: () = assert!(LEFT == libc::FUTEX_TID_MASK && WAITERS == libc::FUTEX_WAITERS);

/// The kernel's `struct robust_list`, of the same size as a word's slot in the segment.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Node {
    next: *const Node,
}

const _: () = assert!(size_of::<Node>() == ALIVE);

/// The kernel's `struct robust_list_head`.
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
    /// A list of `len` nodes, for `len` words from this address on.
    fn new(len: usize, word: *const u32) -> Box<Self> {
        let unlinked = Node { next: ptr::null() };
        let head = Head { first: unlinked, offset: 0, pending: ptr::null() };
        let mut list = Box::new(List { head, nodes: [unlinked; WATCHERS] });
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

/// The registration of the calling thread as a rank. Drop means that the rank has left, the end of the thread that it has died.
pub(super) struct Registration {
    mapped: Arc<MappedSegment>,
    platform: ShmPlatform,
    rank: usize,
    /// The kernel has its address.
    list: *mut List,
}

impl Registration {
    /// Registers the words of `rank` for the calling thread. None where the system has no robust lists, or no rank watches.
    pub(super) fn new(mapped: &Arc<MappedSegment>, platform: ShmPlatform, rank: usize) -> Option<Self> {
        let row = mapped.roll().row(rank);
        let first = row.first()?.word.as_ptr();
        let list = Box::into_raw(List::new(row.len(), first));
        if !set_list(list) {
            // SAFETY: I10: just made, and the kernel has refused it.
            drop(unsafe { Box::from_raw(list) });
            return None;
        }
        let registration = Registration { mapped: Arc::clone(mapped), platform, rank, list };
        // SAFETY: I7: always succeeds, and touches no memory.
        let thread = unsafe { libc::gettid() } as u32;
        // Last, since from here on the end of the thread is a death. An error occurs in tests only.
        let _ = watch::come(&platform, registration.mapped.roll(), rank, WAITERS | thread);
        Some(registration)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // First: from here on the end of the thread is no death. An error occurs in tests only.
        let _ = watch::depart(&self.platform, self.mapped.roll(), self.rank);
        set_list(ptr::null_mut());
        // SAFETY: I10: `new` made it, and the kernel does not have its address any more.
        drop(unsafe { Box::from_raw(self.list) });
    }
}

/// Sets the robust list of the calling thread.
fn set_list(list: *mut List) -> bool {
    // SAFETY: I10: null, or a list that lives until it is unregistered; the length is that of its head.
    unsafe { libc::syscall(libc::SYS_set_robust_list, list, size_of::<Head>()) == 0 }
}
