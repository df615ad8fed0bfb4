//! How received bytes get from staging into the caller's buffer.

use std::ops::Range;

use crate::copy::{Source, lines};

/// From how many bytes on received data is stored past the cache.
pub(super) const STREAM_FROM: usize = 16 << 20;

/// Copies out of staging.
#[inline]
pub(super) fn take(staging: &Source<'_>, target: &mut [u8], stream: bool) {
    if stream {
        staging.fetch_nontemporal(target);
    } else {
        staging.fetch(target);
    }
}

/// To be called before the buffers are given back.
#[inline]
pub(super) fn end(stream: bool) {
    if stream {
        lines::fence();
    }
}

/// What comes next in a target, if it is to keep pace with something else of which `put` of `all` bytes are done, so that no
/// line is written in two pieces.
pub(super) fn keep_pace(done: &mut usize, put: usize, all: usize, target: &[u8]) -> Range<usize> {
    let goes_on = put < all && put < target.len();
    let end = if goes_on { lines::round_down_to_line(target.as_ptr(), put) } else { target.len() };
    let start = *done;
    *done = end.max(start);
    start..*done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_ends_with_a_line_of_its_target_or_with_the_target() {
        let target = [0u8; 1000];
        for skipped in 0..70 {
            let target = &target[skipped..];
            let (mut done, mut pieces) = (0, Vec::new());
            for len in [10, 100, 100, 700, target.len()] {
                pieces.push(keep_pace(&mut done, len, target.len(), target));
            }
            assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!((pieces[0].start, done), (0, target.len()));
            let ends = pieces[..4].iter().filter(|piece| !piece.is_empty()).map(|piece| piece.end);
            assert!(ends.into_iter().all(|end| target[end..].as_ptr().addr() % 64 == 0));
        }
    }
}
