//! The check of the order: that no message or receive has overtaken another one, as far as it is certain which one was first.

use anyhow::ensure;

use super::notes::{End, Noted, Notes};
use super::plan::{Plan, Planned};
use crate::scenario::Outcome;

/// That no message or receive has overtaken another one.
pub(super) fn check(plan: &Plan, notes: &Notes<'_>) -> Outcome {
    let receives = &notes.receives;
    let message = |number: usize| &plan.messages[number];
    // Those that were taken back may have had a receive, when others came.
    let taken_back: Vec<&Planned> = notes.missing().map(message).collect();
    let may_have_lost = |receive: &Noted| taken_back.iter().any(|message| receive.asked.matches(message));
    for (first, earlier) in receives.iter().enumerate() {
        if may_have_lost(earlier) {
            // Also those behind it then had others.
            break;
        }
        // Those that were dropped, or had no room, have given theirs back to those behind them.
        let gave_back = |other: &Noted| {
            matches!(other.end, End::Dropped | End::Truncated) && (other.at > earlier.at || plan.refused)
        };
        let were_given_back = receives.iter().any(gave_back);
        for later in &receives[first + 1..] {
            let End::Got(number) = later.end else { continue };
            let overtakes = match earlier.end {
                End::Got(other) if message(other).from == message(number).from => {
                    other > number && !were_given_back
                }
                End::Cancelled => later.at < earlier.at,
                _ => false,
            };
            ensure!(
                !overtakes || !earlier.asked.matches(message(number)),
                "{earlier:?} was started before {later:?}, of {:?}",
                message(number)
            );
        }
    }
    Ok(())
}
