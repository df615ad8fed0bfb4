//! Who watches whom, and how every rank learns of a death.
//!
//! Ranks stand in a ring, in the order of their numbers, and each is watched by its nearest predecessors. An owner has a
//! row of words, one for each of its watchers. The kernel marks them when the owner dies, and wakes *one* sleeper of each
//! word. One watcher would be enough to find every death; several are needed because one may be stopped, or be dying.
//!
//! ```text
//!              slot 0      slot 1        width 2, ranks 0 to 4, of which rank 2 has left or died
//!   owner 0   [ by 4 ]    [ by 3 ]
//!   owner 1   [ by 0 ]    [ by 4 ]
//!   owner 3   [ by 1 ]    [ by 0 ]       rank 1 looks past rank 2: it watches 3 at slot 0, and 4 at slot 1
//!   owner 4   [ by 3 ]    [ by 1 ]
//! ```
//!
//! A watcher uses the slot whose number is that of the ranks between itself and the owner which are still there. So no
//! two watchers that know the same use the same word.
//!
//! **Finding.** A watcher looks along the ring until it has seen as many living ranks as there are slots. It learns of
//! each dead rank on the way, and goes on. So the nearest living predecessor of any number of ranks that have died
//! together is woken by the first of them, and finds all the others.
//!
//! **Announcing.** A death concerns every process, also those that watch others. Who finds one marks the rank's fate
//! (`NOTICED`), ends the communicator, changes the word on which all watchers sleep, wakes them, and marks the fate again
//! (`ANNOUNCED`). Who finds the same death later, and sees only the first mark, does all of that again: the first may have
//! died, or be stopped, half-way. Who is woken by an announcement reads the fates, and need not announce them: had the
//! first died half-way, then its own death would be announced, and its predecessor, looking past it, would find the
//! other death too.
//!
//! **Leaving.** A rank that leaves marks its words and wakes all who sleep on them. They look further along the ring, and
//! so take over whom it has watched.
//!
//! **Ticks** make up for what a rank was stopped in the middle of, or was killed in the middle of leaving: every now and
//! then each watcher looks without having been woken.

use super::sleeper::Sleeper;
use super::{Killed, Ordering, Platform};
use Ordering::{Acquire, Relaxed, Release};

/// What the kernel leaves of the words of a rank that has ended without leaving.
pub const DIED: u32 = 0xC000_0000;

/// The bits that are set in the words of a rank that has left, beside [`WAITERS`]. No thread has this number.
pub const LEFT: u32 = 0x3FFF_FFFF;

/// The bit in the words of a rank that is there which makes the kernel wake a sleeper.
pub const WAITERS: u32 = 0x8000_0000;

/// A rank's fate: somebody has found that it died.
pub const NOTICED: u32 = 1;

/// A rank's fate: all watchers have been woken since.
pub const ANNOUNCED: u32 = 2;

/// The fate of a rank whose death is known to all. Other numbers than these are nonsense that somebody has written there.
const OVER: u32 = NOTICED | ANNOUNCED;

/// A word by which one watcher knows whether its owner is alive: 0 as long as the owner has not come.
///
/// The kernel finds a rank's words by a list of pointers that lie as far apart as the words.
#[repr(C, align(8))]
pub struct Liveness<P: Platform> {
    /// The word.
    pub word: P::Word,
}

/// The words of all ranks by which they watch each other.
pub struct Roll<'s, P: Platform> {
    /// Changes with every announcement. All watchers sleep on it.
    pub notices: &'s P::Word,
    /// By rank: [`NOTICED`] and [`ANNOUNCED`].
    pub fates: &'s [P::Word],
    /// By owner: its row.
    pub slots: &'s [Liveness<P>],
}

impl<P: Platform> Clone for Roll<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Roll<'_, P> {}

impl<'s, P: Platform> Roll<'s, P> {
    /// The number of ranks.
    pub fn ranks(self) -> usize {
        self.fates.len()
    }

    /// How many words an owner has, and how many ranks a watcher watches.
    pub fn width(self) -> usize {
        self.slots.len() / self.ranks()
    }

    /// The words of an owner.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn row(self, owner: usize) -> &'s [Liveness<P>] {
        &self.slots[owner * self.width()..][..self.width()]
    }
}

/// From now on `rank` is there, until it leaves or the kernel marks its words, which hold `alive`.
///
/// # Errors
/// Only when a test stops this rank.
pub fn come<P: Platform>(platform: &P, roll: Roll<'_, P>, rank: usize, alive: u32) -> Result<(), Killed> {
    for slot in roll.row(rank) {
        // Nobody needs to be woken: the kernel does that at a death, whatever the sleeper has seen.
        platform.fetch_or("come", &slot.word, alive, Relaxed);
        platform.fail_point("coming")?;
    }
    Ok(())
}

/// From now on the end of `rank` is no death. Its watchers take over whom it has watched.
///
/// # Errors
/// Only when a test stops this rank.
pub fn depart<P: Platform>(platform: &P, roll: Roll<'_, P>, rank: usize) -> Result<(), Killed> {
    for slot in roll.row(rank) {
        platform.fetch_or("depart", &slot.word, LEFT, Relaxed);
        platform.fail_point("departing")?;
    }
    for slot in roll.row(rank) {
        platform.wake_all("depart-wake", &slot.word);
    }
    Ok(())
}

