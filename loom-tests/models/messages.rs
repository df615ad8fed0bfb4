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
fn pair(name: impl Into<String>, waiting: Waiting, sender: Role, receiver: Role) -> PostModel {
    PostModel::new(name, waiting, &[sender, receiver])
}

fn sends_two(rank: &Correspondent<'_>) -> Result<(), Failure> {
    rank.sends(1, 1)?;
    rank.sends(1, 2)
}

fn receives_two(rank: &Correspondent<'_>) -> Result<(), Failure> {
    rank.receives(0)?;
    rank.receives(0)
}

/// Every rank has come to its end, and rank 1 has seen this.
fn sees(values: &'static [u64]) -> impl Fn(&[Seen]) + Send + Sync {
    move |seen| {
        assert!(seen.iter().all(|seen| seen.end.is_ok()), "wrong verdict: {seen:?}");
        assert!(seen[1].values == values, "wrong data: {seen:?}");
    }
}

/// What rank 1 has seen is a beginning of this, and every rank has succeeded, or has ended itself, or was told this cause.
fn sees_or_knows(kind: CauseKind, rank: usize, values: &'static [u64]) -> impl Fn(&[Seen]) + Send + Sync {
    move |seen| {
        let cause = Cause { kind, rank, detail: 0 };
        let told = [Ok(()), Err(Failure::Killed), Err(Failure::Dead(Some(cause)))];
        assert!(seen.iter().all(|seen| told.contains(&seen.end)), "wrong verdict: {seen:?}");
        assert!(values.starts_with(&seen[1].values), "wrong data: {seen:?}");
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
        .check(move |seen| {
            sees_or_knows(Died, 0, &[1, 2])(seen);
            assert!(
                seen[1].values.len() + 1 == occurrence,
                "a message is lost, or came from nowhere: {seen:?}"
            );
        })
}

/// Messages and their answers in the line of the pair. The third is where the first was, which has been taken.
fn line(waiting: Waiting) -> PostModel {
    let plays = |rank: &Correspondent<'_>| {
        (1..=3).try_for_each(|value| {
            rank.sends_in_slot(1, value, true)?;
            rank.receives(1)
        })
    };
    let answers = |rank: &Correspondent<'_>| {
        (1..=3).try_for_each(|value| {
            rank.receives(0)?;
            rank.sends_in_slot(0, value, true)
        })
    };
    pair("message_line", waiting, plays, answers).in_line().check(|seen| {
        sees(&[1, 2, 3])(seen);
        assert!(seen[0].values == [1, 2, 3], "wrong data: {seen:?}");
    })
}

/// Both send to each other at once, and then again: an answer in the line need not be one to what was sent last.
fn line_crossed(waiting: Waiting) -> PostModel {
    let plays = |rank: &Correspondent<'_>| {
        let peer = 1 - rank.rank;
        (1..=3).try_for_each(|value| rank.sends_in_slot(peer, value, true))?;
        (1..=3).try_for_each(|_| rank.receives(peer))
    };
    pair("message_line_crossed", waiting, plays, plays).in_line().cells(4).check(|seen| {
        sees(&[1, 2, 3])(seen);
        assert!(seen[0].values == [1, 2, 3], "wrong data: {seen:?}");
    })
}

/// An answer is sent before what it seems to answer is taken: the line is not used again until that is.
fn line_answered_unread(waiting: Waiting) -> PostModel {
    let plays = |rank: &Correspondent<'_>| {
        rank.sends_in_slot(1, 1, true)?;
        rank.receives(1)?;
        (2..=4).try_for_each(|value| rank.sends_in_slot(1, value, true))
    };
    let answers = |rank: &Correspondent<'_>| {
        rank.sends_in_slot(0, 1, true)?;
        (1..=4).try_for_each(|_| rank.receives(0))
    };
    pair("message_line_answered_unread", waiting, plays, answers).in_line().cells(4).check(sees(&[1, 2, 3, 4]))
}

/// Messages that are not answered: two are in the line, and the third is in the ring.
fn line_left(waiting: Waiting) -> PostModel {
    let sends = |rank: &Correspondent<'_>| (1..=3).try_for_each(|value| rank.sends_in_slot(1, value, true));
    let receives = |rank: &Correspondent<'_>| (1..=3).try_for_each(|_| rank.receives(0));
    pair("message_line_left", waiting, sends, receives).in_line().check(sees(&[1, 2, 3]))
}

/// The line is next, and then closed: the next message is in a cell.
fn line_closed(waiting: Waiting) -> PostModel {
    let sends = |rank: &Correspondent<'_>| {
        rank.sends_in_slot(1, 1, true)?;
        rank.sends(1, 2)?;
        rank.sends_in_slot(1, 3, true)
    };
    let receives = |rank: &Correspondent<'_>| (1..=3).try_for_each(|_| rank.receives(0));
    pair("message_line_closed", waiting, sends, receives).in_line().check(sees(&[1, 2, 3]))
}

