//! The random steps of a program.

use std::ops::Range;

use fastrand::Rng;

use crate::program::{
    Act, BUFFERS, Blocks, COMMS, EXCHANGES, Folded, Handle, MAX_RANKS, Op, Phase, REGIONS, RangeStyle,
    SYMMETRICS, Sent, Started, Step, WRONGS,
};

/// The contents of the slots after a plan.
#[derive(Default)]
pub(crate) struct Known {
    comms: [bool; COMMS],
    /// The state of a region: whether it is published.
    regions: [Option<bool>; REGIONS],
    exchanges: [bool; EXCHANGES],
    buffers: [bool; BUFFERS],
    symmetrics: [Option<Phase>; SYMMETRICS],
}

pub(crate) struct Author {
    pub(crate) rng: Rng,
    /// Whether steps may end the process.
    pub(crate) ends: bool,
    /// The index of the only slots of this thread, if it has its own.
    pub(crate) own: Option<usize>,
    pub(crate) known: Known,
}

impl Author {
    /// A step that is possible after the previous ones.
    pub(crate) fn planned(&mut self) -> Step {
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

    pub(crate) fn any(&mut self) -> Step {
        let act = match self.rng.u8(0..10) {
            0..4 => self.collective(),
            4..7 => self.memory(),
            7 => self.splitting(),
            8 => Act::Wrong { comm: self.comm(), wrong: *self.choose(&WRONGS) },
            _ => self.odd(),
        };
        self.step(act)
    }

    pub(crate) fn step(&mut self, act: Act) -> Step {
        Step { act, retries: [0, 0, 0, 1, 6][self.rng.usize(0..5)] }
    }

    pub(crate) fn collective(&mut self) -> Act {
        let (comm, len) = (self.comm(), self.length());
        match self.rng.u8(0..11) {
            0 => Act::Barrier { comm },
            1..3 => {
                let op = *self.choose(&[Op::Sum, Op::BitOr, Op::BitXor, Op::Max]);
                Act::Allreduce { comm, len, op, in_place: self.rng.bool() }
            }
            3 => Act::Allgather { comm, len },
            4..6 => Act::Allgatherv { comm, counts: self.counts(), gap: self.rng.usize(0..3) },
            6 => Act::Broadcast { comm, len, root: self.rng.usize(0..2) },
            7 => {
                let call =
                    *self.choose(&[Blocks::Gather, Blocks::Scatter, Blocks::Alltoall, Blocks::Allgather]);
                Act::Blocks { comm, len, root: self.rng.usize(0..2), call, in_place: self.rng.bool() }
            }
            8 => {
                let call = *self.choose(&[Folded::Reduce, Folded::Scan, Folded::ReduceScatter]);
                Act::Folded { comm, len, root: self.rng.usize(0..2), call }
            }
            _ => {
                let calls = [Started::Barrier, Started::Allreduce, Started::Broadcast, Started::Allgatherv];
                let (call, tests) = (*self.choose(&calls), self.rng.u8(0..4));
                Act::Started { comm, len, root: self.rng.usize(0..2), call, tests }
            }
        }
    }

    pub(crate) fn memory(&mut self) -> Act {
        // Mostly the first slot, so that more steps succeed.
        let region = self.own.unwrap_or(self.rng.usize(0..REGIONS) * self.rng.usize(0..2));
        let exchange = self.own.unwrap_or(self.rng.usize(0..EXCHANGES) * self.rng.usize(0..2));
        let rereads = self.rng.u8(1..8);
        match self.rng.u8(0..8) {
            0 => return self.buffer(),
            1..3 => return self.symmetric(),
            _ => {}
        }
        if self.rng.u8(0..4) == 0 {
            if !self.known.exchanges[exchange] {
                self.known.exchanges[exchange] = true;
                return Act::MakeExchange { comm: self.comm(), to: exchange, counts: self.counts() };
            }
            return Act::Share { exchange, writes: self.rng.u8(0..4) > 0, rereads };
        }
        match self.known.regions[region] {
            None => {
                self.known.regions[region] = Some(false);
                // Mostly long enough for all ranges.
                let len = if self.rng.u8(0..8) > 0 { 60 + self.length() } else { self.length() };
                Act::MakeRegion { comm: self.comm(), to: region, len, distributed: self.rng.bool() }
            }
            Some(true) if self.rng.bool() => Act::Read { region, rereads },
            Some(true) => {
                self.known.regions[region] = Some(false);
                Act::Reclaim { region }
            }
            Some(false) => match self.rng.u8(0..8) {
                0..3 => Act::Write { region, rereads },
                3 => Act::Distribute { region },
                4..6 => {
                    let style = match self.rng.u8(0..10) {
                        0 => RangeStyle::Calling,
                        1 => RangeStyle::Panicking,
                        2 => RangeStyle::Long,
                        _ => RangeStyle::Plain,
                    };
                    self.set_ownership(region, style)
                }
                _ => {
                    self.known.regions[region] = Some(true);
                    Act::Publish { region }
                }
            },
        }
    }

    fn buffer(&mut self) -> Act {
        let buffer = self.own.unwrap_or(self.rng.usize(0..BUFFERS) * self.rng.usize(0..2));
        let comm = self.comm();
        if !self.known.buffers[buffer] {
            self.known.buffers[buffer] = true;
            // Some are as long as what a reduction, an allgather and a broadcast read in place.
            let len = [0, 0, 66_000, 132_000, 525_000][self.rng.usize(0..5)] + self.length();
            return Act::MakeBuffer { comm, to: buffer, len };
        }
        let call = *self.choose(&[Sent::Allgather, Sent::Broadcast, Sent::Allreduce]);
        Act::SendBuffer { comm, buffer, root: self.rng.usize(0..2), call }
    }

    fn symmetric(&mut self) -> Act {
        let symmetric = self.own.unwrap_or(self.rng.usize(0..SYMMETRICS) * self.rng.usize(0..2));
        let known = self.known.symmetrics[symmetric];
        let to = *self.choose(&[Phase::Own, Phase::Own, Phase::Read]);
        let (act, known) = match (known, self.rng.u8(0..8)) {
            (None, _) => {
                let (comm, len) = (self.comm(), self.length());
                (Act::MakeSymmetric { comm, to: symmetric, len }, Some(Phase::Open))
            }
            (known, 0..4) => (Act::UseSymmetric { symmetric, rereads: self.rng.u8(1..8) }, known),
            (Some(Phase::Open), 4) => (Act::FreeSymmetric { symmetric }, None),
            (Some(Phase::Open), _) => (Act::BeginPhase { symmetric, phase: to }, Some(to)),
            _ => (Act::BeginPhase { symmetric, phase: Phase::Open }, Some(Phase::Open)),
        };
        self.known.symmetrics[symmetric] = known;
        act
    }

    /// Ranges that are disjoint, overlap, exceed the region, or end before they begin.
    pub(crate) fn set_ownership(&mut self, region: usize, style: RangeStyle) -> Act {
        let disjoint = self.rng.u8(0..3) > 0;
        let mut end = 0;
        let mut ranges: [Vec<Range<usize>>; MAX_RANKS] = std::array::from_fn(|_| {
            let parts = self.rng.usize(0..4);
            let part = |_| {
                let start = if disjoint { end + self.rng.usize(0..3) } else { self.rng.usize(0..20) };
                end = start + self.rng.usize(0..if disjoint { 4 } else { 400 });
                start..end
            };
            (0..parts).map(part).collect()
        });
        if self.rng.u8(0..20) == 0 {
            // A range that ends before it begins.
            ranges[self.rng.usize(0..2)].push(Range { start: 7, end: 5 });
        }
        Act::SetOwnership { region, ranges, style }
    }

    pub(crate) fn splitting(&mut self) -> Act {
        if self.own.is_some() {
            // Other threads could use the new communicator.
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

    pub(crate) fn odd(&mut self) -> Act {
        use intranode::Operation;
        let operations = [
            Operation::Barrier,
            Operation::Allreduce,
            Operation::Region,
            Operation::SetOwnership,
            Operation::Split,
        ];
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

    pub(crate) fn handle(&mut self) -> Handle {
        match self.rng.u8(0..5) {
            0 => Handle::Comm(self.own.unwrap_or(self.rng.usize(0..COMMS))),
            1 => Handle::Region(self.own.unwrap_or(self.rng.usize(0..REGIONS))),
            2 => Handle::Exchange(self.own.unwrap_or(self.rng.usize(0..EXCHANGES))),
            3 => Handle::Buffer(self.own.unwrap_or(self.rng.usize(0..BUFFERS))),
            _ => Handle::Symmetric(self.own.unwrap_or(self.rng.usize(0..SYMMETRICS))),
        }
    }

    /// Mostly the job's communicator.
    pub(crate) fn comm(&mut self) -> usize {
        let slot = self.rng.usize(0..2 * COMMS);
        let other = if slot < COMMS && self.known.comms[slot] { slot } else { 0 };
        self.own.unwrap_or(other)
    }

    /// Zero, inline in the header, and up to several pages.
    pub(crate) fn length(&mut self) -> usize {
        let most = [1, 8, 100, 3000][self.rng.usize(0..4)];
        self.rng.usize(0..most)
    }

    pub(crate) fn counts(&mut self) -> [usize; MAX_RANKS] {
        let even = self.length();
        let is_even = self.rng.bool();
        std::array::from_fn(|_| if is_even { even } else { self.length() })
    }

    pub(crate) fn choose<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.rng.usize(0..of.len())]
    }
}

/// A step without retries.
pub(crate) fn once(act: Act) -> Step {
    Step { act, retries: 0 }
}
