//! When a watcher polls without having been woken.
//!
//! The watchers of one rank share the work: their ticks are staggered on the monotonic clock, which all processes share, so
//! that in every gap one of them polls.

use std::time::Duration;

use crate::sys::wait::clock::Moment;

/// Periodic moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticks {
    period: u64,
    phase: u64,
}

impl Ticks {
    /// The ticks of `rank`, one of `ranks`. Each rank is watched by `watchers` consecutive ranks, of which one ticks in every
    /// gap. None if no rank is watched.
    pub(super) fn staggered(rank: usize, ranks: usize, watchers: usize, gap: Duration) -> Option<Self> {
        // The phase advances by the gap from rank to rank, and around the ring by a whole number of periods. So the last rank
        // and the first are a gap apart too.
        let periods = ranks.checked_div(watchers)? + usize::from(!ranks.is_multiple_of(watchers));
        let gap = gap.as_nanos() as u64;
        let period = gap * ranks as u64 / periods as u64;
        let phase = (rank * periods % ranks) as u64 * gap / periods as u64;
        Some(Ticks { period, phase: phase.min(period - 1) })
    }

    /// The same, with a period of at most `longest`.
    pub(super) fn at_least_every(self, longest: Duration) -> Self {
        let period = self.period.min(longest.as_nanos() as u64);
        Ticks { period, phase: self.phase % period }
    }

    /// At every multiple of the period.
    pub(super) fn every(period: Duration) -> Self {
        Ticks { period: period.as_nanos() as u64, phase: 0 }
    }

    /// The first tick after a moment.
    pub(super) fn after(self, moment: Moment) -> Moment {
        let since = (moment.nanoseconds() % self.period + self.period - self.phase) % self.period;
        moment.later(self.period - since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::layout::WATCHERS;

    const GAP: Duration = Duration::from_millis(150);

    #[test]
    fn in_every_gap_a_watcher_of_each_rank_ticks() {
        for ranks in (2..80).chain([127, 128, 129, 256, 1000]) {
            let watchers = (ranks - 1).min(WATCHERS);
            let ticks = |rank: usize| Ticks::staggered(rank % ranks, ranks, watchers, GAP).unwrap();
            for owner in 0..ranks {
                let mut phases: Vec<u64> =
                    (1..=watchers).map(|distance| ticks(owner + ranks - distance).phase).collect();
                phases.sort_unstable();
                let period = ticks(0).period;
                let around = phases[0] + period - phases[watchers - 1];
                let widest = phases.windows(2).map(|pair| pair[1] - pair[0]).chain([around]).max().unwrap();
                // Division rounds down.
                assert!(widest <= GAP.as_nanos() as u64 + 2, "rank {owner} of {ranks}: {widest}");
            }
        }
    }

    #[test]
    fn with_many_ranks_each_of_them_ticks_less_than_once_a_second() {
        for ranks in [63, 64, 65, 128, 256, 1000] {
            let ticks = Ticks::staggered(5, ranks, WATCHERS, GAP).unwrap();
            assert!(Duration::from_nanos(ticks.period) > Duration::from_secs(1), "{ranks} ranks: {ticks:?}");
        }
    }

    #[test]
    fn the_next_tick_is_at_most_a_period_away() {
        for (rank, ranks) in [(0, 2), (1, 2), (2, 3), (11, 12), (77, 128)] {
            let ticks = Ticks::staggered(rank, ranks, (ranks - 1).min(WATCHERS), GAP).unwrap();
            for ticks in [ticks, ticks.at_least_every(Duration::from_millis(100)), Ticks::every(GAP)] {
                let now = Moment::now();
                let next = ticks.after(now);
                let away = next.nanoseconds() - now.nanoseconds();
                assert!((1..=ticks.period).contains(&away), "{ticks:?}: {away}");
                assert_eq!(next.nanoseconds() % ticks.period, ticks.phase);
                assert_eq!(ticks.after(next).nanoseconds() - next.nanoseconds(), ticks.period);
            }
        }
    }

    #[test]
    fn a_single_rank_is_not_watched() {
        assert_eq!(Ticks::staggered(0, 1, 0, GAP), None);
    }
}
