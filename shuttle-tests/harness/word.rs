//! The words that actors share, with what happens before each access to them.

use std::sync::Mutex;

use intranode::protocol::Ordering;
use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::harness::breakage::Breakage;
use crate::harness::choice;
use crate::harness::clock::{Clock, Event, lock};
use crate::harness::simulation::{Simulation, me};

/// A word that can be waited on.
pub struct Word {
    pub value: AtomicU32,
    pub released: Mutex<Clock>,
    pub sleepers: Mutex<Vec<usize>>,
}

/// A word that is set once and never waited on.
pub struct Word64 {
    pub value: AtomicU64,
    /// Which actors have seen the value, and when: those that come after one of these must see it too.
    pub known: Mutex<Vec<Event>>,
}

impl Word {
    /// A word that `actors` know.
    pub fn new(value: u32, actors: usize) -> Self {
        let released = Mutex::new(Clock::new(actors));
        Word { value: AtomicU32::new(value), released, sleepers: Mutex::default() }
    }
}

impl Word64 {
    pub fn new(value: u64) -> Self {
        Word64 { value: AtomicU64::new(value), known: Mutex::default() }
    }
}

pub fn acquires(order: Ordering) -> bool {
    matches!(order, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst)
}

pub fn releases(order: Ordering) -> bool {
    matches!(order, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst)
}

impl Simulation {
    /// A read of the word has happened.
    pub fn after_load(&self, site: &str, word: &Word, order: Ordering) {
        if acquires(self.order(site, order)) {
            self.with_clock(|_, clock| clock.join(&lock(&word.released)));
        }
    }

    /// A read-modify-write has happened. One that does not release continues the sequence of one that has.
    pub fn after_update(&self, site: &str, word: &Word, order: Ordering) {
        self.after_load(site, word, order);
        if releases(self.order(site, order)) {
            self.with_clock(|actor, clock| {
                lock(&word.released).join(clock);
                clock.advance(actor);
            });
        }
    }

    /// A store has happened. What an earlier one has released is not continued.
    pub fn after_store(&self, site: &str, word: &Word, order: Ordering) {
        let mut released = Clock::new(self.actors());
        if releases(self.order(site, order)) {
            self.with_clock(|actor, clock| {
                released.join(clock);
                clock.advance(actor);
            });
        }
        *lock(&word.released) = released;
    }

    /// The ordering of an operation at the site, on this machine.
    pub fn order(&self, site: &str, order: Ordering) -> Ordering {
        match &self.breakage {
            Some(Breakage::Weaken(weak)) if weak == site => Ordering::Relaxed,
            _ => order,
        }
    }

    /// Whether a sleep at the site ends at once for no reason.
    pub fn returns_spuriously(&self) -> bool {
        self.spurious > 0 && choice::once_in(self.spurious as usize)
    }

    /// Whether sleeping at the site does not compare the word.
    pub fn is_blind(&self, site: &str) -> bool {
        matches!(&self.breakage, Some(Breakage::Blind(blind)) if blind == site)
    }

    /// Sleeps on several words. Until it runs again the sleeper stays in the queues of those by which it was not woken.
    pub fn wait_any(&self, site: &'static str, words: &[(&Word, u32)]) {
        self.step(site);
        if self.returns_spuriously() {
            return;
        }
        let blind = self.is_blind(site);
        self.sleep(None, || {
            words.iter().all(|(word, expected)| {
                lock(&word.sleepers).push(me());
                word.value.load(SeqCst) == *expected || blind
            })
        });
        for (word, _) in words {
            lock(&word.sleepers).retain(|actor| *actor != me());
        }
    }

    /// Wakes the longest sleeper only.
    pub fn wake_first(&self, word: &Word) {
        let first = {
            let mut sleepers = lock(&word.sleepers);
            if sleepers.is_empty() { None } else { Some(sleepers.remove(0)) }
        };
        if let Some(actor) = first {
            self.wake(actor);
        }
    }

    pub fn wake_sleepers(&self, word: &Word) {
        let sleepers = std::mem::take(&mut *lock(&word.sleepers));
        for actor in sleepers {
            self.wake(actor);
        }
    }
}
