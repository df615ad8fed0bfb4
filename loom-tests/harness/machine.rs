//! The platform over loom: modelled words, one of several ways to wait, and a fate.

use std::cell::Cell;

use intranode::protocol::{Expired, Killed, Ordering, Platform};
use loom::sync::atomic::AtomicU64;

use crate::harness::cells::{Buffer, Header};
use crate::harness::trace::{self, Action};
use crate::harness::waiting::{self, Waiting};
use crate::harness::word::Word;

/// What happens to a thread, decided before the exploration. Occurrences count from 1.
#[derive(Clone, Copy, Default)]
pub(crate) struct Fate {
    /// It dies at this occurrence of this fail point.
    pub(crate) dies: Option<(&'static str, usize)>,
    /// This check of the deadline finds that it has passed.
    pub(crate) expires: Option<usize>,
    /// Whether brief waits end at once. They do not count among the others then.
    pub(crate) hurries: bool,
    /// This sleep ends at once for no reason.
    pub(crate) spurious: Option<usize>,
    /// This look at the clock finds that the deadline has passed.
    pub(crate) late: Option<usize>,
    /// This sleep ends at once, because the program does not want to wait any longer.
    pub(crate) interrupted: Option<usize>,
}

impl Fate {
    pub(crate) const NONE: Fate =
        Fate { dies: None, expires: None, hurries: false, spurious: None, late: None, interrupted: None };

    pub(crate) const fn dies_at(fail_point: &'static str, occurrence: usize) -> Self {
        Fate { dies: Some((fail_point, occurrence)), ..Fate::NONE }
    }

    pub(crate) const fn expires_at(check: usize) -> Self {
        Fate { expires: Some(check), ..Fate::NONE }
    }

    pub(crate) const fn wakes_spuriously_from(sleep: usize) -> Self {
        Fate { spurious: Some(sleep), ..Fate::NONE }
    }

    pub(crate) const fn is_late_at(look: usize) -> Self {
        Fate { late: Some(look), ..Fate::NONE }
    }

    pub(crate) const fn is_interrupted_at(sleep: usize) -> Self {
        Fate { interrupted: Some(sleep), ..Fate::NONE }
    }

    pub(crate) fn is_any(self) -> bool {
        let ends = self.expires.is_some() || self.spurious.is_some() || self.late.is_some();
        self.dies.is_some() || self.hurries || ends || self.interrupted.is_some()
    }
}

/// The machine of one thread.
pub(crate) struct Machine {
    pub(crate) thread: usize,
    pub(crate) waiting: Waiting,
    fate: Fate,
    visits: Cell<usize>,
    waits: Cell<usize>,
    looks: Cell<usize>,
    met_its_fate: Cell<bool>,
}

impl Machine {
    pub(crate) fn new(thread: usize, waiting: Waiting, fate: Fate) -> Self {
        let (visits, waits, looks) = (Cell::new(0), Cell::new(0), Cell::new(0));
        Machine { thread, waiting, fate, visits, waits, looks, met_its_fate: Cell::new(false) }
    }

    /// Whether what was to happen to the thread has happened.
    pub(crate) fn has_met_its_fate(&self) -> bool {
        self.met_its_fate.get()
    }

    pub(crate) fn record(&self, site: &'static str, action: Action) {
        trace::record(self.thread, site, action);
    }

    fn recording(&self, site: &'static str) -> impl Fn(Action) {
        let thread = self.thread;
        move |action| trace::record(thread, site, action)
    }

    fn meets_its_fate(&self, site: &'static str, action: Action) {
        self.met_its_fate.set(true);
        self.record(site, action);
    }

    /// A look at the clock: no time passes but for a fate.
    pub(crate) fn is_late(&self, site: &'static str) -> bool {
        self.looks.set(self.looks.get() + 1);
        let late = self.fate.late == Some(self.looks.get());
        if late {
            self.meets_its_fate(site, Action::Expired);
        }
        late
    }

