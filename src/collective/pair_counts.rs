//! The counts of an alltoallv: how long what each rank sends to each other rank is, and whether both agree on it.
//!
//! ```text
//!   header of a rank   length  flags  send counts, by rank  recv counts, by rank  data
//!                      1 byte  1      1 byte each if below 128 (LEB128)           if they fit as well
//! ```
//!
//! If the counts of every rank fit, each rank has those of all pairs after one round, and so the same verdict on them. If they do
//! not, an alltoall exchanges the counts, and a further round the verdicts.

use std::ops::Range;

use super::allgatherv::gather_words;
use super::alltoall::exchange;
use super::memory::SendBytes;
use super::parts;
use crate::copy::{Sink, Source};
use crate::error::{CountPair, Error, Operation};
use crate::protocol::Call;
use crate::protocol::block_transfer::BlockTransfer;
use crate::protocol::call::INLINE;
use crate::rank::rank_state::OpenCall;

const OPERATION: Operation = Operation::Alltoallv;

/// The length and the flags.
const HEAD: usize = 2;
/// The data have come with the counts.
const DATA: u8 = 1;
/// The rank's blocks can be read where they lie, but do not follow one another there.
const SENDS_DISPLS: u8 = 2;

/// What this rank sends, and what it expects.
pub(super) struct OwnCounts<'a> {
    /// In elements, by rank.
    pub(super) send: &'a [usize],
    pub(super) recv: &'a [usize],
    /// Whether the other ranks can read the blocks where they lie, but the counts do not tell where each begins.
    pub(super) sends_displs: bool,
}

/// What a rank knows when all agree on the counts.
pub(super) struct Agreed {
    /// By sender.
    pub(super) places: Vec<Place>,
    /// Whether some rank has to say where its blocks begin. The same on all ranks.
    pub(super) need_displs: bool,
    /// By sender, if the data have come with the counts: all parts of all ranks.
    pub(super) data: Option<Vec<Header>>,
}

/// What a rank has to know of a sender. In elements.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Where the part for this rank begins among the sender's parts.
    pub(super) start: usize,
    /// The length of all parts for other ranks.
    pub(super) total: usize,
    /// Where the part for this rank begins in the sender's memory, if its blocks follow one another there in rank order.
    pub(super) offset: usize,
}

/// What a rank has sent in the first round.
#[derive(Clone, Copy)]
pub(super) struct Header {
    bytes: [u8; INLINE],
    /// Where the data begin.
    data: usize,
}

impl Header {
    const EMPTY: Header = Header { bytes: [0; INLINE], data: 0 };

    /// A part of the data. `None`: there is no such part, as another process has overwritten the header.
    pub(super) fn part(&self, part: Range<usize>) -> Option<&[u8]> {
        self.bytes.get(self.data..).and_then(|data| data.get(part))
    }

    /// What is written of an own one.
    fn used(&self) -> &[u8] {
        &self.bytes[..usize::from(self.bytes[0]).max(HEAD)]
    }

    fn has(&self, flag: u8) -> bool {
        self.bytes[1] & flag != 0
    }
}

/// Exchanges the counts, and the blocks of `parts` with them, in the order of the receivers, if they are short enough. An error
/// if those of some pair differ, the same on all ranks.
pub(super) fn agree<S: SendBytes>(
    open: &mut OpenCall<'_>,
    call: &Call,
    own: &OwnCounts<'_>,
    parts: impl Iterator<Item = S>,
) -> Result<Agreed, Error> {
    let (rank, size) = (open.rank_state().rank, open.rank_state().size());
    if HEAD + 2 * size > INLINE {
        return agree_in_two_rounds(open, call, own);
    }
    let mut round = CountRound { rank, headers: vec![Header::EMPTY; size] };
    own.write(&mut round.headers[rank], parts);
    open.transfer(call, &mut round)?;
    let mut headers = round.headers;
    // For each sender and receiver; for each receiver and sender.
    let mut counts = vec![0; 2 * size * size];
    let (sent, expected) = counts.split_at_mut(size * size);
    for (rank, header) in headers.iter_mut().enumerate() {
        let row = rank * size..(rank + 1) * size;
        let Some(data) = decode(&header.bytes, &mut sent[row.clone()], &mut expected[row]) else {
            return agree_in_two_rounds(open, call, own);
        };
        header.data = data;
    }
    let pairs = (0..size).flat_map(|from| (0..size).map(move |to| (from, to)));
    for (from, to) in pairs {
        let (sent, expected) = (sent[from * size + to], expected[to * size + from]);
        if sent != expected {
            return Err(disagreement(OPERATION, (from, to), sent, expected));
        }
    }
    let place = |from: usize| {
        let row = &sent[from * size..(from + 1) * size];
        let length = |receivers| total(parts::receivers(from, size).take(receivers).map(|to| row[to]));
        let start = if from == rank { 0 } else { length(parts::position(from, rank, size)) };
        Place { start, total: length(size - 1), offset: total(row[..rank].iter().copied()) }
    };
    let places = (0..size).map(place).collect();
    let need_displs = headers.iter().any(|header| header.has(SENDS_DISPLS));
    let data = headers.iter().all(|header| header.has(DATA)).then_some(headers);
    Ok(Agreed { places, need_displs, data })
}

