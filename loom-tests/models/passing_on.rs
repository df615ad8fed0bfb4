//! What a rank finds out about a communicator outside of calls, and passes on to another one before it leaves that.

use intranode::protocol::membership::{ended, poison};
use intranode::protocol::{Cause, CauseKind, Failure, Generation, Member, Ordering, Platform, Segment};

use crate::harness::cells::STAGING;
use crate::harness::machine::Fate;
use crate::harness::mutant::Simulated;
use crate::harness::search::{Run, Search};
use crate::harness::segment::SegmentMemory;
use crate::harness::waiting::Waiting::{self, Blocking, Dozing, Parking, Spinning};
use crate::harness::word::Word;

const START: Generation = Generation::new(4);

/// Rank 0 has aborted.
const ABORTED: Cause = Cause { kind: CauseKind::Aborted, rank: 0, detail: 77 };

/// Rank 0 aborts, and rank 1 asks without a call why the communicator has ended. It knows if somebody has been through all words.
fn asked(waiting: Waiting) -> Search {
    let threads = vec!["rank 0 aborts".to_owned(), "rank 1 asks".to_owned()];
    Search::new("ended_asked", waiting, threads, |run: &Run| {
        let memory = SegmentMemory::new(2, START);
        let act = |thread: usize, platform: &Simulated, memory: &SegmentMemory| {
            let segment = memory.segment();
            if thread == 0 {
                return poison(platform, &segment, ABORTED).is_ok();
            }
            let is_known = platform.load("asked", segment.spread, Ordering::Relaxed) != 0;
            let found = ended(platform, &segment);
            assert!(found.is_none_or(|cause| cause == ABORTED), "wrong verdict: {found:?}");
            assert!(
                found.is_some() || !is_known,
                "wrong verdict: the cause is not there, and all words are poisoned"
            );
            true
        };
        run.threads(memory, &[Fate::NONE; 2], act, |_| ());
    })
}

/// Rank 0 ends the communicator of ranks 0 and 1, and then that of all. Rank 1 is told in the first, and leaves the second, where
/// rank 2 waits: it must be told what rank 0 did, and not that rank 1 has left. `passes_on`: whether rank 1 does so.
pub(crate) fn passed_on(waiting: Waiting, passes_on: bool) -> Search {
    let threads = ["rank 0 aborts", "rank 1 leaves", "rank 2 waits"].map(str::to_owned).into();
    Search::new("ended_passed_on", waiting, threads, move |run: &Run| {
        let memory = [2, 3].map(|ranks| SegmentMemory::new(ranks, START));
        let act = move |rank: usize, platform: &Simulated, memory: &[SegmentMemory; 2]| {
            let [first, second] = [memory[0].segment(), memory[1].segment()];
            match rank {
                0 => {
                    let _ = poison(platform, &first, ABORTED);
                    let _ = poison(platform, &second, ABORTED);
                }
                1 => {
                    is_told(rank, platform, &first);
                    if passes_on {
                        let cause = ended(platform, &first);
                        assert!(cause == Some(ABORTED), "wrong verdict: told, and finds {cause:?}");
                        let _ = cause.map(|cause| poison(platform, &second, cause));
                    }
                    let left = Cause { kind: CauseKind::Left, rank, detail: START.number() };
                    let _ = poison(platform, &second, left);
                }
                _ => is_told(rank, platform, &second),
            }
        };
        run.threads(memory, &[Fate::NONE; 3], act, |_: &[()]| ());
    })
}

/// The rank waits for a round, which rank 0 ends.
fn is_told(rank: usize, platform: &Simulated, segment: &Segment<'_, Simulated>) {
    let turn = Word::turn(rank);
    let result = Member::new(platform, segment, &STAGING, rank, START, &turn).round();
    assert!(result == Err(Failure::Dead(Some(ABORTED))), "hidden: rank {rank} was told {result:?}");
}

pub(crate) fn models() -> Vec<Search> {
    let mut models: Vec<Search> = [Spinning, Blocking].map(asked).into();
    models.extend([Spinning, Dozing].map(|waiting| passed_on(waiting, true).bound(1)));
    models.extend([Blocking, Parking].map(|waiting| passed_on(waiting, true).bound(2)));
    models
}
