//! Messages: what one rank sends, the other receives, once, whole and in order; a rank that waits is woken; and what was sent
//! before a rank left or died is received before the error.
//!
//! Payload, buffers and the memory from which a receiver pulls are race-checked. No nap ends by itself, so a wake-up that is
//! lost is a deadlock.

use intranode::protocol::CauseKind::{self, Died, Interrupted};
use intranode::protocol::{Cause, Failure};

use crate::harness::correspondent::Correspondent;
use crate::harness::machine::Fate;
use crate::harness::post::{PostModel, Role, Seen};
use crate::harness::waiting::Waiting::{self, Dozing, Parking, Spinning};

/// The fail points of a sender, those of a receiver, and those of either.
pub(crate) const IN_SENDING: [&str; 4] =
    ["buffers-reserved", "message-written", "slot-written", "line-written"];
pub(crate) const IN_RECEIVING: [&str; 4] = ["cell-copied", "slot-copied", "buffers-read", "offer-pulled"];
pub(crate) const IN_WAITING: [&str; 2] = ["closed-unrung", "message-marked"];

/// Rank 0 sends, rank 1 receives.
pub(super) fn pair(name: impl Into<String>, waiting: Waiting, sender: Role, receiver: Role) -> PostModel {
    PostModel::new(name, waiting, &[sender, receiver])
}

fn sends_two(rank: &Correspondent<'_>) -> Result<(), Failure> {
    rank.sends(1, 1)?;
    rank.sends(1, 2)
}

pub(super) fn receives_two(rank: &Correspondent<'_>) -> Result<(), Failure> {
    rank.receives(0)?;
    rank.receives(0)
}

/// Every rank has come to its end, and rank 1 has seen this.
pub(super) fn sees(values: &'static [u64]) -> impl Fn(&[Seen]) + Send + Sync {
    move |seen| {
        assert!(seen.iter().all(|seen| seen.end.is_ok()), "wrong verdict: {seen:?}");
        assert!(seen[1].values == values, "wrong data: {seen:?}");
    }
}

/// What rank 1 has seen is a beginning of this, and every rank has succeeded, or has ended itself, or was told this cause.
pub(super) fn sees_or_knows(
    kind: CauseKind,
    rank: usize,
    values: &'static [u64],
) -> impl Fn(&[Seen]) + Send + Sync {
    move |seen| {
        let cause = Cause { kind, rank, detail: 0 };
        let told = [Ok(()), Err(Failure::Killed), Err(Failure::Dead(Some(cause)))];
        assert!(seen.iter().all(|seen| told.contains(&seen.end)), "wrong verdict: {seen:?}");
        assert!(values.starts_with(&seen[1].values), "wrong data: {seen:?}");
    }
}

/// Rank 0 sends 1 and 2, and dies before it publishes the message of this number: rank 1 has seen all before it.
pub(super) fn sees_all_before(occurrence: usize) -> impl Fn(&[Seen]) + Send + Sync {
    move |seen| {
        sees_or_knows(Died, 0, &[1, 2])(seen);
        assert!(seen[1].values.len() + 1 == occurrence, "a message is lost, or came from nowhere: {seen:?}");
    }
}

/// Two messages through a ring that has room for both.
fn two(waiting: Waiting) -> PostModel {
    pair("message_two", waiting, sends_two, receives_two).check(sees(&[1, 2]))
}

/// Two messages through a ring of one cell: the sender waits for room.
fn full_ring(waiting: Waiting) -> PostModel {
    pair("message_full_ring", waiting, sends_two, receives_two).cells(1).check(sees(&[1, 2]))
}

/// Two messages in one cell.
fn slots(waiting: Waiting) -> PostModel {
    let sends = |rank: &Correspondent<'_>| {
        rank.sends_in_slot(1, 1, true)?;
        rank.sends_in_slot(1, 2, false)
    };
    pair("message_slots", waiting, sends, receives_two).check(sees(&[1, 2]))
}

/// A slot is left open, and then closed: the next message is in the next cell. The first cell is used again, so the sender waits for
/// room in between.
fn closed_slot(waiting: Waiting) -> PostModel {
    let sends = |rank: &Correspondent<'_>| {
        rank.sends_in_slot(1, 1, true)?;
        rank.sends(1, 2)?;
        rank.sends(1, 3)
    };
    let receives = |rank: &Correspondent<'_>| (0..3).try_for_each(|_| rank.receives(0));
    pair("message_closed_slot", waiting, sends, receives).check(sees(&[1, 2, 3]))
}