/// The line was left, for slots of the ring, and is used again when the sides take turns again.
fn line_again(waiting: Waiting) -> PostModel {
    let plays = |rank: &Correspondent<'_>| {
        (1..=3).try_for_each(|value| rank.sends_in_slot(1, value, true))?;
        (4..=6).try_for_each(|value| {
            rank.receives(1)?;
            rank.sends_in_slot(1, value, true)
        })
    };
    let answers = |rank: &Correspondent<'_>| {
        (1..=3).try_for_each(|_| rank.receives(0))?;
        (1..=3).try_for_each(|value| {
            rank.sends_in_slot(0, value, true)?;
            rank.receives(0)
        })
    };
    pair("message_line_again", waiting, plays, answers).in_line().bound(2).check(|seen| {
        sees(&[1, 2, 3, 4, 5, 6])(seen);
        assert!(seen[0].values == [1, 2, 3], "wrong data: {seen:?}");
    })
}

/// The sender dies before it has published its first or its second message in the line.
fn death_in_line(waiting: Waiting, occurrence: usize) -> PostModel {
    let sends = |rank: &Correspondent<'_>| {
        rank.sends_in_slot(1, 1, true)?;
        rank.sends_in_slot(1, 2, true)
    };
    pair(format!("message_line_death_{occurrence}"), waiting, sends, receives_two)
        .in_line()
        .fate(0, Fate::dies_at("line-written", occurrence))
        .check(move |seen| {
            sees_or_knows(Died, 0, &[1, 2])(seen);
            assert!(
                seen[1].values.len() + 1 == occurrence,
                "a message is lost, or came from nowhere: {seen:?}"
            );
        })
}

/// The receiver dies when it has copied a message of the line. A sender that waits for the answer is told.
fn death_of_receiver_in_line(waiting: Waiting) -> PostModel {
    let sends = |rank: &Correspondent<'_>| {
        rank.sends_in_slot(1, 1, true)?;
        rank.receives(1)
    };
    pair("message_line_death_of_receiver", waiting, sends, receives_two)
        .in_line()
        .fate(1, Fate::dies_at("slot-copied", 1))
        .check(sees_or_knows(Died, 1, &[1]))
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
        .check(move |seen| {
            sees_or_knows(Died, 0, &[1, 2])(seen);
            assert!(
                seen[1].values.len() + 1 == occurrence,
                "a message is lost, or came from nowhere: {seen:?}"
            );
        })
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
        // Parking has many steps, and wake-ups that are lost show with few preemptions.
        let bounded = |model: PostModel| match waiting {
            Parking => model.bound(2),
            Dozing => model.bound(3),
            _ => model,
        };
        models.extend([two(waiting), ping_pong(waiting), offer(waiting)].map(|model| match waiting {
            Parking => model.bound(2),
            _ => model,
        }));
        models.extend(
            [
                full_ring(waiting),
                slots(waiting),
                closed_slot(waiting),
                slots_again(waiting),
                line(waiting),
                line_crossed(waiting),
                line_answered_unread(waiting),
                line_left(waiting),
                line_closed(waiting),
                one_buffer(waiting),
                shifted(waiting),
                returned(waiting),
                given_back(waiting),
                parts(waiting),
                wanted(waiting),
                wanted_before(waiting),
            ]
            .map(bounded),
        );
        models.extend([withdrawn(waiting), stays_open(waiting), confirmed(waiting)]);
        models.push(line_again(waiting));
    }
    for waiting in [Dozing, Parking] {
        let bounded = |model: PostModel| if waiting == Parking { model.bound(2) } else { model };
        models.extend(
            [leave(waiting), close(waiting), death_of_puller(waiting), interrupted(waiting)].map(bounded),
        );
        models.extend(IN_WAITING.map(|fail_point| death_at(waiting, fail_point, 0).bound(2)));
        models.push(death_of_sender(waiting, "buffers-reserved", 1));
        models.push(death_of_sender(waiting, "message-written", 1));
        models.push(bounded(death_of_sender(waiting, "message-written", 2)));
        models.extend([1, 2].map(|occurrence| bounded(death_between_parts(waiting, occurrence))));
        models.extend([1, 2].map(|occurrence| bounded(death_in_slots(waiting, occurrence))));
        models.extend([1, 2].map(|occurrence| bounded(death_in_line(waiting, occurrence))));
        models.push(bounded(death_in_ringing(waiting, "written-unrung", 1)));
        models.push(bounded(death_in_ringing(waiting, "written-unrung", 2)));
        models.push(bounded(death_in_ringing(waiting, "taken-unwoken", 1)));
        let fail_points = ["cell-copied", "buffers-read", "written-unrung"];
        models.extend(fail_points.map(|fail_point| bounded(death_of_receiver(waiting, fail_point))));
        models.push(bounded(death_of_receiver_in_slots(waiting)));
        models.push(bounded(death_of_receiver_in_line(waiting)));
    }
    models.push(close(Spinning));
    models.extend([any_source(), leave_of_a_third()]);
    models
}
