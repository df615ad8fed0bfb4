//! The platform over loom: modelled words, one of several ways to wait, and a fate.

use std::cell::{Cell, RefCell};

use intranode::protocol::{Expired, Killed, Ordering, Platform};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread::Thread;

use crate::cells::{Chunk, Header};
use crate::parking::Queue;
use crate::trace::{self, Act, Label};
use crate::{blocking, dozing, parking, spinning};

/// How a rank waits. Each kind has a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Spinning,
    Dozing,
    Blocking,
    Parking,
}

/// A modelled word.
///
/// Every write in `protocol` is a read-modify-write, or a store to a word that nobody else writes meanwhile. So a word's
/// writes are totally ordered, and `newest` is the last of them. It is no part of the model: reading it orders nothing and is no step. It only tells whether it
/// would be worth while to go on, and for whom.
pub(crate) struct Word {
    pub(crate) modelled: AtomicU32,
    pub(crate) newest: Cell<u32>,
    pub(crate) label: Label,
    /// Blocked until the word changes.
    pub(crate) blocked: RefCell<Vec<Thread>>,
    pub(crate) queue: Queue,
}

impl Word {
    pub(crate) fn new(value: u32, label: Label) -> Self {
        Word {
            modelled: AtomicU32::new(value),
            newest: Cell::new(value),
            label,
            blocked: RefCell::default(),
            queue: Queue::new(),
        }
    }

    fn changed(&self, value: u32) {
        self.newest.set(value);
        for thread in self.blocked.take() {
            thread.unpark();
        }
    }

    /// Reads the word as the kernel does under its lock: the newest value, a step of its own, no ordering.
    pub(crate) fn under_lock(&self) -> u32 {
        let never = !self.newest.get();
        match self.modelled.compare_exchange(never, never, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(seen) | Err(seen) => seen,
        }
    }
}

/// What becomes of a rank, decided before the exploration. Occurrences count from 1.
#[derive(Clone, Copy, Default)]
pub(crate) struct Fate {
    /// Dies at this occurrence of this point.
    pub(crate) dies: Option<(&'static str, usize)>,
    /// This check of the deadline finds that it has passed.
    pub(crate) expires: Option<usize>,
    /// Whether brief waits end at once. They do not count among the others then.
    pub(crate) hurries: bool,
    /// This sleep ends at once for no reason.
    pub(crate) spurious: Option<usize>,
}

impl Fate {
    pub(crate) fn is_any(self) -> bool {
        self.dies.is_some() || self.hurries || self.expires.is_some() || self.spurious.is_some()
    }
}

/// One rank's machine.
pub(crate) struct Machine {
    pub(crate) actor: usize,
    waiting: Waiting,
    fate: Fate,
    visits: Cell<usize>,
    waits: Cell<usize>,
    pub(crate) met_its_fate: Cell<bool>,
}

impl Machine {
    pub(crate) fn new(actor: usize, waiting: Waiting, fate: Fate) -> Self {
        Machine {
            actor,
            waiting,
            fate,
            visits: Cell::new(0),
            waits: Cell::new(0),
            met_its_fate: Cell::new(false),
        }
    }

    pub(crate) fn slot(&self, site: &'static str, act: Act) {
        trace::slot(self.actor, site, act);
    }

    /// Read-modify-writes that the protocols do not use and the known-bad ones do.
    pub(crate) fn modify(
        &self,
        site: &'static str,
        word: &Word,
        order: Ordering,
        change: impl Fn(u32) -> u32,
    ) -> u32 {
        let before = word.modelled.fetch_update(order, Ordering::Relaxed, |seen| Some(change(seen))).unwrap();
        word.changed(change(before));
        self.slot(site, Act::Modify(word.label, before, change(before)));
        before
    }

    /// Wakes the longest sleeper only.
    pub(crate) fn wake_one(&self, site: &'static str, word: &Word) {
        if self.waiting == Waiting::Parking {
            parking::wake(self, site, word, 1);
        }
    }
}

// SAFETY: loom's atomics have the semantics of Rust's, and orderings are forwarded as they come.
unsafe impl Platform for Machine {
    type Word = Word;
    type Word64 = AtomicU64;
    type Header = Header;
    type Chunk = Chunk;
    /// Whether the wait is a brief one.
    type Deadline = bool;

