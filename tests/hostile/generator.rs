//! The program of a seed.
//!
//! All ranks of most programs follow one plan, so that calls meet and are a success. Then each rank strays from it now and
//! then, and further threads get in between.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

use crate::program::{Act, Asks, COMMS, EXCHANGES, Handle, MOST_RANKS, Op, Program, REGIONS, Step, WRONGS};

/// How a program ends a process before its time is only for ranks that are processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ranks {
    Threads,
    Processes,
}

/// The program of a seed.
pub(crate) fn program(seed: u64, ranks: Ranks) -> Program {
    let mut rng = Rng::with_seed(seed);
    let size = rng.usize(2..=MOST_RANKS);
    let mut author = Author { ends: ranks == Ranks::Processes, rng: rng.fork(), known: Known::default() };
    let steps = rng.usize(3..24);
    let plan: Vec<Step> = (0..steps).map(|_| author.planned()).collect();
    // Whether ranks stray at all, and whether others than the first thread of a rank do anything.
    let stray = [0.0, 0.02, 0.1][rng.usize(0..3)];
    let intruders = rng.usize(0..5);
    let most_threads = rng.usize(1..=4);
    let threads = (0..size)
        .map(|rank| {
            let mut threads = vec![author.strayed(&plan, stray)];
            if intruders > 0 && (rank == size - 1 || rng.bool()) {
                threads.extend((1..most_threads).map(|_| author.intrusion(&plan, intruders)));
            }
            threads
        })
        .collect();
    Program {
        seed,
        timeout: Duration::from_millis([200, 500, 2000][rng.usize(0..3)]),
        staging: [None, Some(64), Some(256), Some(4096)][rng.usize(0..4)],
        group: [None, None, Some(2)][rng.usize(0..3)],
        single_copy: [None, Some(true)][rng.usize(0..2)],
        orderly: rng.u8(0..4) == 0,
        threads,
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
    known: Known,
}

impl Author {
    /// A step that makes sense after those before.
    fn planned(&mut self) -> Step {
        self.known.comms[0] = true;
        let act = match self.rng.u8(0..100) {
            0..30 => self.collective(),
            30..75 => self.memory(),
            75..83 => self.splitting(),
            83..92 => Act::Wrong { comm: self.comm(), wrong: *self.choose(&WRONGS) },
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
            let micros = 1 << self.rng.u64(0..11);
            steps.push(self.step_of(Act::Pause { micros }));
            steps.push(match self.rng.u8(0..6) {
                0..2 => self.step_of(Act::Barrier { comm: 0 }),
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
        Step { act, retries: [0, 0, 1, 6][self.rng.usize(0..4)] }
    }

    fn step_of(&mut self, act: Act) -> Step {
        Step { act, retries: 0 }
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
        let (region, exchange) = (self.rng.usize(0..REGIONS), self.rng.usize(0..EXCHANGES));
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
                let len = self.length();
                Act::MakeRegion { comm: self.comm(), to: region, len, distributed: self.rng.bool() }
            }
            Some(true) if self.rng.bool() => Act::Read { region, looks },
            Some(true) => {
                self.known.regions[region] = Some(false);
                Act::Reclaim { region }
            }
            Some(false) => match self.rng.u8(0..6) {
                0..2 => Act::Write { region, looks },
                2 => Act::Distribute { region },
                3..5 => self.assign(region),
                _ => {
                    self.known.regions[region] = Some(true);
                    Act::Publish { region }
                }
            },
        }
    }

    /// Parts that are apart, or that overlap, or that reach past the end.
    fn assign(&mut self, region: usize) -> Act {
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
        let asks = match self.rng.u8(0..10) {
            0 => Asks::Calling,
            1 => Asks::Panicking,
            _ => Asks::Plainly,
        };
        Act::Assign { region, asked, asks }
    }

    fn splitting(&mut self) -> Act {
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
            0 => Handle::Comm(self.rng.usize(0..COMMS)),
            1 => Handle::Region(self.rng.usize(0..REGIONS)),
            _ => Handle::Exchange(self.rng.usize(0..EXCHANGES)),
        }
    }

    /// Mostly the one that all have.
    fn comm(&mut self) -> usize {
        let slot = self.rng.usize(0..2 * COMMS);
        if slot < COMMS && self.known.comms[slot] { slot } else { 0 }
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
