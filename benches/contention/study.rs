//! The questions to the model: the time of barriers, the number of ranks from which on groups are faster, and which groups.

use crate::model::barrier::{Barrier, Rule};
use crate::model::machine::Machine;
use crate::model::microseconds;
use crate::model::simulation::{Arrivals, Round, run};

/// The numbers of ranks that are compared.
pub(crate) const RANKS: [usize; 18] = [2, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192];

/// The rules that are compared with flat.
pub(crate) const RULES: [Rule; 6] =
    [Rule::Of(4), Rule::Of(8), Rule::Of(16), Rule::Of(32), Rule::Eight, Rule::Root];

/// Ranks compute long enough for prefetches to be done, and arrive up to 2 µs apart.
pub(crate) const SKEWED: Arrivals = Arrivals { base: 20_000.0, skew: 2_000.0, seed: 2013 };

/// No rank computes: as in benchmarks of barriers.
pub(crate) const BACK_TO_BACK: Arrivals = Arrivals { base: 0.0, skew: 0.0, seed: 2013 };

/// The first rounds are not counted: the lines are not yet in the state that a round leaves.
const WARM_UP: usize = 4;

/// The rounds that are timed, each with its own arrival times.
const SAMPLES: usize = 16;

/// The maximum number of ranks when many variants of a machine are compared.
pub(crate) const FEW: usize = 128;

/// In µs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    pub(crate) least: f64,
    pub(crate) median: f64,
}

impl Took {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Took { least: times[0], median: times[times.len() / 2] }
    }
}

/// How a barrier is timed.
pub(crate) type Timing = fn(&Machine, usize, &Barrier) -> Took;

/// From the last arrival until all have left.
pub(crate) fn skewed(machine: &Machine, ranks: usize, barrier: &Barrier) -> Took {
    let rounds = run(machine, ranks, barrier, SKEWED, (WARM_UP + SAMPLES) as u32);
    Took::of(rounds[WARM_UP..].iter().map(|round| microseconds(round.latency())).collect())
}

/// One of many without a pause between them.
pub(crate) fn back_to_back(machine: &Machine, ranks: usize, barrier: &Barrier) -> Took {
    let rounds = run(machine, ranks, barrier, BACK_TO_BACK, (WARM_UP + SAMPLES) as u32);
    let ends: Vec<u64> = rounds.iter().map(Round::end).collect();
    Took::of(ends[WARM_UP - 1..].windows(2).map(|pair| microseconds(pair[1] - pair[0])).collect())
}

/// A machine's times, for all numbers of ranks up to its cores.
pub(crate) struct Sweep {
    pub(crate) machine: Machine,
    pub(crate) rows: Vec<Row>,
}

pub(crate) struct Row {
    pub(crate) ranks: usize,
    pub(crate) flat: Took,
    /// By rule.
    pub(crate) groups: [Took; RULES.len()],
}

impl Sweep {
    pub(crate) fn of(machine: &Machine, timing: Timing) -> Self {
        let row = |ranks| Row {
            ranks,
            flat: timing(machine, ranks, &Barrier::flat(ranks)),
            groups: RULES.map(|rule| timing(machine, ranks, &Barrier::groups(machine, ranks, rule))),
        };
        Sweep { machine: machine.clone(), rows: fitting(machine).map(row).collect() }
    }

    pub(crate) fn row(&self, ranks: usize) -> &Row {
        self.rows.iter().find(|row| row.ranks == ranks).expect("it is one of those that are compared")
    }

    /// The smallest number of ranks from which on groups by this rule are never slower than flat.
    pub(crate) fn crossover(&self, rule: usize) -> Option<usize> {
        crossover(self.rows.iter().map(|row| (row.ranks, row.flat, row.groups[rule])))
    }
}

fn fitting(machine: &Machine) -> impl Iterator<Item = usize> {
    RANKS.into_iter().filter(|ranks| *ranks <= machine.cores())
}

/// The crossover of one rule alone, in numbers of ranks up to [`FEW`].
pub(crate) fn crossover_of(machine: &Machine, rule: Rule) -> Option<usize> {
    crossover(fitting(machine).take_while(|ranks| *ranks <= FEW).map(|ranks| {
        let took = |barrier: Barrier| skewed(machine, ranks, &barrier);
        (ranks, took(Barrier::flat(ranks)), took(Barrier::groups(machine, ranks, rule)))
    }))
}

/// Of the number of ranks, flat, and groups.
fn crossover(rows: impl Iterator<Item = (usize, Took, Took)>) -> Option<usize> {
    rows.fold(
        None,
        |first, (ranks, flat, groups)| {
            if groups.median > flat.median { None } else { first.or(Some(ranks)) }
        },
    )
}

/// A bonus for flat, for effects that are not modelled: groups take more instructions, and an interrupted leader delays its
/// group. A barrier of two ranks in a group was measured to take up to a quarter longer than modelled.
const MARGIN: f64 = 1.2;

/// A rule and its threshold: the number of ranks from which on it is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) rule: usize,
    pub(crate) threshold: usize,
    /// The largest ratio to the fastest shape, over all machines, numbers of ranks and arrivals.
    pub(crate) worst: f64,
}

impl Choice {
    pub(crate) fn new<'s>(sweeps: impl IntoIterator<Item = &'s Sweep>, rule: usize, threshold: usize) -> Self {
        let ratio = |row: &Row| {
            let fastest = row.groups.iter().map(|took| took.median).fold(row.flat.median, f64::min);
            let chosen = if row.ranks < threshold { row.flat } else { row.groups[rule] };
            chosen.median / fastest
        };
        let worst = sweeps.into_iter().flat_map(|sweep| &sweep.rows).map(ratio).fold(1.0, f64::max);
        Choice { rule, threshold, worst }
    }

    /// The rule with the smallest worst ratio, with the largest threshold whose ratio exceeds that by at most [`MARGIN`].
    pub(crate) fn made(sweeps: &[Sweep]) -> Self {
        let all = |rule| RANKS.map(|threshold| Choice::new(sweeps, rule, threshold));
        let by_worst = |one: &Choice, other: &Choice| one.worst.total_cmp(&other.worst);
        let best = (0..RULES.len()).flat_map(all).min_by(by_worst).expect("there are rules");
        let good = all(best.rule).into_iter().filter(|choice| choice.worst <= MARGIN * best.worst);
        good.max_by_key(|choice| choice.threshold).expect("the best is one of them")
    }
}