    fn load(&self, site: &'static str, word: &Word, order: Ordering) -> u32 {
        let seen = word.modelled.load(order);
        self.slot(site, Act::Load(word.label, seen));
        seen
    }

    fn store(&self, site: &'static str, word: &Word, value: u32, order: Ordering) {
        word.modelled.store(value, order);
        self.slot(site, Act::Store(word.label, value));
        word.changed(value);
    }

    fn compare_exchange(
        &self,
        site: &'static str,
        word: &Word,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        let result = word.modelled.compare_exchange(current, new, success, failure);
        self.slot(site, Act::Exchange(word.label, current, new, result));
        if result.is_ok() {
            word.changed(new);
        }
        result
    }

    fn fetch_or(&self, site: &'static str, word: &Word, bits: u32, order: Ordering) -> u32 {
        let before = word.modelled.fetch_or(bits, order);
        self.slot(site, Act::Modify(word.label, before, before | bits));
        word.changed(before | bits);
        before
    }

    fn load64(&self, site: &'static str, word: &AtomicU64, order: Ordering) -> u64 {
        let seen = word.load(order);
        self.slot(site, Act::Load64(seen));
        seen
    }

    fn compare_exchange64(
        &self,
        site: &'static str,
        word: &AtomicU64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let result = word.compare_exchange(current, new, success, failure);
        self.slot(site, Act::Exchange64(result, new));
        result
    }

    fn spin(
        &self,
        site: &'static str,
        word: &Word,
        order: Ordering,
        _: bool,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        match self.waiting {
            Waiting::Spinning => Ok(spinning::spin(self, site, word, order, until)),
            Waiting::Blocking => Ok(blocking::spin(self, site, word, order, until)),
            Waiting::Dozing | Waiting::Parking => {
                let seen = self.load(site, word, order);
                if until(seen) { Ok(seen) } else { Err(seen) }
            }
        }
    }

    /// Ranks share two processors, as far as it matters here: for the order in which a rank waits for the others.
    fn processor(&self) -> Option<u8> {
        Some((self.actor % 2) as u8)
    }

    fn peek(&self, header: &Header) -> u8 {
        (header.label.rank % 2) as u8
    }

    fn deadline(&self) -> bool {
        false
    }

    fn brief_deadline(&self) -> bool {
        true
    }

    fn wait(&self, site: &'static str, word: &Word, expected: u32, brief: &bool) -> Result<(), Expired> {
        if *brief && self.fate.hurries {
            // Where there is more to come, that is what a model is about.
            let all = self.fate.expires.is_none();
            self.met_its_fate.set(self.met_its_fate.get() || all);
            self.slot(site, Act::Expired);
            return Err(Expired);
        }
        self.waits.set(self.waits.get() + 1);
        if !brief && self.fate.expires == Some(self.waits.get()) {
            self.met_its_fate.set(true);
            self.slot(site, Act::Expired);
            return Err(Expired);
        }
        if self.fate.spurious == Some(self.waits.get()) {
            self.met_its_fate.set(true);
            self.slot(site, Act::Header("returns for no reason"));
            return Ok(());
        }
        match self.waiting {
            Waiting::Parking => parking::wait(self, site, word, expected),
            _ => dozing::wait(self, site, word, expected),
        }
        Ok(())
    }

    fn wake_all(&self, site: &'static str, word: &Word) {
        if self.waiting == Waiting::Parking {
            parking::wake(self, site, word, usize::MAX);
        }
    }

    fn fail_point(&self, name: &'static str) -> Result<(), Killed> {
        let Some((fatal, occurrence)) = self.fate.dies else { return Ok(()) };
        if name != fatal {
            return Ok(());
        }
        self.visits.set(self.visits.get() + 1);
        if self.visits.get() != occurrence {
            return Ok(());
        }
        self.met_its_fate.set(true);
        self.slot(name, Act::Killed);
        Err(Killed)
    }
}
