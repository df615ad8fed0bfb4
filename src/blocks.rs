//! The arithmetic of counts and displacements, before anything is copied.

use crate::error::{Error, Operation};

const OPERATION: Operation = Operation::Allgatherv;

/// Checks that the tables have an entry for each of `size` ranks, that `rank` sends what it says, and that every
/// block has a place of its own among `recv` elements. All lengths are in elements.
///
/// # Errors
/// [`Error::InvalidBufferSize`], [`Error::OverlappingBlocks`].
pub fn check(
    rank: usize,
    size: usize,
    send: usize,
    recv: usize,
    counts: &[usize],
    displs: &[usize],
) -> Result<(), Error> {
    let size_error = |expected, actual| Error::InvalidBufferSize { operation: OPERATION, expected, actual };
    for table in [counts, displs] {
        if table.len() != size {
            return Err(size_error(size, table.len()));
        }
    }
    if send != counts[rank] {
        return Err(size_error(counts[rank], send));
    }
    let mut end = 0;
    let mut ascending = true;
    for (count, displ) in counts.iter().zip(displs) {
        // Not saturating: a buffer of elements without size can be as long as the largest number.
        let Some(needed) = displ.checked_add(*count).filter(|needed| *needed <= recv) else {
            return Err(size_error(displ.saturating_add(*count), recv));
        };
        ascending &= *displ >= end || *count == 0;
        end = end.max(needed);
    }
    if ascending { Ok(()) } else { check_overlap(counts, displs) }
}

/// Checks blocks in any order, whose ends are known not to overflow.
#[cold]
fn check_overlap(counts: &[usize], displs: &[usize]) -> Result<(), Error> {
    let mut order: Vec<usize> = (0..counts.len()).filter(|rank| counts[*rank] > 0).collect();
    order.sort_by_key(|rank| displs[*rank]);
    for pair in order.windows(2) {
        let (first, second) = (pair[0], pair[1]);
        if displs[first] + counts[first] > displs[second] {
            let (first, second) = (first as u32, second as u32);
            return Err(Error::OverlappingBlocks { operation: OPERATION, first, second });
        }
    }
    Ok(())
}

/// FNV-1a over the counts: ranks whose counts differ notice, though only the digest is compared.
pub(crate) fn digest(counts: &[usize]) -> u64 {
    counts.iter().fold(0xCBF2_9CE4_8422_2325, |hash: u64, count| {
        (hash ^ *count as u64).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same question, answered byte by byte.
    fn has_room(recv: usize, counts: &[usize], displs: &[usize]) -> bool {
        let mut taken = vec![false; recv];
        counts.iter().zip(displs).all(|(count, displ)| {
            *displ + *count <= recv
                && (*displ..displ + count).all(|at| !std::mem::replace(&mut taken[at], true))
        })
    }

    #[test]
    fn a_block_beyond_the_largest_number_does_not_fit_the_largest_buffer() {
        let error = check(0, 2, 5, usize::MAX, &[5, 7], &[2, usize::MAX - 2]);
        assert!(matches!(error, Err(Error::InvalidBufferSize { expected: usize::MAX, .. })), "{error:?}");
    }

    proptest! {
        #[test]
        fn agrees_with_marking_every_element(
            blocks in prop::collection::vec((0usize..5, 0usize..20), 1..8),
            recv in 0usize..25,
        ) {
            let (counts, displs): (Vec<_>, Vec<_>) = blocks.into_iter().unzip();
            let checked = check(0, counts.len(), counts[0], recv, &counts, &displs);
            prop_assert_eq!(checked.is_ok(), has_room(recv, &counts, &displs), "{:?}", checked);
        }

        #[test]
        fn never_overflows(
            blocks in prop::collection::vec((any::<usize>(), any::<usize>()), 1..8),
            recv in any::<usize>(),
        ) {
            let (counts, displs): (Vec<_>, Vec<_>) = blocks.into_iter().unzip();
            let _ = check(0, counts.len(), counts[0], recv, &counts, &displs);
        }
    }
}
