//! Cells of symmetric memory over loom's atomics.

use std::cell::RefCell;

use intranode::protocol::Ordering;
use intranode::protocol::symmetric::{AtomicCell, Cell, Fetch, IntegerCell};
use loom::sync::atomic::{AtomicU32, AtomicU64};

use crate::harness::trace::{self, Action, Label};

/// A modelled cell of a rank's. Which step accesses it the machine tells by [`trace::begin`].
pub(crate) struct SharedCell<A, V> {
    modelled: A,
    label: Label,
    /// What was swapped or exchanged into it, but for zeros, in order.
    pub(crate) swapped_in: RefCell<Vec<V>>,
}

/// An element of 64 bits.
pub(crate) type Cell64 = SharedCell<AtomicU64, u64>;

/// A cell of a lock.
pub(crate) type Cell32 = SharedCell<AtomicU32, u32>;

macro_rules! cells {
    ($atomic:ty, $value:ty) => {
        impl SharedCell<$atomic, $value> {
            /// One that holds 0.
            pub(crate) fn new(label: Label) -> Self {
                Self::holding(label, 0)
            }

            pub(crate) fn holding(label: Label, value: $value) -> Self {
                SharedCell { modelled: <$atomic>::new(value), label, swapped_in: RefCell::default() }
            }

            fn comes_in(&self, value: $value) {
                if value != 0 {
                    self.swapped_in.borrow_mut().push(value);
                }
            }
        }

        // SAFETY: loom's atomics have the semantics of Rust's, and orderings are forwarded as they come.
        unsafe impl Cell for SharedCell<$atomic, $value> {
            type Value = $value;

            fn load(&self, order: Ordering) -> $value {
                let (thread, site) = trace::now();
                let seen = self.modelled.load(order);
                trace::record(thread, site, Action::LoadCell(self.label, seen.into()));
                seen
            }

            fn store(&self, value: $value, order: Ordering) {
                let (thread, site) = trace::now();
                self.modelled.store(value, order);
                trace::record(thread, site, Action::StoreCell(self.label, value.into()));
            }
        }

        // SAFETY: as above.
        unsafe impl AtomicCell for SharedCell<$atomic, $value> {
            fn swap(&self, value: $value, order: Ordering) -> $value {
                let (thread, site) = trace::now();
                let before = self.modelled.swap(value, order);
                trace::record(thread, site, Action::ModifyCell(self.label, before.into(), value.into()));
                self.comes_in(value);
                before
            }

            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let (thread, site) = trace::now();
                let result = self.modelled.compare_exchange(current, new, success, failure);
                if result.is_ok() {
                    self.comes_in(new);
                }
                let shown = result.map(u64::from).map_err(u64::from);
                trace::record(
                    thread,
                    site,
                    Action::ExchangeCell(self.label, current.into(), new.into(), shown),
                );
                result
            }
        }

        // SAFETY: as above.
        unsafe impl IntegerCell for SharedCell<$atomic, $value> {
            fn fetch(&self, operation: Fetch, value: $value, order: Ordering) -> $value {
                let (thread, site) = trace::now();
                let (before, after) = match operation {
                    Fetch::Add => {
                        let before = self.modelled.fetch_add(value, order);
                        (before, before.wrapping_add(value))
                    }
                    Fetch::Or => {
                        let before = self.modelled.fetch_or(value, order);
                        (before, before | value)
                    }
                    Fetch::And => {
                        let before = self.modelled.fetch_and(value, order);
                        (before, before & value)
                    }
                    other => unreachable!("{other:?}: no model uses it"),
                };
                trace::record(thread, site, Action::ModifyCell(self.label, before.into(), after.into()));
                before
            }
        }
    };
}

cells!(AtomicU64, u64);
cells!(AtomicU32, u32);