    /// A read-modify-write that the protocols do not use and the known-bad ones do.
    pub(crate) fn modify(
        &self,
        site: &'static str,
        word: &Word,
        order: Ordering,
        change: impl Fn(u32) -> u32,
    ) -> u32 {
        let before = word.modelled.fetch_update(order, Ordering::Relaxed, |seen| Some(change(seen))).unwrap();
        word.changed(change(before));
        self.record(site, Action::Modify(word.label, before, change(before)));
        before
    }

    /// Sleeps on several words.
    pub(crate) fn wait_any(&self, site: &'static str, words: &[(&Word, u32)]) {
        waiting::park_on_any(words, self.recording(site));
    }

    /// Wakes the `most` longest sleepers.
    pub(crate) fn wake(&self, site: &'static str, word: &Word, most: usize) {
        if self.waiting == Waiting::Parking {
            waiting::wake(word, most, self.recording(site));
        }
    }
}

// SAFETY: loom's atomics have the semantics of Rust's, and orderings are forwarded as they come.
unsafe impl Platform for Machine {
    type Word = Word;
    type Word64 = AtomicU64;
    type Header = Header;
    type Buffer = Buffer;
    /// Whether the wait is a brief one.
    type Deadline = bool;

    fn load(&self, site: &'static str, word: &Word, order: Ordering) -> u32 {
        let seen = word.modelled.load(order);
        self.record(site, Action::Load(word.label, seen));
        seen
    }

    fn store(&self, site: &'static str, word: &Word, value: u32, order: Ordering) {
        word.modelled.store(value, order);
        self.record(site, Action::Store(word.label, value));
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
        self.record(site, Action::Exchange(word.label, current, new, result));
        if result.is_ok() {
            word.changed(new);
        }
        result
    }

    fn fetch_or(&self, site: &'static str, word: &Word, bits: u32, order: Ordering) -> u32 {
        let before = word.modelled.fetch_or(bits, order);
        self.record(site, Action::Modify(word.label, before, before | bits));
        word.changed(before | bits);
        before
    }

    fn load64(&self, site: &'static str, word: &AtomicU64, order: Ordering) -> u64 {
        let seen = word.load(order);
        self.record(site, Action::Load64(seen));
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
        self.record(site, Action::Exchange64(result, new));
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
        let poll = || self.load(site, word, order);
        match self.waiting {
            Waiting::Spinning => Ok(waiting::spin(poll, until)),
            Waiting::Blocking => Ok(waiting::block(word, poll, until)),
            Waiting::Dozing | Waiting::Parking => {
                let seen = poll();
                if until(seen) { Ok(seen) } else { Err(seen) }
            }
        }
    }

    /// As if the threads shared two processors: it decides the order in which a rank waits for the others.
    fn processor(&self) -> Option<u8> {
        Some((self.thread % 2) as u8)
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
            // Where a time-out is to follow, that is what the model is about.
            if self.fate.expires.is_none() {
                self.met_its_fate.set(true);
            }
            self.record(site, Action::Expired);
            return Err(Expired);
        }
        self.waits.set(self.waits.get() + 1);
        if !brief && self.fate.expires == Some(self.waits.get()) {
            self.meets_its_fate(site, Action::Expired);
            return Err(Expired);
        }
        if self.fate.spurious == Some(self.waits.get()) {
            self.meets_its_fate(site, Action::SpuriousReturn);
            return Ok(());
        }
        if self.fate.interrupted == Some(self.waits.get()) {
            return Ok(());
        }
        match self.waiting {
            Waiting::Parking => waiting::park(word, expected, self.recording(site)),
            _ => waiting::doze(word, expected, self.recording(site)),
        }
        Ok(())
    }

    fn is_interrupted(&self) -> bool {
        let interrupted = self.fate.interrupted == Some(self.waits.get());
        if interrupted {
            self.meets_its_fate("interrupt", Action::Interrupted);
        }
        interrupted
    }

    fn wake_all(&self, site: &'static str, word: &Word) {
        self.wake(site, word, usize::MAX);
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
        self.meets_its_fate(name, Action::Killed);
        Err(Killed)
    }
}