/// A cell is used for slots when it was used before, for all of them, whatever it held.
fn slots_again(waiting: Waiting) -> PostModel {
    let sends =
        |rank: &Correspondent<'_>| (1..=4).try_for_each(|value| rank.sends_in_slot(1, value, value % 2 == 1));
    let receives = |rank: &Correspondent<'_>| (0..4).try_for_each(|_| rank.receives(0));
    pair("message_slots_again", waiting, sends, receives).cells(1).check(sees(&[1, 2, 3, 4]))
}

/// The sender dies before it has published its first or its second slot.
fn death_in_slots(waiting: Waiting, occurrence: usize) -> PostModel {
    let sends = |rank: &Correspondent<'_>| {
        rank.sends_in_slot(1, 1, true)?;
        rank.sends_in_slot(1, 2, true)
    };
    pair(format!("message_slots_death_{occurrence}"), waiting, sends, receives_two)
        .fate(0, Fate::dies_at("slot-written", occurrence))
        .check(sees_all_before(occurrence))
}

/// Two messages through one buffer: the sender waits for it.
fn one_buffer(waiting: Waiting) -> PostModel {
    let sends = |rank: &Correspondent<'_>| {
        rank.sends_in_buffer(1, 1)?;
        rank.sends_in_buffer(1, 2)
    };
    pair("message_one_buffer", waiting, sends, receives_two).check(sees(&[1, 2]))
}

/// A message in the second of two buffers, and one in the first of them.
fn shifted(waiting: Waiting) -> PostModel {
    let sends = |rank: &Correspondent<'_>| {
        rank.sends_shifted(1, 1)?;
        rank.sends_in_buffer(1, 2)
    };
    pair("message_shifted", waiting, sends, receives_two).buffers(2).check(sees(&[1, 2]))
}

/// Both ranks have seen what the other has sent.
fn sees_each_other(seen: &[Seen]) {
    assert!(seen.iter().all(|seen| seen.end.is_ok()), "wrong verdict: {seen:?}");
    assert!(seen[0].values == [2] && seen[1].values == [1, 3], "wrong data: {seen:?}");
}

/// Rank 1 replies in the buffer of the first of two messages.
fn replies_once(rank: &Correspondent<'_>) -> Result<(), Failure> {
    let mask = rank.receives_and_keeps(0)?;
    rank.replies(0, mask, true, 2)?;
    rank.receives(0)
}

/// Replies in the buffer of what they answer, which changes hands three times: nobody takes or frees one in between.
fn returned(waiting: Waiting) -> PostModel {
    let begins = |rank: &Correspondent<'_>| {
        rank.sends_in_buffer(1, 1)?;
        let mask = rank.receives_and_keeps(1)?;
        rank.replies(1, mask, false, 3)
    };
    pair("message_returned", waiting, begins, replies_once).check(sees_each_other)
}

/// The same if the first rank gives the buffer back, and takes it again for what it sends next.
fn given_back(waiting: Waiting) -> PostModel {
    let begins = |rank: &Correspondent<'_>| {
        rank.sends_in_buffer(1, 1)?;
        let mask = rank.receives_and_keeps(1)?;
        rank.gives_back(1, mask)?;
        rank.sends_in_buffer(1, 3)
    };
    pair("message_given_back", waiting, begins, replies_once).check(sees_each_other)
}

/// A message of two parts through two buffers, twice: the receiver copies the first part while the sender writes the second. It passes
/// over that of the second message.
fn parts(waiting: Waiting) -> PostModel {
    let sends = |rank: &Correspondent<'_>| {
        rank.sends_in_parts(1, 1, 2)?;
        rank.sends_in_parts(1, 3, 4)
    };
    let receives = |rank: &Correspondent<'_>| {
        rank.receives_parts(0, false)?;
        rank.receives_parts(0, true)
    };
    pair("message_parts", waiting, sends, receives).buffers(2).check(sees(&[1, 2, 3, 4]))
}

