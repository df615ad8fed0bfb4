//! Threads of one rank, where a call of several transfers is several calls.

use intranode::protocol::Failure;

use crate::harness::known_bad::{KnownBad, Reason};
use crate::harness::rank::Operation;
use crate::harness::threads::{RankThread, ThreadsModel};
use crate::harness::waiting::Waiting::Blocking;
use crate::models::threads::{barrier, call_while_one_advances, gather_counts, gather_ranges, leave};

/// Mended, it is `thread_between_set_ownerships`.
pub(crate) fn call_lock_between_transfers() -> KnownBad {
    let wrong = ThreadsModel::new("call_lock_between_transfers", Blocking)
        .thread_of(0, &[set_ownership::<true>, set_ownership::<false>])
        .thread_of(1, &[set_ownership::<false>, set_ownership::<true>, barrier, leave])
        .thread_of(0, &[barrier]);
    KnownBad {
        name: "call_lock_between_transfers",
        mistake: "A rank releases its lock between two transfers that look alike: another thread's call takes the place \
                  of the second, its rank tries again, and its first transfer meets the peer's second.",
        reason: Reason::Assertion("two owners"),
        wrong: wrong.bound(2),
        mended: None,
    }
}

/// Mended, it is `thread_calls_while_one_advances`.
pub(crate) fn call_lock_believed_after_a_start() -> KnownBad {
    KnownBad {
        name: "call_lock_believed_after_a_start",
        mistake: "A call takes the last round from the lock although a call was started, with which another thread of the rank has gone \
                  on meanwhile: it reads staging for a round that the rank has left, while another rank writes there.",
        reason: Reason::Race,
        wrong: call_while_one_advances("call_lock_believed_after_a_start", Blocking).believing_lock().bound(2),
        mended: None,
    }
}

/// With the mistake: each transfer has the lock for itself, and both describe themselves in the same way.
fn set_ownership<const WANTS: bool>(thread: &RankThread<'_>) -> Result<(), Failure> {
    let call = Operation::SetOwnership.call(1, 0);
    thread.decide_ownership(|| {
        let counts = thread.locked(|member| gather_counts(thread.rank, WANTS, member, &call))?;
        thread.locked(|member| gather_ranges(thread.rank, &counts, member, &call))
    })
}
