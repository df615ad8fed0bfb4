//! Cells of symmetric memory over shuttle's atomics, and what the machine does with them. Fences do nothing: every access is
//! sequentially consistent here.

use intranode::protocol::Ordering;
use intranode::protocol::symmetric::{AtomicCell, Cell, Fetch, IntegerCell, SymmetricPlatform};
use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::harness::breakage::Breakage;
use crate::harness::simulation::Simulation;

/// An element of 64 bits.
#[derive(Default)]
pub struct Cell64(pub AtomicU64);

/// A cell of a lock.
#[derive(Default)]
pub struct Cell32(pub AtomicU32);

macro_rules! cells {
    ($cell:ty, $value:ty) => {
        // SAFETY: shuttle's atomics, every operation on them sequentially consistent.
        unsafe impl Cell for $cell {
            type Value = $value;

            fn load(&self, _: Ordering) -> $value {
                self.0.load(SeqCst)
            }

            fn store(&self, value: $value, _: Ordering) {
                self.0.store(value, SeqCst);
            }
        }

        // SAFETY: as above.
        unsafe impl AtomicCell for $cell {
            fn swap(&self, value: $value, _: Ordering) -> $value {
                self.0.swap(value, SeqCst)
            }

            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                _: Ordering,
                _: Ordering,
            ) -> Result<$value, $value> {
                self.0.compare_exchange(current, new, SeqCst, SeqCst)
            }
        }

        // SAFETY: as above.
        unsafe impl IntegerCell for $cell {
            fn fetch(&self, operation: Fetch, value: $value, _: Ordering) -> $value {
                match operation {
                    Fetch::Add => self.0.fetch_add(value, SeqCst),
                    Fetch::And => self.0.fetch_and(value, SeqCst),
                    Fetch::Or => self.0.fetch_or(value, SeqCst),
                    Fetch::Xor => self.0.fetch_xor(value, SeqCst),
                    Fetch::Min => self.0.fetch_min(value, SeqCst),
                    Fetch::Max => self.0.fetch_max(value, SeqCst),
                }
            }
        }
    };
}

cells!(Cell64, u64);
cells!(Cell32, u32);

// SAFETY: where every access is sequentially consistent, each fence is there already.
unsafe impl SymmetricPlatform for Simulation {
    fn fence(&self, site: &'static str, _: Ordering) {
        self.step(site);
    }

    fn fence_light(&self, site: &'static str) {
        self.step(site);
    }

    fn fence_heavy(&self, site: &'static str) {
        self.step(site);
    }

    fn poll<R>(&self, site: &'static str, mut poll: impl FnMut() -> Option<R>) -> Option<R> {
        self.step(site);
        (0..=self.polls).find_map(|_| poll())
    }

    /// The deadline itself: no nap that ends in time hides a wake-up that is lost.
    fn nap(&self, deadline: &u64) -> u64 {
        *deadline
    }

    fn has_passed(&self, deadline: &u64) -> bool {
        self.now() >= *deadline
    }

    fn load_cell<C: Cell>(&self, site: &'static str, cell: &C, order: Ordering) -> C::Value {
        self.step(site);
        cell.load(self.order(site, order))
    }

    fn store_cell<C: Cell>(&self, site: &'static str, cell: &C, value: C::Value, order: Ordering) {
        self.step(site);
        cell.store(value, self.order(site, order));
    }

    fn swap_cell<C: AtomicCell>(
        &self,
        site: &'static str,
        cell: &C,
        value: C::Value,
        order: Ordering,
    ) -> C::Value {
        self.step(site);
        cell.swap(value, self.order(site, order))
    }

    fn exchange_cell<C: AtomicCell>(
        &self,
        site: &'static str,
        cell: &C,
        current: C::Value,
        new: C::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<C::Value, C::Value> {
        self.step(site);
        let (success, failure) = (self.order(site, success), self.order(site, failure));
        match &self.breakage {
            Some(Breakage::Swap(swapped)) if swapped == site => Ok(cell.swap(new, success)),
            _ => cell.compare_exchange(current, new, success, failure),
        }
    }

    fn fetch_cell<C: IntegerCell>(
        &self,
        site: &'static str,
        cell: &C,
        operation: Fetch,
        value: C::Value,
        order: Ordering,
    ) -> C::Value {
        self.step(site);
        cell.fetch(operation, value, self.order(site, order))
    }

    fn put_cells<C: Cell>(&self, site: &'static str, cells: &[C], values: &[C::Value], order: Ordering) {
        for (cell, value) in cells.iter().zip(values) {
            self.store_cell(site, cell, *value, order);
        }
    }

    fn get_cells<C: Cell>(&self, site: &'static str, cells: &[C], values: &mut [C::Value], order: Ordering) {
        for (cell, value) in cells.iter().zip(values) {
            *value = self.load_cell(site, cell, order);
        }
    }
}
