//! The shape of a communicator's barrier: flat, or which ranks form a group, and which of them leads it.
//!
//! In a flat barrier every rank reads every other rank's line, and the home of a line serves its readers one after another.
//! In a hierarchical one each line has few readers, and there are three steps. docs/adr/0001 has the model that decides.

use std::collections::BTreeMap;

use crate::protocol::Group;
use crate::protocol::partition::block;
use crate::segment::settings::BarrierShape;
use crate::tuning::{GROUPS, HIERARCHICAL_FROM_RANKS, LEAST_GROUP_RANKS};

impl BarrierShape {
    /// In groups of ranks that share a cache, unless oversubscribed.
    const NEAR: BarrierShape = BarrierShape(u32::MAX);

    /// The shape for `ranks` ranks: as configured, else by their number.
    pub(crate) fn chosen(group: Option<usize>, ranks: usize) -> Self {
        match group {
            None if ranks < HIERARCHICAL_FROM_RANKS => BarrierShape::FLAT,
            None => BarrierShape::NEAR,
            Some(group) => u32::try_from(group).map_or(BarrierShape::NEAR, BarrierShape),
        }
    }

    /// The shape for a communicator of some of the job's ranks.
    pub(crate) fn of_part(self, ranks: usize) -> Self {
        if self == BarrierShape::NEAR { BarrierShape::chosen(None, ranks) } else { self }
    }

    /// The groups; `None` if the barrier is flat. `near[rank]` is equal for ranks that share a cache. `oversubscribed`: there
    /// are more ranks than processors.
    pub(crate) fn groups(self, near: &[u64], oversubscribed: bool) -> Option<Groups> {
        let ranks = near.len();
        match self {
            BarrierShape::FLAT => None,
            // A leader without a processor would delay its whole group.
            BarrierShape::NEAR if oversubscribed => None,
            BarrierShape::NEAR => Some(Groups::near(near)),
            BarrierShape(most) => Some(Groups::blocks(ranks, most as usize)),
        }
    }
}

/// The leader of each rank's group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups(Box<[usize]>);

impl Groups {
    /// The group of `rank`, and its part in it.
    pub(crate) fn of(&self, rank: usize) -> Group {
        Group::new(&self.0, rank)
    }

    /// The ranks of whole caches together, at most [`GROUPS`] groups. All but one have an equal share of the ranks, or more, and
    /// [`LEAST_GROUP_RANKS`]; a cache with at least twice as many is divided. `near[rank]` is equal for ranks that share a cache.
    pub(crate) fn near(near: &[u64]) -> Self {
        let size = near.len().div_ceil(GROUPS).max(LEAST_GROUP_RANKS);
        let mut caches: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (rank, key) in near.iter().enumerate() {
            caches.entry(*key).or_default().push(rank);
        }
        let mut caches: Vec<Vec<usize>> = caches.into_values().collect();
        caches.sort_unstable_by_key(|ranks| ranks[0]);
        let mut leaders = vec![0; near.len()];
        // A group that has room for a further cache: its leader, and its ranks.
        let mut last: Option<(usize, usize)> = None;
        for ranks in caches {
            if ranks.len() > size {
                let groups = ranks.len() / size;
                for group in (0..groups).map(|group| &ranks[block(ranks.len(), groups, group)]) {
                    group.iter().for_each(|rank| leaders[*rank] = group[0]);
                }
            } else {
                let (leader, len) = last.filter(|(_, len)| *len < size).unwrap_or((ranks[0], 0));
                ranks.iter().for_each(|rank| leaders[*rank] = leader);
                last = Some((leader, len + ranks.len()));
            }
        }
        Groups(leaders.into())
    }

    /// Groups of at most `most` ranks that follow one another.
    fn blocks(ranks: usize, most: usize) -> Self {
        Groups((0..ranks).map(|rank| rank - rank % most).collect())
    }

