//! Two threads of a rank, each of which calls when it likes: no two ranks own one element, and no round succeeds on one
//! rank and fails on another.
//!
//! A call that decides who owns the element has two transfers, as a region's `set_ownership`. The rank's lock is held for
//! both: between them another thread's call would take the place of the second.

use intranode::protocol::{Call, Failure, Member};

use crate::harness::cells::FULL;
use crate::harness::data::{Blocks, numbers};
use crate::harness::mutant::Simulated;
use crate::harness::rank::Operation;
use crate::harness::search::Search;
use crate::harness::threads::{RankThread, ThreadStep, ThreadsModel};
use crate::harness::waiting::Waiting::{self, Blocking, Parking};

/// The rank asks for the one element, or gives it up.
fn set_ownership<const WANTS: bool>(thread: &RankThread<'_>) -> Result<(), Failure> {
    let call = Operation::SetOwnership.call(1, 0);
    thread.decide_ownership(|| {
        thread.locked(|member| {
            let counts = gather_counts(thread.rank, WANTS, member, &call)?;
            gather_ranges(thread.rank, &counts, member, &call.phase(1))
        })
    })
}

/// The first transfer: how many elements does each rank ask for?
pub(crate) fn gather_counts(
    rank: usize,
    wants: bool,
    member: &mut Member<'_, Simulated>,
    call: &Call,
) -> Result<Vec<usize>, Failure> {
    let mut sent = vec![vec![0]; member.size()];
    sent[rank] = vec![u64::from(wants)];
    let mut counts = Blocks::of(rank, &sent);
    member.transfer(call, &mut counts)?;
    Ok(counts.all.into_iter().map(|block| block[0] as usize).collect())
}

/// The second: for which? Returns whether the rank owns the element. Where both ask for it, nothing changes.
pub(crate) fn gather_ranges(
    rank: usize,
    counts: &[usize],
    member: &mut Member<'_, Simulated>,
    call: &Call,
) -> Result<bool, Failure> {
    if let Some(greedy) = counts.iter().position(|count| *count > 1) {
        return Err(Failure::Refused(greedy));
    }
    // The index of the element is 0. Read as a count it stands for no element.
    let sent: Vec<_> = counts.iter().map(|count| vec![0; *count]).collect();
    member.transfer(call, &mut Blocks::of(rank, &sent))?;
    match counts.iter().sum::<usize>() {
        0 | 1 => Ok(counts[rank] == 1),
        _ => Err(Failure::Refused(0)),
    }
}

pub(crate) fn barrier(thread: &RankThread<'_>) -> Result<(), Failure> {
    thread.locked(|member| member.barrier(&Operation::Barrier.call(0, 0)))
}

pub(crate) fn leave(thread: &RankThread<'_>) -> Result<(), Failure> {
    thread.leave()
}

/// Every rank sends more numbers than fit into a chunk, and does not wait for them.
fn start(thread: &RankThread<'_>) -> Result<(), Failure> {
    thread.start(&numbers(0, &[FULL + 1; 2]), &Operation::Started.call(FULL + 1, 0))
}

fn advance(thread: &RankThread<'_>) -> Result<(), Failure> {
    thread.advance()
}

fn barrier_behind_start(thread: &RankThread<'_>) -> Result<(), Failure> {
    thread.locked_behind_start(|member| member.barrier(&Operation::Barrier.call(0, 0)))
}

/// A thread that waits for something else goes on with a call that its rank has started, whatever the other does.
fn advancing(name: &'static str, waiting: Waiting, other: ThreadStep) -> ThreadsModel {
    ThreadsModel::new(name, waiting)
        .thread_of(0, &[start, advance, leave])
        .thread_of(1, &[start, barrier])
        .thread_of(0, &[other])
}

pub(crate) fn call_while_one_advances(name: &'static str, waiting: Waiting) -> ThreadsModel {
    advancing(name, waiting, barrier_behind_start)
}

pub(crate) fn models() -> Vec<Search> {
    let mut models = Vec::new();
    for waiting in [Blocking, Parking] {
        // A barrier of another thread, at every moment of a call of two transfers.
        let during = ThreadsModel::new("thread_during_set_ownership", waiting)
            .thread_of(0, &[set_ownership::<true>])
            .thread_of(1, &[set_ownership::<false>, leave])
            .thread_of(0, &[barrier]);
        // One rank takes the element and gives it up, the other takes it then, and a second thread of the first rank comes
        // in between.
        let between = ThreadsModel::new("thread_between_set_ownerships", waiting)
            .thread_of(0, &[set_ownership::<true>, set_ownership::<false>])
            .thread_of(1, &[set_ownership::<false>, set_ownership::<true>, barrier, leave])
            .thread_of(0, &[barrier]);
        // Two threads take turns: what the one has written for a round is not overwritten by the other.
        let barriers = ThreadsModel::new("threads_in_barriers", waiting)
            .thread_of(0, &[barrier])
            .thread_of(1, &[barrier, barrier, leave])
            .thread_of(0, &[barrier]);
        models.extend([during.bound(2), between.bound(1), barriers.bound(2)]);
        let advances = advancing("threads_advance", waiting, advance);
        let calls = call_while_one_advances("thread_calls_while_one_advances", waiting);
        models.extend([advances.bound(2), calls.bound(2)]);
    }
    models
}
