//! Threads of one rank, where a call of several transfers is several calls.

use libtest_mimic::{Failed, Trial};

use super::Reason;
use crate::machine::Waiting::Blocking;
use crate::models::threads::takes_what_the_other_gives;
use crate::report;

pub(super) const NAME: &str = "call_lock_between_transfers";
const STORY: &str = "A rank lets go of its lock between two transfers that look alike: another thread's call takes the \
                     place of the second, its rank tries again, and its first transfer meets the peer's second.";
const REASON: Reason = Reason::Assertion("two owners");

pub(super) fn trial() -> Trial {
    Trial::test(format!("known_bad::{NAME}"), reject)
}

fn reject() -> Result<(), Failed> {
    // Mended, it is one of the models.
    let model = takes_what_the_other_gives(Blocking, false).bound(2).lock_of_each_transfer();
    let Err(rejected) = model.explore(None) else { return Err("nothing found".into()) };
    if !rejected.message.contains(REASON.text()) {
        return Err(format!("rejected for another reason: {}\n{}", rejected.message, rejected.trace).into());
    }
    report::add_rejected(NAME, STORY, REASON, rejected);
    Ok(())
}
