//! Where in a staging buffer a chunk lies, and how long chunks are.
//!
//! Writing a line that other cores have read needs an RFO that invalidates their copies, which takes three times as long
//! as reading it. So a buffer is larger than a chunk, and chunks rotate through it from round to round: by the time an
//! offset is used again, other lines have evicted its lines from the readers' caches.
//!
//! ```text
//! turn              2n          6          4          2
//! buffer   | rest | chunk | … | chunk    | chunk    | chunk    |     the other buffer likewise, by the turns between these
//! ```
//!
//! They rotate towards the beginning. A reader reads a chunk upwards, and its hardware prefetcher runs ahead of it: into
//! the chunk before, which has been read. Rotating upwards it would run into the next chunk, and take its lines from
//! their writer.
//!
//! If one of more than two ranks alone has something to send, its chunks rotate through all of its buffer: the others' are not
//! in use.
//!
//! Two ranks that send each other something may do better: in every other pair of turns each writes to the other's buffer, where it has just read. So the line
//! is in its own cache, and all that it takes is to invalidate the copy of who has written it. What both send, about as much and up to 64 KiB, does not
//! rotate then; all else rotates through every other place of either buffer ([0067](../../docs/adr/0067-what-was-read-is-written-next.md)).
//!
//! This is about speed alone. What keeps a chunk from being overwritten too early is that a rank has two buffers, and uses them
//! by turns: see [`Turn`].

use super::call::INLINE;
use crate::tuning::{
    CHUNK_BYTES, CHUNKS_OF_ONE_SENDER, EXCHANGED_IN_PLACE_BYTES, FOLDED_CHUNK_BYTES, LEAST_CHUNK_BYTES,
    LEAST_CHUNK_BYTES_OF_TWO, LEAST_STREAMED_BYTES, MOST_STREAMED_BYTES, ROTATION_BYTES, ROTATION_FROM_BYTES,
    SHORT_BYTES,
};

/// How many rounds whose data go through staging all ranks have completed, modulo 2³²: the same on every rank. Which of its two buffers a
/// rank uses next, and where in it.
///
/// Rounds without data do not count, as those of a barrier: if the parity of all rounds decided, calls of one round that take turns with
/// barriers would use one buffer only, and rotate through half as much. Nor does a round whose calls differ, or for which
/// data were staged [in vain](super::eager): nobody reads what was staged for it, so that buffer is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn(u32);

impl Turn {
    /// The turn with this number.
    pub const fn new(number: u32) -> Self {
        Turn(number)
    }

    /// The number.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The turn after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Turn(self.0.wrapping_add(1))
    }

    /// Which buffers are used.
    pub const fn buffers(self) -> TurnBuffers {
        TurnBuffers { buffer: (self.0 & 1) as usize, swapped: self.0 & 2 != 0 }
    }
}

/// Which staging buffers a turn uses: the same on every rank, whatever it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnBuffers {
    buffer: usize,
    swapped: bool,
}

impl TurnBuffers {
    /// Which of its two buffers a rank uses.
    pub const fn buffer(self) -> usize {
        self.buffer
    }

    /// Whether it is the other rank's, if there are two that [swap](Staging::swaps) buffers.
    pub const fn is_swapped(self) -> bool {
        self.swapped
    }
}

/// How many ranks write to staging in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Senders {
    /// One, or none.
    One,
    /// Several.
    Several,
    /// Both of two, about as much each, and each reads all that the other has written.
    Both,
}

impl Senders {
    /// Of a transfer among `size` ranks of which each sends this many bytes.
    #[inline]
    pub(crate) fn of(size: usize, len: impl Fn(usize) -> usize) -> Self {
        if size == 2 && len(0).min(len(1)) > len(0).max(len(1)) / 2 {
            return Senders::Both;
        }
        Senders::among((0..size).filter(|rank| len(*rank) > 0).take(2).count())
    }

    /// This number of ranks, of which not all read what the others have written.
    #[inline]
    pub(crate) fn among(number: usize) -> Self {
        if number > 1 { Senders::Several } else { Senders::One }
    }
}

