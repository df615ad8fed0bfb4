//! The queue of a lock, with one step wrong.
//!
//! Each is the lock of Mellor-Crummey and Scott over cells of the object: 0 is a rank's link, 1 its grant, and 2 of rank 0
//! the tail.

use Ordering::{AcqRel, Acquire, Relaxed, Release};
use intranode::protocol::symmetric::SymmetricPlatform;
use intranode::protocol::{Failure, Ordering};
use loom::thread;

use crate::harness::actor::{Actor, At};
use crate::harness::known_bad::{KnownBad, Reason};
use crate::harness::one_sided::{OneSidedModel, Role};
use crate::harness::search::Search;
use crate::harness::waiting::Waiting::Spinning;

const NONE: usize = 0;
const RELAXED_SWAP: usize = 1;
const RESET_AFTER_QUEUEING: usize = 2;
const RESET_AFTER_LINKING: usize = 3;
const NO_WAIT_FOR_THE_LINK: usize = 4;
const LEAVES_BY_A_STORE: usize = 5;

const TAIL: At = At(0, 2);

pub(crate) fn all() -> Vec<KnownBad> {
    vec![
        known_bad(
            "lock_queues_by_a_relaxed_swap",
            Reason::Race,
            locks::<RELAXED_SWAP>,
            "The swap into the tail is Relaxed: a rank that finds nobody there does not see what the last one has written.",
        ),
        known_bad(
            "lock_reset_after_queueing",
            Reason::EndlessSpinning,
            locks::<RESET_AFTER_QUEUEING>,
            "A rank resets its link when it is in the queue already: it erases the one behind it.",
        ),
        known_bad(
            "lock_reset_after_linking",
            Reason::EndlessSpinning,
            locks::<RESET_AFTER_LINKING>,
            "A rank resets its grant when it has linked itself: it has been handed the lock, and forgets it.",
        ),
        known_bad(
            "lock_does_not_wait_for_the_link",
            Reason::EndlessSpinning,
            locks::<NO_WAIT_FOR_THE_LINK>,
            "A rank that finds no link, and is not the last in the queue, goes: the next one waits for ever.",
        ),
        known_bad(
            "lock_left_by_a_store",
            Reason::EndlessSpinning,
            locks::<LEAVES_BY_A_STORE>,
            "A rank that finds no link empties the tail, also when another has queued behind it: that one waits for ever.",
        ),
    ]
}

fn known_bad(name: &'static str, reason: Reason, wrong: Role, mistake: &'static str) -> KnownBad {
    let search = |role| Search::from(OneSidedModel::new(name, Spinning).rank(0, role).rank(1, role));
    KnownBad { name, mistake, reason, wrong: search(wrong), mended: Some(search(locks::<NONE>)) }
}

/// Takes the lock, and gives it back.
fn locks<const MISTAKE: usize>(rank: &Actor<'_>) -> Result<(), Failure> {
    let (me, own) = (rank.rank as u64 + 1, |index| At(rank.rank, index));
    if MISTAKE != RESET_AFTER_QUEUEING {
        store(rank, own(0), 0, Relaxed);
    }
    store(rank, own(1), 0, Relaxed);
    let order = if MISTAKE == RELAXED_SWAP { Relaxed } else { AcqRel };
    let before = rank.machine().swap_cell("queue", rank.cell(TAIL), me, order);
    if MISTAKE == RESET_AFTER_QUEUEING {
        store(rank, own(0), 0, Relaxed);
    }
    if before != 0 {
        store(rank, At(before as usize - 1, 0), me, Release);
        if MISTAKE == RESET_AFTER_LINKING {
            store(rank, own(1), 0, Relaxed);
        }
        spin(rank, own(1));
    }
    rank.count_up();
    if load(rank, own(0)) == 0 {
        if MISTAKE == LEAVES_BY_A_STORE {
            store(rank, TAIL, 0, Release);
            return Ok(());
        }
        let left = rank.machine().exchange_cell("leave", rank.cell(TAIL), me, 0, Release, Relaxed);
        if left.is_ok() || MISTAKE == NO_WAIT_FOR_THE_LINK {
            return Ok(());
        }
    }
    let next = spin(rank, own(0));
    store(rank, At(next as usize - 1, 1), 1, Release);
    Ok(())
}

fn store(rank: &Actor<'_>, at: At, value: u64, order: Ordering) {
    rank.machine().store_cell("store", rank.cell(at), value, order);
}

fn load(rank: &Actor<'_>, at: At) -> u64 {
    rank.machine().load_cell("load", rank.cell(at), Acquire)
}

fn spin(rank: &Actor<'_>, at: At) -> u64 {
    loop {
        match load(rank, at) {
            0 => thread::yield_now(),
            seen => return seen,
        }
    }
}
