//! Which ranks meet in groups, and which are in one.
//!
//! What a rank does in a round is to wait for lines that others have written. Flat, it waits for all of them at once; in
//! groups, in three steps that follow each other, for those of its group, for those of the other groups, and for one. Lines
//! that are on their way at the same time cost little beyond the first, so a step counts for many lines:
//! docs/performance.md has the counts and the figures from which the numbers here follow.

use std::collections::BTreeMap;

use crate::protocol::Group;
use crate::protocol::partition::block;
use crate::segment::settings::BarrierShape;

/// From so many ranks on it pays to meet in groups.
const FROM: usize = 64;

impl BarrierShape {
    /// In groups that follow from the caches, if each rank has a processor.
    const NEAR: BarrierShape = BarrierShape(u32::MAX);

    /// How so many ranks meet, if this is what was set.
    pub(crate) fn chosen(group: Option<usize>, ranks: usize) -> Self {
        match group {
            None if ranks < FROM => BarrierShape::FLAT,
            None => BarrierShape::NEAR,
            Some(group) => u32::try_from(group).map_or(BarrierShape::NEAR, BarrierShape),
        }
    }

    /// How the ranks of a part of the job meet.
    pub(crate) fn of_part(self, ranks: usize) -> Self {
        if self == BarrierShape::NEAR { BarrierShape::chosen(None, ranks) } else { self }
    }

    /// The groups. `near`: by rank, a number that ranks have in common which are near each other. `oversubscribed`: there are
    /// fewer processors than ranks.
    pub(crate) fn groups(self, near: &[u64], oversubscribed: bool) -> Option<Groups> {
        let ranks = near.len();
        match self {
            BarrierShape::FLAT => None,
            // A leader that has to wait for its turn keeps all others waiting.
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
    /// What `rank` has to know of them.
    pub(crate) fn of(&self, rank: usize) -> Group {
        Group::new(&self.0, rank)
    }

    /// Ranks that are near each other, in groups of at most about the square root of the number of all. `near`: by rank, a
    /// number that those have in common.
    pub(crate) fn near(near: &[u64]) -> Self {
        let most = (near.len() - 1).isqrt() + 1;
        let mut together: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (rank, key) in near.iter().enumerate() {
            together.entry(*key).or_default().push(rank);
        }
        if together.len() > 2 * near.len().div_ceil(most) {
            // Where few ranks share a cache, groups of those save nothing.
            return Groups::blocks(near.len(), most);
        }
        let mut leaders = vec![0; near.len()];
        for ranks in together.values() {
            let pieces = ranks.len().div_ceil(most);
            for piece in (0..pieces).map(|piece| &ranks[block(ranks.len(), pieces, piece)]) {
                piece.iter().for_each(|rank| leaders[*rank] = piece[0]);
            }
        }
        Groups(leaders.into())
    }

    /// Groups of at most `most` ranks that follow one another.
    fn blocks(ranks: usize, most: usize) -> Self {
        Groups((0..ranks).map(|rank| rank - rank % most).collect())
    }

    /// A number of a rank's group, which no other group has.
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
    fn few_ranks_and_crowded_ones_do_not_meet_in_groups() {
        assert_eq!(BarrierShape::chosen(None, FROM - 1).groups(&[0; FROM - 1], false), None);
        assert_eq!(BarrierShape::chosen(None, FROM).groups(&[0; FROM], true), None);
        assert_eq!(BarrierShape::chosen(Some(0), 2 * FROM).groups(&[0; 2 * FROM], false), None);
    }

    #[test]
    fn who_asks_for_groups_gets_them() {
        assert_eq!(leaders(BarrierShape::chosen(Some(2), 5).groups(&[0; 5], true)), [0, 0, 2, 2, 4]);
        assert_eq!(leaders(BarrierShape::chosen(Some(8), 3).groups(&[0; 3], false)), [0; 3]);
    }

    #[test]
    fn a_part_of_a_job_meets_as_the_job_does_if_that_was_asked_for() {
        assert_eq!(BarrierShape::chosen(Some(2), 64).of_part(3), BarrierShape(2));
        assert_eq!(BarrierShape::chosen(None, 2 * FROM).of_part(FROM - 1), BarrierShape::FLAT);
        assert_eq!(BarrierShape::chosen(None, 2 * FROM).of_part(FROM), BarrierShape::NEAR);
    }

    #[test]
    fn ranks_that_share_a_cache_are_together() {
        // Two caches, whose processors take turns in the numbers of the ranks.
        let near: Vec<u64> = (0..64).map(|rank| 1 + rank % 2).collect();
        let groups = leaders(BarrierShape::NEAR.groups(&near, false));
        let counts = (0..64).map(|leader| groups.iter().filter(|other| **other == leader).count());
        assert_eq!(counts.filter(|count| *count > 0).collect::<Vec<_>>(), [8; 8]);
        assert!((0..64).all(|rank| near[rank] == near[groups[rank]]));
    }

    #[test]
    fn caches_that_few_ranks_share_do_not_count() {
        let near: Vec<u64> = (1..=64).collect();
        assert_eq!(Groups::near(&near), Groups::blocks(64, 8));
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
    }
}