/// The sender of a message in parts dies before its cell: it has sent nothing.
fn death_between_parts(waiting: Waiting, occurrence: usize) -> PostModel {
    let receives = |rank: &Correspondent<'_>| rank.receives_parts(0, false);
    pair(format!("message_parts_death_{occurrence}"), waiting, |rank| rank.sends_in_parts(1, 1, 2), receives)
        .buffers(2)
        .fate(0, Fate::dies_at("message-written", occurrence))
        .check(sees_or_knows(Died, 0, &[]))
}

/// A message and its answer.
fn ping_pong(waiting: Waiting) -> PostModel {
    let plays = |rank: &Correspondent<'_>| {
        rank.sends(1, 1)?;
        rank.receives(1)
    };
    let answers = |rank: &Correspondent<'_>| {
        rank.receives(0)?;
        rank.sends(0, 2)
    };
    pair("message_ping_pong", waiting, plays, answers).check(|seen| {
        sees(&[1])(seen);
        assert!(seen[0].values == [2], "wrong data: {seen:?}");
    })
}

/// Two ranks send to a third, which takes from any.
fn any_source() -> PostModel {
    let sends = |rank: &Correspondent<'_>| rank.sends(1, 1 + rank.rank as u64);
    let receives = |rank: &Correspondent<'_>| {
        rank.receives_from(&[0, 2])?;
        rank.receives_from(&[0, 2])
    };
    PostModel::new("message_any_source", Parking, &[sends, receives, sends]).bound(2).check(|seen| {
        assert!(seen.iter().all(|seen| seen.end.is_ok()), "wrong verdict: {seen:?}");
        assert!(seen[1].values.iter().sum::<u64>() == 4, "wrong data: {seen:?}");
    })
}

/// A rank sends, closes its side, and leaves. What it has sent is received, and then that it is gone.
fn leave(waiting: Waiting) -> PostModel {
    let leaves = |rank: &Correspondent<'_>| {
        rank.sends(1, 1)?;
        rank.closes()?;
        rank.leaves()
    };
    pair("message_leave", waiting, leaves, |rank| rank.receives_until_closed(0)).check(sees(&[1]))
}

/// The same where nothing but the word that is closed connects the ranks.
fn close(waiting: Waiting) -> PostModel {
    let closes = |rank: &Correspondent<'_>| {
        rank.sends(1, 1)?;
        rank.closes()
    };
    pair("message_close", waiting, closes, |rank| rank.receives_until_closed(0)).check(sees(&[1]))
}

/// A third rank leaves, at any moment. The two others go on.
fn leave_of_a_third() -> PostModel {
    let sends = |rank: &Correspondent<'_>| rank.sends(1, 1);
    let receives = |rank: &Correspondent<'_>| rank.receives(0);
    let leaves = |rank: &Correspondent<'_>| rank.leaves();
    PostModel::new("message_leave_of_a_third", Parking, &[sends, receives, leaves]).bound(2).check(sees(&[1]))
}

/// A rank dies as it closes its side, or as it goes to sleep.
fn death_at(waiting: Waiting, fail_point: &'static str, dies: usize) -> PostModel {
    let closes = |rank: &Correspondent<'_>| {
        rank.receives(1)?;
        rank.sends(1, 1)?;
        rank.closes()
    };
    let answers = |rank: &Correspondent<'_>| {
        rank.sends(0, 2)?;
        rank.receives_until_closed(0)
    };
    pair(format!("message_death_at_{fail_point}"), waiting, closes, answers)
        .fate(dies, Fate::dies_at(fail_point, 1))
        .check(sees_or_knows(Died, dies, &[1]))
}

/// The sender dies at its first or second message. What it has published before is received.
fn death_of_sender(waiting: Waiting, fail_point: &'static str, occurrence: usize) -> PostModel {
    let sends = |rank: &Correspondent<'_>| {
        rank.sends_in_buffer(1, 1)?;
        rank.sends(1, 2)
    };
    pair(format!("message_death_at_{fail_point}_{occurrence}"), waiting, sends, receives_two)
        .fate(0, Fate::dies_at(fail_point, occurrence))
        .check(sees_all_before(occurrence))
}

