//! Litmus tests of symmetric memory: causality through other ranks. What a rank has found is there for the rank that finds what that
//! rank has written since, by whatever operations.

use intranode::protocol::symmetric::access::Signalling::{Add, Set};

use super::litmus::{FAR, FLAG, X, Y, litmus};
use crate::harness::actor::At;
use crate::harness::one_sided::OneSidedModel;

/// Causality goes through a third rank: what it has loaded is seen by the rank that loads what it has stored since.
fn chain_of_three() -> OneSidedModel {
    litmus(
        "chain_of_three",
        &[
            |rank| rank.store(X, 1),
            |rank| if rank.load(X) == 1 { rank.store(FAR, 1) } else { Ok(()) },
            |rank| {
                rank.sees(rank.load(FAR));
                rank.sees(rank.get(X));
                Ok(())
            },
        ],
        |seen| seen[2] != [1, 0],
    )
}

/// The same by signals: data that a rank has been signalled for are there for whom it signals.
fn chain_of_signals() -> OneSidedModel {
    const ON: At = At(2, 1);
    litmus(
        "chain_of_signals",
        &[
            |rank| rank.put_signal(X, &[1], FLAG, Set),
            |rank| if rank.test(FLAG) == 1 { rank.put_signal(ON, &[1], FAR, Add) } else { Ok(()) },
            |rank| {
                rank.sees(rank.test(FAR));
                rank.sees(rank.get(X));
                rank.sees(rank.get(ON));
                Ok(())
            },
        ],
        |seen| seen[2][0] == 0 || seen[2] == [1, 1, 1],
    )
}

/// The same through a cell to which two ranks add: each has what the one before it has put, and a third has what both
/// have.
fn chain_through_fetch_add() -> OneSidedModel {
    litmus(
        "chain_through_fetch_add",
        &[
            |rank| {
                rank.put(X, &[1])?;
                rank.fetch_add(FAR, 1).map(drop)
            },
            |rank| {
                rank.put(Y, &[1])?;
                rank.sees(rank.fetch_add(FAR, 1)?);
                rank.sees(rank.get(X));
                Ok(())
            },
            |rank| {
                rank.sees(rank.load(FAR));
                rank.sees(rank.get(X));
                rank.sees(rank.get(Y));
                Ok(())
            },
        ],
        |seen| seen[1] != [1, 0] && (seen[2][0] != 2 || seen[2] == [2, 1, 1]) && seen[2] != [1, 0, 0],
    )
}

/// The same by swaps.
fn chain_through_swap() -> OneSidedModel {
    litmus(
        "chain_through_swap",
        &[
            |rank| {
                rank.put(X, &[1])?;
                rank.swap(FLAG, 1).map(drop)
            },
            |rank| {
                rank.sees(rank.swap(FLAG, 2)?);
                rank.sees(rank.get(X));
                Ok(())
            },
        ],
        |seen| seen[1] != [1, 0],
    )
}

/// The same by compare-and-swap, also where that fails.
fn chain_through_compare_swap() -> OneSidedModel {
    litmus(
        "chain_through_compare_swap",
        &[
            |rank| {
                rank.put(X, &[1])?;
                rank.compare_swap(FLAG, 0, 1).map(drop)
            },
            |rank| {
                rank.sees(rank.compare_swap(FLAG, 1, 2)?.unwrap_or_else(|seen| seen));
                rank.sees(rank.get(X));
                Ok(())
            },
        ],
        |seen| seen[1] != [1, 0],
    )
}

/// The same where it does not find what it expects.
fn chain_through_failed_compare_swap() -> OneSidedModel {
    litmus(
        "chain_through_failed_compare_swap",
        &[
            |rank| {
                rank.put(X, &[1])?;
                rank.store(FLAG, 1)
            },
            |rank| {
                rank.sees(rank.compare_swap(FLAG, 7, 8)?.expect_err("nobody stores a 7"));
                rank.sees(rank.get(X));
                Ok(())
            },
        ],
        |seen| seen[1] != [1, 0],
    )
}

pub(crate) fn models() -> Vec<OneSidedModel> {
    vec![
        chain_of_three(),
        chain_of_signals(),
        chain_through_fetch_add(),
        chain_through_swap(),
        chain_through_compare_swap(),
        chain_through_failed_compare_swap(),
    ]
}
