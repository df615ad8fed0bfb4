//! A machine on which one site does less than the protocol asked for.

use std::cell::Cell;

use intranode::protocol::generation::WAITER;
use intranode::protocol::{Expired, Generation, Killed, Ordering, Platform};
use loom::sync::atomic::AtomicU64;

use crate::harness::cells::{Buffer, Header};
use crate::harness::machine::{Fate, Machine};
use crate::harness::sites::Weakening;
use crate::harness::word::Word;

/// One site, and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mutation {
    pub(crate) site: &'static str,
    pub(crate) weakening: Weakening,
}

/// The platform of every model: a machine, perhaps with a mutation.
pub(crate) struct Simulated {
    machine: Machine,
    mutation: Option<Mutation>,
    /// What the thread expected in its last sleep.
    expected: Cell<u32>,
}

impl Simulated {
    pub(crate) fn new(machine: Machine, mutation: Option<Mutation>) -> Self {
        Simulated { machine, mutation, expected: Cell::new(0) }
    }

    /// The same for another rank's steps of this thread.
    pub(crate) fn with_fate(&self, fate: Fate) -> Self {
        Simulated::new(Machine::new(self.machine.thread, self.machine.waiting, fate), self.mutation)
    }

    /// The machine, on which nothing is weakened.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Sleeps on several words, as `Platform::wait` does on one.
    pub(crate) fn wait_any(&self, site: &'static str, words: &[(&Word, u32)]) {
        if self.weakening(site) != Some(Weakening::Unchecked) {
            return self.machine.wait_any(site, words);
        }
        let now = |word: &Word| self.machine.load(site, word, Ordering::Relaxed);
        let words: Vec<_> = words.iter().map(|(word, _)| (*word, now(word))).collect();
        self.machine.wait_any(site, &words);
    }

    pub(crate) fn weakening(&self, site: &str) -> Option<Weakening> {
        self.mutation.filter(|mutation| mutation.site == site).map(|mutation| mutation.weakening)
    }

    pub(crate) fn order(&self, site: &str, order: Ordering) -> Ordering {
        match self.weakening(site) {
            Some(Weakening::Order(weaker)) => weaker,
            _ => order,
        }
    }

    pub(crate) fn orders(&self, site: &str, success: Ordering, failure: Ordering) -> (Ordering, Ordering) {
        match self.weakening(site) {
            Some(Weakening::Failure(weaker)) => (success, weaker),
            _ => (self.order(site, success), failure),
        }
    }

    /// Makes an exchange from `current`, as the site does or as its mutation has it.
    pub(crate) fn exchange<V: Copy>(
        &self,
        site: &str,
        current: V,
        exchange: impl Fn(V) -> Result<V, V>,
    ) -> Result<V, V> {
        match self.weakening(site) {
            Some(Weakening::Skipped) => Ok(current),
            Some(Weakening::Unconditional) => {
                let mut current = current;
                while let Err(seen) = exchange(current) {
                    current = seen;
                }
                Ok(current)
            }
            _ => exchange(current),
        }
    }
}

// SAFETY: without a mutation everything is forwarded. With one this is no platform, on purpose: what goes wrong
// goes wrong inside loom, which stops at the first access that is not allowed.
unsafe impl Platform for Simulated {
    type Word = Word;
    type Word64 = AtomicU64;
    type Header = Header;
    type Buffer = Buffer;
    type Deadline = <Machine as Platform>::Deadline;

    fn load(&self, site: &'static str, word: &Word, order: Ordering) -> u32 {
        if self.weakening(site) == Some(Weakening::Believed) {
            return Generation::of_word(self.expected.get() & !WAITER).next().next().word();
        }
        self.machine.load(site, word, self.order(site, order))
    }

    fn store(&self, site: &'static str, word: &Word, value: u32, order: Ordering) {
        self.machine.store(site, word, value, self.order(site, order));
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
        let (success, failure) = self.orders(site, success, failure);
        self.exchange(site, current, |current| {
            self.machine.compare_exchange(site, word, current, new, success, failure)
        })
    }

    fn fetch_or(&self, site: &'static str, word: &Word, bits: u32, order: Ordering) -> u32 {
        self.machine.fetch_or(site, word, bits, self.order(site, order))
    }

    fn load64(&self, site: &'static str, word: &AtomicU64, order: Ordering) -> u64 {
        self.machine.load64(site, word, self.order(site, order))
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
        let (success, failure) = self.orders(site, success, failure);
        self.exchange(site, current, |current| {
            self.machine.compare_exchange64(site, word, current, new, success, failure)
        })
    }

    fn spin(
        &self,
        site: &'static str,
        word: &Word,
        order: Ordering,
        co_located: bool,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        self.machine.spin(site, word, self.order(site, order), co_located, until)
    }

    fn processor(&self) -> Option<u8> {
        self.machine.processor()
    }

    fn peek(&self, header: &Header) -> u8 {
        self.machine.peek(header)
    }

    fn deadline(&self) -> Self::Deadline {
        self.machine.deadline()
    }

    fn brief_deadline(&self) -> Self::Deadline {
        self.machine.brief_deadline()
    }

    fn wait(
        &self,
        site: &'static str,
        word: &Word,
        expected: u32,
        deadline: &Self::Deadline,
    ) -> Result<(), Expired> {
        self.expected.set(expected);
        let expected = match self.weakening(site) {
            Some(Weakening::Unchecked) => self.machine.load(site, word, Ordering::Relaxed),
            _ => expected,
        };
        self.machine.wait(site, word, expected, deadline)
    }

    fn is_interrupted(&self) -> bool {
        self.machine.is_interrupted()
    }

    fn wake_all(&self, site: &'static str, word: &Word) {
        match self.weakening(site) {
            Some(Weakening::NoWake) => {}
            Some(Weakening::WakeOne) => self.machine.wake(site, word, 1),
            _ => self.machine.wake_all(site, word),
        }
    }

    fn fail_point(&self, name: &'static str) -> Result<(), Killed> {
        self.machine.fail_point(name)
    }
}
