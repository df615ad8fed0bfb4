//! Offers: a message whose bytes stay in the sender's memory until they are pulled, wanted in a buffer, or withdrawn.

use intranode::protocol::CauseKind::Died;
use intranode::protocol::{Cause, Failure};

use super::messages::{pair, sees};
use crate::harness::correspondent::Correspondent;
use crate::harness::machine::Fate;
use crate::harness::post::PostModel;
use crate::harness::waiting::Waiting::{self, Dozing, Parking, Spinning};

/// An offer: the sender's memory is its own again, and may be overwritten, when the receiver has pulled.
fn offer(waiting: Waiting) -> PostModel {
    let offers = |rank: &Correspondent<'_>| {
        rank.writes_own(1);
        rank.offers(1)?;
        rank.awaits_settled(1)?;
        rank.writes_own(2);
        Ok(())
    };
    let pulls = |rank: &Correspondent<'_>| {
        rank.takes_offer(0)?;
        rank.pulls(0)
    };
    pair("message_offer", waiting, offers, pulls).check(sees(&[1]))
}

/// An offer that the receiver cannot pull: it wants the bytes in a buffer.
fn wanted(waiting: Waiting) -> PostModel {
    let offers = |rank: &Correspondent<'_>| {
        rank.offers(1)?;
        rank.sends_wanted(1, 1)?;
        rank.awaits_settled(1)
    };
    let wants = |rank: &Correspondent<'_>| {
        rank.takes_offer(0)?;
        rank.wants(0)
    };
    pair("message_wanted", waiting, offers, wants).check(sees(&[1]))
}

/// What was wanted of an offer is not wanted of a later one with its lease, whether it was pulled or withdrawn.
fn wanted_before(waiting: Waiting) -> PostModel {
    let offers = |rank: &Correspondent<'_>| {
        rank.offers(1)?;
        rank.withdraws(1);
        rank.offers_once_more(1)
    };
    let wants = |rank: &Correspondent<'_>| {
        rank.takes_offer(0)?;
        rank.wants_and_settles(0)
    };
    pair("message_wanted_before", waiting, offers, wants)
        .check(|seen| assert!(seen.iter().all(|seen| seen.end.is_ok()), "wrong verdict: {seen:?}"))
}

/// The sender withdraws its offer, and changes its memory. Either that was in time, and the receiver has no message; or the
/// receiver has it as it was offered, and the sender knows.
fn withdrawn(waiting: Waiting) -> PostModel {
    let offers = |rank: &Correspondent<'_>| {
        rank.changes(1);
        rank.offers(1)?;
        let withdrawn = rank.withdraws(1);
        assert!(withdrawn || rank.knows_pulled(1), "stale data: the sender is not told that the copy is made");
        rank.changes(2);
        Ok(())
    };
    let pulls = |rank: &Correspondent<'_>| {
        rank.takes_offer(0)?;
        rank.pulls_changing(0)
    };
    pair("message_withdrawn", waiting, offers, pulls).check(|seen| {
        assert!(seen.iter().all(|seen| seen.end.is_ok()), "wrong verdict: {seen:?}");
        let values = [&seen[0].values[..], &seen[1].values[..]];
        assert!(values == [&[1][..], &[0]] || values == [&[0][..], &[1, 1]], "disagreement: {seen:?}");
    })
}

/// The sender withdraws its offer, and changes its memory. The receiver reads twice under one lease: each time it knows whether it has what
/// was offered, and not again once it was withdrawn.
fn stays_open(waiting: Waiting) -> PostModel {
    let offers = |rank: &Correspondent<'_>| {
        rank.changes(1);
        rank.offers(1)?;
        assert!(rank.withdraws(1), "wrong verdict: nobody has settled it");
        rank.changes(2);
        Ok(())
    };
    let reads = |rank: &Correspondent<'_>| {
        rank.takes_offer(0)?;
        rank.reads_changing(0);
        rank.reads_changing(0);
        Ok(())
    };
    pair("message_offer_stays_open", waiting, offers, reads).check(|seen| {
        assert!(seen.iter().all(|seen| seen.end.is_ok()), "wrong verdict: {seen:?}");
        let possible = [&[0, 0][..], &[1, 1, 0], &[1, 1, 1, 1]];
        assert!(possible.contains(&&seen[1].values[..]), "disagreement: {seen:?}");
    })
}

/// The receiver has read, and confirmed it, before the sender withdraws: then nobody reads what the sender changes.
fn confirmed(waiting: Waiting) -> PostModel {
    let offers = |rank: &Correspondent<'_>| {
        rank.writes_own(1);
        rank.offers(1)?;
        // That says nothing about memory.
        if rank.knows_pulled(1) {
            rank.withdraws(1);
            rank.writes_own(2);
        }
        Ok(())
    };
    let reads = |rank: &Correspondent<'_>| {
        rank.takes_offer(0)?;
        rank.reads(0);
        Ok(())
    };
    pair("message_offer_confirmed", waiting, offers, reads).check(|seen| {
        assert!(seen[1].values == [1], "wrong data: {seen:?}");
    })
}

/// The receiver dies when it has pulled, and not said so.
fn death_of_puller(waiting: Waiting) -> PostModel {
    let offers = |rank: &Correspondent<'_>| {
        rank.offers(1)?;
        rank.awaits_settled(1)
    };
    let pulls = |rank: &Correspondent<'_>| {
        rank.takes_offer(0)?;
        rank.pulls(0)
    };
    pair("message_death_at_offer-pulled", waiting, offers, pulls)
        .fate(1, Fate::dies_at("offer-pulled", 1))
        .check(|seen| {
            let cause = Cause { kind: Died, rank: 1, detail: 0 };
            assert!(seen[0].end == Err(Failure::Dead(Some(cause))), "wrong verdict: {seen:?}");
        })
}

pub(crate) fn models() -> Vec<PostModel> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Parking] {
        models.push(offer(waiting).bound_in(Parking, 2));
        models.extend(
            [wanted, wanted_before].map(|model| model(waiting).bound_in(Parking, 2).bound_in(Dozing, 3)),
        );
        models.extend([withdrawn(waiting), stays_open(waiting), confirmed(waiting)]);
    }
    models.extend([Dozing, Parking].map(|waiting| death_of_puller(waiting).bound_in(Parking, 2)));
    models
}
