//! What endpoints ask of each other's memory, as bytes of a message. Nothing of it is believed.

use crate::codes::codes;
use crate::endpoint::short::LONGEST;
use crate::segment::message_memory::PAIR_BUFFER;

/// Where bytes lie in the sender's memory: address and length.
pub(crate) type Part = (u64, u64);

/// The bytes of a message before its parts, at most.
const HEAD: usize = 24;

/// The most parts of a message.
pub(crate) const PARTS: usize = (LONGEST - HEAD) / 16;

/// The most bytes that one request has sent: what a buffer has room for.
pub(crate) const DATA: usize = PAIR_BUFFER;

/// Where a part of a transfer is written: the memory's key and the offset, and whether the transfer is larger than caches are.
/// An offset beyond all that can be said is said as [`FARTHEST`], which is beyond every memory, too.
pub(crate) fn encode_place(key: u64, offset: u64, is_large: bool) -> [u64; 2] {
    [key, offset.min(FARTHEST) | if is_large { LARGE } else { 0 }]
}

pub(crate) fn decode_place([key, offset]: [u64; 2]) -> (u64, u64, bool) {
    (key, offset & !LARGE, offset & LARGE != 0)
}

/// Says so in the word of the offset, which is never so large.
const LARGE: u64 = 1 << 63;

/// No transfer ends behind this byte.
pub(crate) const FARTHEST: u64 = LARGE - 1;

/// The number of a request is less.
const NUMBERS: u32 = 56;

/// Where bytes begin in a buffer is a multiple of this.
pub(crate) const BODY_STEP: usize = PAIR_BUFFER >> (u64::BITS - NUMBERS);

/// The tag of a cell with bytes: the number of the request, and at which byte they begin if they are in a buffer. Cells between ranks say the latter in
/// line.
pub(crate) fn encode_number(number: u64, start: usize) -> u64 {
    number & ((1 << NUMBERS) - 1) | ((start / BODY_STEP) as u64) << NUMBERS
}

pub(crate) fn decode_number(word: u64) -> (u64, usize) {
    (word & ((1 << NUMBERS) - 1), (word >> NUMBERS) as usize * BODY_STEP)
}

/// What is asked for, of the memory with this key, from this offset on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) key: u64,
    pub(crate) offset: u64,
    /// How many bytes the transfer has from there on, of which this may ask for the first: nothing is moved if they are not all there.
    pub(crate) left: u64,
    pub(crate) what: What,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Where the memory lies that has this number of bytes, to be read from there: all of it, or as many parts as a message has room for.
    Map(u64),
    /// This number of bytes. An owner may send fewer: the first.
    Read(u64),
    /// To read what lies here, in the memory of who asks.
    Pull(Vec<Part>),
    /// Nothing but whether all that is left can be written.
    Check,
}

codes! {
    /// What has come of a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Status: u64 {
        Done = 0,
        /// There is no such memory, or no more.
        Unknown = 1,
        /// It is shorter.
        Bounds = 2,
        /// It must not be written.
        NotWritable = 3,
        /// The system does not let this process read the other's memory.
        Refused = 4,
        /// Too many others are reading.
        Busy = 5,
        /// Nothing is mapped where it was to be read: with the bytes that were read before.
        Fault = 6,
    }
}

/// Reads numbers from the front of bytes.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn next(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }
}

fn put(bytes: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
}

fn put_parts(bytes: &mut Vec<u8>, parts: &[Part]) {
    parts.iter().for_each(|(address, len)| put(bytes, &[*address, *len]));
}

/// All that is left.
fn parts(mut words: Words<'_>) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    while !words.0.is_empty() {
        parts.push((words.next()?, words.next()?));
    }
    Some(parts)
}

/// The length of parts in bytes; `None`: that is no number.
pub(crate) fn len_of(parts: &[Part]) -> Option<u64> {
    parts.iter().try_fold(0u64, |sum, (_, len)| sum.checked_add(*len))
}

/// From this bit on the word of what is asked for says how much is left, or the most that can be said, which no memory has.
const LEFT: u32 = 8;

impl Request {
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let left = self.left.min(u64::MAX >> LEFT);
        let head = |what| [what | left << LEFT, self.key, self.offset];
        match &self.what {
            What::Map(len) => {
                put(bytes, &head(1));
                put(bytes, &[*len]);
            }
            What::Read(len) => {
                put(bytes, &head(2));
                put(bytes, &[*len]);
            }
            What::Pull(source) => {
                put(bytes, &head(3));
                put_parts(bytes, source);
            }
            What::Check => put(bytes, &head(4)),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = Words(bytes);
        let (what, key, offset) = (words.next()?, words.next()?, words.next()?);
        let left = what >> LEFT;
        let what = match what & ((1 << LEFT) - 1) {
            1 => What::Map(words.next().filter(|_| words.0.is_empty())?),
            2 => What::Read(words.next().filter(|len| words.0.is_empty() && *len <= DATA as u64)?),
            3 => What::Pull(parts(words)?),
            4 if words.0.is_empty() => What::Check,
            _ => return None,
        };
        Some(Request { key, offset, left, what })
    }
}

