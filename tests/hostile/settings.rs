//! Settings from the environment.

use std::time::Duration;

/// The time limit of a program. Its communicators' time-outs are below a second.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

const SEED: &str = "HOSTILE_SEED";
const SECONDS: &str = "HOSTILE_SECONDS";

/// The default time for random programs, for all kinds of ranks together.
const USUAL_SECONDS: u64 = 48;

/// The seed of the program to repeat, if it is set.
pub(crate) fn seed() -> Option<u64> {
    Some(std::env::var(SEED).ok()?.parse().expect("HOSTILE_SEED is a number"))
}

/// The share of the time for one kind of ranks: `parts` of `of`.
pub(crate) fn share(parts: u32, of: u32) -> Duration {
    let seconds = std::env::var(SECONDS).ok();
    let seconds = seconds.map_or(USUAL_SECONDS, |text| text.parse().expect("HOSTILE_SECONDS is a number"));
    Duration::from_secs(seconds) * parts / of
}

/// The text of violations to ignore.
pub(crate) fn allowed_violation() -> Option<String> {
    std::env::var("HOSTILE_ALLOW").ok()
}
