//! The place of each rank's block in a buffer.

use std::ops::Range;

use super::parts::receivers;

/// The place of each rank's block in a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlockTable<'a> {
    /// In rank order, `bytes` each.
    Equal { bytes: usize },
    /// By rank: counts and displacements in elements of `width` bytes. They were checked, if ranges are asked for.
    Given { counts: &'a [usize], displs: &'a [usize], width: usize },
}

impl BlockTable<'_> {
    /// The length of a rank's block in bytes. Nothing has to be checked for that.
    #[inline]
    pub(crate) fn len(&self, rank: usize) -> usize {
        match self {
            BlockTable::Equal { bytes } => *bytes,
            BlockTable::Given { counts, width, .. } => counts[rank].saturating_mul(*width),
        }
    }

    /// The range of all blocks of `size` ranks in bytes, if they follow one another in rank order without gaps. Empty ones may be
    /// anywhere.
    pub(crate) fn packed(&self, size: usize) -> Option<Range<usize>> {
        let mut blocks = (0..size).map(|rank| self.range(rank)).filter(|block| !block.is_empty());
        let first = blocks.next().unwrap_or(0..0);
        blocks.try_fold(first, |all, block| (block.start == all.end).then_some(all.start..block.end))
    }

    /// Where a rank's block begins in blocks that are [packed](Self::packed), in bytes: the length of all before it, and of all for the number of
    /// ranks. Nothing has to be checked for that.
    pub(crate) fn start_if_packed(&self, rank: usize) -> usize {
        (0..rank).fold(0, |sum, rank| self.len(rank).saturating_add(sum))
    }

    /// The lengths of the blocks of all ranks but the sender, in the order of [`receivers`]. Nothing has to be checked for that.
    #[inline]
    pub(crate) fn lens_of_parts(self, sender: usize, size: usize) -> impl Iterator<Item = usize> {
        receivers(sender, size).map(move |rank| self.len(rank))
    }

    /// The length of the first `parts` of these.
    #[inline]
    pub(crate) fn len_of_parts(&self, sender: usize, size: usize, parts: usize) -> usize {
        self.lens_of_parts(sender, size).take(parts).fold(0, usize::saturating_add)
    }

    /// The range of a rank's block in bytes.
    #[inline]
    pub(crate) fn range(&self, rank: usize) -> Range<usize> {
        match self {
            BlockTable::Equal { bytes } => rank * bytes..(rank + 1) * bytes,
            BlockTable::Given { counts, displs, width } => {
                displs[rank] * width..(displs[rank] + counts[rank]) * width
            }
        }
    }
}
