//! What must hold at the end of an execution.

use intranode::protocol::{Call, Cause, CauseKind, Failure};

use crate::harness::rank::{CallMade, Outcome};

/// Every call of every rank has the result that follows from what all ranks called: where any refused, the refusal of the
/// first; where they called different things, a mismatch; success otherwise.
pub(crate) fn follows_from_the_calls(outcomes: &[Outcome]) {
    let calls = outcomes.iter().map(|outcome| outcome.calls.len()).max().unwrap_or(0);
    for nth in 0..calls {
        let made: Vec<&CallMade> = outcomes.iter().filter_map(|outcome| outcome.calls.get(nth)).collect();
        assert!(
            made.len() == outcomes.len(),
            "wrong verdict: not all ranks have made call {nth}: {outcomes:?}"
        );
        let calls: Vec<Call> = made.iter().map(|made| made.call).collect();
        let refuser = calls.iter().position(|call| call.refused);
        for (rank, made) in made.iter().enumerate() {
            let expected = match refuser {
                Some(_) if made.refuses => Ok(()),
                Some(refuser) => Err(Failure::Refused(refuser)),
                None if calls.iter().all(|call| *call == calls[0]) => Ok(()),
                None => Err(Failure::Mismatch(calls.clone())),
            };
            let got = &made.verdict;
            assert!(
                *got == expected,
                "wrong verdict: call {nth} of rank {rank} brought {got:?} and not {expected:?}"
            );
        }
    }
}

/// All surviving ranks agree about every call: all Ok, with data that was right, or all the same cause, one of
/// `causes`. The first `surely` calls have to succeed.
pub(crate) fn agreement(
    surely: usize,
    causes: impl Fn(Cause) -> bool + Send + Sync,
) -> impl Fn(&[Outcome]) + Send + Sync {
    move |outcomes| {
        let calls = outcomes.iter().map(|outcome| outcome.calls.len()).max().unwrap_or(0);
        for nth in 0..calls {
            let mut agreed: Option<(usize, &Result<(), Failure>)> = None;
            for (rank, outcome) in outcomes.iter().enumerate() {
                let Some(CallMade { verdict, .. }) = outcome.calls.get(nth) else { continue };
                match verdict {
                    Err(Failure::Killed) => continue,
                    Ok(()) => {}
                    Err(Failure::Dead(Some(cause))) if nth >= surely && causes(*cause) => {}
                    other => panic!("wrong verdict: call {nth} of rank {rank} brought {other:?}"),
                }
                match agreed {
                    None => agreed = Some((rank, verdict)),
                    Some((_, first)) if first == verdict => {}
                    Some((other, first)) => {
                        panic!("disagreement about call {nth}: rank {other} {first:?}, rank {rank} {verdict:?}")
                    }
                }
            }
        }
        let mut late = outcomes.iter().filter_map(|outcome| outcome.late.as_ref());
        if let Some(first) = late.next() {
            assert!(late.all(|other| other == first), "disagreement about who was late: {outcomes:?}");
            assert!(!first.1.is_empty(), "a round failed for which no rank was late");
        }
    }
}

/// The cause is this kind and rank.
pub(crate) fn only(kind: CauseKind, rank: usize) -> impl Fn(Cause) -> bool + Send + Sync {
    move |cause| cause.kind == kind && cause.rank == rank
}
