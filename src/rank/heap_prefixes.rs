//! What this rank lends of its process's heap ([`SharedHeap`](crate::SharedHeap)).
//!
//! * A **prefix** of a heap is its first bytes, as many as its number says. A rank that reads in a heap maps the prefix that a place is
//!   in: so it maps few, and not all addresses that a heap may once have.
//! * The memory of a heap is there before there is a communicator. So its name has a random number, and a rank that lends for the first
//!   time makes a **note** of that number: an empty file under a name that follows from the communicator's key and the rank.

use crate::rank::unchanged::SentBlocks;
use crate::segment::mapped::MappedSegment;
use crate::sys::kept_file::KeptFile;
use crate::sys::memory::findable;
use crate::sys::memory::mapping::Mapping;
use crate::sys::shared_heap::is_open;
use crate::sys::shared_heap::place::{Place, name};

/// How many prefixes there are.
pub(crate) const PREFIXES: usize = 8;

/// The length of a prefix: 64 MiB, and four times as much as the one before; the last has a TiB.
fn len_of(prefix: usize) -> usize {
    64 << 20 << (2 * prefix)
}

/// How the name of a note begins; the heap's number follows.
fn note(key: u64, rank: usize) -> String {
    format!("intranode_{key:016x}_{rank}_heap_")
}

/// Whether other ranks have mapped a prefix, or a segment of buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    #[default]
    Unknown,
    All,
    NotAll,
}

#[derive(Debug, Default)]
pub(crate) struct HeapPrefixes {
    reach: [Reach; PREFIXES],
    note: Option<KeptFile>,
    sent: SentBlocks,
}

impl HeapPrefixes {
    /// The prefix and the offset of the `len` bytes at a place, if all others may find them there; and what they know of it. `key`: the
    /// communicator's, or `None` if nobody is to find it.
    pub(crate) fn place_of(
        &mut self,
        key: Option<u64>,
        rank: usize,
        Place { number, offset }: Place,
        len: usize,
    ) -> Option<(usize, usize, Reach)> {
        let end = offset.checked_add(len)?;
        let prefix = (0..PREFIXES).find(|prefix| len_of(*prefix) >= end)?;
        if self.note.is_none() && self.reach[prefix] != Reach::NotAll {
            let name = format!("{}{number:016x}", note(key?, rank));
            // What cannot be found is not offered: the first refusal is one of all that is offered in a call.
            match findable::make_note(&name).ok().filter(|_| is_open()) {
                Some(file) => self.note = Some(file),
                None => self.reach = [Reach::NotAll; PREFIXES],
            }
        }
        Some((prefix, offset, self.reach[prefix]))
    }

    /// As [`SentBlocks::is_unchanged`] of bytes that lie at this place.
    pub(crate) fn is_unchanged(&mut self, place: Place, bytes: &[u8]) -> bool {
        self.sent.is_unchanged(place.offset as u64, bytes)
    }

    pub(crate) fn settle(&mut self, prefix: usize, found: bool) {
        if let Some(reach) = self.reach.get_mut(prefix) {
            *reach = if found { Reach::All } else { Reach::NotAll };
        }
    }
}

/// Maps a prefix of the heap of a rank's process.
pub(crate) fn find(mapped: &MappedSegment, rank: usize, prefix: usize) -> Option<Mapping> {
    let process = mapped.snapshot(rank).pid;
    let number = findable::find_note(process, &note(mapped.key(), rank)).ok()?;
    let number = u64::from_str_radix(&number, 16).ok()?;
    findable::find_part(process, &name(number), len_of(prefix)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::HEAP_WINDOW_BYTES;

    #[test]
    fn the_last_prefix_is_the_longest_heap() {
        assert_eq!((len_of(0), len_of(PREFIXES - 1)), (64 << 20, HEAP_WINDOW_BYTES));
    }
}
