use crate::model::Time;
use crate::model::machine::{Cost, Machine};
use crate::model::simulation::{Arrivals, LineId, Program, Round, Step, run};
use crate::study::BACK_TO_BACK;

/// Rank 0 writes line 0, which all others await; then each of them writes its own line, and rank 0 awaits these.
struct Echo {
    ranks: usize,
}

impl Program for Echo {
    fn lines(&self) -> usize {
        self.ranks
    }

    fn owner(&self, line: LineId) -> usize {
        line
    }

    fn steps(&self, rank: usize, _: u32) -> Vec<Step> {
        match rank {
            0 => vec![Step::Write(0), Step::Await((1..self.ranks).collect())],
            _ => vec![Step::Await([0].into()), Step::Write(rank)],
        }
    }
}

/// A machine whose cores poll without delay, and whose other steps take no time.
fn attentive(machine: Machine) -> Machine {
    machine.with(Cost::Pause, 0.0).with(Cost::Check, 0.0).with(Cost::Atomic, 0.0)
}

/// The time of the last of a few rounds.
fn last_round(machine: &Machine, ranks: usize) -> Time {
    let rounds = run(machine, ranks, &Echo { ranks }, BACK_TO_BACK, 3);
    rounds[2].end() - rounds[1].end()
}

#[test]
fn two_ranks_answer_each_other_in_two_rfos_and_two_transfers() {
    let machine = attentive(Machine::pair());
    assert_eq!(last_round(&machine, 2), 4 * machine.time(Cost::NearLatency));
}

#[test]
fn those_that_poll_a_line_are_served_one_after_another() {
    let machine = attentive(Machine::phi());
    let (latency, service) = (machine.time(Cost::FarLatency), machine.time(Cost::FarService));
    for readers in [1, 2, 10, 63] {
        let ranks = readers as usize + 1;
        let round = run(&machine, ranks, &Echo { ranks }, BACK_TO_BACK, 2).remove(1);
        let mut left: Vec<Time> = round.left[1..].to_vec();
        left.sort_unstable();
        // An RFO of rank 0, a transfer, and an RFO of the reader; then the other readers one after another.
        let first = round.entered[0] + 3 * latency + (readers - 1) * machine.time(Cost::Probe);
        let expected: Vec<Time> = (0..readers).map(|earlier| first + earlier * service).collect();
        assert_eq!(left, expected);
    }
}

#[test]
fn misses_that_are_under_way_together_take_less_than_one_after_another() {
    let with_window = |window: f64| {
        let machine = attentive(Machine::phi()).with(Cost::FarService, 0.0).with(Cost::Window, window);
        last_round(&machine, 33)
    };
    let latency = Machine::phi().time(Cost::FarLatency);
    // 32 lines in four batches of 8; and one by one, except for lines that arrive while others are still being written.
    assert_eq!(with_window(8.0) - with_window(32.0), 3 * latency);
    assert!(with_window(1.0) - with_window(32.0) >= 30 * latency);
}

#[test]
fn a_store_does_not_keep_the_next_step_waiting() {
    /// Rank 0 stores to lines that rank 1 read in the round before.
    struct Stores;

    impl Program for Stores {
        fn lines(&self) -> usize {
            4
        }

        fn owner(&self, _: LineId) -> usize {
            0
        }

        fn steps(&self, rank: usize, _: u32) -> Vec<Step> {
            if rank == 0 { (0..4).map(Step::Store).collect() } else { vec![Step::Await((0..4).collect())] }
        }
    }

    let machine = Machine::pair();
    let arrivals = Arrivals { base: 5000.0, skew: 0.0, seed: 1 };
    let Round { entered, left } = run(&machine, 2, &Stores, arrivals, 2).remove(1);
    assert_eq!(left[0] - entered[0], 4 * machine.time(Cost::Check));
    assert!(left[1] - entered[0] >= 2 * machine.time(Cost::NearLatency));
}

#[test]
fn a_run_is_the_same_every_time() {
    let arrivals = Arrivals { base: 100.0, skew: 500.0, seed: 3 };
    let rounds = || run(&Machine::epyc(), 40, &Echo { ranks: 40 }, arrivals, 5);
    assert_eq!(rounds(), rounds());
}
