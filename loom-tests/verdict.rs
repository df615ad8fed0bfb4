//! What must hold at the end of an execution.

use intranode::protocol::{Cause, CauseKind, Failure};

use crate::model::Actor;
use crate::program::Step;
use crate::world::Outcome;

/// Every call of every rank has the result that follows from the scripts.
pub(crate) fn exact(actors: &[Actor], outcomes: &[Outcome]) {
    for (rank, (actor, outcome)) in actors.iter().zip(outcomes).enumerate() {
        for nth in 0..actor.script.len() {
            let expected = predicted(actors, nth, rank);
            let got = outcome.calls.get(nth);
            assert!(
                got == Some(&expected),
                "wrong verdict: call {nth} of rank {rank} brought {got:?} and not {expected:?}"
            );
        }
    }
}

/// What the `nth` call must bring on a rank when nothing goes wrong with any of them.
fn predicted(actors: &[Actor], nth: usize, rank: usize) -> Result<(), Failure> {
    let steps: Vec<Step> = actors.iter().map(|actor| actor.script[nth]).collect();
    if let Some(refuser) = steps.iter().position(|step| *step == Step::Unprotected) {
        return Err(Failure::Refused(refuser));
    }
    let refuser = steps.iter().position(|step| *step == Step::Refuse);
    match refuser {
        Some(_) if steps[rank] == Step::Refuse => Ok(()),
        Some(refuser) => Err(Failure::Refused(refuser)),
        None if steps.iter().all(|step| *step == steps[0]) => Ok(()),
        None => Err(Failure::Mismatch(steps.iter().map(|step| step.call()).collect())),
    }
}

/// All surviving ranks agree about every call: all Ok, with data that was right, or all the same cause, one of
/// `causes`. The first `surely` calls have to succeed.
pub(crate) fn agreement(
    surely: usize,
    causes: impl Fn(Cause) -> bool + Send + Sync,
) -> impl Fn(&[Actor], &[Outcome]) + Send + Sync {
    move |actors, outcomes| {
        let ranks: Vec<_> = (0..actors.len()).filter(|actor| actors[*actor].rank.is_some()).collect();
        let calls = ranks.iter().map(|rank| actors[*rank].script.len()).max().unwrap_or(0);
        for nth in 0..calls {
            let mut agreed: Option<(usize, &Result<(), Failure>)> = None;
            for &rank in &ranks {
                let Some(result) = outcomes[rank].calls.get(nth) else { continue };
                if !actors[rank].script[nth].is_collective() || *result == Err(Failure::Killed) {
                    continue;
                }
                match result {
                    Ok(()) => {}
                    Err(Failure::Dead(Some(cause))) if nth >= surely && causes(*cause) => {}
                    other => panic!("wrong verdict: call {nth} of rank {rank} brought {other:?}"),
                }
                match agreed {
                    None => agreed = Some((rank, result)),
                    Some((_, first)) if first == result => {}
                    Some((other, first)) => {
                        panic!("disagreement about call {nth}: rank {other} {first:?}, rank {rank} {result:?}")
                    }
                }
            }
        }
        let mut late = outcomes.iter().filter_map(|outcome| outcome.late.as_ref());
        if let Some(first) = late.next() {
            assert!(late.all(|other| other == first), "disagreement about who was late: {outcomes:?}");
            assert!(!first.1.is_empty(), "a round failed for which nobody was late");
        }
    }
}

/// The cause is this kind and rank.
pub(crate) fn only(kind: CauseKind, rank: usize) -> impl Fn(Cause) -> bool + Send + Sync {
    move |cause| cause.kind == kind && cause.rank == rank
}

/// Of all who claimed the rank, one has it.
pub(crate) fn claimed_once(_: &[Actor], outcomes: &[Outcome]) {
    let winners = outcomes.iter().filter(|outcome| outcome.calls == [Ok(())]).count();
    assert!(winners == 1, "{winners} threads have claimed one rank");
}
