//! Waiting on a shared word: spinning, sleeping, and the clock that bounds both.

pub(crate) mod before_yield;
pub(crate) mod clock;
pub(crate) mod first_poll;
#[cfg(target_os = "linux")]
pub(crate) mod futex;
pub(crate) mod progress;
pub(crate) mod pthread;
pub(crate) mod spin;
pub(crate) mod threads;

/// The deadline of a wait has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedOut;
