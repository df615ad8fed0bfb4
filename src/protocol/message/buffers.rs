//! The buffers of a channel: where the bytes of a message are that a cell has no room for.
//!
//! Which buffers are held is one word: the sender sets the bits of those that it takes, who has read what is in them clears them: the
//! receiver. So any number of buffers changes hands by one operation, in any order, and a message that stays unread keeps its own
//! buffers only. The sender takes the lowest that are free, so that few pages are in use where few messages are under way; for a
//! long message it may take those behind the last, which have left the caches.
//!
//! A receiver may keep the buffers of a message for its reply, whose cell says so, and the sender of the message may then use them again: they are held all the
//! time, and the sender may be the one who frees them.
//!
//! A rank that dies when it has taken or kept buffers takes them with it: no third rank uses this channel's.

use core::ops::Range;

use super::super::symmetric::{Fetch, SymmetricPlatform};
use super::super::{Killed, Ordering, Payload};
use super::{Channel, Mask, Post};
use crate::copy::policy::StorePolicy;
use Ordering::{Acquire, Relaxed, Release};

/// The lowest `count` bits of a set; `None` if it has fewer.
pub(crate) fn lowest(set: Mask, count: usize) -> Option<Mask> {
    let mut rest = set;
    for _ in 0..count {
        if rest == 0 {
            return None;
        }
        rest &= rest - 1;
    }
    Some(set & !rest)
}

/// The same from this bit on, if there are as many.
fn lowest_from(set: Mask, count: usize, first: u32) -> Option<Mask> {
    let behind = set & Mask::MAX.checked_shl(first).unwrap_or(0);
    lowest(behind, count).or_else(|| lowest(set, count))
}

/// The buffers of a channel with this many.
fn all(buffers: usize) -> Mask {
    if buffers >= Mask::BITS as usize { Mask::MAX } else { (1 << buffers) - 1 }
}

/// The buffers of a set, in order, as one range of bytes: each run of adjacent ones that has some of `range`, with where in the run that
/// begins, and which part of `range` it is.
#[inline(always)]
fn for_each<C: Channel>(
    channel: &C,
    mut mask: Mask,
    range: Range<usize>,
    mut visit: impl FnMut(C::Bytes, usize, Range<usize>),
) {
    assert!(range.end <= mask.count_ones() as usize * channel.buffer_len());
    let mut begin = 0;
    while begin < range.end {
        let first = mask.trailing_zeros() as usize;
        let (bytes, count) = channel.adjacent(first, (mask >> first).trailing_ones() as usize);
        mask &= !(all(count) << first);
        let end = begin + count * channel.buffer_len();
        let (from, to) = (range.start.max(begin), range.end.min(end));
        if from < to {
            visit(bytes, from - begin, from - range.start..to - range.start);
        }
        begin = end;
    }
}

impl<P: SymmetricPlatform> Post<'_, P> {
    /// Takes `count` buffers, for its sender: the lowest. `None`: fewer are free.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    #[inline]
    pub fn reserve<C: Channel>(&self, channel: &C, count: usize) -> Result<Option<Mask>, Killed> {
        Ok(self.reserve_from(channel, count, 0)?.map(|(mask, _)| mask))
    }

    /// The same from the buffer `first` on, if enough are free there, and whether the receiver has read all others.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    #[inline]
    pub fn reserve_from<C: Channel>(
        &self,
        channel: &C,
        count: usize,
        first: u32,
    ) -> Result<Option<(Mask, bool)>, Killed> {
        // Acquire: the receiver has read what this rank is about to overwrite. Others only ever free buffers.
        let held = self.0.platform.load_cell("held", channel.held(), Acquire);
        let Some(mask) = lowest_from(all(channel.buffers()) & !held, count, first) else { return Ok(None) };
        self.0.platform.fetch_cell("reserve", channel.held(), Fetch::Or, mask, Relaxed);
        self.0.platform.fail_point("buffers-reserved")?;
        Ok(Some((mask, held == 0)))
    }

    /// Whether no buffers of a channel are held, but for these: they are this rank's.
    #[inline]
    pub fn has_read_all_but<C: Channel>(&self, channel: &C, mask: Mask) -> bool {
        // Relaxed: it is read again before any are taken, and others than these were freed before this rank got these.
        self.0.platform.load_cell("held-by-any", channel.held(), Relaxed) & !mask == 0
    }

    /// Frees buffers, when this rank has read them. `source`: the rank that may wait for some.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    #[inline]
    pub fn release<C: Channel>(&self, channel: &C, mask: Mask, source: usize) -> Result<(), Killed> {
        if mask == 0 {
            return Ok(());
        }
        self.0.platform.fail_point("buffers-read")?;
        // Release: they were read.
        self.0.platform.fetch_cell("release", channel.held(), Fetch::And, !mask, Release);
        self.ring(source)
    }
}

/// Copies bytes into reserved buffers.
///
/// # Panics
/// When the buffers are too short, or do not exist.
pub fn fill<C: Channel>(channel: &C, mask: Mask, bytes: &[u8]) {
    fill_from(channel, mask, 0, bytes);
}

/// The same from byte `start` of the buffers on.
///
/// # Panics
/// As [`fill`].
#[inline(always)]
pub fn fill_from<C: Channel>(channel: &C, mask: Mask, start: usize, bytes: &[u8]) {
    for_each(channel, mask, start..start + bytes.len(), |buffers, at, part| {
        buffers.write(|sink| sink.after(at).publish(&bytes[part]));
    });
}

/// Copies bytes out of the buffers of a cell that was taken.
///
/// # Panics
/// When the buffers are too short, or do not exist.
pub fn read<C: Channel>(channel: &C, mask: Mask, target: &mut [u8]) {
    read_from(channel, mask, 0, target);
}

/// The same from byte `start` of the buffers on.
///
/// # Panics
/// As [`read`].
#[inline(always)]
pub fn read_from<C: Channel>(channel: &C, mask: Mask, start: usize, target: &mut [u8]) {
    for_each(channel, mask, start..start + target.len(), |buffers, at, part| {
        buffers.read(|source| source.after(at).fetch(&mut target[part]));
    });
}

/// The same into a part of what is long, and may be stored otherwise.
///
/// # Panics
/// As [`read`].
pub(crate) fn read_part<C: Channel>(
    channel: &C,
    mask: Mask,
    start: usize,
    target: &mut [u8],
    stores: &StorePolicy,
) {
    for_each(channel, mask, start..start + target.len(), |buffers, at, part| {
        buffers.read(|source| stores.fetch(&source.after(at), &mut target[part]));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_of_a_set_are_taken() {
        assert_eq!(lowest(0b1011_0100, 2), Some(0b0001_0100));
        assert_eq!(lowest(0b1011_0100, 4), Some(0b1011_0100));
        assert_eq!(lowest(0b1011_0100, 5), None);
        assert_eq!((lowest(0, 0), lowest(Mask::MAX, 64)), (Some(0), Some(Mask::MAX)));
    }

    #[test]
    fn the_next_of_a_set_are_taken_as_long_as_there_are_enough() {
        assert_eq!(lowest_from(0b1011_0100, 2, 3), Some(0b0011_0000));
        assert_eq!(lowest_from(0b1011_0100, 2, 6), Some(0b0001_0100));
        assert_eq!((lowest_from(0b1, 1, 64), lowest_from(0, 1, 64)), (Some(0b1), None));
    }

    #[test]
    fn a_channel_has_buffers_up_to_all_bits() {
        assert_eq!((all(64), all(3), all(1)), (Mask::MAX, 0b111, 1));
    }
}
