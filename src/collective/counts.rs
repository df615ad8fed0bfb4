//! The checks of counts and displacements.

use crate::communicator;
use crate::error::{Error, Operation, root_and_digest};
use crate::protocol::Call;

/// A call with blocks of these lengths, which are the same on all ranks of the communicator with this key.
pub(crate) fn call<T: 'static>(operation: Operation, key: u64, counts: &[usize]) -> Call {
    let length = counts.iter().fold(0u64, |sum, count| sum.wrapping_add(*count as u64));
    Call { length, extra: digest(key, counts), ..communicator::call::<T>(operation) }
}

/// The same of a call with a root.
pub(crate) fn call_at<T: 'static>(operation: Operation, key: u64, counts: &[usize], root: usize) -> Call {
    let call = call::<T>(operation, key, counts);
    Call { extra: root_and_digest(root, call.extra), ..call }
}

/// Checks the arguments of an allgatherv: the tables (`check_blocks`), and that `send` is the count of `rank`.
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
    check_gather(Operation::Allgatherv, (rank, size), send, recv, counts, displs)
}

/// The same of an operation with the arguments of an allgatherv.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_gather(
    operation: Operation,
    (rank, size): (usize, usize),
    send: usize,
    recv: usize,
    counts: &[usize],
    displs: &[usize],
) -> Result<(), Error> {
    check_tables(operation, size, [counts, displs])?;
    if send != counts[rank] {
        return Err(Error::InvalidBufferSize { operation, expected: counts[rank], actual: send });
    }
    check_blocks(operation, recv, counts, displs)
}

/// Checks that each table has an entry for each of `size` ranks.
///
/// # Errors
/// [`Error::InvalidBufferSize`].
pub(crate) fn check_tables<const N: usize>(
    operation: Operation,
    size: usize,
    tables: [&[usize]; N],
) -> Result<(), Error> {
    match tables.into_iter().find(|table| table.len() != size) {
        Some(table) => Err(Error::InvalidBufferSize { operation, expected: size, actual: table.len() }),
        None => Ok(()),
    }
}

/// Checks the arguments of an alltoallv: the counts and displacements of what is sent, and of what is received, from and into buffers of
/// these lengths, in elements of `width` bytes.
///
/// # Errors
/// [`Error::InvalidBufferSize`], [`Error::OverlappingBlocks`].
pub(crate) fn check_exchange(
    operation: Operation,
    size: usize,
    width: usize,
    [send, recv]: [usize; 2],
    ([send_counts, send_displs], [recv_counts, recv_displs]): ([&[usize]; 2], [&[usize]; 2]),
) -> Result<(), Error> {
    check_tables(operation, size, [send_counts, send_displs, recv_counts, recv_displs])?;
    check_fit(operation, send, send_counts, send_displs)?;
    check_blocks(operation, recv, recv_counts, recv_displs)?;
    // Blocks may overlap where they are read, so together they can be longer than the buffer.
    let total = send_counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
    match total.and_then(|total| total.checked_mul(width.max(1))) {
        Some(_) => Ok(()),
        None => Err(Error::InvalidBufferSize { operation, expected: usize::MAX, actual: send }),
    }
}

/// Checks that blocks fit into `len` elements. They may overlap: they are read.
///
/// # Errors
/// [`Error::InvalidBufferSize`].
pub(crate) fn check_fit(
    operation: Operation,
    len: usize,
    counts: &[usize],
    displs: &[usize],
) -> Result<(), Error> {
    for (count, displ) in counts.iter().zip(displs) {
        // A saturating sum would be accepted for a buffer of zero-sized elements, which can have usize::MAX of them.
        if displ.checked_add(*count).is_none_or(|needed| needed > len) {
            let expected = displ.saturating_add(*count);
            return Err(Error::InvalidBufferSize { operation, expected, actual: len });
        }
    }
    Ok(())
}

/// Checks that blocks fit into `recv` elements without overlap. All lengths are in elements.
///
/// # Errors
/// [`Error::InvalidBufferSize`], [`Error::OverlappingBlocks`].
pub(crate) fn check_blocks(
    operation: Operation,
    recv: usize,
    counts: &[usize],
    displs: &[usize],
) -> Result<(), Error> {
    check_fit(operation, recv, counts, displs)?;
    let mut end = 0;
    let ascending = counts.iter().zip(displs).all(|(count, displ)| {
        let follows = *displ >= end || *count == 0;
        end = end.max(displ + count);
        follows
    });
    if ascending { Ok(()) } else { check_overlap(operation, counts, displs) }
}

