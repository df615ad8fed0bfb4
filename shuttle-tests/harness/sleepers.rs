//! Where actors sleep until they are woken, or until time has passed.

use shuttle::sync::{Condvar, Mutex, MutexGuard};

/// One for each actor.
#[derive(Default)]
pub struct Sleeper {
    woken: Mutex<bool>,
    signal: Condvar,
}

/// How a sleep has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    NotAtAll,
    UntilWoken,
    TooLong,
}

impl Sleeper {
    /// Sleeps until woken, or until `too_long` holds. The sleeper can be woken before `goes_to_sleep` decides whether to
    /// sleep, so that no wake-up in between is lost.
    pub fn sleep(&self, too_long: impl Fn() -> bool, goes_to_sleep: impl FnOnce() -> bool) -> Slept {
        let mut woken = self.woken();
        *woken = false;
        if !goes_to_sleep() {
            return Slept::NotAtAll;
        }
        while !*woken {
            if too_long() {
                return Slept::TooLong;
            }
            woken = self.signal.wait(woken).expect("no actor has panicked");
        }
        Slept::UntilWoken
    }

    /// Ends the sleep.
    pub fn wake(&self) {
        *self.woken() = true;
        self.signal.notify_all();
    }

    /// Lets it check whether it is too long.
    pub fn notify(&self) {
        drop(self.woken());
        self.signal.notify_all();
    }

    fn woken(&self) -> MutexGuard<'_, bool> {
        self.woken.lock().expect("no actor has panicked")
    }
}
