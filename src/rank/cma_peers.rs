//! Single copy: whether ranks can read each other's memory (CMA), and which blocks are read in this way.

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::copy::cpu;
use crate::protocol::block_transfer::Address;
use crate::segment::settings::SingleCopy;
use crate::sys::cma::{self, Fetched, Token};
use crate::sys::random;
use crate::tuning::SINGLE_COPY_BELOW_BYTES;

/// The processes of all ranks, whose memory each rank can read.
pub(crate) struct CmaPeers {
    /// By rank: its process, and what only that process has.
    peers: Box<[(u32, Token)]>,
    /// What the others verify here, for as long as this rank may send by single copy.
    own: Arc<ProbeCookie>,
    /// Whether they read blocks that all ranks receive, too.
    pub(crate) is_for_all: bool,
    /// Whether a read was refused. The same on every rank.
    refused: AtomicBool,
}

impl SingleCopy {
    const NEVER: SingleCopy = SingleCopy(0);

    /// Where it was measured to be faster.
    const WHERE_FASTER: SingleCopy = SingleCopy(1);

    const ALWAYS: SingleCopy = SingleCopy(2);

    /// The value for a segment: as configured, else on Intel's processors.
    pub(crate) fn chosen(configured: Option<bool>, ranks: usize) -> Self {
        let fast = cfg!(target_os = "linux") && cpu::is_intel();
        match configured {
            _ if ranks == 1 => SingleCopy::NEVER,
            Some(false) => SingleCopy::NEVER,
            Some(true) => SingleCopy::ALWAYS,
            None if fast => SingleCopy::WHERE_FASTER,
            None => SingleCopy::NEVER,
        }
    }

    /// Whether a message is copied by the system, and not twice, once by each side: that takes longer if both sides copy at the same time.
    /// Measured on Intel: docs/adr/0052-long-messages-on-intel.md.
    pub(crate) fn is_for_messages(self, oversubscribed: bool) -> bool {
        self == SingleCopy::ALWAYS || self == SingleCopy::WHERE_FASTER && oversubscribed
    }

    /// Whether a block that all ranks receive is fetched by each of them. If oversubscribed, that takes longer than staging, of whose
    /// copies only the owner's is saved. Measured on Intel: docs/adr/0074-single-copy-if-oversubscribed.md.
    pub(crate) fn is_for_all(self, oversubscribed: bool) -> bool {
        self == SingleCopy::ALWAYS || self == SingleCopy::WHERE_FASTER && !oversubscribed
    }

    /// Whether ranks probe each other when they join.
    pub(crate) fn is_tried(self) -> bool {
        self != SingleCopy::NEVER
    }
}

/// A random number in this process's memory, which other ranks read to verify that the process is this one.
pub(crate) struct ProbeCookie(Box<[u8; size_of::<u64>()]>);

impl ProbeCookie {
    pub(crate) fn new() -> Self {
        ProbeCookie(Box::new(random::number().to_ne_bytes()))
    }

    /// What other ranks need to verify it.
    pub(crate) fn token(&self) -> Token {
        let address = address(&self.0[..]).map_or(0, NonZeroU64::get);
        Token { address, value: u64::from_ne_bytes(*self.0) }
    }
}

impl CmaPeers {
    /// The processes of all ranks with their tokens, by rank.
    pub(crate) fn new(own: Arc<ProbeCookie>, peers: Box<[(u32, Token)]>, is_for_all: bool) -> Self {
        CmaPeers { peers, own, is_for_all, refused: AtomicBool::new(false) }
    }

    /// Whether this process can read the cookie of a rank. The process id may mean another process in this PID namespace, or
    /// a security policy may forbid it.
    pub(crate) fn probe(&self, rank: usize) -> bool {
        let mut value = [0; size_of::<u64>()];
        let from = NonZeroU64::new(self.peers[rank].1.address);
        from.is_some_and(|from| self.fetch(rank, from, 0..value.len(), &mut value))
    }

    /// The same for a communicator of these ranks; `None` after a read was refused.
    pub(crate) fn subset(&self, ranks: &[usize]) -> Option<Self> {
        let peers = ranks.iter().map(|rank| self.peers[*rank]).collect();
        (!self.refused.load(Relaxed)).then(|| CmaPeers::new(Arc::clone(&self.own), peers, self.is_for_all))
    }

    /// Whether blocks of these lengths, by rank, are read by CMA. Each has to be worth a system call, as it is from a length on, and the
    /// total must be below the size from which staging uses non-temporal stores, since the kernel's copy does not.
    pub(crate) fn eligible(&self, from_bytes: usize, lengths: impl Iterator<Item = usize>) -> bool {
        if self.refused.load(Relaxed) {
            return false;
        }
        let mut total = 0usize;
        for len in lengths {
            if len < from_bytes {
                return false;
            }
            total = total.saturating_add(len);
        }
        total < SINGLE_COPY_BELOW_BYTES
    }

