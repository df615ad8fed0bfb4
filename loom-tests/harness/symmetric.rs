//! What the machines and the mutants do for symmetric memory.

use intranode::protocol::Ordering::{self, SeqCst};
use intranode::protocol::symmetric::{AtomicCell, Cell, Fetch, IntegerCell, SymmetricPlatform};
use loom::sync::atomic;
use loom::thread;

use crate::harness::machine::Machine;
use crate::harness::mutant::Simulated;
use crate::harness::sites::Weakening;
use crate::harness::trace::{self, Action};
use crate::harness::waiting::Waiting;

// SAFETY: the fences are loom's. loom takes accesses that are SeqCst for AcqRel, but it knows fences that are.
unsafe impl SymmetricPlatform for Machine {
    fn fence(&self, site: &'static str, order: Ordering) {
        atomic::fence(order);
        self.record(site, Action::Fence(order));
    }

    /// Where no rank sleeps there is no heavy fence, and so the light one promises nothing: it must not stand in for an
    /// ordering that is missing.
    fn fence_light(&self, site: &'static str) {
        if self.waiting != Waiting::Spinning {
            self.fence(site, SeqCst);
        }
    }

    fn fence_heavy(&self, site: &'static str) {
        self.fence(site, SeqCst);
    }

    fn poll<R>(&self, _: &'static str, mut poll: impl FnMut() -> Option<R>) -> Option<R> {
        match self.waiting {
            Waiting::Spinning => loop {
                if let Some(found) = poll() {
                    return Some(found);
                }
                thread::yield_now();
            },
            Waiting::Dozing | Waiting::Parking => poll(),
            Waiting::Blocking => unreachable!("models that block use no symmetric memory"),
        }
    }

    /// The deadline itself: no nap that ends in time hides a wake-up that is lost.
    fn nap(&self, deadline: &bool) -> bool {
        *deadline
    }

    fn has_passed(&self, _: &bool) -> bool {
        self.is_late("deadline")
    }

    fn load_cell<C: Cell>(&self, site: &'static str, cell: &C, order: Ordering) -> C::Value {
        trace::begin(self.thread, site);
        cell.load(order)
    }

    fn store_cell<C: Cell>(&self, site: &'static str, cell: &C, value: C::Value, order: Ordering) {
        trace::begin(self.thread, site);
        cell.store(value, order);
    }

    fn swap_cell<C: AtomicCell>(
        &self,
        site: &'static str,
        cell: &C,
        value: C::Value,
        order: Ordering,
    ) -> C::Value {
        trace::begin(self.thread, site);
        cell.swap(value, order)
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
        trace::begin(self.thread, site);
        cell.compare_exchange(current, new, success, failure)
    }

    fn fetch_cell<C: IntegerCell>(
        &self,
        site: &'static str,
        cell: &C,
        operation: Fetch,
        value: C::Value,
        order: Ordering,
    ) -> C::Value {
        trace::begin(self.thread, site);
        cell.fetch(operation, value, order)
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

// SAFETY: without a mutation everything is forwarded. With one this is no platform, on purpose.
unsafe impl SymmetricPlatform for Simulated {
    fn fence(&self, site: &'static str, order: Ordering) {
        if self.weakening(site) != Some(Weakening::Skipped) {
            self.machine().fence(site, self.order(site, order));
        }
    }

    fn fence_light(&self, site: &'static str) {
        if self.weakening(site) != Some(Weakening::Skipped) {
            self.machine().fence_light(site);
        }
    }

    fn fence_heavy(&self, site: &'static str) {
        if self.weakening(site) != Some(Weakening::Skipped) {
            self.machine().fence_heavy(site);
        }
    }

    fn poll<R>(&self, site: &'static str, poll: impl FnMut() -> Option<R>) -> Option<R> {
        self.machine().poll(site, poll)
    }

    fn nap(&self, deadline: &Self::Deadline) -> Self::Deadline {
        self.machine().nap(deadline)
    }

    fn has_passed(&self, deadline: &Self::Deadline) -> bool {
        self.machine().has_passed(deadline)
    }

    fn load_cell<C: Cell>(&self, site: &'static str, cell: &C, order: Ordering) -> C::Value {
        self.machine().load_cell(site, cell, self.order(site, order))
    }

    fn store_cell<C: Cell>(&self, site: &'static str, cell: &C, value: C::Value, order: Ordering) {
        self.machine().store_cell(site, cell, value, self.order(site, order));
    }

    fn swap_cell<C: AtomicCell>(
        &self,
        site: &'static str,
        cell: &C,
        value: C::Value,
        order: Ordering,
    ) -> C::Value {
        self.machine().swap_cell(site, cell, value, self.order(site, order))
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
        let (success, failure) = self.orders(site, success, failure);
        self.exchange(site, current, |current| {
            self.machine().exchange_cell(site, cell, current, new, success, failure)
        })
    }

    fn fetch_cell<C: IntegerCell>(
        &self,
        site: &'static str,
        cell: &C,
        operation: Fetch,
        value: C::Value,
        order: Ordering,
    ) -> C::Value {
        self.machine().fetch_cell(site, cell, operation, value, self.order(site, order))
    }

    fn put_cells<C: Cell>(&self, site: &'static str, cells: &[C], values: &[C::Value], order: Ordering) {
        self.machine().put_cells(site, cells, values, self.order(site, order));
    }

    fn get_cells<C: Cell>(&self, site: &'static str, cells: &[C], values: &mut [C::Value], order: Ordering) {
        self.machine().get_cells(site, cells, values, self.order(site, order));
    }
}
