//! One call at a time: how the threads of a rank share its place in the rounds.
//!
//! Collectives are ordered by the ranks' programs, so two calls of one rank that overlap have no order that the other
//! ranks could know. The second is an error that ends the communicator, not a wait for the first.
//!
//! ```text
//!  31                        4   3   2   1         0
//!  +---------------------------+-------+---------+------+
//!  |  last completed round     |   0   | STARTED | BUSY |     a word of the rank's own memory, in no segment
//!  +---------------------------+-------+---------+------+
//! ```
//!
//! It is a try-lock whose word also holds what it guards, unless a call was started. A call keeps it from its first round to its last, also where it
//! consists of several transfers: between these another thread's call would take the place of the next, on this rank only.

use super::generation::Generation;
use super::{Cause, CauseKind, Ordering, Platform, Segment, membership};
use Ordering::{Acquire, Relaxed, Release};

/// A thread of the rank is in a call.
const BUSY: u32 = 1;

/// A call was started and is not complete, or another thread has completed it since: see [`super::started`]. Its round comes before
/// that of any other call, and who keeps it knows the last completed round.
const STARTED: u32 = 2;

/// The lock of one rank of one communicator.
pub struct CallLock<P: Platform>(P::Word);

/// Another thread of this rank is in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap;

impl<P: Platform> CallLock<P> {
    /// What the word holds when every round up to `completed` is complete, and nobody is in a call.
    pub const fn initial_word(completed: Generation) -> u32 {
        completed.word()
    }

    /// The lock in a word that holds its [`initial_word`](Self::initial_word).
    pub const fn new(word: P::Word) -> Self {
        CallLock(word)
    }

    /// Begins a call of `rank`. To be ended by [`end`](Self::end), on the same thread. The last round that the rank has completed,
    /// and whether it found a call that was started, which has to be brought to its end first.
    ///
    /// # Errors
    /// When another thread is in a call. The communicator has ended then, for all ranks.
    #[inline(always)]
    pub fn begin(
        &self,
        platform: &P,
        segment: &Segment<'_, P>,
        rank: usize,
    ) -> Result<(Generation, bool), Overlap> {
        let before = platform.fetch_or("call-begin", &self.0, BUSY, Acquire);
        if before & BUSY != 0 {
            return Err(Self::overlap(platform, segment, rank));
        }
        Ok((Generation::of_word(before), before & STARTED != 0))
    }

    #[cold]
    fn overlap(platform: &P, segment: &Segment<'_, P>, rank: usize) -> Overlap {
        let cause = Cause { kind: CauseKind::ConcurrentUse, rank, detail: 0 };
        // Only tests stop a rank in between.
        let _ = membership::poison(platform, segment, cause);
        Overlap
    }

    /// Ends the call, which has completed this round last. `started`: this rank has arrived at a further round, and has not
    /// completed it.
    #[inline]
    pub fn end(&self, platform: &P, completed: Generation, started: bool) {
        let word = completed.word() | if started { STARTED } else { 0 };
        platform.store("call-end", &self.0, word, Release);
    }

    /// The last round that this rank has completed in a call that has ended, and whether that one has left a call that was started.
    pub fn completed(&self, platform: &P) -> (Generation, bool) {
        let seen = platform.load("call-completed", &self.0, Relaxed);
        (Generation::of_word(seen), seen & STARTED != 0)
    }
}
