//! Which ranks are on which host.

use cobre_comm::ExecutionTopology;
use cobre_io::HostLayout;

/// The hosts as the metadata of a run has them.
pub(crate) fn layout(topology: &ExecutionTopology) -> Vec<HostLayout> {
    let number = |rank: &usize| u32::try_from(*rank).unwrap_or(u32::MAX);
    let hosts = topology.hosts.iter();
    hosts
        .map(|host| HostLayout {
            hostname: host.hostname.clone(),
            ranks: host.ranks.iter().map(number).collect(),
        })
        .collect()
}

/// How many ranks share the processors of this one. Simulated nodes are one machine, of one name.
pub(crate) fn ranks_beside(hosts: &[HostLayout], rank: usize) -> usize {
    let own = hosts.iter().find(|host| host.ranks.iter().any(|other| *other as usize == rank));
    let beside = hosts.iter().filter(|host| own.is_some_and(|own| own.hostname == host.hostname));
    beside.map(|host| host.ranks.len()).sum::<usize>().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_one_name_share_its_processors() {
        let host = |name: &str, ranks: &[u32]| HostLayout { hostname: name.into(), ranks: ranks.to_vec() };
        let hosts = [host("a", &[0, 1]), host("b", &[2]), host("a", &[3])];
        let beside = [0, 1, 2, 3].map(|rank| ranks_beside(&hosts, rank));
        assert_eq!(beside, [3, 3, 1, 3]);
    }
}
