//! Where a region's memory lies, and in pages of which size.

use std::fmt;

use crate::collective::counts;
use crate::protocol::region::Owners;
use crate::rank::process_settings::ProcessSettings;
use crate::sys::memory::mapping::Mapping;
use crate::sys::memory::pages::page_size;
use crate::sys::numa::{self, Policy};

/// On which NUMA nodes of the machine the pages of a region lie: [`RegionOptions::placement`].
///
/// A page lies near the processor of the rank that allocates it, unless a placement says otherwise. On a machine with one
/// node there is no difference. Where the system forbids placement, everything works without it. With `INTRANODE_DEBUG` in
/// its environment a rank writes on standard error that a placement has no effect.
///
/// ```
/// use intranode::{Placement, RegionOptions};
///
/// let everywhere = RegionOptions::new().placement(Placement::Interleaved);
/// let on_one_node = RegionOptions::new().placement(Placement::Nodes(vec![0]));
/// let sums = intranode::threads(2, |comm| {
///     let mut sum = 0;
///     for options in [&everywhere, &on_one_node] {
///         sum += comm.region_with::<u64>(10_000, options)?.publish()?.iter().sum::<u64>();
///     }
///     Ok::<_, intranode::Error>(sum)
/// })?;
/// for sum in sums {
///     assert_eq!(sum?, 0);
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// On these nodes only, by their numbers.
    Nodes(Vec<u32>),
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
    pub(crate) fn digest(&self, key: u64) -> u64 {
        let (kind, nodes): (u64, &[u32]) = match &self.placement {
            Placement::Leader => (0, &[]),
            Placement::Distributed => (1, &[]),
            Placement::Interleaved => (2, &[]),
            Placement::Nodes(nodes) => (3, nodes),
        };
        // Tables of different lengths: the length tells them apart.
        let nodes: Vec<usize> =
            [nodes.len()].into_iter().chain(nodes.iter().map(|node| *node as usize)).collect();
        // What decides who owns what stands in it as it is.
        counts::digest(key, &nodes) << 8 | kind << 1 | u64::from(self.huge_pages)
    }

    /// Tells the system, before any page is allocated.
    pub(crate) fn place(&self, mapping: &Mapping, settings: &ProcessSettings) {
        let nodes = numa::nodes();
        let wish = match &self.placement {
            Placement::Leader if settings.interleave => Some((Policy::Interleave, &nodes)),
            Placement::Leader | Placement::Distributed => None,
            Placement::Interleaved => Some((Policy::Interleave, &nodes)),
            Placement::Nodes(nodes) => Some((Policy::Bind, nodes)),
        };
        match wish {
            None if self.placement != Placement::Distributed => {}
            _ if nodes.len() < 2 => {
                settings.debug("a region's placement has no effect: this machine has one NUMA node");
            }
            None => {}
            Some((policy, nodes)) => {
                if let Err(error) = numa::set_policy(mapping, policy, nodes) {
                    settings.debug(&format!("a region's placement has no effect: the system says {error}"));
                }
            }
        }
    }
}

/// Where the pages of a region lie: [`Region::pages`](crate::Region::pages). Its text is for people.
///
/// ```
/// let found = intranode::threads(1, |comm| Ok::<_, intranode::Error>(comm.region::<u8>(100_000)?.pages()))?;
/// for pages in found {
///     // Not every system tells.
///     let Ok(pages) = pages? else { continue };
///     let known: usize = pages.nodes.iter().map(|(_, count)| count).sum();
///     assert_eq!(known + pages.unknown, 100_000_usize.div_ceil(pages.size));
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pages {
    /// The size that counts as one page, in bytes.
    pub size: usize,
    /// The nodes that have pages, each with the number of its pages.
    pub nodes: Vec<(u32, usize)>,
    /// The pages whose node the system does not tell.
    pub unknown: usize,
}

impl Pages {
    pub(crate) fn of(mapping: &Mapping) -> std::io::Result<Self> {
        if mapping.forked() {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        let all = numa::locate(mapping)?;
        let mut nodes = std::collections::BTreeMap::new();
        for node in all.iter().flatten() {
            *nodes.entry(*node).or_default() += 1;
        }
        let known: usize = nodes.values().sum();
        let unknown = all.len() - known;
        Ok(Pages { size: page_size(), nodes: nodes.into_iter().collect(), unknown })
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pages of {} bytes", self.size)?;
        self.nodes.iter().try_for_each(|(node, count)| write!(f, ", {count} on node {node}"))?;
        if self.unknown > 0 { write!(f, ", {} on an unknown node", self.unknown) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_options_have_different_digests() {
        let placements = [
            Placement::Leader,
            Placement::Distributed,
            Placement::Interleaved,
            Placement::Nodes(vec![]),
            Placement::Nodes(vec![0]),
            Placement::Nodes(vec![0, 1]),
            Placement::Nodes(vec![1, 0]),
        ];
        let mut digests = Vec::new();
        for placement in placements {
            for huge_pages in [false, true] {
                let options = RegionOptions::new().placement(placement.clone()).huge_pages(huge_pages);
                digests.push(options.digest(12345));
            }
        }
        let count = digests.len();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), count);
    }

    #[test]
    fn pages_are_told_in_words() {
        let pages = Pages { size: 4096, nodes: vec![(0, 3), (2, 1)], unknown: 0 };
        assert_eq!(pages.to_string(), "pages of 4096 bytes, 3 on node 0, 1 on node 2");
        let pages = Pages { unknown: 5, ..pages };
        assert!(pages.to_string().ends_with(", 5 on an unknown node"));
    }
}
