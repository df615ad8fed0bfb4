//! Ranges of what lies in several slices, one behind the other.

use std::ops::Range;

use crate::endpoint::wire::Part;

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

    fn end(&self) {
        assert!(self.len == 0, "the range reaches past the end");
    }
}

/// The slices that a range of all of them consists of.
///
/// # Panics
/// When there is less.
pub(crate) fn window<'a>(slices: impl Iterator<Item = &'a [u8]>, start: usize, len: usize) -> Vec<&'a [u8]> {
    let mut window = Window { start, len };
    let parts = slices.map(|slice| &slice[window.part(slice.len())]);
    let found = parts.filter(|part| !part.is_empty()).collect();
    window.end();
    found
}

/// The same for slices that can be written.
pub(crate) fn window_mut<'a>(
    slices: impl Iterator<Item = &'a mut [u8]>,
    start: usize,
    len: usize,
) -> Vec<&'a mut [u8]> {
    let mut window = Window { start, len };
    let parts = slices.map(|slice| {
        let part = window.part(slice.len());
        &mut slice[part]
    });
    let found = parts.filter(|part| !part.is_empty()).collect();
    window.end();
    found
}

/// Copies bytes to slices of the same length altogether.
pub(crate) fn scatter(mut bytes: &[u8], targets: Vec<&mut [u8]>) {
    for target in targets {
        let (head, rest) = bytes.split_at(target.len());
        target.copy_from_slice(head);
        bytes = rest;
    }
}

/// For each piece that is contiguous on both sides: its address there, and the slice here. Both sides have the same length.
pub(crate) fn pair<'a>(parts: &[Part], targets: Vec<&'a mut [u8]>) -> Vec<(u64, &'a mut [u8])> {
    let mut parts = parts.iter().copied().filter(|(_, len)| *len > 0);
    let mut part = parts.next();
    let mut pairs = Vec::new();
    for mut target in targets {
        while !target.is_empty()
            && let Some((address, len)) = part
        {
            let taken = usize::try_from(len).map_or(target.len(), |len| len.min(target.len()));
            let (head, rest) = target.split_at_mut(taken);
            pairs.push((address, head));
            target = rest;
            let left = len - taken as u64;
            part = if left > 0 { Some((address.wrapping_add(taken as u64), left)) } else { parts.next() };
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
                let found = window(slices.into_iter(), start, len).concat();
                assert_eq!(found, (start as u8..(start + len) as u8).collect::<Vec<_>>());
                let mut own = slices.map(<[u8]>::to_vec);
                scatter(&vec![9; len], window_mut(own.iter_mut().map(|slice| &mut slice[..]), start, len));
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
        window([&[0u8; 3][..]].into_iter(), 1, 3);
    }

    #[test]
    fn both_sides_may_be_cut_anywhere() {
        let mut bytes = [0u8; 6];
        let (first, rest) = bytes.split_at_mut(2);
        let pairs = pair(&[(10, 3), (50, 0), (100, 3)], vec![first, rest]);
        let pairs: Vec<_> = pairs.iter().map(|(address, slice)| (*address, slice.len())).collect();
        assert_eq!(pairs, [(10, 2), (12, 1), (100, 3)]);
    }
}