/// Checks blocks in any order. Their ends do not overflow.
#[cold]
fn check_overlap(operation: Operation, counts: &[usize], displs: &[usize]) -> Result<(), Error> {
    let mut order: Vec<usize> = (0..counts.len()).filter(|rank| counts[*rank] > 0).collect();
    order.sort_by_key(|rank| displs[*rank]);
    for pair in order.windows(2) {
        let (first, second) = (pair[0], pair[1]);
        if displs[first] + counts[first] > displs[second] {
            return Err(Error::overlap(operation, (first, second)));
        }
    }
    Ok(())
}

/// A digest of a table of counts. The ranks compare the digests, not the tables.
///
/// It is the polynomial hash of Carter and Wegman (1979; as in Dietzfelbinger and others 1992): the counts are the
/// coefficients of a polynomial over the integers modulo 2⁶¹ − 1, and the digest is its value at `key`. Two tables of R
/// counts have the same digest for at most R keys. So with a random key the probability of a collision is R / 2⁶¹ for any
/// two tables. A fixed hash function would have collisions that an adversary can construct.
pub(crate) fn digest(key: u64, counts: &[usize]) -> u64 {
    digest_words(key, counts.iter().copied())
}

/// The same of a name, byte by byte.
pub(crate) fn digest_name(key: u64, name: &str) -> u64 {
    digest_bytes(key, name.as_bytes())
}

/// The same of any bytes.
pub(crate) fn digest_bytes(key: u64, bytes: &[u8]) -> u64 {
    // The length first: leading zeros are no part of a polynomial's value.
    digest_words(key, std::iter::once(bytes.len()).chain(bytes.iter().map(|byte| usize::from(*byte))))
}

fn digest_words(key: u64, words: impl Iterator<Item = usize>) -> u64 {
    // Not 0 or 1: there the value is the last coefficient, or the sum of all.
    let key = u128::from(key % (PRIME - 2) + 2);
    let sum = words.fold(0, |hash: u64, word| {
        let wide = u128::from(hash) * key + word as u128;
        // 2⁶¹ ≡ 1. Two steps reduce the value to about 61 bits.
        let narrow = (wide as u64 & PRIME) + (wide >> PRIME_BITS) as u64;
        (narrow & PRIME) + (narrow >> PRIME_BITS)
    });
    sum % PRIME
}

const PRIME_BITS: u32 = 61;

/// A Mersenne prime: the remainder of a division by it takes an addition.
const PRIME: u64 = (1 << PRIME_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same check, element by element.
    fn has_room(recv: usize, counts: &[usize], displs: &[usize]) -> bool {
        let mut taken = vec![false; recv];
        counts.iter().zip(displs).all(|(count, displ)| {
            *displ + *count <= recv
                && (*displ..displ + count).all(|at| !std::mem::replace(&mut taken[at], true))
        })
    }

    #[test]
    fn a_block_whose_end_overflows_does_not_fit_the_largest_buffer() {
        let error = check(0, 2, 5, usize::MAX, &[5, 7], &[2, usize::MAX - 2]);
        assert!(matches!(error, Err(Error::InvalidBufferSize { expected: usize::MAX, .. })), "{error:?}");
    }

    #[test]
    fn tables_that_a_weaker_digest_confuses_are_told_apart() {
        // The two have the same FNV-1a hash, by words, and the same sum.
        let tables = [[0, 14478, 519_941], [1, 10024, 524_394]];
        for key in [0, 1, 12345, u64::MAX] {
            assert_ne!(digest(key, &tables[0]), digest(key, &tables[1]));
        }
        let permuted = [[1, 2, 3], [3, 2, 1], [2, 1, 3]].map(|table| digest(7, &table));
        assert!(permuted[0] != permuted[1] && permuted[1] != permuted[2] && permuted[0] != permuted[2]);
    }

    proptest! {
        #[test]
        fn a_digest_is_the_value_of_the_polynomial(
            key in any::<u64>(),
            counts in prop::collection::vec(0..usize::MAX >> 4, 0..20),
        ) {
            let prime = u128::from(PRIME);
            let at = u128::from(key) % (prime - 2) + 2;
            let expected = counts.iter().fold(0, |sum, count| (sum * at + *count as u128) % prime);
            prop_assert_eq!(u128::from(digest(key, &counts)), expected);
        }

        #[test]
        fn a_key_tells_tables_apart(
            key in any::<u64>(),
            one in prop::collection::vec(0usize..1 << 40, 1..9),
            index in any::<prop::sample::Index>(),
            difference in 1usize..1 << 40,
        ) {
            let mut other = one.clone();
            other[index.index(one.len())] += difference;
            prop_assert_ne!(digest(key, &one), digest(key, &other));
        }

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