/// How calls use the staging buffers: the same on every rank.
#[derive(Clone, Copy, Debug)]
pub struct Staging {
    /// The size of a buffer in bytes.
    pub capacity: usize,
    /// The longest chunk of a transfer, in bytes.
    pub chunk: usize,
    /// The same if a single rank sends.
    pub chunk_of_one: usize,
    /// The longest chunk of a reduction, in bytes; a multiple of the size of its elements.
    pub folded: usize,
    /// Blocks of up to this many bytes are never read in place, and fit into a chunk.
    pub short: usize,
    /// Shorter chunks do not rotate.
    pub rotation_from: usize,
    /// The bytes that chunks rotate through.
    pub rotation: usize,
    /// The same if a single rank sends.
    pub rotation_of_one: usize,
    /// Whether ranks share processors.
    pub oversubscribed: bool,
    /// Whether two ranks swap their buffers in every other pair of turns.
    pub swaps: bool,
}

/// A multiple of the size of every element that is reduced.
const UNIT: usize = 64;

/// Offsets are multiples of a line, of up to 128 bytes.
pub(super) const STEP: usize = 128;

impl Staging {
    /// For buffers of `capacity` bytes, a multiple of the size of what is reduced, and this number of ranks.
    pub fn of(capacity: usize, ranks: usize) -> Self {
        // A chunk of a reduction shares the buffer with the slices of the chunk before, which are half as long at most.
        let most = capacity / 3 * 2;
        let most = if most < UNIT { capacity } else { most - most % UNIT };
        let rotation = capacity.min(ROTATION_BYTES / 2 / ranks.max(1));
        let share = (rotation - rotation % UNIT).max(UNIT);
        // One chunk of three ranks is faster than two, though they rotate through less.
        let folded = if share > FOLDED_CHUNK_BYTES / 2 { FOLDED_CHUNK_BYTES } else { share };
        let chunk = most.min(CHUNK_BYTES).min(share);
        Staging {
            capacity,
            chunk,
            short: SHORT_BYTES.min(chunk),
            chunk_of_one: most.min(CHUNK_BYTES),
            folded: most.min(folded),
            rotation_from: ROTATION_FROM_BYTES,
            rotation,
            rotation_of_one: if ranks == 2 { rotation } else { capacity },
            oversubscribed: false,
            swaps: false,
        }
    }

    /// The same where two ranks swap their buffers in every other pair of turns. If there are more than two, they do not.
    #[must_use]
    pub fn swapping(self) -> Self {
        Staging { swaps: true, ..self }
    }

    /// The same for ranks that share processors: what takes turns does not overlap, and each round costs a context switch for each
    /// rank. Measured with 8 ranks on 2 processors: a scatter of 64 KiB a rank takes 0.64 of the time, a broadcast of 256 KiB 0.9,
    /// longer ones the same; with 4 ranks a scatter of 64 KiB takes 0.86.
    #[must_use]
    pub fn oversubscribed(self) -> Self {
        Staging { oversubscribed: true, ..self }
    }

    /// Whether blocks of up to `len` bytes go in one round, and are never read in place: with the headers, or through staging. The
    /// same on every rank.
    #[inline]
    pub(crate) fn is_short(self, len: usize) -> bool {
        len <= INLINE.max(self.short)
    }

    /// The length of a chunk of a transfer among this number of ranks whose longest block has `len` bytes. With a single sender
    /// chunks are shorter, unless ranks share processors: the other ranks are idle while it writes the first, and it is idle while
    /// they read the last.
    pub(super) fn chunk_len(self, len: usize, senders: Senders, ranks: usize) -> usize {
        if senders != Senders::One {
            return self.chunk;
        }
        if self.oversubscribed {
            return self.chunk_of_one;
        }
        let half = len.div_ceil(2);
        let halves = ranks == 2 && half >= LEAST_CHUNK_BYTES_OF_TWO;
        let least = if halves { half.min(LEAST_CHUNK_BYTES) } else { LEAST_CHUNK_BYTES };
        let some = (len / CHUNKS_OF_ONE_SENDER).clamp(least, CHUNK_BYTES);
        some.next_multiple_of(STEP).min(self.chunk_of_one)
    }

    /// The length of a chunk of a reduction of `len` bytes to which one rank contributes while another folds.
    pub(super) fn streamed_len(self, len: usize) -> usize {
        (len / CHUNKS_OF_ONE_SENDER).clamp(LEAST_STREAMED_BYTES, MOST_STREAMED_BYTES).min(self.folded)
    }

    /// Whose buffers a rank of `size` ranks writes to in a turn that uses these.
    #[inline]
    pub(super) fn owner(self, rank: usize, size: usize, buffers: TurnBuffers) -> usize {
        if self.swaps && size == 2 && buffers.is_swapped() { 1 - rank } else { rank }
    }

