//! The control structures of a communicator, and one rank's view of them.

use super::staging::{Senders, TurnBuffers};
use super::{Generation, Ordering::Relaxed, Platform, Staging, Turn};

/// A rank's arrival word for one parity, and what it publishes with its arrival.
///
/// A rank owns two, used by the parity of the generation. Everything that a small collective needs from a rank
/// lies in the first 64 bytes, so that one cache-line transfer brings it; 128 bytes keep neighbours apart on
/// machines with longer lines or with adjacent-line prefetch.
#[repr(C, align(128))]
pub struct Slot<P: Platform> {
    /// `generation << 4 | PROGRESS | POISON | WAITER`, see [`generation`](super::generation).
    pub state: P::Word,
    /// The [`Call`](super::Call) that this rank makes, and its contribution where that is small.
    pub header: P::Header,
}

/// What a rank sleeps on until its symmetric memory changes, in a line of its own: each rank that writes into this memory
/// reads it.
#[repr(C, align(128))]
pub struct Bell<P: Platform> {
    /// `count << 2 | POISON | WAITER`, see [`bell`](super::symmetric::bell).
    pub word: P::Word,
}

/// The shared control structures of one communicator, wherever they live: a mapping in production, an `Arc`
/// under a model checker.
pub struct Segment<'s, P: Platform> {
    /// Why the communicator was poisoned: 0, or a packed [`Cause`](super::Cause). Set once.
    pub cause: &'s P::Word64,
    /// 1 once all words are poisoned and all sleepers have been woken. Set once.
    pub spread: &'s P::Word,
    /// By rank: 0, or the process that has claimed the rank.
    pub claims: &'s [P::Word],
    /// By rank and parity: the arrival words and headers.
    pub slots: &'s [[Slot<P>; 2]],
    /// By rank, two each: the staging buffers for what does not fit into a header, used by [turns](Turn).
    pub buffers: &'s [[P::Buffer; 2]],
    /// By rank: what it sleeps on until its symmetric memory changes. Empty where there is no symmetric memory.
    pub bells: &'s [Bell<P>],
}

impl<'s, P: Platform> Segment<'s, P> {
    /// All words that a rank may sleep on.
    pub fn words(&self) -> impl Iterator<Item = &'s P::Word> + use<'s, P> {
        let (slots, bells) = (self.slots, self.bells.iter().map(|bell| &bell.word));
        slots.iter().flatten().map(|slot| &slot.state).chain(bells)
    }
}

/// One rank's view of a segment: the state of every protocol in this module.
pub struct Member<'s, P: Platform> {
    pub(super) platform: &'s P,
    pub(super) segment: &'s Segment<'s, P>,
    /// The segment's, which each call needs several times.
    pub(super) slots: &'s [[Slot<P>; 2]],
    /// How calls use the staging buffers: the same on all ranks.
    pub(super) staging: &'s Staging,
    pub(super) rank: usize,
    pub(super) completed: Generation,
    /// Its next [`Turn`]: no other thread uses it meanwhile.
    turn: &'s P::Word,
}

impl<'s, P: Platform> Member<'s, P> {
    /// The view of `rank`, which has completed every round up to `completed`. `turn`: a word of its own memory, 0 at the beginning,
    /// which goes on from member to member like `completed`.
    ///
    /// # Panics
    /// When the segment's tables differ in length, or `rank` is not in them.
    pub fn new(
        platform: &'s P,
        segment: &'s Segment<'s, P>,
        staging: &'s Staging,
        rank: usize,
        completed: Generation,
        turn: &'s P::Word,
    ) -> Self {
        assert!(rank < segment.slots.len());
        assert!(segment.buffers.len() == segment.slots.len());
        Member { platform, segment, slots: segment.slots, staging, rank, completed, turn }
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.slots.len()
    }

    /// The machine that it runs on.
    pub fn platform(&self) -> &'s P {
        self.platform
    }

    /// The last round that this rank has completed: what the next [`Member::new`] starts from.
    pub fn completed(&self) -> Generation {
        self.completed
    }

    /// The next turn.
    #[inline]
    pub(super) fn turn(&self) -> Turn {
        Turn::new(self.platform.load("turn", self.turn, Relaxed))
    }

    /// Ends a turn: a round is complete whose data go through staging, and all ranks call the same. Which of each rank's buffers the
    /// data are in: they stay until this rank arrives at the next round.
    #[inline]
    pub(super) fn end_turn(&self) -> TurnBuffers {
        let turn = self.turn();
        self.end(turn);
        turn.buffers()
    }

    /// The same if anybody has `staged` data for the round, which all ranks know. If not, it was no turn: the buffers that come out are
    /// those that nobody writes before the next turn has ended.
    #[inline]
    pub(super) fn end_turn_if(&self, staged: bool) -> TurnBuffers {
        if staged { self.end_turn() } else { self.turn().next().buffers() }
    }

    /// The same of a turn that is known.
    #[inline]
    pub(super) fn end(&self, turn: Turn) {
        self.platform.store("end-turn", self.turn, turn.next().number(), Relaxed);
    }

    /// The buffer that this rank may fill before it arrives at the next round.
    pub(super) fn next_buffer(&self) -> &'s P::Buffer {
        self.buffer(self.rank, self.turn().buffers())
    }

    /// The parity of the next round, hence of the header that this rank may fill before it arrives.
    pub(super) fn next_parity(&self) -> usize {
        self.completed.next().parity()
    }

    pub(super) fn header(&self, rank: usize, parity: usize) -> &'s P::Header {
        &self.slots[rank][parity].header
    }

    /// What a rank has staged, or stages, in a turn that uses these buffers.
    pub(super) fn buffer(&self, rank: usize, buffers: TurnBuffers) -> &'s P::Buffer {
        let owner = self.staging.owner(rank, self.size(), buffers);
        &self.segment.buffers[owner][buffers.buffer()]
    }

    /// Where in the buffers of the next turn the chunks begin, if these ranks send and the longest has `len` bytes.
    pub(super) fn offset(&self, len: usize, senders: Senders) -> usize {
        self.staging.offset(len, senders, self.size(), self.turn())
    }

    /// The other ranks, each starting with its own successor, so that not all read the same memory at once.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<P> {
        let (rank, size) = (self.rank, self.size());
        (rank + 1..rank + size).map(move |next| if next < size { next } else { next - size })
    }
}
