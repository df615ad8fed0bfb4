//! The program of a seed.
//!
//! All ranks of most programs follow one plan, so that calls meet and are a success. Then each rank strays from it now and
//! then, and further threads get in between.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

use crate::program::{
    Act, Asks, COMMS, EXCHANGES, Handle, MOST_RANKS, MOST_THREADS, Op, Program, REGIONS, Step, WRONGS,
};

/// How a program ends a process before its time is only for ranks that are processes.
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
    }
}

/// What a plan leaves in the slots.
#[derive(Default)]
struct Known {
    comms: [bool; COMMS],
    /// Whether there is a region, and whether it is published.
    regions: [Option<bool>; REGIONS],
    exchanges: [bool; EXCHANGES],
}

struct Author {
    rng: Rng,
    /// Whether steps may end the process.
    ends: bool,
    /// The slots of a thread that has its own.
    own: Option<usize>,
    known: Known,
}

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
                _ => self.assign(0, Asks::AtLength),
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

    /// A step that makes sense after those before.
    fn planned(&mut self) -> Step {
        self.known.comms[0] = true;
        let act = match self.rng.u8(0..100) {
            0..25 => self.collective(),
            25..80 => self.memory(),
            80..86 => self.splitting(),
            86..92 => Act::Wrong { comm: self.comm(), wrong: *self.choose(&WRONGS) },
            92..95 => Act::Drop { handle: self.handle() },
            _ => self.odd(),
        };
        self.step(act)
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

    fn any(&mut self) -> Step {
        let act = match self.rng.u8(0..10) {
            0..4 => self.collective(),
            4..7 => self.memory(),
            7 => self.splitting(),
            8 => Act::Wrong { comm: self.comm(), wrong: *self.choose(&WRONGS) },
            _ => self.odd(),
        };
        self.step(act)
    }

    fn step(&mut self, act: Act) -> Step {
        Step { act, retries: [0, 0, 0, 1, 6][self.rng.usize(0..5)] }
    }

    fn collective(&mut self) -> Act {
        let (comm, len) = (self.comm(), self.length());
        match self.rng.u8(0..7) {
            0 => Act::Barrier { comm },
            1..3 => {
                let op = *self.choose(&[Op::Sum, Op::BitOr, Op::BitXor, Op::Max]);
                Act::Allreduce { comm, len, op, in_place: self.rng.bool() }
            }
            3 => Act::Allgather { comm, len },
            4..6 => Act::Allgatherv { comm, counts: self.counts(), gap: self.rng.usize(0..3) },
            _ => Act::Broadcast { comm, len, root: self.rng.usize(0..2) },
        }
    }

    fn memory(&mut self) -> Act {
        // Mostly the first: so more becomes of it.
        let region = self.own.unwrap_or(self.rng.usize(0..REGIONS) * self.rng.usize(0..2));
        let exchange = self.own.unwrap_or(self.rng.usize(0..EXCHANGES) * self.rng.usize(0..2));
        let looks = self.rng.u8(1..8);
        if self.rng.u8(0..4) == 0 {
            if !self.known.exchanges[exchange] {
                self.known.exchanges[exchange] = true;
                return Act::MakeExchange { comm: self.comm(), to: exchange, counts: self.counts() };
            }
            return Act::Turn { exchange, writes: self.rng.u8(0..4) > 0, looks };
        }
        match self.known.regions[region] {
            None => {
                self.known.regions[region] = Some(false);
                // Mostly with room for all that ranks ask for.
                let len = if self.rng.u8(0..8) > 0 { 60 + self.length() } else { self.length() };
                Act::MakeRegion { comm: self.comm(), to: region, len, distributed: self.rng.bool() }
            }
            Some(true) if self.rng.bool() => Act::Read { region, looks },
            Some(true) => {
                self.known.regions[region] = Some(false);
                Act::Reclaim { region }
            }
            Some(false) => match self.rng.u8(0..8) {
                0..3 => Act::Write { region, looks },
                3 => Act::Distribute { region },
                4..6 => {
                    let asks = match self.rng.u8(0..10) {
                        0 => Asks::Calling,
                        1 => Asks::Panicking,
                        2 => Asks::AtLength,
                        _ => Asks::Plainly,
                    };
                    self.assign(region, asks)
                }
                _ => {
                    self.known.regions[region] = Some(true);
                    Act::Publish { region }
                }
            },
        }
    }

    /// Parts that are apart, or that overlap, or that reach past the end.
    fn assign(&mut self, region: usize, asks: Asks) -> Act {
        let apart = self.rng.u8(0..3) > 0;
        let mut end = 0;
        let asked = std::array::from_fn(|_| {
            let parts = self.rng.usize(0..4);
            let part = |_| {
                let start = if apart { end + self.rng.usize(0..3) } else { self.rng.usize(0..20) };
                end = start + self.rng.usize(0..if apart { 4 } else { 400 });
                start..end
            };
            (0..parts).map(part).collect::<Vec<Range<usize>>>()
        });
        Act::Assign { region, asked, asks }
    }

    fn splitting(&mut self) -> Act {
        if self.own.is_some() {
            // It would not be alone with that.
            return self.collective();
        }
        let (comm, to) = (self.comm(), self.rng.usize(1..COMMS));
        self.known.comms[to] = true;
        if self.rng.u8(0..4) == 0 {
            return Act::SplitLocal { comm, to };
        }
        let most = self.rng.usize(1..4);
        let colors = std::array::from_fn(|_| *self.choose(&[0, 1, usize::MAX][..most]));
        Act::Split { comm, to, colors, keys: std::array::from_fn(|_| self.rng.usize(0..3)) }
    }

    fn odd(&mut self) -> Act {
        use intranode::Operation;
        let operations =
            [Operation::Barrier, Operation::Allreduce, Operation::Region, Operation::Assign, Operation::Split];
        let (comm, handle) = (self.comm(), self.handle());
        match self.rng.u8(0..20) {
            0..3 => Act::State { comm },
            3..7 => Act::RefuseCall { comm, operation: *self.choose(&operations) },
            7..9 => Act::Leave { comm },
            9..12 => Act::Drop { handle },
            12 => Act::Forget { handle },
            13..16 => Act::Panic { handle, caught: true },
            16 => Act::Panic { handle, caught: false },
            17 if self.ends => Act::Exit,
            18 if self.ends => Act::Abort { comm },
            _ => Act::Pause { micros: self.rng.u64(0..300) },
        }
    }

    fn handle(&mut self) -> Handle {
        match self.rng.u8(0..3) {
            0 => Handle::Comm(self.own.unwrap_or(self.rng.usize(0..COMMS))),
            1 => Handle::Region(self.own.unwrap_or(self.rng.usize(0..REGIONS))),
            _ => Handle::Exchange(self.own.unwrap_or(self.rng.usize(0..EXCHANGES))),
        }
    }

    /// Mostly the one that all have.
    fn comm(&mut self) -> usize {
        let slot = self.rng.usize(0..2 * COMMS);
        let other = if slot < COMMS && self.known.comms[slot] { slot } else { 0 };
        self.own.unwrap_or(other)
    }

    /// Nothing, what fits into a note, and several pages.
    fn length(&mut self) -> usize {
        let most = [1, 8, 100, 3000][self.rng.usize(0..4)];
        self.rng.usize(0..most)
    }

    fn counts(&mut self) -> [usize; MOST_RANKS] {
        let even = self.length();
        let is_even = self.rng.bool();
        std::array::from_fn(|_| if is_even { even } else { self.length() })
    }

    fn choose<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.rng.usize(0..of.len())]
    }
}

/// A step that is not done again.
fn once(act: Act) -> Step {
    Step { act, retries: 0 }
}
