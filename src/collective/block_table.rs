//! The place of each rank's block in a buffer.

use std::ops::Range;

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
