//! Many ranks that use each other's memory, while nothing goes wrong, and while a rank dies anywhere: what was sent and
//! counted is there, nobody waits for ever, and all that are told of a death are told of the same. [`OneSidedScenario::play`]
//! checks that.

use libtest_mimic::Trial;

use crate::harness::deaths::{Sites, trials_of};
use crate::harness::one_sided::OneSidedScenario;

/// The fail points at which a rank can be stopped.
const FAIL_POINTS: [&str; 9] = [
    "written-unrung",
    "taken-unwoken",
    "put-unsignalled",
    "wait-marked",
    "queued-unlinked",
    "locked",
    "unlock-unlinked",
    "cause-written",
    "poisoned-unwoken",
];

/// All other places where a rank makes a step in symmetric memory.
const STEPS: [&str; 35] = [
    "store",
    "load",
    "swap",
    "compare-swap",
    "fetch",
    "put",
    "put-strided",
    "get",
    "get-strided",
    "get-fence",
    "put-signalled",
    "signal-fence",
    "signal-set",
    "signal-add",
    "fence",
    "quiet",
    "ring-fence",
    "ring",
    "ring-take",
    "ring-wake",
    "test",
    "poll",
    "wait-mark",
    "wait-fence",
    "wait-sleep",
    "lock-queue",
    "lock-behind",
    "lock-link",
    "lock-granted",
    "lock-try",
    "lock-leave",
    "lock-grant",
    "lock-next",
    "lock-unlink",
    "lock-ungrant",
];

pub fn trials() -> Vec<Trial> {
    trials_of::<OneSidedScenario>(&Sites {
        all: "use each other's memory",
        one: "a rank that uses another's memory",
        what: "symmetric memory",
        rounds: [4, 3],
        schedules: 640,
        fail_points: &FAIL_POINTS,
        steps: &STEPS,
        // Where a rank is late.
        others: &["lock-turn"],
    })
}
