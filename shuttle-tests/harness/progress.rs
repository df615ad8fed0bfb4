//! What actors wait for outside of the protocols: deaths, that others have finished, and the end.

use std::collections::BTreeSet;

use shuttle::sync::{Condvar, Mutex, MutexGuard};

/// How far an execution has come.
#[derive(Default)]
pub struct Progress {
    reached: Mutex<Reached>,
    changed: Condvar,
}

/// What has happened so far.
#[derive(Default)]
pub struct Reached {
    /// The ranks that have died, in order.
    pub dead: Vec<usize>,
    /// The actors that will do nothing more by themselves.
    pub finished: BTreeSet<usize>,
    /// Whether every wait outside of the protocols ends.
    pub over: bool,
}

impl Progress {
    /// Something has happened, or may have.
    pub fn update(&self, change: impl FnOnce(&mut Reached)) {
        change(&mut self.reached());
        self.changed.notify_all();
    }

    /// Waits until this holds.
    pub fn wait_until(&self, enough: impl Fn(&Reached) -> bool) -> MutexGuard<'_, Reached> {
        self.changed.wait_while(self.reached(), |reached| !enough(reached)).expect("no actor has panicked")
    }

    /// What has happened so far.
    pub fn reached(&self) -> MutexGuard<'_, Reached> {
        self.reached.lock().expect("no actor has panicked")
    }
}
