//! All channels of a rank, and where each lies: that is found once, since it is needed for each message.

use core::sync::atomic::AtomicU64;

use super::message_memory::{ChannelLayout, MappedChannel};
use super::symmetric_memory::{Open, SymmetricMemory};
use super::unit::Instance;

/// The channels of a rank.
pub(crate) struct Channels {
    /// By peer. Their lifetime is the memory's.
    routes: Box<[Route]>,
    /// Used by channels only, and never handed out.
    _memory: SymmetricMemory<u64, Open>,
}

struct Route {
    to: MappedChannel<'static>,
    from: MappedChannel<'static>,
    /// In the peer's instance.
    closed: &'static AtomicU64,
}

// SAFETY: I16: any thread of the rank may use a channel, as it could find it anew.
unsafe impl Send for Route {}
// SAFETY: I16: as above.
unsafe impl Sync for Route {}

impl Channels {
    /// Those of `rank`.
    ///
    /// # Panics
    /// When the memory has another layout, or there is no such rank.
    pub(crate) fn new(memory: SymmetricMemory<u64, Open>, layout: &ChannelLayout, rank: usize) -> Self {
        let instance = |rank| {
            let instance = memory.instance(rank);
            // SAFETY: I16: the memory is kept as long as what refers to it, and gives out nothing that outlives it.
            unsafe { Instance::new(instance.start(), instance.len()) }
        };
        let routes = (0..memory.ranks()).map(|peer| Route {
            to: MappedChannel::new([instance(rank), instance(peer)], layout, rank, peer),
            from: MappedChannel::new([instance(peer), instance(rank)], layout, peer, rank),
            closed: layout.closed(instance(peer)),
        });
        Channels { routes: routes.collect(), _memory: memory }
    }

    /// The channel to a rank.
    #[inline(always)]
    pub(crate) fn to(&self, target: usize) -> MappedChannel<'_> {
        self.routes[target].to
    }

    /// The same, and what is not 0 once that rank sends no more.
    #[inline(always)]
    pub(crate) fn to_open(&self, target: usize) -> (MappedChannel<'_>, &AtomicU64) {
        let Route { to, closed, .. } = &self.routes[target];
        (*to, closed)
    }

    /// The channel from a rank.
    #[inline(always)]
    pub(crate) fn from(&self, source: usize) -> MappedChannel<'_> {
        self.routes[source].from
    }

    /// Not 0 once this rank sends no more.
    #[inline(always)]
    pub(crate) fn closed(&self, rank: usize) -> &AtomicU64 {
        self.routes[rank].closed
    }
}
