//! Cells that carry happens-before, as the words of calls do: bytes that are published with them are race-checked.

use std::sync::{Arc, Mutex};

use intranode::protocol::Ordering;
use intranode::protocol::symmetric::{AtomicCell, Cell, Fetch, IntegerCell};
use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::harness::clock::{Clock, lock};
use crate::harness::simulation::Simulation;
use crate::harness::word::{acquires, releases};

/// An element of 64 bits.
pub struct Ordered64 {
    value: AtomicU64,
    simulation: Arc<Simulation>,
    released: Mutex<Clock>,
}

impl Ordered64 {
    pub fn new(simulation: &Arc<Simulation>) -> Self {
        let released = Mutex::new(Clock::new(simulation.actors()));
        Ordered64 { value: AtomicU64::new(0), simulation: simulation.clone(), released }
    }

    fn after_load(&self, order: Ordering) {
        if acquires(order) {
            self.simulation.with_clock(|_, clock| clock.join(&lock(&self.released)));
        }
    }

    fn after_update(&self, order: Ordering) {
        self.after_load(order);
        if releases(order) {
            self.simulation.with_clock(|actor, clock| {
                lock(&self.released).join(clock);
                clock.advance(actor);
            });
        }
    }
}

// SAFETY: shuttle's atomics, every operation on them sequentially consistent.
unsafe impl Cell for Ordered64 {
    type Value = u64;

    fn load(&self, order: Ordering) -> u64 {
        let seen = self.value.load(SeqCst);
        self.after_load(order);
        seen
    }

    /// What an earlier store has released is not continued.
    fn store(&self, value: u64, order: Ordering) {
        self.value.store(value, SeqCst);
        *lock(&self.released) = Clock::new(self.simulation.actors());
        if releases(order) {
            self.after_update(Ordering::Release);
        }
    }
}

// SAFETY: as above.
unsafe impl AtomicCell for Ordered64 {
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        let before = self.value.swap(value, SeqCst);
        self.after_update(order);
        before
    }

    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let result = self.value.compare_exchange(current, new, SeqCst, SeqCst);
        match result {
            Ok(_) => self.after_update(success),
            Err(_) => self.after_load(failure),
        }
        result
    }
}

// SAFETY: as above.
unsafe impl IntegerCell for Ordered64 {
    fn fetch(&self, operation: Fetch, value: u64, order: Ordering) -> u64 {
        let before = match operation {
            Fetch::Add => self.value.fetch_add(value, SeqCst),
            Fetch::And => self.value.fetch_and(value, SeqCst),
            Fetch::Or => self.value.fetch_or(value, SeqCst),
            Fetch::Xor => self.value.fetch_xor(value, SeqCst),
            Fetch::Min => self.value.fetch_min(value, SeqCst),
            Fetch::Max => self.value.fetch_max(value, SeqCst),
        };
        self.after_update(order);
        before
    }
}