/// Whom a watcher tells.
pub trait Listener {
    /// Ends the communicator for all ranks, because this one has died. May be called again.
    fn end(&self, dead: usize);

    /// A rank has died. Called once for each.
    fn died(&self, dead: usize);
}

/// What a watcher knows of another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It is there, or has not come yet.
    Present,
    Left,
    Dead,
}

/// The watcher of one rank.
pub struct Watch<'s, P: Platform> {
    platform: &'s P,
    roll: Roll<'s, P>,
    rank: usize,
    /// What the common word held when the fates were last read.
    notices: u32,
    /// By rank.
    known: Vec<Known>,
    /// What to sleep on, with what was seen: the common word, and one of each rank that is watched.
    words: Vec<(&'s P::Word, u32)>,
}

impl<'s, P: Platform> Watch<'s, P> {
    /// The watcher of `rank`, which has not looked yet.
    pub fn new(platform: &'s P, roll: Roll<'s, P>, rank: usize) -> Self {
        let known = vec![Known::Present; roll.ranks()];
        Watch { platform, roll, rank, notices: 0, known, words: Vec::with_capacity(1 + roll.width()) }
    }

    /// Whether a rank may still be there, as far as this watcher knows.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn is_present(&self, rank: usize) -> bool {
        self.known[rank] == Known::Present
    }

    /// The other ranks in the order of the ring.
    pub fn others(&self) -> impl Iterator<Item = usize> + use<P> {
        let (rank, ranks) = (self.rank, self.roll.ranks());
        (rank + 1..rank + ranks).map(move |next| if next < ranks { next } else { next - ranks })
    }

    /// Finds out what has happened since the last time, and prepares to sleep.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    pub fn look(&mut self, listener: &impl Listener) -> Result<(), Killed> {
        let notices = self.platform.load("notices", self.roll.notices, Acquire);
        if notices != self.notices {
            self.notices = notices;
            for rank in self.others() {
                if matches!(self.fate(rank), NOTICED | OVER) {
                    self.learn(rank, listener);
                }
            }
        }
        self.words.clear();
        self.words.push((self.roll.notices, notices));
        let mut slot = 0;
        for rank in self.others() {
            if slot == self.roll.width() {
                break;
            }
            if !self.is_present(rank) {
                continue;
            }
            let word = &self.roll.row(rank)[slot].word;
            // Relaxed: nothing depends on it but whether to sleep on this very word.
            match self.platform.load("look", word, Relaxed) {
                DIED => self.find(rank, listener)?,
                seen if has_left(seen) => self.known[rank] = Known::Left,
                seen => {
                    self.words.push((word, seen));
                    slot += 1;
                }
            }
        }
        Ok(())
    }

    /// Sleeps until there may be something to look for.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    pub fn sleep(&self, sleeper: &mut impl Sleeper<P>) -> Result<(), Killed> {
        self.platform.fail_point("watching")?;
        sleeper.wait_any("watch", &self.words);
        Ok(())
    }

    /// To be called every now and then, before looking: makes up for announcements that were begun and not completed.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    pub fn tick(&mut self, listener: &impl Listener) -> Result<(), Killed> {
        for rank in self.others() {
            if self.fate(rank) == NOTICED {
                self.find(rank, listener)?;
            }
        }
        Ok(())
    }

    /// The process of a rank has ended, whatever its words hold. It was no death if the rank has left.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn ended(&mut self, rank: usize, listener: &impl Listener) -> Result<(), Killed> {
        if !self.is_present(rank) {
            return Ok(());
        }
        // A rank that leaves marks this word first.
        if has_left(self.platform.load("ended", &self.roll.row(rank)[0].word, Relaxed)) {
            self.known[rank] = Known::Left;
            return Ok(());
        }
        self.find(rank, listener)
    }

    fn fate(&self, rank: usize) -> u32 {
        self.platform.load("fate", &self.roll.fates[rank], Relaxed)
    }

    /// This rank has seen by itself that another has died.
    fn find(&mut self, dead: usize, listener: &impl Listener) -> Result<(), Killed> {
        self.platform.fail_point("found")?;
        let fate = &self.roll.fates[dead];
        if self.platform.fetch_or("notice", fate, NOTICED, Relaxed) == OVER {
            self.learn(dead, listener);
            return Ok(());
        }
        self.platform.fail_point("noticed")?;
        listener.end(dead);
        self.learn(dead, listener);
        let mut seen = self.notices;
        // Release: who sees the announcement sees the fate.
        while let Err(now) = self.platform.compare_exchange(
            "announce",
            self.roll.notices,
            seen,
            seen.wrapping_add(1),
            Release,
            Relaxed,
        ) {
            seen = now;
        }
        self.platform.fail_point("announced-unwoken")?;
        self.platform.wake_all("announce-wake", self.roll.notices);
        self.platform.fail_point("woken-unmarked")?;
        self.platform.fetch_or("announced", fate, ANNOUNCED, Relaxed);
        Ok(())
    }

    /// This rank knows that another has died.
    fn learn(&mut self, dead: usize, listener: &impl Listener) {
        if self.known[dead] != Known::Dead {
            self.known[dead] = Known::Dead;
            listener.died(dead);
        }
    }
}

/// Whether a word is that of a rank which has left.
fn has_left(seen: u32) -> bool {
    seen & !WAITERS == LEFT
}
