//! Where blocks and the parts of long data begin.

use std::ops::Range;

/// Where blocks begin that lie one after the other.
pub(super) fn packed(counts: &[usize]) -> Vec<usize> {
    let starts = counts.iter().scan(0, |end, count| {
        *end += count;
        Some(*end - count)
    });
    starts.collect()
}

/// The parts of `len` elements of `size` bytes that go through at once, of up to `bytes` each.
pub(super) fn parts(len: usize, size: usize, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let step = (bytes / size.max(1)).max(1);
    (0..len).step_by(step).map(move |start| start..(start + step).min(len))
}