    /// Identifies a rank's group: the number of its leader.
    pub(crate) fn number(&self, rank: usize) -> u64 {
        self.0[rank] as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn leaders(groups: Option<Groups>) -> Vec<usize> {
        groups.unwrap().0.into_vec()
    }

    #[test]
    fn few_ranks_and_oversubscribed_ones_have_no_groups() {
        assert_eq!(
            BarrierShape::chosen(None, HIERARCHICAL_FROM_RANKS - 1)
                .groups(&[0; HIERARCHICAL_FROM_RANKS - 1], false),
            None
        );
        assert_eq!(
            BarrierShape::chosen(None, HIERARCHICAL_FROM_RANKS).groups(&[0; HIERARCHICAL_FROM_RANKS], true),
            None
        );
        assert_eq!(
            BarrierShape::chosen(Some(0), 2 * HIERARCHICAL_FROM_RANKS)
                .groups(&[0; 2 * HIERARCHICAL_FROM_RANKS], false),
            None
        );
    }

    #[test]
    fn configured_groups_are_used() {
        assert_eq!(leaders(BarrierShape::chosen(Some(2), 5).groups(&[0; 5], true)), [0, 0, 2, 2, 4]);
        assert_eq!(leaders(BarrierShape::chosen(Some(8), 3).groups(&[0; 3], false)), [0; 3]);
    }

    #[test]
    fn a_split_communicator_keeps_a_configured_shape() {
        assert_eq!(BarrierShape::chosen(Some(2), 64).of_part(3), BarrierShape(2));
        assert_eq!(
            BarrierShape::chosen(None, 2 * HIERARCHICAL_FROM_RANKS).of_part(HIERARCHICAL_FROM_RANKS - 1),
            BarrierShape::FLAT
        );
        assert_eq!(
            BarrierShape::chosen(None, 2 * HIERARCHICAL_FROM_RANKS).of_part(HIERARCHICAL_FROM_RANKS),
            BarrierShape::NEAR
        );
    }

    #[test]
    fn ranks_that_share_a_cache_are_in_one_group() {
        // Two caches with alternating ranks: each is divided.
        let near: Vec<u64> = (0..64).map(|rank| 1 + rank % 2).collect();
        let groups = leaders(BarrierShape::NEAR.groups(&near, false));
        let counts = (0..64).map(|leader| groups.iter().filter(|other| **other == leader).count());
        assert_eq!(counts.filter(|count| *count > 0).collect::<Vec<_>>(), [8; 8]);
        assert!((0..64).all(|rank| near[rank] == near[groups[rank]]));
    }

    #[test]
    fn small_caches_are_joined_and_large_ones_divided() {
        // Sixteen caches of eight ranks: two to a group.
        let near: Vec<u64> = (0..128).map(|rank| rank / 8).collect();
        assert_eq!(Groups::near(&near), Groups::blocks(128, 16));
        // One cache: eight groups.
        assert_eq!(Groups::near(&[1; 64]), Groups::blocks(64, 8));
        // No rank shares a cache.
        let near: Vec<u64> = (1..=64).collect();
        assert_eq!(Groups::near(&near), Groups::blocks(64, 8));
    }

    #[test]
    fn caches_with_more_ranks_than_an_equal_share_are_not_divided_into_smaller_ones() {
        for most in [12, 16] {
            // Six caches, a group each.
            let near: Vec<u64> = (0..6 * most).map(|rank| rank / most).collect();
            assert_eq!(Groups::near(&near), Groups::blocks(near.len(), most as usize));
        }
    }

    proptest! {
        #[test]
        fn the_first_of_a_group_leads_it(near in prop::collection::vec(0u64..9, 1..300), most in 1usize..20) {
            for groups in [Groups::near(&near), Groups::blocks(near.len(), most)] {
                for (rank, leader) in groups.0.iter().enumerate() {
                    prop_assert!(*leader <= rank && groups.0[*leader] == *leader);
                }
            }
        }

        #[test]
        fn groups_are_few_and_not_small(near in prop::collection::vec(0u64..9, 1..300), caches in 1u64..9) {
            let near: Vec<u64> = near.into_iter().map(|key| key % caches).collect();
            let groups = Groups::near(&near);
            let len = |leader: usize| groups.0.iter().filter(|other| **other == leader).count();
            let lens: Vec<usize> = (0..near.len()).map(len).filter(|len| *len > 0).collect();
            prop_assert!(lens.len() <= GROUPS, "{lens:?}");
            prop_assert!(lens.iter().filter(|len| **len < LEAST_GROUP_RANKS).count() <= 1, "{lens:?}");
        }
    }
}