/// The sender dies when it has published, before the receiver's bell has rung, or its sleepers are woken. What it has published
/// is received.
fn death_in_ringing(waiting: Waiting, fail_point: &'static str, occurrence: usize) -> PostModel {
    let sends = |rank: &Correspondent<'_>| {
        rank.sends_in_buffer(1, 1)?;
        rank.sends(1, 2)
    };
    pair(format!("message_death_at_{fail_point}_{occurrence}"), waiting, sends, receives_two)
        .fate(0, Fate::dies_at(fail_point, occurrence))
        .check(move |seen| {
            sees_or_knows(Died, 0, &[1, 2])(seen);
            assert!(seen[1].values.len() >= occurrence, "a message is lost: {seen:?}");
        })
}

/// The receiver is interrupted in its sleep: it has the message, or the cause.
fn interrupted(waiting: Waiting) -> PostModel {
    pair("message_interrupted", waiting, sends_two, receives_two)
        .fate(1, Fate::is_interrupted_at(1))
        .check(sees_or_knows(Interrupted, 1, &[1, 2]))
}

/// The same where the other rank leaves, at any moment, and sends nothing: nothing else ends the wait, and the cause is the receiver's.
fn interrupted_after_a_leave(waiting: Waiting) -> PostModel {
    pair("message_interrupted_after_a_leave", waiting, |rank| rank.leaves(), |rank| rank.receives(0))
        .fate(1, Fate::is_interrupted_at(1))
        .check(|seen| {
            sees_or_knows(Interrupted, 1, &[])(seen);
            assert!(seen[1].end.is_err(), "wrong verdict: {seen:?}");
        })
}

/// The receiver dies. A sender that waits for room is told.
fn death_of_receiver(waiting: Waiting, fail_point: &'static str) -> PostModel {
    let sends = |rank: &Correspondent<'_>| {
        rank.sends_in_buffer(1, 1)?;
        rank.sends_in_buffer(1, 2)
    };
    pair(format!("message_death_at_{fail_point}"), waiting, sends, receives_two)
        .fate(1, Fate::dies_at(fail_point, 1))
        .check(sees_or_knows(Died, 1, &[1, 2]))
}

/// The same, in the middle of a cell.
fn death_of_receiver_in_slots(waiting: Waiting) -> PostModel {
    let sends =
        |rank: &Correspondent<'_>| (1..=3).try_for_each(|value| rank.sends_in_slot(1, value, value % 2 == 1));
    pair("message_death_at_slot-copied", waiting, sends, receives_two)
        .cells(1)
        .fate(1, Fate::dies_at("slot-copied", 1))
        .check(sees_or_knows(Died, 1, &[1, 2]))
}

pub(crate) fn models() -> Vec<PostModel> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Parking] {
        models.extend([two, ping_pong].map(|model| model(waiting).bound_in(Parking, 2)));
        let all =
            [full_ring, slots, closed_slot, slots_again, one_buffer, shifted, returned, given_back, parts];
        // Parking has many steps, and wake-ups that are lost show with few preemptions.
        models.extend(all.map(|model| model(waiting).bound_in(Parking, 2).bound_in(Dozing, 3)));
    }
    for waiting in [Dozing, Parking] {
        models.extend(IN_WAITING.map(|fail_point| death_at(waiting, fail_point, 0).bound(2)));
        models.push(death_of_sender(waiting, "buffers-reserved", 1));
        models.push(death_of_sender(waiting, "message-written", 1));
        let fail_points = ["cell-copied", "buffers-read", "written-unrung"];
        let bounded = [leave, close, interrupted, interrupted_after_a_leave, death_of_receiver_in_slots]
            .map(|model| model(waiting))
            .into_iter()
            .chain([1, 2].map(|occurrence| death_between_parts(waiting, occurrence)))
            .chain([1, 2].map(|occurrence| death_in_slots(waiting, occurrence)))
            .chain([death_of_sender(waiting, "message-written", 2)])
            .chain([1, 2].map(|occurrence| death_in_ringing(waiting, "written-unrung", occurrence)))
            .chain([death_in_ringing(waiting, "taken-unwoken", 1)])
            .chain(fail_points.map(|fail_point| death_of_receiver(waiting, fail_point)));
        models.extend(bounded.map(|model| model.bound_in(Parking, 2)));
    }
    models.push(close(Spinning));
    models.extend([any_source(), leave_of_a_third()]);
    models
}
