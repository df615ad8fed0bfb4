//! Endpoints: none sleeps though something has come for it, whichever of its connections it comes by; what was sent before a
//! connection ended is received; and what was revoked is not taken for what was shared.
//!
//! No sleep ends by itself, so a wake-up that is lost is a deadlock.

use intranode::protocol::Killed;

use crate::harness::machine::Fate;
use crate::harness::stranger::{Stranger, StrangerModel};

fn receives_one(own: &mut Stranger<'_>) -> Result<(), Killed> {
    own.receives()
}

fn receives_two(own: &mut Stranger<'_>) -> Result<(), Killed> {
    own.receives()?;
    own.receives()
}

fn sends_one(own: &mut Stranger<'_>) -> Result<(), Killed> {
    own.sends(0, 1)
}

fn sends_two(own: &mut Stranger<'_>) -> Result<(), Killed> {
    own.sends(0, 1)?;
    own.sends(0, 2)
}

/// Endpoint 0 has seen this.
fn sees(expected: &'static [u64]) -> impl Fn(&[Vec<u64>]) + Send + Sync {
    move |values| assert!(values[0] == expected, "wrong data: {values:?}")
}

/// A message for an endpoint that is about to sleep.
fn wakes() -> StrangerModel {
    StrangerModel::new("endpoint_wakes", &[receives_one, sends_one]).check(sees(&[1]))
}

/// It parks again for a second one.
fn wakes_twice() -> StrangerModel {
    StrangerModel::new("endpoint_wakes_twice", &[receives_two, sends_two]).bound(3).check(sees(&[1, 2]))
}

/// A client waits for room, and is rung for that.
fn waits_for_room() -> StrangerModel {
    StrangerModel::new("endpoint_waits_for_room", &[receives_two, sends_two])
        .cells(1)
        .bound(2)
        .check(sees(&[1, 2]))
}

/// A call: both sides sleep.
fn call() -> StrangerModel {
    let answers = |own: &mut Stranger<'_>| {
        own.receives()?;
        own.sends(0, 2)
    };
    let calls = |own: &mut Stranger<'_>| {
        own.sends(0, 1)?;
        own.receives()
    };
    StrangerModel::new("endpoint_call", &[answers, calls]).bound(3).check(|values| {
        assert!(values == [[1], [2]], "wrong data: {values:?}");
    })
}

/// Two clients. While the one has woken the endpoint the mark for the other stays.
fn two_peers() -> StrangerModel {
    let sends_two = |own: &mut Stranger<'_>| own.sends(0, 2);
    StrangerModel::new("endpoint_two_peers", &[receives_two, sends_one, sends_two]).bound(2).check(|values| {
        assert!(values[0].iter().sum::<u64>() == 3, "wrong data: {values:?}");
    })
}

/// The same, and the second sends twice: the mark that has stayed is taken, and set again.
fn a_mark_stays() -> StrangerModel {
    let receives_three = |own: &mut Stranger<'_>| {
        receives_two(own)?;
        own.receives()
    };
    let sends_others = |own: &mut Stranger<'_>| {
        own.sends(0, 2)?;
        own.sends(0, 3)
    };
    StrangerModel::new("endpoint_a_mark_stays", &[receives_three, sends_one, sends_others]).bound(1).check(
        |values| {
            assert!(values[0].iter().sum::<u64>() == 6, "wrong data: {values:?}");
        },
    )
}

fn sends_and_closes(own: &mut Stranger<'_>) -> Result<(), Killed> {
    own.sends(0, 1)?;
    own.closes()?;
    own.hangs_up();
    Ok(())
}

/// All that was sent before is received from a client that is known to have left. The system tells of its end and orders
/// nothing here, so the endpoint may see neither what was sent nor that it has closed.
fn left_or_died(values: &[Vec<u64>]) {
    assert!([&[][..], &[1], &[1, 100]].contains(&&values[0][..]), "a message is lost: {values:?}");
}

/// A client sends, closes and hangs up.
fn closes() -> StrangerModel {
    let receives = |own: &mut Stranger<'_>| own.receives_until_it_is_gone(0);
    StrangerModel::new("endpoint_closes", &[receives, sends_and_closes]).bound(3).check(left_or_died)
}

/// A client dies while it sends or closes. The endpoint is told that it is gone.
fn death(fail_point: &'static str) -> StrangerModel {
    let receives = |own: &mut Stranger<'_>| own.receives_until_it_is_gone(0);
    StrangerModel::new(format!("endpoint_death_at_{fail_point}"), &[receives, sends_and_closes])
        .fate(1, Fate::dies_at(fail_point, 1))
        .bound(2)
        .check(left_or_died)
}

/// The peer has seen one of these, and the owner was in time.
fn revoked(peer: &'static [&'static [u64]]) -> impl Fn(&[Vec<u64>]) + Send + Sync {
    move |values| assert!(values[0] == [1] && peer.contains(&&values[1][..]), "disagreement: {values:?}")
}

/// The owner revokes, and changes its memory. Either the peer knows that it has nothing, or it has both pieces as they were shared.
fn revokes() -> StrangerModel {
    let owner = |own: &mut Stranger<'_>| {
        own.changes(0, 5);
        own.gives_lease(0)?;
        own.revokes(0);
        own.changes(0, 6);
        Ok(())
    };
    let expected: &[&[u64]] = &[&[0], &[1, 5, 5]];
    StrangerModel::new("endpoint_revokes", &[owner, |own| own.reads(0)]).bound(3).check(revoked(expected))
}

/// The same by ending the connection, which closes first: a peer that finds its lease withdrawn sees why. It may also see the end before the
/// lease.
fn revokes_and_closes() -> StrangerModel {
    let owner = |own: &mut Stranger<'_>| {
        own.changes(0, 5);
        own.gives_lease(0)?;
        own.closes()?;
        own.revokes(0);
        own.hangs_up();
        own.changes(0, 6);
        Ok(())
    };
    let expected: &[&[u64]] = &[&[0, 100], &[1, 5, 5], &[]];
    StrangerModel::new("endpoint_revokes_and_closes", &[owner, |own| own.reads(0)])
        .bound(3)
        .check(revoked(expected))
}

/// A lease for which nobody waits is given back, and the next can be given.
fn gives_back() -> StrangerModel {
    let owner = |own: &mut Stranger<'_>| {
        own.gives_lease(0)?;
        own.receives()?;
        assert!(own.is_settled(0), "wrong verdict: the lease is not given back");
        own.gives_lease(0)
    };
    let peer = |own: &mut Stranger<'_>| {
        own.gives_back(0)?;
        own.sends(0, 7)?;
        own.gives_back(0)
    };
    StrangerModel::new("endpoint_gives_back", &[owner, peer]).bound(2).check(sees(&[7]))
}

pub(crate) fn models() -> Vec<StrangerModel> {
    let mut models = vec![wakes(), wakes_twice(), waits_for_room(), call(), two_peers(), a_mark_stays()];
    models.extend([closes(), revokes(), revokes_and_closes(), gives_back()]);
    models.extend(["message-written", "written-unrung", "taken-unwoken", "closed-unrung"].map(death));
    models
}
