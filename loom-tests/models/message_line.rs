//! Messages in the line of a pair: they come once, whole and in order, whether the two take turns or not.

use intranode::protocol::CauseKind::Died;

use super::messages::{pair, receives_two, sees, sees_all_before, sees_or_knows};
use crate::harness::correspondent::Correspondent;
use crate::harness::machine::Fate;
use crate::harness::post::PostModel;
use crate::harness::waiting::Waiting::{self, Dozing, Parking, Spinning};

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

/// A word lies unread while as many messages are sent and taken as counts go to. Then no old word is left, and the line is used again.
fn line_caught_up(waiting: Waiting) -> PostModel {
    const MODULUS: u64 = 8;
    let plays = |rank: &Correspondent<'_>| {
        (1..=MODULUS).try_for_each(|value| rank.sends_in_slot(1, value, false))?;
        (1..=3).try_for_each(|value| {
            rank.receives(1)?;
            rank.sends_in_slot(1, MODULUS + value, false)
        })
    };
    let answers = |rank: &Correspondent<'_>| {
        rank.receives(0)?;
        rank.sends_in_slot(0, 1, false)?;
        (1..=MODULUS).try_for_each(|_| rank.receives(0))?;
        (2..=3).try_for_each(|value| {
            rank.sends_in_slot(0, value, false)?;
            rank.receives(0)
        })
    };
    pair("message_line_caught_up", waiting, plays, answers).in_line().cells(1).modulus(MODULUS).bound(2).check(
        |seen| {
            sees(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])(seen);
            assert!(seen[0].values == [1, 2, 3], "wrong data: {seen:?}");
        },
    )
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
        .check(sees_all_before(occurrence))
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

pub(crate) fn models() -> Vec<PostModel> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Parking] {
        let all = [line, line_crossed, line_answered_unread, line_left, line_closed];
        models.extend(all.map(|model| model(waiting).bound_in(Parking, 2).bound_in(Dozing, 3)));
        models.extend([line_again(waiting), line_caught_up(waiting).bound_in(Parking, 1)]);
    }
    for waiting in [Dozing, Parking] {
        let deaths = [death_in_line(waiting, 1), death_in_line(waiting, 2), death_of_receiver_in_line(waiting)];
        models.extend(deaths.map(|model| model.bound_in(Parking, 2)));
    }
    models
}