    /// Where in its buffer each rank's chunk begins, if these of `size` ranks send and the longest chunk has `len` bytes.
    pub(super) fn offset(self, len: usize, senders: Senders, size: usize, turn: Turn) -> usize {
        let swaps = self.swaps && size == 2;
        if len < self.rotation_from || swaps && senders == Senders::Both && len <= EXCHANGED_IN_PLACE_BYTES {
            return 0;
        }
        let stride = len.max(1).next_multiple_of(STEP);
        let rotation = if senders == Senders::One { self.rotation_of_one } else { self.rotation };
        let places = match rotation / stride {
            // Then a rank writes to the same places of either buffer each time, and to as many bytes as if it had its own alone.
            places if swaps && places > 1 => places - places % 2,
            places => places,
        };
        let Some(last) = places.checked_sub(1) else { return 0 };
        let place = turn.number() as usize / 2 % places;
        (last - place) * stride
    }
}

#[cfg(test)]
mod tests {
    use super::Senders::{Both, One, Several};
    use super::*;

    /// The offsets of a chunk of `len` bytes in consecutive turns of one buffer.
    fn offsets(staging: Staging, len: usize, senders: Senders, turns: u32) -> Vec<usize> {
        (0..turns).map(|turn| staging.offset(len, senders, 2, Turn::new(2 * turn))).collect()
    }

    fn rotating(capacity: usize, rotation_from: usize, rotation: usize) -> Staging {
        Staging { capacity, rotation_from, rotation, rotation_of_one: capacity, ..Staging::of(capacity, 2) }
    }

    #[test]
    fn chunks_rotate_through_the_whole_buffer_and_stay_inside() {
        let staging = rotating(4096, 100, 4096);
        assert_eq!(offsets(staging, 1024, Several, 5), [3072, 2048, 1024, 0, 3072]);
        assert_eq!(offsets(staging, 600, Several, 7), [3200, 2560, 1920, 1280, 640, 0, 3200]);
        assert_eq!(offsets(staging, 99, Several, 3), [0, 0, 0]);
        for capacity in [64, 192, 4096, 5000] {
            let step = if cfg!(miri) { 997 } else { 1 };
            for (len, senders) in (0..=capacity).step_by(step).flat_map(|len| [(len, One), (len, Several)]) {
                let places = offsets(rotating(capacity, 0, capacity / 2), len, senders, 100);
                assert!(places.iter().all(|place| place + len <= capacity));
            }
        }
    }

    #[test]
    fn a_single_sender_s_chunks_rotate_through_all_of_its_buffer() {
        let staging = rotating(4096, 0, 1024);
        assert_eq!(offsets(staging, 1024, Several, 3), [0, 0, 0]);
        assert_eq!(offsets(staging, 1024, One, 5), [3072, 2048, 1024, 0, 3072]);
    }

    #[test]
    fn chunks_of_many_senders_are_shorter_than_those_of_one() {
        let staging = Staging::of(768 << 10, 8);
        let lengths = [One, Several].map(|senders| staging.oversubscribed().chunk_len(1 << 20, senders, 8));
        assert_eq!(lengths, [CHUNK_BYTES, 256 << 10]);
        for ranks in [1, 2, 3, 4, 5, 8, 64, 1000, 65_536] {
            for capacity in [64, 4096, 12_288, 786_432, 3 << 19] {
                let staging = Staging::of(capacity, ranks);
                let most = [staging.chunk, staging.chunk_of_one, staging.folded];
                assert!(most.iter().all(|most| *most > 0 && *most <= capacity && most.is_multiple_of(UNIT)));
            }
        }
    }

    #[test]
    fn a_single_sender_s_block_goes_in_shorter_chunks() {
        let staging = Staging::of(1 << 20, 4);
        assert_eq!(staging.chunk_len(1 << 20, Several, 4), CHUNK_BYTES);
        assert_eq!(
            [1, 64 << 10, 1 << 20, 1 << 30].map(|len| staging.chunk_len(len, One, 4)),
            [LEAST_CHUNK_BYTES, LEAST_CHUNK_BYTES, 128 << 10, CHUNK_BYTES]
        );
        assert!((0..1 << 20).step_by(1000).all(|len| staging.chunk_len(len, One, 2).is_multiple_of(STEP)));
        assert_eq!(Staging::of(192, 2).chunk_len(1 << 20, One, 2), 128);
        // Where ranks share processors it goes in as few as there can be.
        assert_eq!(staging.oversubscribed().chunk_len(1 << 20, One, 4), CHUNK_BYTES);
    }

