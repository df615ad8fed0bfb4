//! The static distribution of items over ranks.

use std::ops::Range;

use crate::protocol::partition::block;

/// Contiguous blocks of `items` items over `size` ranks whose lengths differ by at most one; the remainder goes to
/// the first ranks.
///
/// The ranges of ranks, and the counts and displacements of collectives, follow from the same arithmetic, so they agree.
///
/// ```
/// use intranode::Blocks;
///
/// let blocks = Blocks::new(10, 4);
/// assert_eq!(blocks.range(1), 3..6);
/// assert_eq!(blocks.counts(), [3, 3, 2, 2]);
/// assert_eq!(blocks.displs(), [0, 3, 6, 8]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    items: usize,
    size: usize,
}

impl Blocks {
    /// Distributes `items` items over `size` ranks. Example: [`Blocks`].
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn new(items: usize, size: usize) -> Self {
        assert!(size > 0, "items cannot be distributed over 0 ranks");
        Blocks { items, size }
    }

    /// The items of `rank`. Example: [`Blocks`].
    ///
    /// # Panics
    /// If `rank` is not less than the number of ranks.
    pub fn range(&self, rank: usize) -> Range<usize> {
        assert!(rank < self.size, "rank {rank} is not one of {} ranks", self.size);
        block(self.items, self.size, rank)
    }

    /// The number of items of each rank, by rank. Example: [`Blocks`].
    pub fn counts(&self) -> Vec<usize> {
        (0..self.size).map(|rank| self.range(rank).len()).collect()
    }

    /// The first item of each rank, by rank: the prefix sums of the counts. Example: [`Blocks`].
    pub fn displs(&self) -> Vec<usize> {
        (0..self.size).map(|rank| self.range(rank).start).collect()
    }

    /// The counts and the displacements, by rank, for items of `width` elements each, such as vectors.
    ///
    /// ```
    /// use intranode::Blocks;
    ///
    /// let vectors = Blocks::new(3, 2).scaled(10);
    /// assert_eq!(vectors.0, [20, 10]);
    /// assert_eq!(vectors.1, [0, 20]);
    /// ```
    ///
    /// # Panics
    /// If an offset overflows.
    pub fn scaled(&self, width: usize) -> (Vec<usize>, Vec<usize>) {
        let scale = |items: Vec<usize>| {
            items.into_iter().map(|n| n.checked_mul(width).expect("offsets fit into usize")).collect()
        };
        (scale(self.counts()), scale(self.displs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_are_contiguous_balanced_and_complete(items in 0usize..10_000, size in 1usize..300) {
            let blocks = Blocks::new(items, size);
            let mut next = 0;
            for rank in 0..size {
                let range = blocks.range(rank);
                prop_assert_eq!(range.start, next);
                let extra = usize::from(rank < items % size);
                prop_assert_eq!(range.len(), items / size + extra);
                next = range.end;
            }
            prop_assert_eq!(next, items);
        }

        #[test]
        fn counts_and_displacements_come_from_the_ranges(items in any::<usize>(), size in 1usize..50) {
            let blocks = Blocks::new(items, size);
            for (rank, (count, displ)) in blocks.counts().into_iter().zip(blocks.displs()).enumerate() {
                prop_assert_eq!(displ..displ + count, blocks.range(rank));
            }
        }
    }
}