    /// From now on no blocks are eligible.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Relaxed);
    }

    /// Copies a range of the data at `from` in a rank's memory. Returns false if that is not possible, or its process is not the
    /// one that has shown the token: each call reads it too.
    pub(crate) fn fetch(&self, rank: usize, from: NonZeroU64, range: Range<usize>, target: &mut [u8]) -> bool {
        // A wrong address is harmless: the system call fails.
        let from = from.get().wrapping_add(range.start as u64);
        let (process, token) = self.peers[rank];
        cma::read(process, token, from, target) == Fetched::All
    }
}

/// The address of bytes, for other ranks.
pub(crate) fn address(bytes: &[u8]) -> Address {
    NonZeroU64::new(bytes.as_ptr().expose_provenance() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_tried_if_configured_and_where_it_is_faster() {
        let is_tried = |configured, ranks| SingleCopy::chosen(configured, ranks).is_tried();
        assert!(is_tried(Some(true), 2) && !is_tried(Some(false), 2));
        assert!(!is_tried(Some(true), 1));
        assert_eq!(is_tried(None, 2), cfg!(target_os = "linux") && cpu::is_intel());
    }

    /// What holds never, where it is faster and always, each with enough processors and with too few.
    fn by_choice(holds: impl Fn(SingleCopy, bool) -> bool) -> [[bool; 2]; 3] {
        [SingleCopy::NEVER, SingleCopy::WHERE_FASTER, SingleCopy::ALWAYS]
            .map(|choice| [false, true].map(|oversubscribed| holds(choice, oversubscribed)))
    }

    #[test]
    fn blocks_that_all_ranks_receive_are_not_fetched_where_ranks_share_processors() {
        assert_eq!(by_choice(SingleCopy::is_for_all), [[false, false], [true, false], [true, true]]);
    }

    #[test]
    fn messages_are_copied_by_the_system_where_both_sides_cannot_copy_at_once() {
        assert_eq!(by_choice(SingleCopy::is_for_messages), [[false, false], [false, true], [true, true]]);
    }

    fn peers<const N: usize>(processes: [u32; N]) -> CmaPeers {
        let own = Arc::new(ProbeCookie::new());
        let token = own.token();
        CmaPeers::new(own, processes.map(|process| (process, token)).into(), true)
    }

    #[test]
    fn blocks_are_eligible_only_if_all_are_long_enough() {
        let cma_peers = peers([1, 2]);
        let eligible =
            |peers: &CmaPeers, shorter: usize| peers.eligible(1000, [1000, 1000 - shorter].into_iter());
        assert!(eligible(&cma_peers, 0) && !eligible(&cma_peers, 1));
        assert!(!cma_peers.eligible(1000, [1000, SINGLE_COPY_BELOW_BYTES - 1000].into_iter()));
        assert!(cma_peers.subset(&[1]).is_some_and(|subset| subset.peers[..] == [cma_peers.peers[1]]));
        cma_peers.refuse();
        assert!(!cma_peers.eligible(1000, [1000; 2].into_iter()) && cma_peers.subset(&[1]).is_none());
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn fetching_reads_mapped_memory_of_live_processes_only() {
        let cma_peers = peers([std::process::id(), u32::MAX, 0]);
        let own: Vec<u8> = (0..100_000u32).map(|index| (index % 251) as u8).collect();
        let mut target = [0; 1000];
        let from = address(&own).unwrap();
        assert!(cma_peers.fetch(0, from, 77..1077, &mut target) && target == own[77..1077]);
        assert!(cma_peers.probe(0) && !cma_peers.probe(1) && !cma_peers.probe(2));
        for (rank, from) in [(0, NonZeroU64::MIN), (0, NonZeroU64::MAX), (1, from), (2, from)] {
            assert!(!cma_peers.fetch(rank, from, 0..1000, &mut target), "rank {rank}, {from}");
        }
    }

    /// A process that has called exec, or has got the number of another one, may have anything at the address.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn a_process_without_the_token_is_not_read() {
        let mut cma_peers = peers([std::process::id(); 3]);
        cma_peers.peers[1].1.value ^= 1;
        cma_peers.peers[2].1.address = 0;
        let (own, mut target) = ([7u8; 1000], [0; 1000]);
        let from = address(&own).unwrap();
        let read =
            [0, 1, 2].map(|rank| (cma_peers.probe(rank), cma_peers.fetch(rank, from, 0..1000, &mut target)));
        assert_eq!(read, [(true, true), (false, false), (false, false)]);
    }
}