/// The sum of counts.
fn total(counts: impl Iterator<Item = u64>) -> usize {
    counts.fold(0, |sum, count| sum.saturating_add(count as usize))
}

impl OwnCounts<'_> {
    /// Writes what this rank sends in the first round into an empty header. That is copied only when it is published: bytes that were just
    /// written one by one are not forwarded to a longer load, which waits for the store buffer.
    fn write<S: SendBytes>(&self, header: &mut Header, parts: impl Iterator<Item = S>) {
        header.data = HEAD;
        for count in self.send.iter().chain(self.recv) {
            match encode(&mut header.bytes[header.data..], *count as u64) {
                Some(len) => header.data += len,
                // A length of 0: they do not fit.
                None => return,
            }
        }
        let (mut end, mut flags) = (header.data, DATA);
        for part in parts {
            match header.bytes.get_mut(end..end + part.bytes()) {
                Some(room) => part.copy_to(room),
                None => {
                    (end, flags) = (header.data, 0);
                    break;
                }
            }
            end += part.bytes();
        }
        header.bytes[0] = end as u8;
        header.bytes[1] = if self.sends_displs { flags | SENDS_DISPLS } else { flags };
    }
}

/// Writes a number, seven bits to a byte (LEB128). Returns how many bytes it takes. `None`: it does not fit.
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

/// Reads the counts of a header. Returns where they end. `None`: they did not fit, or another process has overwritten them.
fn decode(header: &[u8; INLINE], send: &mut [u64], recv: &mut [u64]) -> Option<usize> {
    let len = usize::from(header[0]);
    let bytes = header.get(HEAD..len)?;
    let mut at = 0;
    for count in send.iter_mut().chain(recv) {
        let mut shift = 0;
        loop {
            let byte = *bytes.get(at)?;
            at += 1;
            *count |= u64::from(byte & 0x7F).checked_shl(shift)?;
            if byte < 0x80 {
                break;
            }
            shift += 7;
        }
    }
    Some(HEAD + at)
}

/// The round in which each rank sends a header.
struct CountRound {
    rank: usize,
    headers: Vec<Header>,
}

impl BlockTransfer for CountRound {
    fn length(&self, _: usize) -> usize {
        INLINE
    }

    fn put(&mut self, _: Range<usize>, mut header: Sink<'_>) {
        header.put(0, self.headers[self.rank].used());
    }

    /// The own header is where it belongs.
    fn copy_own_block(&mut self, _: Range<usize>) {}

    fn get(&mut self, rank: usize, _: Range<usize>, header: Source<'_>) {
        // What does not follow is left from another call. Short headers have one line.
        let [len] = header.array(0);
        header.get(0, &mut self.headers[rank].bytes[..usize::from(len).clamp(HEAD, INLINE)]);
    }
}

