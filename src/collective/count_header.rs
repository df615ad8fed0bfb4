//! The header with which a rank begins an alltoallv: how long what it sends to each rank is, and what it expects from each.
//!
//! ```text
//!   length   flags   send counts, by rank   recv counts, by rank   data
//!   1 byte   1       1 byte each if below 128 (LEB128)             if they fit as well
//! ```

use std::ops::Range;

use crate::copy::{Sink, Source};
use crate::protocol::call::INLINE;

/// The length and the flags.
const HEAD: usize = 2;

/// The data are in the header.
const DATA: u8 = 1;
/// The data are in staging.
const STAGED: u8 = 2;
/// The rank's blocks can be read where they lie, but do not follow one another there.
const SENDS_DISPLS: u8 = 4;

/// What is in a cache line with the arrival word. A header that fits there brings one line.
const FIRST_LINE: usize = 32;

/// What a rank has sent in the first round, in this rank's memory.
#[derive(Clone, Copy)]
pub(super) struct Header {
    bytes: [u8; INLINE],
    /// Where the data begin.
    data: usize,
}

/// How a rank's data go with its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// They come later.
    Later,
    Inline,
    Staged,
}

impl Header {
    pub(super) const EMPTY: Header = Header { bytes: [0; INLINE], data: HEAD };

    /// Whether there are so few ranks that counts can fit.
    #[inline]
    pub(super) fn has_room(size: usize) -> bool {
        HEAD + 2 * size <= INLINE
    }

    /// Writes counts into an empty header. False: they do not fit, which the header's length of 0 says.
    #[inline]
    pub(super) fn write(&mut self, [send, recv]: [&[usize]; 2], sends_displs: bool) -> bool {
        for count in send.iter().chain(recv) {
            match encode(&mut self.bytes[self.data..], *count as u64) {
                Some(len) => self.data += len,
                None => return false,
            }
        }
        self.bytes[0] = self.data as u8;
        self.bytes[1] = if sends_displs { SENDS_DISPLS } else { 0 };
        true
    }

    /// Room for data of this length behind the counts, which are said to be in the header. `None`: there is not as much.
    #[inline]
    pub(super) fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        let end = self.data.checked_add(len).filter(|end| *end <= INLINE)?;
        self.bytes[0] = end as u8;
        self.bytes[1] |= DATA;
        Some(&mut self.bytes[self.data..end])
    }

    /// The data are in staging.
    #[inline]
    pub(super) fn set_staged(&mut self) {
        self.bytes[1] |= STAGED;
    }

    /// Publishes it. In one of two lengths: then it is copied without a call of the C library.
    #[inline]
    pub(super) fn publish(&self, header: &mut Sink<'_>) {
        match usize::from(self.bytes[0]) <= FIRST_LINE {
            true => header.put(0, &self.bytes[..FIRST_LINE]),
            false => header.put(0, &self.bytes),
        }
    }

    /// Reads a header. What is behind its length is left from another call.
    #[inline]
    pub(super) fn read(&mut self, header: Source<'_>) {
        header.get(0, &mut self.bytes[..FIRST_LINE]);
        if usize::from(self.bytes[0]) > FIRST_LINE {
            header.get(FIRST_LINE, &mut self.bytes[FIRST_LINE..]);
        }
    }

    /// Reads this number of counts. False: they did not fit, or another process has overwritten the header.
    #[inline]
    pub(super) fn decode(&mut self, counts: &mut [u64]) -> bool {
        let Some(bytes) = self.bytes.get(HEAD..usize::from(self.bytes[0])) else { return false };
        // All of one byte each: without a decision for each.
        if let Some(bytes) = bytes.get(..counts.len())
            && bytes.iter().fold(0, |all, byte| all | byte) < 0x80
        {
            counts.iter_mut().zip(bytes).for_each(|(count, byte)| *count = u64::from(*byte));
            self.data = HEAD + bytes.len();
            return true;
        }
        let mut at = 0;
        for count in counts {
            let (mut number, mut shift) = (0, 0);
            loop {
                let Some(byte) = bytes.get(at).filter(|_| shift < u64::BITS) else { return false };
                at += 1;
                number |= u64::from(byte & 0x7F) << shift;
                if *byte < 0x80 {
                    break;
                }
                shift += 7;
            }
            *count = number;
        }
        self.data = HEAD + at;
        true
    }

    /// A part of the data, once the counts were read. `None`: they come otherwise, or another process has overwritten the header, and
    /// there is no such part.
    #[inline]
    pub(super) fn part(&self, part: Range<usize>) -> Option<&[u8]> {
        if self.data() == Data::Inline { self.bytes[self.data..].get(part) } else { None }
    }

    /// How the data come.
    #[inline]
    pub(super) fn data(&self) -> Data {
        match self.bytes[1] & (DATA | STAGED) {
            DATA => Data::Inline,
            STAGED => Data::Staged,
            _ => Data::Later,
        }
    }

    /// Whether the rank has to say where its blocks begin.
    pub(super) fn sends_displs(&self) -> bool {
        self.bytes[1] & SENDS_DISPLS != 0
    }
}

