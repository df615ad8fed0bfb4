//! How much memory the connections take that have ended, as long as somebody may receive what came over them.
//!
//! It is counted when it changes: very many may have ended, and when one more does the others are not looked at.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::endpoint::peer::Peer;

#[derive(Default)]
pub(super) struct Kept {
    of: HashMap<Peer, One>,
    by_process: HashMap<u32, OfProcess>,
    bytes: usize,
    /// The number of the one that ends next.
    next: u64,
}

struct One {
    process: u32,
    number: u64,
    bytes: usize,
}

/// Those of a process, if it has any.
#[derive(Default)]
struct OfProcess {
    bytes: usize,
    /// In the order in which they have ended.
    peers: BTreeMap<u64, Peer>,
}

impl Kept {
    /// This connection of a process has ended, and takes this much now. It may have taken more before.
    pub(super) fn keep(&mut self, peer: Peer, process: u32, bytes: usize) {
        let number = self.forget(peer).unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        self.of.insert(peer, One { process, number, bytes });
        let all = self.by_process.entry(process).or_default();
        all.bytes += bytes;
        all.peers.insert(number, peer);
        self.bytes += bytes;
    }

    /// It is not there any more. Its number, if it was.
    pub(super) fn forget(&mut self, peer: Peer) -> Option<u64> {
        let One { process, number, bytes } = self.of.remove(&peer)?;
        self.bytes -= bytes;
        if let Some(all) = self.by_process.get_mut(&process) {
            all.bytes -= bytes;
            all.peers.remove(&number);
            if all.peers.is_empty() {
                self.by_process.remove(&process);
            }
        }
        Some(number)
    }

    /// What all take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first that has ended of the process whose take the most: one that connects again and again displaces what it has sent itself,
    /// and no other's.
    pub(super) fn first_of_the_most(&self) -> Option<Peer> {
        let first = |all: &OfProcess| all.peers.first_key_value().map(|(number, peer)| (*number, *peer));
        let of_each = self.by_process.values().filter_map(|all| Some((all.bytes, first(all)?)));
        of_each.max_by_key(|(bytes, (number, _))| (*bytes, Reverse(*number))).map(|(_, (_, peer))| peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_process_whose_take_the_most_is_found() {
        let peer = |slot| Peer { slot, generation: 0 };
        let mut kept = Kept::default();
        for (slot, process, bytes) in [(0, 7, 100), (1, 8, 60), (2, 8, 60), (3, 9, 100)] {
            kept.keep(peer(slot), process, bytes);
        }
        assert_eq!((kept.bytes(), kept.first_of_the_most()), (320, Some(peer(1))));
        // Some of it was received. Of two that take as much it is the one that has ended first.
        kept.keep(peer(1), 8, 30);
        assert_eq!((kept.bytes(), kept.first_of_the_most()), (290, Some(peer(0))));
        kept.keep(peer(2), 8, 90);
        assert_eq!((kept.bytes(), kept.first_of_the_most()), (320, Some(peer(1))));
        for slot in [0, 1, 2, 2] {
            kept.forget(peer(slot));
        }
        assert_eq!((kept.bytes(), kept.first_of_the_most()), (100, Some(peer(3))));
        kept.forget(peer(3));
        assert_eq!((kept.bytes(), kept.first_of_the_most()), (0, None));
        assert!(kept.of.is_empty() && kept.by_process.is_empty());
    }
}
