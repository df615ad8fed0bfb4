//! Where bytes lie in the heap of a process, as others find them.

/// Bytes in this process's heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(any(not(target_os = "linux"), miri), allow(dead_code, reason = "there are none"))]
pub(crate) struct Place {
    /// The number in the [`name`] of the memory.
    pub(crate) number: u64,
    /// In bytes.
    pub(crate) offset: usize,
}

/// By which others of the same user find the memory of a heap, whose number is random.
pub(crate) fn name(number: u64) -> String {
    format!("intranode_heap_{number:016x}")
}