/// Begins the answer to a request: a status, with what was asked for behind it.
pub(crate) fn begin_reply(bytes: &mut Vec<u8>, status: Status) {
    bytes.clear();
    bytes.extend(status_alone(status));
}

/// An answer that is no more than a status.
pub(crate) fn status_alone(status: Status) -> [u8; 8] {
    use crate::codes::Codes;
    status.code().to_ne_bytes()
}

/// `None`: it is no answer.
pub(crate) fn decode_reply(bytes: &[u8]) -> Option<(Status, &[u8])> {
    use crate::codes::Codes;
    let mut words = Words(bytes);
    let status = Status::from_code(words.next()?)?;
    Some((status, words.0))
}

/// The answer to [`What::Map`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Map {
    /// The number of the lease that it is read under.
    pub(crate) lease: u32,
    /// Whether its owner also sends it, however long it is.
    pub(crate) is_sent: bool,
    /// Which byte of the memory is the first of the source.
    pub(crate) start: u64,
    pub(crate) parts: Vec<Part>,
}

/// Says in the word of a lease that the memory is also sent.
const SENT: u64 = 1 << 32;

pub(crate) fn encode_map(bytes: &mut Vec<u8>, map: &Map) {
    put(bytes, &[u64::from(map.lease) | if map.is_sent { SENT } else { 0 }, map.start]);
    put_parts(bytes, &map.parts);
}

pub(crate) fn decode_map(bytes: &[u8]) -> Option<Map> {
    let mut words = Words(bytes);
    let (lease, start) = (words.next()?, words.next()?);
    let is_sent = lease & SENT != 0;
    Some(Map { lease: u32::try_from(lease & !SENT).ok()?, is_sent, start, parts: parts(words)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_tells_where_bytes_begin_in_a_buffer() {
        for (number, start) in [(1, 0), ((1 << NUMBERS) - 1, BODY_STEP), (77, PAIR_BUFFER - BODY_STEP)] {
            assert_eq!(decode_number(encode_number(number, start)), (number, start));
        }
        // Whatever a stranger writes, they begin in the buffer, and its numbers do not say where.
        assert!(decode_number(u64::MAX).1 < PAIR_BUFFER);
        assert_eq!(decode_number(encode_number(u64::MAX, 0)).1, 0);
    }

    #[test]
    fn places_and_lengths_that_no_memory_has_are_no_others() {
        for is_large in [false, true] {
            assert_eq!(decode_place(encode_place(7, 5, is_large)), (7, 5, is_large));
            for offset in [1 << 63, (1 << 63) + 5, u64::MAX] {
                let (key, decoded, large) = decode_place(encode_place(7, offset, is_large));
                assert!((key, large) == (7, is_large) && decoded >= 1 << 62, "{offset:#x}: {decoded:#x}");
            }
        }
        for left in [1 << 56, (1 << 56) + 5, u64::MAX] {
            let mut bytes = Vec::new();
            Request { key: 7, offset: 0, left, what: What::Check }.encode(&mut bytes);
            let decoded = Request::decode(&bytes).unwrap();
            assert!(decoded.what == What::Check && decoded.left >= 1 << 55, "{left:#x}: {decoded:?}");
        }
    }

    #[test]
    fn requests_and_replies_survive_encoding_and_fit() {
        let parts = || vec![(3, 4); PARTS];
        for what in [What::Map(7), What::Read(9), What::Pull(parts()), What::Check] {
            let request = Request { key: u64::MAX, offset: 1, left: 1 << 50, what };
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            assert!(bytes.len() <= LONGEST);
            assert_eq!(Request::decode(&bytes), Some(request));
            assert_eq!(Request::decode(&bytes[..23]), None);
        }
        let mut bytes = vec![9; 3];
        begin_reply(&mut bytes, Status::Done);
        let map = Map { lease: u32::MAX, is_sent: true, start: 1 << 40, parts: parts() };
        encode_map(&mut bytes, &map);
        assert!(bytes.len() <= LONGEST);
        let (status, content) = decode_reply(&bytes).unwrap();
        assert_eq!((status, decode_map(content)), (Status::Done, Some(map)));
        assert_eq!(decode_reply(&[9; 8]), None);
        assert_eq!((len_of(&[(0, u64::MAX), (0, 1)]), len_of(&[(9, 5), (0, 1)])), (None, Some(6)));
    }

    #[test]
    fn requests_that_nobody_makes_are_none() {
        let request = |what: u64, rest: &[u64]| {
            let mut bytes = Vec::new();
            put(&mut bytes, &[what, 7, 0]);
            put(&mut bytes, rest);
            Request::decode(&bytes)
        };
        assert!(request(2, &[DATA as u64]).is_some() && request(4, &[]).is_some());
        // For more than a buffer has room for, with too little or too much behind it, and of no kind.
        for rest in [&[DATA as u64 + 1][..], &[u64::MAX], &[], &[1, 1]] {
            assert_eq!(request(2, rest), None, "{rest:?}");
        }
        for (what, rest) in
            [(1, &[][..]), (1, &[1, 1]), (3, &[1]), (3, &[1, 1, 1]), (4, &[1]), (0, &[]), (5, &[])]
        {
            assert_eq!(request(what, rest), None, "{what}, {rest:?}");
        }
    }
}
