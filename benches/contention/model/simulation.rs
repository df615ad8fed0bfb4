//! The event loop: cores that compute, store, and wait for lines.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::line::Line;
use super::machine::{Cost, Machine};
use super::{Time, from_nanoseconds};

/// The index of a line.
pub(crate) type LineId = usize;

/// A step of a rank. A word that is written in a round then holds the round's number, and the progress of the writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Computes, and then enters the round.
    Compute(Time),
    /// A compare-exchange: the next step begins when the RFO is complete and the word is written.
    Write(LineId),
    /// The same for a word that this rank has written in this round: its new progress.
    Progress(LineId, u32),
    /// A store: the next step begins at once, concurrently with the RFO.
    Store(LineId),
    /// Prefetches a line for write.
    Prefetch(LineId),
    /// Polls the words one after another, until each holds the round's number.
    Await(Box<[LineId]>),
    /// The same, until each also holds at least this progress.
    AwaitProgress(Box<[LineId]>, u32),
}

/// The steps of all ranks in each round.
pub(crate) trait Program {
    /// The number of lines.
    fn lines(&self) -> usize;

    /// The rank that writes a line first.
    fn owner(&self, line: LineId) -> usize;

    /// The steps of `rank` in `round` after it has computed. The first round is 1.
    fn steps(&self, rank: usize, round: u32) -> Vec<Step>;
}

/// The times at which each rank entered and left a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) entered: Box<[Time]>,
    pub(crate) left: Box<[Time]>,
}

impl Round {
    /// From the entry of the last rank until all have left.
    pub(crate) fn latency(&self) -> Time {
        self.end() - self.entered.iter().max().expect("there are ranks")
    }

    /// The time at which all have left.
    pub(crate) fn end(&self) -> Time {
        *self.left.iter().max().expect("there are ranks")
    }
}

/// The time that ranks compute between rounds: `base` ns and a random skew of up to `skew` ns, independent for each rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrivals {
    pub(crate) base: f64,
    pub(crate) skew: f64,
    pub(crate) seed: u64,
}

/// Runs `program` on the first `ranks` cores.
pub(crate) fn run(
    machine: &Machine,
    ranks: usize,
    program: &impl Program,
    arrivals: Arrivals,
    rounds: u32,
) -> Vec<Round> {
    assert!(ranks <= machine.cores(), "{} has no core for each of {ranks} ranks", machine.name);
    let round = Round { entered: vec![0; ranks].into(), left: vec![0; ranks].into() };
    let mut simulation = Simulation {
        machine,
        program,
        arrivals,
        random: fastrand::Rng::with_seed(arrivals.seed),
        lines: (0..program.lines()).map(|line| Line::new(machine, program.owner(line))).collect(),
        pollers: vec![Vec::new(); program.lines()],
        ranks: (0..ranks).map(|_| Rank::default()).collect(),
        queue: BinaryHeap::new(),
        events: 0,
        rounds: vec![round; rounds as usize],
    };
    for rank in 0..ranks {
        simulation.begin_round(rank, 0);
    }
    while let Some(Reverse((now, _, event))) = simulation.queue.pop() {
        match event {
            Event::Continue { rank } => simulation.take_step(rank, now),
            Event::Poll { rank } => simulation.poll(rank, now),
            Event::Arrived { rank, place, value } => simulation.arrived(rank, place, value, now),
        }
    }
    assert!(simulation.ranks.iter().all(|rank| rank.round > rounds), "a rank waits for ever");
    simulation.rounds
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The rank's next step begins, or it compares the awaited words again.
    Continue { rank: usize },
    /// The rank misses at the polled word.
    Poll { rank: usize },
    /// The word that it awaits at `place` has arrived.
    Arrived { rank: usize, place: usize, value: u32 },
}

#[derive(Debug, Default)]
struct Rank {
    round: u32,
    steps: Vec<Step>,
    step: usize,
    /// The time at which its stores are complete: they become visible in order.
    stored: Time,
    /// The words that its step awaits, if any.
    awaited: Vec<Word>,
    /// All words before this one hold the round's number, and have been compared.
    head: usize,
    /// Whether it is comparing words that have arrived, and continues without an event of a line.
    comparing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Must be read, or compared if the rank has a copy.
    Unknown,
    UnderWay,
    Settled,
}

#[derive(Clone, Copy, Debug)]
struct Word {
    line: LineId,
    /// The smallest value that ends the wait.
    threshold: u32,
    state: State,
}

/// The value of a word in a round.
fn value(round: u32, progress: u32) -> u32 {
    round << 2 | progress
}

struct Simulation<'a, P> {
    machine: &'a Machine,
    program: &'a P,
    arrivals: Arrivals,
    random: fastrand::Rng,
    lines: Vec<Line>,
    /// By line: the ranks that poll their copy of it.
    pollers: Vec<Vec<usize>>,
    ranks: Vec<Rank>,
    queue: BinaryHeap<Reverse<(Time, u64, Event)>>,
    /// The number of events so far: events of the same time are processed in the order of their creation.
    events: u64,
    rounds: Vec<Round>,
}

