//! Programs over symmetric memory that ask for less than they need. Mended, each is one of the litmus tests.

use intranode::protocol::symmetric::access::Signalling::Set;

use crate::harness::actor::At;
use crate::harness::known_bad::{KnownBad, Reason};
use crate::harness::one_sided::{OneSidedModel, Role};
use crate::harness::search::Search;
use crate::models::litmus::{FLAG, X, litmus};

const MINE: At = At(0, 0);

pub(crate) fn all() -> Vec<KnownBad> {
    vec![
        known_bad(
            "flag_put_without_a_fence",
            "A rank puts data and then a flag: who sees the flag may find old data.",
            [
                |rank| {
                    rank.put(X, &[1])?;
                    rank.put(FLAG, &[1])
                },
                |rank| {
                    rank.sees(rank.get(FLAG));
                    rank.sees(rank.get(X));
                    Ok(())
                },
            ],
            |seen| seen[1] != [1, 0],
        ),
        known_bad(
            "signal_before_the_data",
            "A rank signals, and puts the data behind the signal.",
            [
                |rank| {
                    rank.put_signal(X, &[], FLAG, Set)?;
                    rank.put(X, &[1])
                },
                |rank| {
                    rank.wait_until(FLAG, 1)?;
                    rank.sees(rank.get(X));
                    Ok(())
                },
            ],
            |seen| seen[1] == [1],
        ),
        known_bad(
            "fence_in_place_of_quiet",
            "Two ranks put, order that by a fence, and look at each other's: a fence orders writes, not a read behind a \
             write.",
            [
                |rank| {
                    rank.put(X, &[1])?;
                    rank.fence();
                    rank.sees(rank.get(MINE));
                    Ok(())
                },
                |rank| {
                    rank.put(MINE, &[1])?;
                    rank.fence();
                    rank.sees(rank.get(X));
                    Ok(())
                },
            ],
            |seen| seen[0] != [0] || seen[1] != [0],
        ),
    ]
}

fn known_bad(
    name: &'static str,
    mistake: &'static str,
    roles: [Role; 2],
    allowed: fn(&[Vec<u64>]) -> bool,
) -> KnownBad {
    let wrong: OneSidedModel = litmus(name, &roles, allowed);
    KnownBad {
        name,
        mistake,
        reason: Reason::Assertion("a forbidden outcome"),
        wrong: Search::from(wrong),
        mended: None,
    }
}
