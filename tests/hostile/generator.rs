//! The random program of a seed.
//!
//! The ranks of most programs follow a common plan, so that many calls succeed. Each rank deviates from it at random, and
//! further threads make other calls at the same time.

use std::time::Duration;

use fastrand::Rng;

use crate::author::{Author, Known, once};
use crate::program::{
    Act, COMMS, Handle, MAX_RANKS, MAX_THREADS, Phase, Program, RangeStyle, SYMMETRICS, Step,
};

/// What ranks are. Only processes may exit, abort or be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ranks {
    Threads,
    Processes,
}

/// How the threads of a rank interact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// There is one thread.
    Alone,
    /// Each thread has its own communicator and memory.
    Separate,
    /// They share slots, and call one at a time.
    Serialized,
    /// They share slots, and call at the same time.
    Concurrent,
    /// One thread calls between the rounds of another's call.
    BetweenRounds,
}

const STYLES: [Style; 5] =
    [Style::Alone, Style::Separate, Style::Serialized, Style::Concurrent, Style::BetweenRounds];

/// The program of a seed.
pub(crate) fn program(seed: u64, ranks: Ranks) -> Program {
    let mut rng = Rng::with_seed(seed);
    let ends = ranks == Ranks::Processes;
    let mut author = Author { ends, rng: rng.fork(), own: None, known: Known::default() };
    let style = *author.choose(&STYLES);
    let size = rng.usize(2..=if style == Style::BetweenRounds { 3 } else { MAX_RANKS });
    let intruded = rng.usize(0..size);
    // The rate of deviations from the plan, and the largest number of intrusions of another thread.
    let (deviation, intrusions) = ([0.0, 0.02, 0.1][rng.usize(0..3)], rng.usize(1..5));
    let max_threads = match style {
        Style::Alone => 1,
        Style::BetweenRounds => 2,
        _ => rng.usize(2..=MAX_THREADS),
    };
    let steps = rng.usize(4..30);
    let mut plans = vec![author.plan(steps)];
    if style == Style::Separate {
        plans = (0..max_threads.min(COMMS)).map(|thread| author.plan_of_a_thread(thread, steps)).collect();
    }
    if style == Style::BetweenRounds {
        plans = vec![author.plan_of_many_rounds()];
    }
    let threads = (0..size).map(|rank| {
        let deviation = if style == Style::BetweenRounds { 0.0 } else { deviation };
        let mut threads: Vec<_> = plans.iter().map(|plan| author.with_deviations(plan, deviation)).collect();
        if rank == intruded || style != Style::BetweenRounds && author.rng.bool() {
            let intruder = |_| match style {
                Style::BetweenRounds => author.call_between_rounds(&plans[0]),
                _ => author.intrusion(&plans[0], intrusions),
            };
            threads.extend((threads.len()..max_threads).map(intruder));
        }
        threads
    });
    Program {
        seed,
        threads: threads.collect(),
        timeout: Duration::from_millis([150, 300, 600][rng.usize(0..3)]),
        staging: [None, Some(64), Some(256), Some(4096)][rng.usize(0..4)],
        group: [None, None, Some(2)][rng.usize(0..3)],
        single_copy: [None, Some(true)][rng.usize(0..2)],
        serialized: style == Style::Serialized,
        killed: (ends && rng.u8(0..8) == 0).then(|| (rng.usize(0..size), rng.u64(0..5000))),
    }
}

/// Whole plans.
impl Author {
    fn plan(&mut self, steps: usize) -> Vec<Step> {
        if self.rng.u8(0..6) == 0 {
            return self.plan_of_phases(steps / 4);
        }
        (0..steps).map(|_| self.planned()).collect()
    }