/// The same with one round for the counts, which takes several if they are too long for the headers, and one for the verdicts.
fn agree_in_two_rounds(open: &mut OpenCall<'_>, call: &Call, counts: &OwnCounts<'_>) -> Result<Agreed, Error> {
    let (rank, size) = (open.rank_state().rank, open.rank_state().size());
    // For each receiver: its count, where its part begins, and where it does in memory.
    let mut own = vec![[0u64; 3]; size];
    let (mut total, mut offset) = (0, 0);
    for receiver in parts::receivers(rank, size) {
        own[receiver][1] = total as u64;
        total += counts.send[receiver];
    }
    for (receiver, count) in counts.send.iter().enumerate() {
        (own[receiver][0], own[receiver][2]) = (*count as u64, offset as u64);
        offset += count;
    }
    let mut theirs = vec![[0u64; 3]; size];
    let (send, recv) = (own.as_flattened(), theirs.as_flattened_mut());
    exchange(open, call, bytemuck::cast_slice::<u64, u8>(send), bytemuck::cast_slice_mut::<u64, u8>(recv))?;
    let wrong = (0..size).find(|from| theirs[*from][0] != counts.recv[*from] as u64);
    // The sender counts from 1, so that 0 is none.
    let [from, sent, expected] =
        wrong.map_or([0; 3], |from| [1 + from as u64, theirs[from][0], counts.recv[from] as u64]);
    let own = [total as u64, u64::from(counts.sends_displs), from, sent, expected];
    let verdicts = gather_words(open, call, own)?;
    let wrong = verdicts.iter().enumerate().filter(|(_, [_, _, from, ..])| *from > 0);
    if let Some((to, [_, _, from, sent, expected])) = wrong.min_by_key(|(to, [_, _, from, ..])| (*from, *to)) {
        return Err(disagreement(OPERATION, (*from as usize - 1, to), *sent, *expected));
    }
    let place = |([_, start, offset], [total, ..]): (&[u64; 3], &[u64; 5])| Place {
        start: *start as usize,
        total: *total as usize,
        offset: *offset as usize,
    };
    let places = theirs.iter().zip(&verdicts).map(place).collect();
    let need_displs = verdicts.iter().any(|[_, sends_displs, ..]| *sends_displs != 0);
    Ok(Agreed { places, need_displs, data: None })
}

pub(super) fn disagreement(
    operation: Operation,
    (from, to): (usize, usize),
    sent: u64,
    expected: u64,
) -> Error {
    let pair = CountPair { from, to, sent: sent as usize, expected: expected as usize };
    Error::CountsDisagree { operation, pair: Box::new(pair) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_of(send: &[usize], recv: &[usize], parts: &[&[u8]]) -> [u8; INLINE] {
        let mut header = Header::EMPTY;
        OwnCounts { send, recv, sends_displs: false }.write(&mut header, parts.iter().copied());
        let mut bytes = [0xEE; INLINE];
        bytes[..header.used().len()].copy_from_slice(header.used());
        bytes
    }

    #[test]
    fn a_header_has_the_counts_and_what_fits_beside_them() {
        for send in [[0, 5], [127, 128], [usize::MAX, 1 << 21]] {
            let recv = [send[1], 3];
            let header = header_of(&send, &recv, &[&[7, 8, 9]]);
            let (mut sent, mut expected) = ([0; 2], [0; 2]);
            let data = decode(&header, &mut sent, &mut expected).expect("they fit");
            assert_eq!((sent, expected), (send.map(|count| count as u64), recv.map(|count| count as u64)));
            assert_eq!((header[1], usize::from(header[0])), (DATA, data + 3));
            assert_eq!(Header { bytes: header, data }.part(1..3), Some(&[8, 9][..]));
        }
    }

    #[test]
    fn data_up_to_the_end_of_the_header_go_with_the_counts() {
        for (len, flag) in [(90, DATA), (91, 0)] {
            assert_eq!(header_of(&[1, 1], &[1, 1], &[&vec![1; len]])[1], flag, "{len} bytes");
        }
    }

    #[test]
    fn counts_that_do_not_fit_are_not_read() {
        let header = header_of(&[usize::MAX; 5], &[usize::MAX; 5], &[]);
        assert_eq!(decode(&header, &mut [0; 5], &mut [0; 5]), None);
        // Another process has overwritten it.
        for byte in [0, 1, 0x80, 0xFF] {
            assert_eq!(decode(&[byte; INLINE], &mut [0; 60], &mut [0; 60]), None);
        }
    }
}
