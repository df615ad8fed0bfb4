//! Whether the ranks can read in each other's memory, and when they do.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::copy::cpu;
use crate::protocol::block_transfer::Address;
use crate::segment::settings::SingleCopy;
use crate::sys::cma;
use crate::tuning::{SINGLE_COPY_BELOW_BYTES, SINGLE_COPY_FROM_BYTES};

/// The processes of all ranks, in whose memory each can read.
pub(crate) struct CmaPeers {
    processes: Box<[u32]>,
    /// Whether it has turned out that one can not. The same on every rank.
    refused: AtomicBool,
}

impl SingleCopy {
    const NEVER: SingleCopy = SingleCopy(0);

    /// If each rank has a processor: one that waits for its turn saves nothing by a copy less.
    const ROOMY: SingleCopy = SingleCopy(1);

    const ALWAYS: SingleCopy = SingleCopy(2);

    /// When so many ranks do, if this is what was set.
    pub(crate) fn chosen(set: Option<bool>, ranks: usize) -> Self {
        let fast = cfg!(target_os = "linux") && cpu::is_intel();
        match set {
            _ if ranks == 1 => SingleCopy::NEVER,
            Some(false) => SingleCopy::NEVER,
            Some(true) => SingleCopy::ALWAYS,
            None if fast => SingleCopy::ROOMY,
            None => SingleCopy::NEVER,
        }
    }

    /// Whether they do. `oversubscribed`: there are fewer processors than ranks.
    pub(crate) fn is_tried(self, oversubscribed: bool) -> bool {
        self == SingleCopy::ALWAYS || self == SingleCopy::ROOMY && !oversubscribed
    }
}

/// A number that others read in this process's memory, as long as it is kept: so they know that it is this process.
pub(crate) struct ProbeCookie(Box<[u8; size_of::<u64>()]>);

impl ProbeCookie {
    pub(crate) fn new() -> Self {
        ProbeCookie(Box::new(RandomState::new().hash_one(0).to_ne_bytes()))
    }

    /// Where it is, and what it is.
    pub(crate) fn shown(&self) -> [u64; 2] {
        [address(&self.0[..]).map_or(0, NonZeroU64::get), u64::from_ne_bytes(*self.0)]
    }
}

impl CmaPeers {
    /// The processes of all ranks, if the system lets them.
    pub(crate) fn of(processes: Box<[u32]>) -> Self {
        CmaPeers { processes, refused: AtomicBool::new(false) }
    }

    /// Whether this process can read in that of a rank, which has shown its token. Another may have that one's number here,
    /// or a policy of the system may forbid it.
    pub(crate) fn probe(&self, rank: usize, [from, token]: [u64; 2]) -> bool {
        let mut found = [0; size_of::<u64>()];
        NonZeroU64::new(from).is_some_and(|from| self.fetch(rank, from, 0..found.len(), &mut found))
            && u64::from_ne_bytes(found) == token
    }

    /// The same for some of the ranks.
    pub(crate) fn part(&self, ranks: &[usize]) -> Option<Self> {
        let processes = ranks.iter().map(|rank| self.processes[*rank]).collect();
        (!self.refused.load(Relaxed)).then(|| CmaPeers::of(processes))
    }

    /// Whether blocks of these lengths, by rank, are read where they lie. Each has to be worth a system call; and what is
    /// better stored non-temporally is better not copied by the system.
    pub(crate) fn eligible(&self, lengths: impl Iterator<Item = usize>) -> bool {
        if self.refused.load(Relaxed) {
            return false;
        }
        let mut total = 0usize;
        for len in lengths {
            if len < SINGLE_COPY_FROM_BYTES {
                return false;
            }
            total = total.saturating_add(len);
        }
        total < SINGLE_COPY_BELOW_BYTES
    }

    /// From now on none are.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Relaxed);
    }

    /// Copies a part of what begins at `from` in a rank's memory. False: that was not possible.
    pub(crate) fn fetch(&self, rank: usize, from: NonZeroU64, part: Range<usize>, target: &mut [u8]) -> bool {
        // Whatever another rank has said: where there is nothing to be read, nothing is.
        let from = from.get().wrapping_add(part.start as u64);
        cma::read(self.processes[rank], from, target)
    }
}

/// Where bytes lie, for others.
pub(crate) fn address(bytes: &[u8]) -> Address {
    NonZeroU64::new(bytes.as_ptr().expose_provenance() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_tried_where_it_is_asked_for_and_otherwise_where_there_is_room() {
        let asked = |set, ranks| {
            [false, true].map(|oversubscribed| SingleCopy::chosen(set, ranks).is_tried(oversubscribed))
        };
        assert_eq!(asked(Some(true), 2), [true, true]);
        assert_eq!(asked(Some(false), 2), [false, false]);
        assert_eq!(asked(Some(true), 1), [false, false]);
        assert!(!asked(None, 2)[1]);
    }

    #[test]
    fn only_blocks_that_are_all_long_enough_are_read_where_they_lie() {
        let cma_peers = CmaPeers::of([1, 2].into());
        let eligible = |peers: &CmaPeers, shorter: usize| {
            peers.eligible([SINGLE_COPY_FROM_BYTES, SINGLE_COPY_FROM_BYTES - shorter].into_iter())
        };
        assert!(eligible(&cma_peers, 0) && !eligible(&cma_peers, 1));
        assert!(cma_peers.part(&[1]).is_some_and(|part| *part.processes == [2]));
        cma_peers.refuse();
        assert!(!cma_peers.eligible([SINGLE_COPY_FROM_BYTES; 2].into_iter()) && cma_peers.part(&[1]).is_none());
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn what_lies_somewhere_is_read_there_and_nothing_is_read_where_nothing_is() {
        let cma_peers = CmaPeers::of([std::process::id(), u32::MAX, 0].into());
        let own: Vec<u8> = (0..100_000u32).map(|index| (index % 251) as u8).collect();
        let mut found = [0; 1000];
        let from = address(&own).unwrap();
        assert!(cma_peers.fetch(0, from, 77..1077, &mut found) && found == own[77..1077]);
        let token = ProbeCookie::new();
        assert!(cma_peers.probe(0, token.shown()) && !cma_peers.probe(1, token.shown()));
        assert!(!cma_peers.probe(0, [token.shown()[0], !token.shown()[1]]) && !cma_peers.probe(0, [0, 0]));
        for (rank, from) in [(0, NonZeroU64::MIN), (0, NonZeroU64::MAX), (1, from), (2, from)] {
            assert!(!cma_peers.fetch(rank, from, 0..1000, &mut found), "rank {rank}, {from}");
        }
    }
}
