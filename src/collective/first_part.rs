//! The first transfer of a broadcast whose length only its root knows: the length, and the data, if they end there.
//!
//! The transfer has the same length on every rank, and less of it is moved: what is behind the data is neither written nor read.

use std::ops::Range;

use crate::copy::{Sink, Source};
use crate::protocol::block_transfer::BlockTransfer;
use crate::protocol::call::INLINE;
use crate::tuning::FIRST_PART_BYTES;

/// The bytes of the length.
const HEAD: usize = size_of::<u64>();

/// What a rank gives to that transfer, or gets from it.
pub(super) struct FirstPart<'a> {
    root: usize,
    /// The bytes that are transferred, of which the data may have the rest.
    room: usize,
    /// The bytes of an element.
    width: usize,
    /// The length of the data, in elements.
    count: u64,
    /// On the root.
    own: Option<&'a [u8]>,
    received: Vec<u8>,
}

impl<'a> FirstPart<'a> {
    /// `chunk`: the bytes of one sender that go in one round, the same on every rank. `own`: on the root, the data, and their length in
    /// elements.
    pub(super) fn new(root: usize, width: usize, chunk: usize, own: Option<(&'a [u8], usize)>) -> Self {
        let room = if chunk >= FIRST_PART_BYTES { FIRST_PART_BYTES } else { INLINE };
        let (own, count) = own.unzip();
        FirstPart { root, room, width, count: count.unwrap_or(0) as u64, own, received: Vec::new() }
    }

    /// The length of the data, in elements.
    pub(super) fn count(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    /// Whether the data end in this transfer.
    pub(super) fn is_whole(&self) -> bool {
        self.count().saturating_mul(self.width) <= self.room - HEAD
    }

    /// What this rank has received, if the data end here.
    pub(super) fn into_received(self) -> Vec<u8> {
        self.received
    }

    /// The data that lie in a chunk of the transfer.
    fn part(&self, chunk: &Range<usize>) -> Range<usize> {
        let len = if self.is_whole() { self.count() * self.width } else { 0 };
        let (start, end) = (chunk.start.max(HEAD), chunk.end.min(HEAD + len));
        start - HEAD..end.max(start) - HEAD
    }
}

impl BlockTransfer for FirstPart<'_> {
    fn length(&self, rank: usize) -> usize {
        if rank == self.root { self.room } else { 0 }
    }

    fn put(&mut self, chunk: Range<usize>, mut staging: Sink<'_>) {
        if chunk.start == 0 {
            staging.put(0, &self.count.to_ne_bytes());
        }
        let part = self.part(&chunk);
        if let Some(own) = self.own.filter(|_| !part.is_empty()) {
            staging.put(part.start + HEAD - chunk.start, &own[part]);
        }
    }

    fn copy_own_block(&mut self, _: Range<usize>) {}

    fn get(&mut self, _: usize, chunk: Range<usize>, staging: Source<'_>) {
        if chunk.start == 0 {
            self.count = u64::from_ne_bytes(staging.array(0));
            let whole = self.part(&(0..self.room));
            self.received.resize(whole.len(), 0);
        }
        let part = self.part(&chunk);
        if !part.is_empty() {
            staging.get(part.start + HEAD - chunk.start, &mut self.received[part]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What rank 1 gets of what rank 0 gives, through chunks of a length.
    fn moved(data: &[u8], chunk: usize, chunk_len: usize) -> (bool, usize, Vec<u8>) {
        let mut given = FirstPart::new(0, 1, chunk, Some((data, data.len())));
        let mut taken = FirstPart::new(0, 1, chunk, None);
        assert_eq!((given.length(0), given.length(1)), (taken.length(0), 0));
        for start in (0..given.length(0)).step_by(chunk_len) {
            let chunk = start..given.length(0).min(start + chunk_len);
            let mut staging = vec![0xEE; chunk.len()];
            given.put(chunk.clone(), Sink::of(&mut staging));
            taken.get(0, chunk, Source::of(&staging));
        }
        (taken.is_whole(), taken.count(), taken.into_received())
    }

    #[test]
    fn data_that_end_in_it_arrive_whatever_the_chunks() {
        for chunk in [64, FIRST_PART_BYTES - 1, FIRST_PART_BYTES, 1 << 20] {
            let room = FirstPart::new(0, 1, chunk, None).room;
            for len in [0, 1, 55, 56, 57, 88, 89, 1000, room - HEAD, room - HEAD + 1, 10_000] {
                let data: Vec<u8> = (0..len).map(|index| (index * 7 % 251) as u8).collect();
                for chunk_len in [64, 192, 1024, room] {
                    let whole = len <= room - HEAD;
                    let expected = if whole { data.clone() } else { Vec::new() };
                    assert_eq!(moved(&data, chunk, chunk_len), (whole, len, expected));
                }
            }
        }
    }
}
