use crate::model::Time;
use crate::model::barrier::{Barrier, Rule};
use crate::model::machine::{CONSTANTS, Cost, Machine};
use crate::model::simulation::{Arrivals, Round, run};
use crate::study::{BACK_TO_BACK, skewed};

/// The number of ranks of each group.
fn sizes(machine: &Machine, ranks: usize, rule: Rule) -> Vec<usize> {
    let barrier = Barrier::groups(machine, ranks, rule);
    let leaders = barrier.leaders().expect("it has groups");
    let groups: Vec<&[usize]> = leaders.chunk_by(|one, other| one == other).collect();
    let mut first = 0;
    for group in &groups {
        assert_eq!(group[0], first, "the first of a group leads it");
        first += group.len();
    }
    assert_eq!(first, ranks);
    groups.into_iter().map(<[usize]>::len).collect()
}

#[test]
fn groups_are_whole_caches_or_parts_of_one() {
    let (epyc, xeon) = (Machine::epyc(), Machine::xeon());
    assert_eq!(sizes(&epyc, 24, Rule::Of(8)), [8, 8, 8]);
    assert_eq!(sizes(&epyc, 28, Rule::Of(16)), [16, 12]);
    assert_eq!(sizes(&epyc, 24, Rule::Of(12)), [16, 8]);
    assert_eq!(sizes(&epyc, 20, Rule::Of(4)), [4, 4, 4, 4, 4]);
    assert_eq!(sizes(&xeon, 40, Rule::Of(16)), [14, 13, 13]);
    // No rank of the second socket is in a group of the first.
    assert_eq!(sizes(&xeon, 100, Rule::Of(16)), [16, 16, 16, 16, 16, 16, 4]);
}

#[test]
fn there_are_at_most_eight_groups_of_at_least_eight() {
    let epyc = Machine::epyc();
    assert_eq!(sizes(&epyc, 64, Rule::Eight), [8; 8]);
    assert_eq!(sizes(&epyc, 72, Rule::Eight), [16, 16, 16, 16, 8]);
    assert_eq!(sizes(&epyc, 128, Rule::Eight), [16; 8]);
    assert_eq!(sizes(&Machine::xeon(), 192, Rule::Eight), [24; 8]);
}

#[test]
fn as_built_groups_are_as_many_as_each_has_ranks() {
    assert_eq!(sizes(&Machine::xeon(), 64, Rule::Root), [8; 8]);
    assert_eq!(sizes(&Machine::epyc(), 128, Rule::Root), [8; 16]);
    // If no ranks share a cache, successive ranks form a group.
    assert_eq!(sizes(&Machine::phi(), 16, Rule::Root), [4; 4]);
}

#[test]
fn nobody_leaves_a_round_that_somebody_has_not_entered() {
    let arrivals = Arrivals { base: 200.0, skew: 3000.0, seed: 9 };
    for machine in [Machine::epyc(), Machine::xeon(), Machine::phi()] {
        for ranks in [1, 2, 3, 9, 33, 64] {
            let groups = [1, 4, 8, 64].map(|size| Barrier::groups(&machine, ranks, Rule::Of(size)));
            for barrier in [Barrier::flat(ranks)].into_iter().chain(groups) {
                for Round { entered, left } in run(&machine, ranks, &barrier, arrivals, 6) {
                    assert!(left.iter().min() > entered.iter().max(), "{barrier:?}");
                }
            }
        }
    }
}

#[test]
fn two_ranks_take_a_store_and_a_transfer() {
    let machine = Machine::pair();
    // All arrive together, long after the lines were prefetched for write.
    let arrivals = Arrivals { base: 5000.0, skew: 0.0, seed: 1 };
    let round = run(&machine, 2, &Barrier::flat(2), arrivals, 8).remove(7);
    let expected = [Cost::Atomic, Cost::NearLatency, Cost::Check].map(|cost| machine.time(cost));
    assert_eq!(round.latency(), expected.iter().sum::<Time>());
}

#[test]
fn all_costs_doubled_double_the_time() {
    let once = Machine::epyc().with(Cost::Pause, 0.0);
    let costs = CONSTANTS.iter().map(|constant| constant.cost).filter(|cost| *cost != Cost::Window);
    let twice = costs.fold(once.clone(), |machine, cost| machine.with(cost, 2.0 * once.value(cost)));
    for barrier in [Barrier::flat(48), Barrier::groups(&once, 48, Rule::Of(16))] {
        let [once, twice] = [&once, &twice].map(|machine| run(machine, 48, &barrier, BACK_TO_BACK, 4)[3].end());
        assert_eq!(twice, 2 * once);
    }
}

#[test]
fn groups_pay_because_homes_serve_one_after_another() {
    let instant = [Cost::NearService, Cost::FarService, Cost::CrossService];
    let machine = Machine::phi().with(Cost::Window, 64.0);
    let instant = instant.into_iter().fold(machine.clone(), |machine, cost| machine.with(cost, 0.0));
    let is_flat_faster = |machine: &Machine| {
        let groups = Barrier::groups(machine, 64, Rule::Of(8));
        skewed(machine, 64, &Barrier::flat(64)).median < skewed(machine, 64, &groups).median
    };
    assert!(is_flat_faster(&instant) && !is_flat_faster(&machine));
}

/// Open MPI's acoll groups ranks by L3, its xhc by NUMA nodes. On Xeon Phi, directories that serve many readers of one line
/// were found to be the bottleneck. Groups of one L3 are faster here only if its cores do not share fetched lines: a leader's
/// progress is in the line of its arrival, which need not be so in acoll.
#[test]
fn published_choices_are_the_model_s() {
    let epyc = Machine::epyc();
    let alone = epyc.clone().without_shared_fetch("each to the home");
    for (machine, ranks, rule) in [
        (&epyc, 128, Rule::Eight),
        (&epyc, 128, Rule::Of(32)),
        (&alone, 128, Rule::Of(8)),
        (&alone, 128, Rule::Of(32)),
        (&Machine::phi(), 64, Rule::Of(8)),
    ] {
        let groups = skewed(machine, ranks, &Barrier::groups(machine, ranks, rule));
        let flat = skewed(machine, ranks, &Barrier::flat(ranks));
        assert!(groups.median < flat.median, "{}, {rule:?}", machine.name);
    }
}
