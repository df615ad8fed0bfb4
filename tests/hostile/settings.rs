//! What the environment says.

use std::time::Duration;

/// No program takes longer than this, or it hangs. Its communicators' time-outs are seconds at most.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

const SEED: &str = "HOSTILE_SEED";
const SECONDS: &str = "HOSTILE_SECONDS";

/// How long to try random programs, all kinds of ranks together.
const USUAL_SECONDS: u64 = 48;

/// The seed of the one program to repeat, if there is one.
pub(crate) fn seed() -> Option<u64> {
    Some(std::env::var(SEED).ok()?.parse().expect("HOSTILE_SEED is a number"))
}

/// How long to try random programs of one kind, of which the whole has this many parts.
pub(crate) fn share(parts: u32, of: u32) -> Duration {
    let seconds = std::env::var(SECONDS).ok();
    let seconds = seconds.map_or(USUAL_SECONDS, |text| text.parse().expect("HOSTILE_SECONDS is a number"));
    Duration::from_secs(seconds) * parts / of
}

/// What a complaint that is known already has in its text.
pub(crate) fn allowed() -> Option<String> {
    std::env::var("HOSTILE_ALLOW").ok()
}