/// Writes a number, seven bits to a byte (LEB128). Returns how many bytes it takes. `None`: it does not fit.
#[inline]
fn encode(bytes: &mut [u8], mut number: u64) -> Option<usize> {
    for (index, byte) in bytes.iter_mut().enumerate() {
        let more = if number < 0x80 { 0 } else { 0x80 };
        *byte = number as u8 & 0x7F | more;
        number >>= 7;
        if more == 0 {
            return Some(index + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_of(send: &[usize], recv: &[usize], data: &[u8]) -> Header {
        let mut own = Header::EMPTY;
        if own.write([send, recv], false)
            && let Some(room) = own.room(data.len())
        {
            room.copy_from_slice(data);
        }
        let (mut line, mut read) = ([0xEE; INLINE], Header::EMPTY);
        own.publish(&mut Sink::of(&mut line));
        read.read(Source::of(&line));
        read
    }

    #[test]
    fn a_header_has_the_counts_and_what_fits_beside_them() {
        for send in [[0, 5], [127, 128], [usize::MAX, 1 << 21]] {
            // Up to the end of the first line, and beyond.
            for len in [0, 3, FIRST_LINE - HEAD - 4, FIRST_LINE - HEAD - 3, 60] {
                let (recv, data) = ([send[1], 3], vec![7; len]);
                let mut header = header_of(&send, &recv, &data);
                let mut counts = [9; 4];
                assert!(header.decode(&mut counts), "{send:?}");
                assert_eq!(counts.map(|count| count as usize), [send[0], send[1], recv[0], recv[1]]);
                assert_eq!((header.data(), header.part(0..len)), (Data::Inline, Some(&data[..])));
                assert!(!header.sends_displs());
            }
        }
    }

    #[test]
    fn data_up_to_the_end_of_the_header_go_with_the_counts() {
        for (len, data) in [(90, Data::Inline), (91, Data::Later)] {
            assert_eq!(header_of(&[1, 1], &[1, 1], &vec![1; len]).data(), data, "{len} bytes");
        }
    }

    #[test]
    fn a_header_says_what_comes_otherwise() {
        let mut header = Header::EMPTY;
        assert!(header.write([&[100, 0], &[0, 100]], true));
        header.set_staged();
        assert_eq!((header.data(), header.sends_displs(), header.part(0..0)), (Data::Staged, true, None));
    }

    #[test]
    fn counts_that_do_not_fit_are_not_read() {
        assert!(header_of(&[127; 31], &[128; 31], &[]).decode(&mut [0; 62]));
        assert!(!header_of(&[127; 32], &[128; 32], &[]).decode(&mut [0; 64]));
        assert!(!header_of(&[usize::MAX; 5], &[usize::MAX; 5], &[]).decode(&mut [0; 10]));
    }

    #[test]
    fn a_header_that_another_process_has_overwritten_is_not_read_beyond_its_end() {
        for byte in 0..=u8::MAX {
            for size in [1, 2, 5, 47] {
                let mut header = Header::EMPTY;
                header.read(Source::of(&[byte; INLINE]));
                if header.decode(&mut vec![0; 2 * size]) {
                    assert!((1..0x80).contains(&byte) && usize::from(byte) >= HEAD + 2 * size);
                }
                assert_eq!(header.part(usize::MAX - 1..usize::MAX), None);
            }
        }
    }
}
