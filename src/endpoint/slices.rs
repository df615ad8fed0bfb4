//! Ranges of what lies in several slices, one behind the other.

use std::iter;
use std::ops::{Deref, Range};

use crate::endpoint::wire::Part;
use crate::rank::cma_peers::address;

/// A range of what lies in several slices, of which the first have been gone through.
struct Window {
    /// The bytes before it, and its own, that are still to come.
    start: usize,
    len: usize,
}

impl Window {
    /// Its part of the next slice, which has this length.
    fn part(&mut self, slice: usize) -> Range<usize> {
        let skipped = self.start.min(slice);
        let taken = self.len.min(slice - skipped);
        self.start -= skipped;
        self.len -= taken;
        skipped..skipped + taken
    }
}

/// The slices that a range of all of them consists of.
///
/// # Panics
/// Later, when there is less.
pub(crate) fn window<'a>(
    slices: impl Iterator<Item = &'a [u8]>,
    start: usize,
    len: usize,
) -> impl Iterator<Item = &'a [u8]> {
    cut(slices, start, len, |slice, part| &slice[part])
}

/// The same for slices that can be written.
pub(crate) fn window_mut<'a>(
    slices: impl Iterator<Item = &'a mut [u8]>,
    start: usize,
    len: usize,
) -> impl Iterator<Item = &'a mut [u8]> {
    cut(slices, start, len, |slice, part| &mut slice[part])
}

fn cut<S: Deref<Target = [u8]>>(
    mut slices: impl Iterator<Item = S>,
    start: usize,
    len: usize,
    part_of: impl Fn(S, Range<usize>) -> S,
) -> impl Iterator<Item = S> {
    let mut window = Window { start, len };
    iter::from_fn(move || {
        while window.len > 0 {
            let slice = slices.next().expect("the range reaches past the end");
            let part = window.part(slice.len());
            if !part.is_empty() {
                return Some(part_of(slice, part));
            }
        }
        None
    })
}

/// Where a slice of this process lies.
pub(crate) fn part(slice: &[u8]) -> Part {
    (address(slice).map_or(0, |at| at.get()), slice.len() as u64)
}

/// Parts of a peer's memory, which are taken one after the other.
pub(crate) struct Parts<'a> {
    rest: &'a [Part],
    /// The bytes of the first that are taken.
    taken: u64,
}

impl<'a> Parts<'a> {
    /// Those behind this number of bytes.
    pub(crate) fn behind(mut bytes: u64, mut parts: &'a [Part]) -> Self {
        while let Some(((_, len), rest)) = parts.split_first()
            && *len <= bytes
        {
            bytes -= len;
            parts = rest;
        }
        Parts { rest: parts, taken: bytes }
    }

    /// At most this number of bytes that lie one behind the other.
    fn take(&mut self, most: usize) -> Option<(u64, usize)> {
        let ((address, len), _) = self.rest.split_first()?;
        let (address, left) = (address.wrapping_add(self.taken), len - self.taken);
        let now = usize::try_from(left).map_or(most, |left| left.min(most));
        *self = Parts::behind(self.taken + now as u64, self.rest);
        Some((address, now))
    }
}

/// For each piece that is contiguous on both sides: its address there, and the slice here.
pub(crate) fn pair<'a>(
    parts: &mut Parts<'_>,
    targets: impl Iterator<Item = &'a mut [u8]>,
) -> Vec<(u64, &'a mut [u8])> {
    let mut pairs = Vec::new();
    for mut target in targets {
        while !target.is_empty()
            && let Some((address, len)) = parts.take(target.len())
        {
            let (head, rest) = target.split_at_mut(len);
            pairs.push((address, head));
            target = rest;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cross_slices() {
        let slices: [&[u8]; 4] = [&[0, 1, 2], &[], &[3], &[4, 5, 6]];
        for start in 0..=7 {
            for len in 0..=7 - start {
                let found = window(slices.into_iter(), start, len).collect::<Vec<_>>().concat();
                assert_eq!(found, (start as u8..(start + len) as u8).collect::<Vec<_>>());
                let mut own = slices.map(<[u8]>::to_vec);
                window_mut(own.iter_mut().map(|slice| &mut slice[..]), start, len)
                    .for_each(|part| part.fill(9));
                let changed = own.concat();
                assert!(changed.iter().enumerate().all(|(index, byte)| {
                    *byte == if (start..start + len).contains(&index) { 9 } else { index as u8 }
                }));
            }
        }
    }

    #[test]
    #[should_panic(expected = "past the end")]
    fn a_range_past_the_end_is_found() {
        window([&[0u8; 3][..]].into_iter(), 1, 3).for_each(drop);
    }

    #[test]
    fn both_sides_may_be_cut_anywhere() {
        let mut bytes = [0u8; 6];
        let (first, rest) = bytes.split_at_mut(2);
        let mut parts = Parts::behind(7, &[(3, 2), (0, 0), (5, 8), (50, 0), (100, 3)]);
        let pairs = pair(&mut parts, [first, rest].into_iter());
        let pairs: Vec<_> = pairs.iter().map(|(address, slice)| (*address, slice.len())).collect();
        assert_eq!(pairs, [(10, 2), (12, 1), (100, 3)]);
        assert_eq!(parts.take(1), None);
    }
}
