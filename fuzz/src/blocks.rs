//! Counts and displacements: `allgatherv` accepts exactly the blocks that are inside the receive buffer and do not overlap,
//! and its error names a block that is not.

use intranode::Error;
use intranode::collective::counts::check;

use super::input::Input;

/// More ranks find no more errors, and take long to check.
const MOST: usize = 64;

/// The input: the differences between the lengths of the tables and the number of ranks, the rank, the lengths of the send and
/// receive buffers, then a count and a displacement for each rank. After an odd byte, the displacement is relative to the end
/// of the block before. Returns whether the blocks were accepted.
pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let [counts_off, displs_off, rank, recv_exact, send_exact] = input.bytes();
    let (mut recv, mut send) = (input.size(), input.size());
    let (mut counts, mut displs) = (Vec::new(), Vec::new());
    let mut end = 0usize;
    while !input.is_empty() && counts.len() < MOST {
        let continued = input.byte() & 1 == 1;
        let (count, displ) = (input.size(), input.size());
        let displ = if continued { end.wrapping_add(displ) } else { displ };
        counts.push(count);
        displs.push(displ);
        end = displ.wrapping_add(count);
    }
    let size = counts.len();
    if size == 0 {
        return false;
    }
    let rank = usize::from(rank) % size;
    // Otherwise most inputs would fail in the first comparisons.
    if recv_exact & 3 != 0 {
        let needed = counts.iter().zip(&displs).map(|(count, displ)| displ.saturating_add(*count)).max();
        recv = needed.unwrap_or(0).wrapping_sub(usize::from(recv_exact & 3 == 2));
    }
    if send_exact & 3 != 0 {
        send = counts[rank];
    }
    resize(&mut counts, counts_off);
    resize(&mut displs, displs_off);
    verify(rank, size, send, recv, &counts, &displs)
}

/// Mostly does not change a table.
fn resize(table: &mut Vec<usize>, off: u8) {
    match off {
        1..8 => table.truncate(table.len().saturating_sub(usize::from(off))),
        8..16 => table.resize(table.len() + usize::from(off - 7), 0),
        _ => {}
    }
}

fn verify(rank: usize, size: usize, send: usize, recv: usize, counts: &[usize], displs: &[usize]) -> bool {
    let checked = check(rank, size, send, recv, counts, displs);
    let describe =
        || format!("rank {rank} of {size}, send {send}, recv {recv}, {counts:?}, {displs:?}: {checked:?}");
    let right_tables = counts.len() == size && displs.len() == size;
    if !right_tables || send != counts[rank] {
        assert!(matches!(checked, Err(Error::InvalidBufferSize { .. })), "{}", describe());
        return false;
    }
    let end = |rank: usize| displs[rank] as u128 + counts[rank] as u128;
    match &checked {
        Ok(()) => {
            assert!((0..size).all(|rank| end(rank) <= recv as u128), "{}", describe());
            assert_eq!(overlap(counts, displs), None, "{}", describe());
            check_bytes(recv, counts, displs);
        }
        Err(Error::InvalidBufferSize { expected, actual, .. }) => {
            let expected = *expected;
            let names_a_block = (0..size).any(|rank| end(rank).min(usize::MAX as u128) == expected as u128);
            // A block whose end overflows needs more than any buffer has.
            let too_short =
                expected > recv || (expected == usize::MAX && (0..size).any(|r| end(r) > recv as u128));
            assert!(*actual == recv && names_a_block && too_short, "{}", describe());
        }
        Err(Error::OverlappingBlocks { first, second, .. }) => {
            let (first, second) = (*first, *second);
            let shared =
                first != second && displs[first] <= displs[second] && end(first) > displs[second] as u128;
            assert!(shared && counts[first] > 0 && counts[second] > 0, "{}", describe());
        }
        Err(_) => panic!("{}", describe()),
    }
    // An error needs a block that causes it.
    let apart = overlap(counts, displs).is_none();
    assert_eq!(checked.is_ok(), apart && (0..size).all(|rank| end(rank) <= recv as u128), "{}", describe());
    if let Err(error) = &checked {
        assert!(!error.to_string().is_empty() && !error.is_fatal());
    }
    checked.is_ok()
}

/// Two ranks whose blocks overlap, found by comparing all pairs.
fn overlap(counts: &[usize], displs: &[usize]) -> Option<(usize, usize)> {
    let range = |rank: usize| (displs[rank] as u128, displs[rank] as u128 + counts[rank] as u128);
    let pairs = (0..counts.len()).flat_map(|one| (0..one).map(move |other| (other, one)));
    pairs.into_iter().find(|(other, one)| {
        let ((a, b), (c, d)) = (range(*other), range(*one));
        a.max(c) < b.min(d)
    })
}

/// A buffer of `recv` elements that exists has at most `isize::MAX` bytes: then the blocks' offsets in bytes, which
/// `allgatherv` computes without a check, do not overflow.
fn check_bytes(recv: usize, counts: &[usize], displs: &[usize]) {
    for width in [1usize, 2, 8, 24] {
        if recv.checked_mul(width).is_some_and(|bytes| bytes <= isize::MAX as usize) {
            for (count, displ) in counts.iter().zip(displs) {
                // Empty blocks may be anywhere up to the end.
                let end = displ.checked_add(*count).and_then(|end| end.checked_mul(width));
                assert!(end.is_some_and(|end| end <= recv * width));
            }
        }
    }
}
