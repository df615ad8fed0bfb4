//! How a rank joins, leaves and gives up, and how all ranks agree on what became of a round.
//!
//! **Agreement.** A communicator ends by poison: first the cause is written, once, then `POISON` is set in all 2R
//! arrival words, and in the gates. A poisoned word never advances again, so the frozen words decide: a round in which every word
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
use super::{Call, Generation, Member, Ordering, Platform, Segment, Stopped};
use Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Why a communicator was poisoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// What happened.
    pub kind: CauseKind,
    /// To which rank.
    pub rank: usize,
    /// A number whose meaning depends on the kind: the round, or an exit code.
    pub detail: u32,
}

/// What can poison a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CauseKind {
    /// The rank did not arrive in time at round `detail`.
    TimedOut = 1,
    /// The rank left after it had completed round `detail`.
    Left = 2,
    /// The rank asked all ranks to end with exit code `detail`.
    Aborted = 3,
    /// The rank's thread panicked.
    Panicked = 4,
    /// Two threads of the rank called at the same time.
    ConcurrentUse = 5,
    /// The rank tried to join as one of `detail` ranks, which is not what this segment was made for.
    WrongSize = 6,
    /// The rank's process has died.
    Died = 7,
}

impl CauseKind {
    const ALL: [CauseKind; 7] = [
        CauseKind::TimedOut,
        CauseKind::Left,
        CauseKind::Aborted,
        CauseKind::Panicked,
        CauseKind::ConcurrentUse,
        CauseKind::WrongSize,
        CauseKind::Died,
    ];
}

impl Cause {
    /// `kind` in the upper 8 bits, then 24 bits of rank, then the detail. Never 0.
    pub fn pack(self) -> u64 {
        let rank = (self.rank as u64) & 0xFF_FFFF;
        (self.kind as u64) << 56 | rank << 32 | u64::from(self.detail)
    }

    /// The cause in a packed word; `None` for what no rank can have written.
    pub fn unpack(word: u64) -> Option<Self> {
        let kind = CauseKind::ALL.into_iter().find(|kind| *kind as u64 == word >> 56)?;
        let rank = (word >> 32 & 0xFF_FFFF) as usize;
        Some(Cause { kind, rank, detail: word as u32 })
    }
}

/// Why a call did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The first rank that refused its own arguments. All ranks have consumed the same round.
    Refused(usize),
    /// What each rank called, since it was not the same. All ranks have consumed the same round.
    Mismatch(Vec<Call>),
    /// The communicator has ended; `None` if the cause is unreadable.
    Dead(Option<Cause>),
    /// A test has ended this rank.
    Stopped,
}

impl From<Stopped> for Failure {
    fn from(Stopped: Stopped) -> Self {
        Failure::Stopped
    }
}

/// Takes `rank` for the process `owner`, which is not 0. Each rank can be taken once in a segment's life.
///
/// # Errors
/// The process that has the rank already.
pub fn claim<P: Platform>(platform: &P, segment: Segment<'_, P>, rank: usize, owner: u32) -> Result<(), u32> {
    platform.compare_exchange("claim", &segment.claims[rank], 0, owner, Relaxed, Relaxed).map(drop)
}

/// The process that has taken `rank`, or 0.
pub fn owner<P: Platform>(platform: &P, segment: Segment<'_, P>, rank: usize) -> u32 {
    platform.load("owner", &segment.claims[rank], Relaxed)
}

/// Ends the communicator for every rank, unless it has ended before.
pub fn poison<P: Platform>(platform: &P, segment: Segment<'_, P>, cause: Cause) -> Result<(), Stopped> {
    // The first cause stays. The words below publish it.
    let _ = platform.compare_exchange64("cause", segment.cause, 0, cause.pack(), Relaxed, Relaxed);
    platform.point("cause-written")?;
    spread(platform, segment)
}

/// What [`Segment::spread`] holds at the end.
const SPREAD: u32 = 1;

/// Sets the poison bit everywhere and wakes everybody, unless somebody has been through all words before. Also where
/// `POISON` is set already: the rank that did it may have died in between. Also where nobody seems to wait: a rank that has
/// died between its arrival and its wake-up has taken `WAITER` with it, and left the sleepers.
fn spread<P: Platform>(platform: &P, segment: Segment<'_, P>) -> Result<(), Stopped> {
    if platform.load("spread-known", segment.spread, Acquire) == SPREAD {
        return Ok(());
    }
    for word in segment.words() {
        platform.fetch_or("poison", word, POISON, AcqRel);
        platform.point("poisoned-unwoken")?;
        platform.wake_all("poison-wake", word);
    }
    platform.fetch_or("spread", segment.spread, SPREAD, Release);
    Ok(())
}

impl<P: Platform> Member<'_, P> {
    /// Leaves after the last completed round.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    pub fn leave(&self) -> Result<(), Stopped> {
        self.poison(CauseKind::Left, self.rank, self.completed.number())
    }

    /// Ends the communicator for every rank, unless it has ended before.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    pub fn poison(&self, kind: CauseKind, rank: usize, detail: u32) -> Result<(), Stopped> {
        poison(self.platform, self.segment, Cause { kind, rank, detail })
    }

    /// Poisons because `rank` has not arrived in time, and says what that means for this round: nothing, if the
    /// rank arrived after all before its word was frozen.
    #[cold]
    pub(super) fn give_up(&self, rank: usize, generation: Generation) -> Result<(), Failure> {
        self.poison(CauseKind::TimedOut, rank, generation.number())?;
        let word = &self.segment.records[rank][generation.parity()].word;
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
        if spread(self.platform, self.segment).is_err() {
            return Failure::Stopped;
        }
        // Relaxed: what the first poisoner released was acquired above, word by word or from a rank that had done so.
        Failure::Dead(Cause::unpack(self.platform.load64("cause-read", self.segment.cause, Relaxed)))
    }

    /// The ranks that have not arrived at the round, in a communicator that is poisoned: the same on every rank,
    /// since the words are frozen.
    pub fn late(&self, generation: Generation) -> Vec<usize> {
        let arrived = |rank: usize| {
            let word = &self.segment.records[rank][generation.parity()].word;
            let behind = generation.previous().previous();
            Generation::of_word(self.platform.load("missing", word, Relaxed)) != behind
        };
        (0..self.size()).filter(|rank| !arrived(*rank)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_survives_packing() {
        for kind in CauseKind::ALL {
            for (rank, detail) in [(0, 0), (1, u32::MAX), (0xFF_FFFF, 7)] {
                let cause = Cause { kind, rank, detail };
                assert_eq!(Cause::unpack(cause.pack()), Some(cause));
                assert_ne!(cause.pack(), 0);
            }
        }
        assert_eq!(Cause::unpack(0), None);
        assert_eq!(Cause::unpack(u64::MAX), None);
    }
}
