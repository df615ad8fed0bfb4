//! The program of a seed.
//!
//! All ranks of most programs follow one plan, so that calls meet and are a success. Then each rank strays from it now and
//! then, and further threads get in between.

use std::time::Duration;

use fastrand::Rng;

use crate::author::{Author, Known, once};
use crate::program::{Act, Asks, COMMS, MOST_RANKS, MOST_THREADS, Program, Step};

/// What ranks are. What ends a process before its time is only for those that have one of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ranks {
    Threads,
    Processes,
}

/// What threads of a rank have to do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// There is one.
    Alone,
    /// Each has a communicator and memory of its own.
    Apart,
    /// They get into each other's way, but take turns with their calls.
    InTurns,
    /// They get into each other's way.
    Wild,
    /// One waits for the moment between the rounds of another's call.
    Ambush,
}

const STYLES: [Style; 5] = [Style::Alone, Style::Apart, Style::InTurns, Style::Wild, Style::Ambush];

/// The program of a seed.
pub(crate) fn program(seed: u64, ranks: Ranks) -> Program {
    let mut rng = Rng::with_seed(seed);
    let ends = ranks == Ranks::Processes;
    let mut author = Author { ends, rng: rng.fork(), own: None, known: Known::default() };
    let style = *author.choose(&STYLES);
    let size = rng.usize(2..=if style == Style::Ambush { 3 } else { MOST_RANKS });
    let intruded = rng.usize(0..size);
    // How often ranks stray from the plan, and how often others get in between.
    let (stray, intrusions) = ([0.0, 0.02, 0.1][rng.usize(0..3)], rng.usize(1..5));
    let most_threads = match style {
        Style::Alone => 1,
        Style::Ambush => 2,
        _ => rng.usize(2..=MOST_THREADS),
    };
    let steps = rng.usize(4..30);
    let mut plans = vec![author.plan(steps)];
    if style == Style::Apart {
        plans = (0..most_threads.min(COMMS)).map(|thread| author.plan_apart(thread, steps)).collect();
    }
    if style == Style::Ambush {
        plans = vec![author.plan_of_many_rounds()];
    }
    let threads = (0..size).map(|rank| {
        let stray = if style == Style::Ambush { 0.0 } else { stray };
        let mut threads: Vec<_> = plans.iter().map(|plan| author.strayed(plan, stray)).collect();
        if rank == intruded || style != Style::Ambush && author.rng.bool() {
            let intruder = |_| match style {
                Style::Ambush => author.ambush(&plans[0]),
                _ => author.intrusion(&plans[0], intrusions),
            };
            threads.extend((threads.len()..most_threads).map(intruder));
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
        orderly: style == Style::InTurns,
        killed: (ends && rng.u8(0..8) == 0).then(|| (rng.usize(0..size), rng.u64(0..5000))),
    }
}

/// Whole plans.
impl Author {
    fn plan(&mut self, steps: usize) -> Vec<Step> {
        (0..steps).map(|_| self.planned()).collect()
    }

    /// A plan for a thread alone. The first thread makes communicators for all.
    fn plan_apart(&mut self, thread: usize, steps: usize) -> Vec<Step> {
        let mut plan = match thread {
            0 => (1..COMMS).map(|to| once(Act::SplitLocal { comm: 0, to })).collect(),
            _ => vec![once(Act::Pause { micros: 1000 })],
        };
        self.own = Some(thread);
        plan.extend((0..steps).map(|_| self.planned()));
        self.own = None;
        plan
    }

    /// Calls of several rounds, done again and again.
    fn plan_of_many_rounds(&mut self) -> Vec<Step> {
        let mut plan = vec![once(Act::MakeRegion { comm: 0, to: 0, len: 60, distributed: self.rng.bool() })];
        for _ in 0..self.rng.usize(2..10) {
            let act = match self.rng.u8(0..8) {
                0 => self.splitting(),
                1 => Act::MakeRegion { comm: 0, to: 1, len: 60, distributed: self.rng.bool() },
                2 => Act::MakeExchange { comm: 0, to: 0, counts: self.counts() },
                3 => Act::Distribute { region: 0 },
                _ => self.set_ownership(0, Asks::AtLength),
            };
            plan.push(Step { act, retries: 15 });
        }
        let looks = 8;
        plan.extend([Act::Write { region: 0, looks }, Act::Publish { region: 0 }].map(once));
        plan
    }

    /// Calls in the middle of others.
    fn ambush(&mut self, plan: &[Step]) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..self.rng.usize(1..4) {
            let (rounds, spins) = (self.rng.u32(1..8), 1 << self.rng.u32(0..13));
            let barrier = self.rng.u8(0..4) > 0;
            let call = if barrier { once(Act::Barrier { comm: 0 }) } else { self.choose(plan).clone() };
            steps.extend([once(Act::Lurk { comm: 0, rounds, spins }), call]);
        }
        steps
    }

    /// The plan of one rank that keeps to it, but for this share of the steps.
    fn strayed(&mut self, plan: &[Step], stray: f64) -> Vec<Step> {
        let mut steps = Vec::new();
        for step in plan {
            let strays = self.rng.f64() < stray;
            match self.rng.u8(0..5) {
                // Too few, one too many, another.
                0 if strays => {}
                1 if strays => steps.extend([step.clone(), step.clone()]),
                2 if strays => steps.push(self.any()),
                3 if strays => steps.extend([self.any(), step.clone()]),
                _ => steps.push(step.clone()),
            }
        }
        steps
    }

    /// What another thread does meanwhile.
    fn intrusion(&mut self, plan: &[Step], most: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..self.rng.usize(1..=most) {
            let (micros, rounds) = (1 << self.rng.u64(0..11), self.rng.u32(1..20));
            let lurk = Act::Lurk { comm: self.comm(), rounds, spins: 1 << self.rng.u32(0..12) };
            steps.push(once(if self.rng.bool() { lurk } else { Act::Pause { micros } }));
            steps.push(match self.rng.u8(0..6) {
                0..2 => once(Act::Barrier { comm: 0 }),
                2..4 => self.choose(plan).clone(),
                _ => self.any(),
            });
        }
        steps
    }
}
