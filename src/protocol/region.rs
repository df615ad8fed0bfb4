//! Memory that ranks see in place: when it may be written, by whom, and when it may be read.
//!
//! A region's life is a sequence of epochs, and a round lies between any two:
//!
//! ```text
//!           write epoch               read epoch                write epoch
//! rank 0    writes its parts ─┐   ┌── reads everything ──┐   ┌── writes its parts
//! rank 1    writes its parts ─┼───┼── reads everything ──┼───┼── writes its parts
//! rank 2    writes its parts ─┘   └── reads everything ──┘   └── writes its parts
//!                           publish                  take back
//! ```
//!
//! **Publish.** A rank arrives when it has written for the last time, and cannot write any more. After the round
//! nobody can, and all that was written is visible, so everybody may read everything, for as long as it likes.
//!
//! **Take back.** A rank arrives when it has read for the last time. After the round nobody reads, so each rank may
//! write its parts again.
//!
//! Either succeeds on all ranks or on none, also when one of them dies in it, because a round does. A rank that cannot
//! change its mapping's protection refuses, so that no rank goes on alone.
//!
//! What a round has shown is a value that can be had in no other way, and that the memory asks for: see `segment::region_memory`.
//!
//! **Parts.** In a write epoch no two ranks own the same element. [`Parts`] are made only from a table that all ranks
//! have, hence with the same verdict on each.

use core::ops::Range;

use super::partition::block;
use super::{Barrier, Call, Failure, Member, Platform};

/// Nobody writes the region: every rank has said so, after its last store.
#[derive(Debug)]
pub struct AllPublished(());

/// Nobody reads the region: every rank has said so, after its last load.
#[derive(Debug)]
pub struct AllReclaimed(());

impl<P: Platform> Member<'_, P> {
    /// Ends a write epoch. `protected`: this rank's mapping cannot be written any more.
    ///
    /// # Errors
    /// As [`Member::begin_call`]; for a rank that is not protected, [`Failure::Refused`] like for all others.
    pub fn publish(
        &mut self,
        barrier: &Barrier,
        call: &Call,
        protected: bool,
    ) -> Result<AllPublished, Failure> {
        barrier.enter(self, &Call { refused: !protected, ..*call })?;
        Ok(AllPublished(()))
    }

    /// Ends a read epoch. `unprotected`: this rank's mapping can be written again.
    ///
    /// # Errors
    /// As [`Member::begin_call`]; for a rank that is still protected, [`Failure::Refused`] like for all others.
    pub fn reclaim(
        &mut self,
        barrier: &Barrier,
        call: &Call,
        unprotected: bool,
    ) -> Result<AllReclaimed, Failure> {
        barrier.enter(self, &Call { refused: !unprotected, ..*call })?;
        Ok(AllReclaimed(()))
    }
}

/// The elements of a region that one rank owns in a write epoch: ascending ranges, apart from each other and from those
/// of every other rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts(Box<[Range<usize>]>);

/// Who owns what in a region's first write epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners {
    /// This rank owns everything.
    One(usize),
    /// Each rank owns its block of contiguous blocks.
    Blocks,
}

impl Parts {
    /// The parts of `rank`, of a region of `len` elements and `size` ranks.
    pub fn new(owners: Owners, len: usize, size: usize, rank: usize) -> Self {
        let own = match owners {
            Owners::One(owner) if owner == rank => 0..len,
            Owners::One(_) => 0..0,
            Owners::Blocks => block(len, size, rank),
        };
        Parts([own].into_iter().filter(|part| !part.is_empty()).collect())
    }

    /// Nothing.
    pub fn none() -> Self {
        Parts([].into())
    }

    /// The parts of `rank` according to what all ranks want, which is the same table on each. Empty ranges do not
    /// count.
    ///
    /// # Errors
    /// Two ranks that want the same element.
    pub fn of_table(table: &[Vec<Range<usize>>], rank: usize) -> Result<Self, (usize, usize)> {
        let mut all: Vec<(usize, &Range<usize>)> = Vec::new();
        for (owner, parts) in table.iter().enumerate() {
            all.extend(parts.iter().filter(|part| !part.is_empty()).map(|part| (owner, part)));
        }
        all.sort_by_key(|(owner, part)| (part.start, *owner));
        for pair in all.windows(2) {
            let ((first, before), (second, after)) = (&pair[0], &pair[1]);
            if before.end > after.start {
                return Err((*first, *second));
            }
        }
        Ok(Parts(all.into_iter().filter(|(owner, _)| *owner == rank).map(|(_, part)| part.clone()).collect()))
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.0
    }

    /// Where the last range ends.
    pub fn end(&self) -> usize {
        self.0.last().map_or(0, |part| part.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_rank_or_all_own_everything() {
        let part = |owners, rank| Parts::new(owners, 10, 3, rank).0.first().cloned();
        let owned = |owners| [part(owners, 0), part(owners, 1), part(owners, 2)];
        assert_eq!(owned(Owners::One(1)), [None, Some(0..10), None]);
        assert_eq!(owned(Owners::Blocks), [Some(0..4), Some(4..7), Some(7..10)]);
        assert_eq!(Parts::new(Owners::Blocks, 2, 3, 2).end(), 0);
    }

    #[test]
    fn both_ranks_of_an_overlap_are_named() {
        let table = [vec![5..9, 9..9], vec![0..2, 3..3], vec![2..5, 8..9]];
        assert_eq!(Parts::of_table(&table, 1), Err((0, 2)));
    }

    fn range() -> impl Strategy<Value = Range<usize>> {
        (0usize..20, 0usize..4).prop_map(|(start, len)| start..start + len)
    }

    proptest! {
        #[test]
        fn agrees_with_marking_every_element(
            table in prop::collection::vec(prop::collection::vec(range(), 0..4), 1..5),
        ) {
            let mut taken = [false; 24];
            let mut all = table.iter().flatten().cloned();
            let apart = all.all(|part| part.fold(true, |apart, at| apart & !std::mem::replace(&mut taken[at], true)));
            for rank in 0..table.len() {
                let parts = Parts::of_table(&table, rank);
                prop_assert_eq!(parts.is_ok(), apart, "{:?}", parts);
                if let Ok(parts) = parts {
                    let wanted: usize = table[rank].iter().map(Range::len).sum();
                    prop_assert_eq!(parts.ranges().iter().map(Range::len).sum::<usize>(), wanted);
                    prop_assert!(parts.ranges().is_sorted_by(|a, b| a.end <= b.start));
                }
            }
        }
    }
}
