//! The platform under shuttle: words over its atomics, and a futex over its mutexes.

use intranode::protocol::generation::{POISON, WAITER};
use intranode::protocol::{Expired, Generation, Killed, Ordering, Platform};
use shuttle::sync::atomic::Ordering::SeqCst;

use crate::harness::breakage::Breakage;
use crate::harness::cell::Cell;
use crate::harness::choice;
use crate::harness::clock::lock;
use crate::harness::simulation::{Simulation, me};
use crate::harness::sleepers::Slept;
use crate::harness::word::{Word, Word64};

// SAFETY: the words are shuttle's atomics, every operation on them sequentially consistent.
unsafe impl Platform for Simulation {
    type Word = Word;
    type Word64 = Word64;
    type Header = Cell;
    type Buffer = Cell;
    type Deadline = u64;

    fn load(&self, site: &'static str, word: &Word, order: Ordering) -> u32 {
        self.step(site);
        let seen = word.value.load(SeqCst);
        self.after_load(site, word, order);
        match &self.breakage {
            Some(Breakage::Stale(stale)) if stale == site => {
                let before = Generation::of_word(seen).previous().previous();
                before.word() | seen & (WAITER | POISON)
            }
            _ => seen,
        }
    }

    fn store(&self, site: &'static str, word: &Word, value: u32, order: Ordering) {
        self.step(site);
        word.value.store(value, SeqCst);
        self.after_store(site, word, order);
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
        self.step(site);
        if matches!(&self.breakage, Some(Breakage::Swap(swapped)) if swapped == site) {
            let before = word.value.swap(new, SeqCst);
            self.after_update(site, word, success);
            self.wake_sleepers(word);
            return Ok(before);
        }
        let result = word.value.compare_exchange(current, new, SeqCst, SeqCst);
        match result {
            Ok(_) => self.after_update(site, word, success),
            Err(_) => self.after_load(site, word, failure),
        }
        result
    }

    fn fetch_or(&self, site: &'static str, word: &Word, bits: u32, order: Ordering) -> u32 {
        self.step(site);
        if matches!(&self.breakage, Some(Breakage::Skip(skipped)) if skipped == site) {
            return word.value.load(SeqCst);
        }
        let before = word.value.fetch_or(bits, SeqCst);
        self.after_update(site, word, order);
        before
    }

    fn load64(&self, site: &'static str, word: &Word64, _: Ordering) -> u64 {
        self.step(site);
        let seen = word.value.load(SeqCst);
        let must_see = self.with_clock(|_, clock| lock(&word.known).iter().any(|event| clock.has_seen(*event)));
        assert!(seen == 0 || must_see, "not ordered: {site} could also have read the value before {seen:#x}");
        seen
    }

    fn compare_exchange64(
        &self,
        site: &'static str,
        word: &Word64,
        current: u64,
        new: u64,
        _: Ordering,
        _: Ordering,
    ) -> Result<u64, u64> {
        self.step(site);
        let result = match &self.breakage {
            Some(Breakage::Swap(swapped)) if swapped == site => Ok(word.value.swap(new, SeqCst)),
            _ => word.value.compare_exchange(current, new, SeqCst, SeqCst),
        };
        self.with_clock(|actor, clock| lock(&word.known).push(clock.event(actor)));
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
        let mut polls = 0;
        loop {
            let seen = self.load(site, word, order);
            if until(seen) {
                return Ok(seen);
            }
            if polls == self.polls {
                return Err(seen);
            }
            polls += 1;
        }
    }

    /// All ranks are co-located, as far as each knows: see [`peek`](Platform::peek).
    fn processor(&self) -> Option<u8> {
        Some(0)
    }

    /// Only a hint, so anything: which rank is polled first is up to chance.
    fn peek(&self, _: &Cell) -> u8 {
        u8::from(choice::once_in(2))
    }

    fn deadline(&self) -> u64 {
        self.now().saturating_add(1)
    }

    fn brief_deadline(&self) -> u64 {
        self.now().saturating_add(u64::from(choice::once_in(2)))
    }

    fn wait(&self, site: &'static str, word: &Word, expected: u32, deadline: &u64) -> Result<(), Expired> {
        self.step(site);
        if self.returns_spuriously() {
            return Ok(());
        }
        let blind = self.is_blind(site);
        // As in a futex, nothing comes between the comparison and the entry into the queue: shuttle switches
        // before the load only.
        let slept = self.sleep(Some(*deadline), || {
            let sleeps = word.value.load(SeqCst) == expected || blind;
            if sleeps {
                lock(&word.sleepers).push(me());
            }
            sleeps
        });
        if slept == Slept::TooLong {
            lock(&word.sleepers).retain(|actor| *actor != me());
            return Err(Expired);
        }
        Ok(())
    }

    fn wake_all(&self, site: &'static str, word: &Word) {
        self.step(site);
        // The load is where other actors can come in between.
        let seen = word.value.load(SeqCst);
        match &self.breakage {
            Some(Breakage::Drop(dropped)) if dropped == site => (),
            Some(Breakage::Timid(timid)) if timid == site && seen & WAITER == 0 => (),
            _ => self.wake_sleepers(word),
        }
    }

    fn fail_point(&self, name: &'static str) -> Result<(), Killed> {
        if self.stops_at(name) { Err(Killed) } else { Ok(()) }
    }
}
