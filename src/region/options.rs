//! The options of a region: placement on NUMA nodes, huge pages.

use crate::protocol::region::Owners;
use crate::rank::process_settings::ProcessSettings;
use crate::sys::memory::mapping::Mapping;
use crate::sys::numa;

/// The placement of a region's pages on the machine's NUMA nodes: [`RegionOptions::placement`].
///
/// A page is allocated on the node of the rank that allocates it, unless the placement is
/// [`Interleaved`](Placement::Interleaved). On a machine with one node, or if the system forbids placement, the option has no
/// effect; with `INTRANODE_DEBUG` in its environment a rank writes that to standard error. On Linux `/proc/self/numa_maps`
/// lists the pages of each node.
///
/// ```
/// use intranode::{Placement, RegionOptions};
///
/// let sums = intranode::threads(2, |comm| {
///     let mut sum = 0;
///     for placement in [Placement::Interleaved, Placement::Distributed] {
///         let options = &RegionOptions::new().placement(placement);
///         sum += comm.region_with::<u64>(10_000, options)?.publish()?.iter().sum::<u64>();
///     }
///     Ok::<_, intranode::Error>(sum)
/// })?;
/// for sum in sums {
///     assert_eq!(sum?, 0);
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// On the leader's node: the leader allocates all pages. If the leader's environment has `INTRANODE_NUMA_INTERLEAVE=1`
    /// or `COBRE_SHM_NUMA_INTERLEAVE=1`, as [`Interleaved`](Placement::Interleaved).
    #[default]
    Leader,
    /// Each block of [`Blocks::new(len, size)`](crate::Blocks::new) on the node of its rank, which allocates it and is its
    /// first owner.
    Distributed,
    /// Page by page over all nodes, round-robin.
    Interleaved,
}

/// The options of a region: [`Communicator::region_with`](crate::Communicator::region_with). They are the same on all ranks.
///
/// ```
/// use intranode::{Placement, RegionOptions};
///
/// let options = RegionOptions::new().placement(Placement::Distributed).huge_pages(true);
/// let lengths = intranode::threads(2, |comm| {
///     let region = comm.region_with::<u8>(4 << 20, &options)?;
///     Ok::<_, intranode::Error>(region.len())
/// })?;
/// for len in lengths {
///     assert_eq!(len?, 4 << 20);
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct RegionOptions {
    pub(crate) placement: Placement,
    pub(crate) huge_pages: bool,
}

impl RegionOptions {
    /// The options of [`Communicator::region`](crate::Communicator::region). Example: [`RegionOptions`].
    pub fn new() -> Self {
        RegionOptions::default()
    }

    /// Sets the placement on NUMA nodes. Example: [`RegionOptions`].
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Whether to request huge pages from the system. They make random access to large regions faster, since there are
    /// fewer TLB misses, and the allocation slower. If the system has none, some or all pages have the base size. Example:
    /// [`RegionOptions`].
    pub fn huge_pages(mut self, huge_pages: bool) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// The owners of a new region.
    pub(crate) fn owners(&self, leader: usize) -> Owners {
        match self.placement {
            Placement::Distributed => Owners::Blocks,
            _ => Owners::One(leader),
        }
    }

    /// A code for the comparison of the ranks' calls: different for different options.
    pub(crate) fn code(&self) -> u64 {
        let placement = match self.placement {
            Placement::Leader => 0,
            Placement::Distributed => 1,
            Placement::Interleaved => 2,
        };
        placement << 1 | u64::from(self.huge_pages)
    }

    /// Sets the memory policy, before any page is allocated.
    pub(crate) fn set_policy(&self, mapping: &Mapping, settings: &ProcessSettings) {
        let interleave = match self.placement {
            Placement::Leader => settings.interleave,
            Placement::Distributed => false,
            Placement::Interleaved => true,
        };
        if !interleave && self.placement != Placement::Distributed {
            return;
        }
        let nodes = numa::nodes();
        if nodes.len() < 2 {
            settings.debug("a region's placement has no effect: this machine has one NUMA node");
        } else if interleave && let Err(error) = numa::interleave(mapping, &nodes) {
            settings.debug(&format!("a region's placement has no effect: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_options_have_different_codes() {
        let mut codes = Vec::new();
        for placement in [Placement::Leader, Placement::Distributed, Placement::Interleaved] {
            for huge_pages in [false, true] {
                codes.push(RegionOptions::new().placement(placement).huge_pages(huge_pages).code());
            }
        }
        let count = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), count);
    }
}
