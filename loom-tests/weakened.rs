//! A platform on which one site does less than the protocol asked for.

use std::cell::Cell;

use intranode::protocol::generation::WAITER;
use intranode::protocol::{Expired, Generation, Killed, Ordering, Platform};

use crate::machine::{Machine, Word};
use crate::parking;

/// What is wrong with a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weakening {
    /// The (successful) access has this ordering.
    Order(Ordering),
    /// A failed exchange has this ordering.
    Failure(Ordering),
    /// An exchange does not happen, and says that it did.
    Skipped,
    /// An exchange overwrites whatever is there.
    Unconditional,
    /// Nobody is woken.
    NoWake,
    /// One sleeper is woken, whoever slept first.
    WakeOne,
    /// The sleep begins whatever the word holds by then, as if the expected value had been read before.
    Unchecked,
    /// A value is not read but taken to be what the sleeper hopes for.
    Believed,
}

/// One site, and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mutation {
    pub(crate) site: &'static str,
    pub(crate) weakening: Weakening,
}

/// A platform, perhaps with a mutation.
pub(crate) struct Weakened<P> {
    inner: P,
    mutation: Option<Mutation>,
    expected: Cell<u32>,
}

/// What a mutation needs beyond the trait.
pub(crate) trait WakeOne: Platform {
    fn wake_one(&self, site: &'static str, word: &Self::Word);
}

impl WakeOne for Machine {
    fn wake_one(&self, site: &'static str, word: &Self::Word) {
        Machine::wake_one(self, site, word);
    }
}

impl<P> Weakened<P> {
    pub(crate) fn new(inner: P, mutation: Option<Mutation>) -> Self {
        Weakened { inner, mutation, expected: Cell::new(0) }
    }

    pub(crate) fn inner(&self) -> &P {
        &self.inner
    }

    fn weakening(&self, site: &str) -> Option<Weakening> {
        self.mutation.filter(|mutation| mutation.site == site).map(|mutation| mutation.weakening)
    }

    fn order(&self, site: &str, order: Ordering) -> Ordering {
        match self.weakening(site) {
            Some(Weakening::Order(weaker)) => weaker,
            _ => order,
        }
    }

    fn orders(&self, site: &str, success: Ordering, failure: Ordering) -> (Ordering, Ordering) {
        match self.weakening(site) {
            Some(Weakening::Order(weaker)) => (weaker, failure),
            Some(Weakening::Failure(weaker)) => (success, weaker),
            _ => (success, failure),
        }
    }
}

impl Weakened<Machine> {
    /// Sleeps on several words, as `Platform::wait` does on one.
    pub(crate) fn wait_any(&self, site: &'static str, words: &[(&Word, u32)]) {
        if self.weakening(site) != Some(Weakening::Unchecked) {
            return parking::wait_any(&self.inner, site, words);
        }
        let now = |word: &Word| self.inner.load(site, word, Ordering::Relaxed);
        let words: Vec<_> = words.iter().map(|(word, _)| (*word, now(word))).collect();
        parking::wait_any(&self.inner, site, &words);
    }
}

// SAFETY: without a mutation everything is forwarded. With one this is no platform, on purpose: what goes wrong
// goes wrong inside loom, which stops at the first access that is not allowed.
unsafe impl<P: WakeOne> Platform for Weakened<P> {
    type Word = P::Word;
    type Word64 = P::Word64;
    type Header = P::Header;
    type Chunk = P::Chunk;
    type Deadline = P::Deadline;

    fn load(&self, site: &'static str, word: &P::Word, order: Ordering) -> u32 {
        if self.weakening(site) == Some(Weakening::Believed) {
            return Generation::of_word(self.expected.get() & !WAITER).next().next().word();
        }
        self.inner.load(site, word, self.order(site, order))
    }

    fn store(&self, site: &'static str, word: &P::Word, value: u32, order: Ordering) {
        self.inner.store(site, word, value, self.order(site, order));
    }

    fn compare_exchange(
        &self,
        site: &'static str,
        word: &P::Word,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        let (success, failure) = self.orders(site, success, failure);
        match self.weakening(site) {
            Some(Weakening::Skipped) => Ok(current),
            Some(Weakening::Unconditional) => {
                let mut current = current;
                while let Err(seen) = self.inner.compare_exchange(site, word, current, new, success, failure) {
                    current = seen;
                }
                Ok(current)
            }
            _ => self.inner.compare_exchange(site, word, current, new, success, failure),
        }
    }

    fn fetch_or(&self, site: &'static str, word: &P::Word, bits: u32, order: Ordering) -> u32 {
        self.inner.fetch_or(site, word, bits, self.order(site, order))
    }

    fn load64(&self, site: &'static str, word: &P::Word64, order: Ordering) -> u64 {
        self.inner.load64(site, word, self.order(site, order))
    }

    fn compare_exchange64(
        &self,
        site: &'static str,
        word: &P::Word64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let (success, failure) = self.orders(site, success, failure);
        match self.weakening(site) {
            Some(Weakening::Skipped) => Ok(current),
            Some(Weakening::Unconditional) => {
                let mut current = current;
                while let Err(seen) = self.inner.compare_exchange64(site, word, current, new, success, failure)
                {
                    current = seen;
                }
                Ok(current)
            }
            _ => self.inner.compare_exchange64(site, word, current, new, success, failure),
        }
    }

    fn spin(
        &self,
        site: &'static str,
        word: &P::Word,
        order: Ordering,
        co_located: bool,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        self.inner.spin(site, word, self.order(site, order), co_located, until)
    }

    fn processor(&self) -> Option<u8> {
        self.inner.processor()
    }

    fn peek(&self, header: &P::Header) -> u8 {
        self.inner.peek(header)
    }

    fn deadline(&self) -> P::Deadline {
        self.inner.deadline()
    }

    fn brief_deadline(&self) -> P::Deadline {
        self.inner.brief_deadline()
    }

    fn wait(
        &self,
        site: &'static str,
        word: &P::Word,
        expected: u32,
        deadline: &P::Deadline,
    ) -> Result<(), Expired> {
        self.expected.set(expected);
        let expected = match self.weakening(site) {
            Some(Weakening::Unchecked) => self.inner.load(site, word, Ordering::Relaxed),
            _ => expected,
        };
        self.inner.wait(site, word, expected, deadline)
    }

    fn wake_all(&self, site: &'static str, word: &P::Word) {
        match self.weakening(site) {
            Some(Weakening::NoWake) => {}
            Some(Weakening::WakeOne) => self.inner.wake_one(site, word),
            _ => self.inner.wake_all(site, word),
        }
    }

    fn fail_point(&self, name: &'static str) -> Result<(), Killed> {
        self.inner.fail_point(name)
    }
}
