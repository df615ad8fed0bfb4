//! Which rank a word belongs to, for the recorder of waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::protocol::Generation;
use crate::segment::mapped::MappedSegment;
use crate::segment::recorder::{Awaited, Wait};

/// The arrival words of a communicator, as one of its ranks sees them.
pub(crate) struct Arrivals {
    mapped: Arc<MappedSegment>,
    rank: usize,
    /// By rank: its rank in the job.
    joined_as: Arc<[usize]>,
}

impl Arrivals {
    pub(crate) fn new(mapped: &Arc<MappedSegment>, rank: usize, joined_as: &Arc<[usize]>) -> Self {
        Arrivals { mapped: Arc::clone(mapped), rank, joined_as: Arc::clone(joined_as) }
    }
}

impl Awaited for Arrivals {
    fn of(&self, word: &AtomicU32, seen: u32) -> Option<Wait> {
        let slots = self.mapped.segment().slots;
        let offset = word.as_ptr().addr().wrapping_sub(slots.as_ptr().addr());
        let rank = offset / size_of_val(&slots[0]);
        let parity = slots.get(rank)?.iter().position(|slot| std::ptr::eq(&raw const slot.state, word))?;
        // This rank has arrived at the round that it waits for. One that has not is two rounds behind.
        let own = &slots[self.rank][parity];
        let round = Generation::of_word(own.state.load(Relaxed));
        let is_missing = Generation::of_word(seen).next().next() == round;
        let rank = self.joined_as.get(rank).copied().filter(|_| is_missing);
        Some(Wait { operation: own.header.operation(), round: round.number(), rank })
    }

    fn missing(&self, round: u32) -> Option<usize> {
        let (slots, round) = (self.mapped.segment().slots, Generation::new(round));
        let is_missing = |rank: &usize| {
            let state = &slots[*rank][round.parity()].state;
            Generation::of_word(state.load(Relaxed)).next().next() == round
        };
        let mut missing = (0..slots.len()).filter(is_missing);
        let first = missing.next().filter(|_| missing.next().is_none())?;
        self.joined_as.get(first).copied()
    }

    fn rank(&self, rank: usize) -> Option<usize> {
        self.joined_as.get(rank).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::layout::Layout;
    use crate::segment::settings::SegmentSettings;
    use crate::sys::memory::mapping::Mapping;

    #[test]
    fn a_word_leads_to_the_rank_that_is_waited_for() {
        let layout = Layout::new(3, 64).expect("a small layout");
        let mapping = Mapping::anonymous(layout.len()).expect("some memory");
        MappedSegment::initialise(&mapping, &layout, 1, SegmentSettings::default()).expect("a new segment");
        let mapped = Arc::new(MappedSegment::new(mapping, layout));
        let arrivals = Arrivals::new(&mapped, 1, &Arc::from([4, 5, 6]));
        let slots = mapped.segment().slots;
        for generation in [7, 8] {
            let round = Generation::new(generation);
            let own = &slots[1][round.parity()].state;
            own.store(round.word(), Relaxed);
            let behind = Generation::new(generation - 2).word();
            let wait = |word, seen| arrivals.of(word, seen);
            let other = &slots[2][round.parity()].state;
            assert_eq!(wait(other, behind), Some(Wait { operation: 0, round: generation, rank: Some(6) }));
            // Ranks 0 and 2 have not arrived, then rank 2 alone, then none.
            slots[0][round.parity()].state.store(behind, Relaxed);
            other.store(behind, Relaxed);
            assert_eq!(arrivals.missing(generation), None);
            slots[0][round.parity()].state.store(round.word(), Relaxed);
            assert_eq!(arrivals.missing(generation), Some(6));
            other.store(round.word(), Relaxed);
            assert_eq!(arrivals.missing(generation), None);
            // A leader that has arrived is not late.
            assert_eq!(wait(other, round.word()), Some(Wait { operation: 0, round: generation, rank: None }));
        }
        assert_eq!(arrivals.of(&AtomicU32::new(0), 0), None);
        assert_eq!(arrivals.of(&mapped.segment().claims[0], 0), None);
        assert_eq!(arrivals.of(&mapped.segment().bells[0].word, 0), None);
    }
}