impl<P: Program> Simulation<'_, P> {
    fn at(&mut self, time: Time, event: Event) {
        self.events += 1;
        self.queue.push(Reverse((time, self.events, event)));
    }

    fn begin_round(&mut self, rank: usize, now: Time) {
        let Arrivals { base, skew, .. } = self.arrivals;
        let compute = Step::Compute(from_nanoseconds(base + skew * self.random.f64()));
        let this = &mut self.ranks[rank];
        this.round += 1;
        this.step = 0;
        if this.round as usize <= self.rounds.len() {
            this.steps = vec![compute];
            this.steps.extend(self.program.steps(rank, this.round));
            self.at(now, Event::Continue { rank });
        }
    }

    fn take_step(&mut self, rank: usize, now: Time) {
        let this = &mut self.ranks[rank];
        let round = this.round;
        let times = &mut self.rounds[round as usize - 1];
        let stored = this.stored;
        let next = match this.steps.get(this.step) {
            None => {
                times.left[rank] = now;
                return self.begin_round(rank, now);
            }
            Some(Step::Await(lines) | Step::AwaitProgress(lines, _)) => {
                let progress =
                    if let Step::AwaitProgress(_, progress) = &this.steps[this.step] { *progress } else { 0 };
                if this.awaited.is_empty() {
                    let threshold = value(round, progress);
                    this.awaited.extend(lines.iter().map(|&line| Word {
                        line,
                        threshold,
                        state: State::Unknown,
                    }));
                }
                this.comparing = false;
                return self.compare(rank, now);
            }
            Some(Step::Compute(time)) => {
                times.entered[rank] = now + time;
                now + time
            }
            Some(&Step::Write(line)) => {
                let value = Some(value(round, 0));
                self.take(line, rank, now, value).max(stored) + self.machine.time(Cost::Atomic)
            }
            Some(&Step::Progress(line, progress)) => {
                let value = Some(value(round, progress));
                self.take(line, rank, now, value).max(stored) + self.machine.time(Cost::Atomic)
            }
            Some(&Step::Store(line)) => {
                self.ranks[rank].stored = self.take(line, rank, now, Some(value(round, 0))).max(stored);
                now + self.machine.time(Cost::Check)
            }
            Some(&Step::Prefetch(line)) => {
                self.take(line, rank, now, None);
                now
            }
        };
        self.ranks[rank].step += 1;
        self.at(next, Event::Continue { rank });
    }

    /// An RFO. Ranks that poll the line miss at their next poll.
    fn take(&mut self, line: LineId, rank: usize, now: Time, value: Option<u32>) -> Time {
        let rfo = self.lines[line].take(self.machine, rank, now, value);
        for poller in std::mem::take(&mut self.pollers[line]) {
            self.poll_soon(poller, rfo.invalidated);
        }
        rfo.done
    }

    /// The next poll is a random part of the interval away.
    fn poll_soon(&mut self, rank: usize, now: Time) {
        let wait = self.random.u64(0..self.machine.time(Cost::Pause).max(1));
        self.at(now + wait, Event::Poll { rank });
    }

    fn poll(&mut self, rank: usize, now: Time) {
        let head = self.ranks[rank].head;
        self.read_missing(rank, head..head + 1, now);
    }

    /// Compares the words of which the rank has a copy, in order. If the next is missing, it is read together with those that
    /// follow: a processor executes ahead of an outstanding load, up to its number of concurrent misses.
    fn compare(&mut self, rank: usize, now: Time) {
        let this = &self.ranks[rank];
        let (head, count) = (this.head, this.awaited.len());
        let settled = this.awaited[head..].iter().take_while(|word| self.is_settled(rank, **word)).count();
        if settled > 0 {
            let this = &mut self.ranks[rank];
            this.head += settled;
            this.comparing = true;
            return self.at(now + settled as Time * self.machine.time(Cost::Check), Event::Continue { rank });
        }
        let Some(Word { line, state, .. }) = this.awaited.get(head).copied() else {
            let this = &mut self.ranks[rank];
            this.awaited.clear();
            this.head = 0;
            this.step += 1;
            return self.at(now, Event::Continue { rank });
        };
        if state == State::Unknown && self.lines[line].own_copy(rank).is_some() {
            self.pollers[line].push(rank);
        } else {
            self.read_missing(rank, head..count.min(head + self.machine.window()), now);
        }
    }

    /// Whether a word is known to hold the round's number, or does so in the rank's own copy.
    fn is_settled(&self, rank: usize, word: Word) -> bool {
        match word.state {
            State::Settled => true,
            State::UnderWay => false,
            State::Unknown => self.lines[word.line].own_copy(rank).is_some_and(|value| value >= word.threshold),
        }
    }

    /// Begins to read those words of which the rank has no copy.
    fn read_missing(&mut self, rank: usize, places: Range<usize>, now: Time) {
        for place in places {
            let Word { line, state, .. } = self.ranks[rank].awaited[place];
            if state == State::Unknown && self.lines[line].own_copy(rank).is_none() {
                self.ranks[rank].awaited[place].state = State::UnderWay;
                let read = self.lines[line].read(self.machine, rank, now);
                self.at(read.done, Event::Arrived { rank, place, value: read.value });
            }
        }
    }

    fn arrived(&mut self, rank: usize, place: usize, value: u32, now: Time) {
        let this = &mut self.ranks[rank];
        let word = &mut this.awaited[place];
        let settled = value >= word.threshold;
        word.state = if settled { State::Settled } else { State::Unknown };
        let line = word.line;
        if place != this.head || this.comparing {
            return;
        }
        if settled || self.lines[line].own_copy(rank).is_some() {
            self.compare(rank, now);
        } else {
            // An RFO has invalidated it during the transfer.
            self.poll_soon(rank, now);
        }
    }
}