    /// Symmetric objects that go through their phases, in memory that others have had.
    fn plan_of_phases(&mut self, objects: usize) -> Vec<Step> {
        let mut plan = Vec::new();
        for _ in 0..=objects {
            let (to, rereads) = (self.rng.usize(0..SYMMETRICS), self.rng.u8(0..4));
            plan.push(Act::MakeSymmetric { comm: 0, to, len: 1 + self.length() });
            for phase in [Phase::Own, Phase::Open, Phase::Read, Phase::Open] {
                let uses = Act::UseSymmetric { symmetric: to, rereads };
                plan.extend([Act::BeginPhase { symmetric: to, phase }, uses]);
            }
            plan.push(match self.rng.u8(0..3) {
                0 => Act::Drop { handle: Handle::Symmetric(to) },
                1 => self.collective(),
                _ => Act::FreeSymmetric { symmetric: to },
            });
        }
        plan.into_iter().map(once).collect()
    }

    /// The plan of a thread with its own slots. The first thread creates the communicators.
    fn plan_of_a_thread(&mut self, thread: usize, steps: usize) -> Vec<Step> {
        let mut plan = match thread {
            0 => (1..COMMS).map(|to| once(Act::SplitLocal { comm: 0, to })).collect(),
            _ => vec![once(Act::Pause { micros: 1000 })],
        };
        self.own = Some(thread);
        plan.extend((0..steps).map(|_| self.planned()));
        self.own = None;
        plan
    }

    /// Calls of several rounds, with many retries.
    fn plan_of_many_rounds(&mut self) -> Vec<Step> {
        let mut plan = vec![once(Act::MakeRegion { comm: 0, to: 0, len: 60, distributed: self.rng.bool() })];
        for _ in 0..self.rng.usize(2..10) {
            let act = match self.rng.u8(0..8) {
                0 => self.splitting(),
                1 => Act::MakeRegion { comm: 0, to: 1, len: 60, distributed: self.rng.bool() },
                2 => Act::MakeExchange { comm: 0, to: 0, counts: self.counts() },
                3 => Act::Distribute { region: 0 },
                _ => self.set_ownership(0, RangeStyle::Long),
            };
            plan.push(Step { act, retries: 15 });
        }
        let rereads = 8;
        plan.extend([Act::Write { region: 0, rereads }, Act::Publish { region: 0 }].map(once));
        plan
    }

    /// Calls in the middle of another thread's calls.
    fn call_between_rounds(&mut self, plan: &[Step]) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..self.rng.usize(1..4) {
            let (rounds, spins) = (self.rng.u32(1..8), 1 << self.rng.u32(0..13));
            let barrier = self.rng.u8(0..4) > 0;
            let call = if barrier { once(Act::Barrier { comm: 0 }) } else { self.choose(plan).clone() };
            steps.extend([once(Act::AwaitRounds { comm: 0, rounds, spins }), call]);
        }
        steps
    }

    /// The plan with random deviations.
    fn with_deviations(&mut self, plan: &[Step], deviation: f64) -> Vec<Step> {
        let mut steps = Vec::new();
        for step in plan {
            let deviates = self.rng.f64() < deviation;
            match self.rng.u8(0..5) {
                // Omitted, doubled, replaced, or preceded by another.
                0 if deviates => {}
                1 if deviates => steps.extend([step.clone(), step.clone()]),
                2 if deviates => steps.push(self.any()),
                3 if deviates => steps.extend([self.any(), step.clone()]),
                _ => steps.push(step.clone()),
            }
        }
        steps
    }

    /// The steps of another thread.
    fn intrusion(&mut self, plan: &[Step], most: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..self.rng.usize(1..=most) {
            let (micros, rounds) = (1 << self.rng.u64(0..11), self.rng.u32(1..20));
            let await_rounds = Act::AwaitRounds { comm: self.comm(), rounds, spins: 1 << self.rng.u32(0..12) };
            steps.push(once(if self.rng.bool() { await_rounds } else { Act::Pause { micros } }));
            steps.push(match self.rng.u8(0..6) {
                0..2 => once(Act::Barrier { comm: 0 }),
                2..4 => self.choose(plan).clone(),
                _ => self.any(),
            });
        }
        steps
    }
}
