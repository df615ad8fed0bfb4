//! Memory of the other side's whose place this side has learnt, and which it may read without asking again.
//!
//! It is read under a [lease](super::lease) that stays open. The reader confirms it behind the last byte; the owner withdraws it to revoke: what is
//! read from then on is thrown away.

/// A range of memory with a key.
pub(super) struct Mapped {
    pub(super) key: u64,
    /// The number of its lease.
    pub(super) lease: u32,
    /// Whether its owner also sends it, however long it is.
    pub(super) is_sent: bool,
    /// Which byte of the memory is the first, and how many there are from there on.
    pub(super) start: u64,
    pub(super) len: u64,
    /// Where they lie: addresses and lengths.
    pub(super) parts: Vec<(u64, u64)>,
}

impl Mapped {
    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.parts.capacity() * size_of::<(u64, u64)>()
    }

    /// Whether it has the byte at this offset of the memory with this key.
    pub(super) fn has(&self, key: u64, offset: u64) -> bool {
        self.key == key && offset.checked_sub(self.start).is_some_and(|at| at < self.len)
    }
}