    #[test]
    fn a_short_block_of_one_of_two_ranks_goes_in_halves() {
        let staging = Staging::of(1 << 20, 2);
        let chunks = |len: usize| len.div_ceil(staging.chunk_len(len, One, 2));
        assert!((1..(64 << 10) - 1).step_by(997).all(|len| chunks(len) == 1));
        assert!((64 << 10..=128 << 10).step_by(997).all(|len| chunks(len) == 2));
        assert_eq!([256 << 10, 1 << 20].map(chunks), [4, 8]);
        assert_eq!(staging.chunk_len(1 << 20, Several, 2), CHUNK_BYTES);
    }

    #[test]
    fn a_reduction_of_one_contributor_goes_in_shorter_chunks() {
        let staging = Staging::of(1 << 20, 2);
        let chunks = [1, 768 << 10, 1 << 30].map(|len| staging.streamed_len(len));
        assert_eq!(chunks, [LEAST_STREAMED_BYTES, 96 << 10, MOST_STREAMED_BYTES]);
        assert_eq!(Staging::of(192, 2).streamed_len(1 << 20), 128);
    }

    #[test]
    fn both_turns_of_a_pair_have_the_same_offset() {
        let staging = rotating(4096, 0, 4096);
        for turn in (0..10).step_by(2).map(Turn::new) {
            let [offset, next] = [turn, turn.next()].map(|turn| staging.offset(1024, Several, 2, turn));
            assert_eq!(offset, next);
            assert!(turn.buffers().buffer() != turn.next().buffers().buffer());
            assert_eq!(turn.buffers().is_swapped(), turn.next().buffers().is_swapped());
        }
    }

    #[test]
    fn two_ranks_swap_their_buffers_in_every_other_pair_of_turns() {
        let staging = rotating(4096, 0, 4096).swapping();
        let owners = |staging: Staging, size| -> Vec<_> {
            (0..8).map(|turn| [0, 1].map(|rank| staging.owner(rank, size, Turn::new(turn).buffers()))).collect()
        };
        let (own, other) = ([0, 1], [1, 0]);
        assert_eq!(owners(staging, 2), [own, own, other, other, own, own, other, other]);
        assert_eq!(owners(rotating(4096, 0, 4096), 2), [own; 8]);
        assert_eq!(owners(staging, 3), [own; 8]);
        // Each writes where it has read.
        assert_eq!(offsets(staging, 1024, Both, 5), [0; 5]);
        let long = EXCHANGED_IN_PLACE_BYTES + 1;
        let rotation = 4 * long.next_multiple_of(STEP);
        let longer = rotating(rotation, 0, rotation).swapping();
        let in_turn = [Both, Several].map(|senders| offsets(longer, long, senders, 5));
        assert!(in_turn[0] == in_turn[1] && in_turn[0][3] == 0 && in_turn[0][0] > 0);
        // What does not, rotates: with each place in the same buffer each time.
        let places = [3072, 2048, 1024, 0, 3072];
        assert_eq!([One, Several].map(|senders| offsets(staging, 1024, senders, 5)), [places; 2]);
        assert_eq!(offsets(staging, 1300, Several, 5), [1408, 0, 1408, 0, 1408]);
        assert_eq!(offsets(staging, 3000, Several, 5), [0; 5]);
        let of_three = (0..5).map(|turn| staging.offset(1024, Several, 3, Turn::new(2 * turn)));
        assert_eq!(of_three.collect::<Vec<_>>(), [3072, 2048, 1024, 0, 3072]);
    }

    #[test]
    fn both_of_two_ranks_send_about_as_much() {
        let of = |lens: &[usize]| Senders::of(lens.len(), |rank| lens[rank]);
        assert_eq!([of(&[5, 5]), of(&[100, 51]), of(&[51, 100])], [Both; 3]);
        assert_eq!([of(&[100, 50]), of(&[1, 100]), of(&[5, 5, 0]), of(&[5, 5, 5])], [Several; 4]);
        assert_eq!([of(&[0, 0]), of(&[5, 0]), of(&[0, 5]), of(&[0, 0, 5]), of(&[5])], [One; 5]);
    }
}
