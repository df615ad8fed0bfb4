//! How a rank joins, leaves and gives up, and how all ranks agree on what became of a round.
//!
//! **Agreement.** A communicator ends by poison: first the cause is written, once, then `POISON` is set in all 2R
//! arrival words. A poisoned word never advances again, so the frozen words decide: a round in which every word
//! had arrived has succeeded for every rank, whenever that rank looks; any other round fails for every rank,
//! with the one cause. A call of several rounds succeeds exactly if its last round does. It costs nothing while
//! all is well.
//!
//! **Helping.** A poisoner may die half-way, so every rank that meets poison sets it everywhere again, and wakes all
//! sleepers, before it reports. The first that has been through all words says so in a word of its own, and the others
//! are spared it: R ranks that leave one after the other make 2R wake-ups in all, and not 2R each.
//!
//! **Leaving** is poison too, after the last round: all words have reached that round, because this rank saw them
//! there, so it can fail only later rounds, which do need the rank that has left.

use super::generation::POISON;
use super::{Cause, CauseKind, Failure, Generation, Killed, Member, Ordering, Platform, Segment};
use Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Takes `rank` for the process `owner`, which is not 0. Each rank can be taken once in a segment's life.
///
/// # Errors
/// The process that has the rank already.
pub fn claim<P: Platform>(platform: &P, segment: &Segment<'_, P>, rank: usize, owner: u32) -> Result<(), u32> {
    platform.compare_exchange("claim", &segment.claims[rank], 0, owner, Relaxed, Relaxed).map(drop)
}

/// The process that has taken `rank`, or 0.
pub fn owner<P: Platform>(platform: &P, segment: &Segment<'_, P>, rank: usize) -> u32 {
    platform.load("owner", &segment.claims[rank], Relaxed)
}

/// Ends the communicator for every rank, unless it has ended before.
pub fn poison<P: Platform>(platform: &P, segment: &Segment<'_, P>, cause: Cause) -> Result<(), Killed> {
    // The first cause stays. The words below publish it.
    let _ = platform.compare_exchange64("cause", segment.cause, 0, cause.pack(), Relaxed, Relaxed);
    platform.fail_point("cause-written")?;
    poison_all(platform, segment)
}

/// What [`Segment::spread`] holds at the end.
const SPREAD: u32 = 1;

/// Whether somebody has been through all words.
fn is_known_to_all<P: Platform>(platform: &P, segment: &Segment<'_, P>) -> bool {
    platform.load("spread-known", segment.spread, Acquire) == SPREAD
}

/// Sets the poison bit everywhere and wakes everybody, unless somebody has been through all words before. Also where
/// `POISON` is set already: the rank that did it may have died in between. Also where nobody seems to wait: a rank that has
/// died between its arrival and its wake-up has taken `WAITER` with it, and left the sleepers.
fn poison_all<P: Platform>(platform: &P, segment: &Segment<'_, P>) -> Result<(), Killed> {
    if is_known_to_all(platform, segment) {
        return Ok(());
    }
    for word in segment.words() {
        platform.fetch_or("poison", word, POISON, AcqRel);
        platform.fail_point("poisoned-unwoken")?;
        platform.wake_all("poison-wake", word);
    }
    platform.fetch_or("spread", segment.spread, SPREAD, Release);
    Ok(())
}

/// What a rank reports that has met poison.
#[cold]
pub(super) fn failure<P: Platform>(platform: &P, segment: &Segment<'_, P>) -> Failure {
    if poison_all(platform, segment).is_err() {
        return Failure::Killed;
    }
    Failure::Dead(cause(platform, segment))
}

/// The cause, of a rank that has been through all words, or has seen that somebody was.
fn cause<P: Platform>(platform: &P, segment: &Segment<'_, P>) -> Option<Cause> {
    // Relaxed: what the first poisoner released was acquired before, word by word or from a rank that had done so.
    Cause::unpack(platform.load64("cause-read", segment.cause, Relaxed))
}

/// Why the communicator has ended, once all words are poisoned: every rank that has met poison has seen to that.
pub fn ended<P: Platform>(platform: &P, segment: &Segment<'_, P>) -> Option<Cause> {
    if is_known_to_all(platform, segment) { cause(platform, segment) } else { None }
}

/// The ranks that have not arrived at the round, in a communicator that is poisoned: the same on every rank, since the
/// words are frozen.
pub fn late<P: Platform>(platform: &P, segment: &Segment<'_, P>, generation: Generation) -> Vec<usize> {
    let arrived = |rank: usize| {
        let word = &segment.slots[rank][generation.parity()].state;
        let behind = generation.previous().previous();
        Generation::of_word(platform.load("missing", word, Relaxed)) != behind
    };
    (0..segment.slots.len()).filter(|rank| !arrived(*rank)).collect()
}

impl<P: Platform> Member<'_, P> {
    /// Leaves after the last completed round.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    pub fn leave(&self) -> Result<(), Killed> {
        self.poison(CauseKind::Left, self.rank, self.completed.number())
    }

    /// Ends the communicator for every rank, unless it has ended before.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    pub fn poison(&self, kind: CauseKind, rank: usize, detail: u32) -> Result<(), Killed> {
        poison(self.platform, self.segment, Cause { kind, rank, detail })
    }

    /// Poisons because `rank` has not arrived in time, and says what that means for this round: nothing, if the
    /// rank arrived after all before its word was frozen.
    #[cold]
    pub(super) fn give_up(&self, rank: usize, generation: Generation) -> Result<(), Failure> {
        self.poison(CauseKind::TimedOut, rank, generation.number())?;
        let word = &self.segment.slots[rank][generation.parity()].state;
        // Relaxed: poisoning has read the word's last generation, or acquired from a rank that has, and with it what
        // came before that.
        if Generation::of_word(self.platform.load("late", word, Relaxed)) == generation {
            return Ok(());
        }
        Err(self.failure())
    }

    /// What a rank reports that has met poison.
    #[cold]
    pub(super) fn failure(&self) -> Failure {
        failure(self.platform, self.segment)
    }

    /// The ranks that have not arrived at the round, in a communicator that is poisoned: the same on every rank,
    /// since the words are frozen.
    pub fn late(&self, generation: Generation) -> Vec<usize> {
        late(self.platform, self.segment, generation)
    }
}
