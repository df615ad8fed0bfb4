//! Where a region's memory lies, and in pages of which size.

use crate::protocol::region::Owners;
use crate::rank::process_settings::ProcessSettings;
use crate::sys::memory::mapping::Mapping;
use crate::sys::numa;

/// On which NUMA nodes of the machine the pages of a region lie: [`RegionOptions::placement`].
///
/// A page lies near the processor of the rank that allocates it, unless the placement is [`Interleaved`](Placement::Interleaved). On a machine with one
/// node there is no difference. Where the system forbids placement, everything works without it. With `INTRANODE_DEBUG` in
/// its environment a rank writes on standard error that a placement has no effect. On Linux `/proc/self/numa_maps` lists the
/// pages of each node.
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
    /// Near the leader, which allocates everything; or page by page on each node in turn if the leader's environment has
    /// `INTRANODE_NUMA_INTERLEAVE=1` or `COBRE_SHM_NUMA_INTERLEAVE=1`.
    #[default]
    Leader,
    /// Each block of [`Blocks::new(len, size)`](crate::Blocks::new) near its rank, which allocates it and owns it at
    /// first.
    Distributed,
    /// Page by page on each node in turn.
    Interleaved,
}

/// How to make a region: [`Communicator::region_with`](crate::Communicator::region_with). The same on all ranks.
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
pub struct RegionOptions {
    pub(crate) placement: Placement,
    pub(crate) huge_pages: bool,
}

impl RegionOptions {
    /// A region as [`Communicator::region`](crate::Communicator::region) makes it. Example: [`RegionOptions`].
    pub fn new() -> Self {
        RegionOptions::default()
    }

    /// On which NUMA nodes its pages lie. Example: [`RegionOptions`].
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Whether to ask the system for huge pages, of which one takes the place of hundreds. Making the region takes
    /// longer, and reading large regions in no particular order is faster. Where the system has none to give, some or
    /// all pages have the usual size. Example: [`RegionOptions`].
    #[must_use]
    pub fn huge_pages(mut self, huge_pages: bool) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Who owns the region at first.
    pub(crate) fn owners(&self, leader: usize) -> Owners {
        match self.placement {
            Placement::Distributed => Owners::Blocks,
            _ => Owners::One(leader),
        }
    }

    /// A number that tells other options from these.
    pub(crate) fn code(&self) -> u64 {
        let placement = match self.placement {
            Placement::Leader => 0,
            Placement::Distributed => 1,
            Placement::Interleaved => 2,
        };
        placement << 1 | u64::from(self.huge_pages)
    }

    /// Sets the memory policy, before any page is allocated.
    pub(crate) fn place(&self, mapping: &Mapping, settings: &ProcessSettings) {
        let interleaved = match self.placement {
            Placement::Leader => settings.interleave,
            Placement::Distributed => false,
            Placement::Interleaved => true,
        };
        let nodes = numa::nodes();
        if nodes.len() < 2 {
            if interleaved || self.placement == Placement::Distributed {
                settings.debug("a region's placement has no effect: this machine has one NUMA node");
            }
        } else if interleaved && let Err(error) = numa::interleave(mapping, &nodes) {
            settings.debug(&format!("a region's placement has no effect: the system says {error}"));
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
