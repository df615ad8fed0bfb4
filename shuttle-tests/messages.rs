//! Many ranks that send each other messages of all kinds, while nothing goes wrong, while some leave, and while a rank dies
//! anywhere: what was published is received, once, whole and in order, and nobody waits for ever.
//! [`PostScenario::play`] checks that.

use libtest_mimic::Trial;

use crate::harness::deaths::{Sites, trials_of};
use crate::harness::post::PostScenario;

/// The fail points at which a rank can be stopped.
const FAIL_POINTS: [&str; 14] = [
    "buffers-reserved",
    "buffers-read",
    "message-written",
    "slot-written",
    "line-written",
    "cell-copied",
    "slot-copied",
    "offer-pulled",
    "message-marked",
    "closed-unrung",
    "written-unrung",
    "taken-unwoken",
    "cause-written",
    "poisoned-unwoken",
];

/// All other places where a rank makes a step with messages.
const STEPS: [&str; 49] = [
    "held",
    "reserve",
    "release",
    "lease-free",
    "lease-open",
    "lease-settled",
    "withdraw",
    "lease-offered",
    "confirm",
    "settle",
    "settle-withdrawn",
    "want",
    "want-left",
    "want-over",
    "wanted",
    "credit",
    "publish-cell",
    "publish-slot",
    "blank-slot",
    "close-slot",
    "publish-line",
    "close-line",
    "has-arrived",
    "arrived",
    "arrived-behind",
    "arrived-line",
    "has-arrived-line",
    "take-cell",
    "message-poll",
    "message-mark",
    "message-fence",
    "message-sleep",
    "message-ended",
    "close",
    "closed",
    "ring-fence",
    "ring",
    "ring-take",
    "ring-wake",
    "cell-write",
    "cell-read",
    "slot-write",
    "slot-read",
    "line-write",
    "line-read",
    "buffer-write",
    "buffer-read",
    "own-write",
    "own-read",
];

pub fn trials() -> Vec<Trial> {
    trials_of::<PostScenario>(&Sites {
        all: "send messages",
        one: "a rank that sends messages",
        what: "messages",
        rounds: [3, 2],
        schedules: 320,
        fail_points: &FAIL_POINTS,
        steps: &STEPS,
        others: &[],
    })
}
