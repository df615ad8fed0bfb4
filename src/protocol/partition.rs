//! How items are divided among ranks.

use core::ops::Range;

/// Block `rank` of `size` contiguous blocks of `items` items.
pub(crate) fn block(items: usize, size: usize, rank: usize) -> Range<usize> {
    let (quotient, remainder) = (items / size, items % size);
    let start = quotient * rank + rank.min(remainder);
    start..start + quotient + usize::from(rank < remainder)
}
