//! The plan of a random program, which all ranks make from the same seed: the messages, and the steps in which they are sent and
//! received. Calls that wait are steps of both sides, in one order, so that no program deadlocks. A message is known by its length, its
//! ranks and its tag, so that a receiver can tell which one it has got.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use fastrand::Rng;
use intranode::{Source, Tag};

use super::super::EAGER;
use super::{MOST, contents};

/// The tag of each rank's last message, and the first of those of exchanges.
pub(super) const LAST: u64 = u64::MAX;
const EXCHANGES: u64 = 1 << 40;

/// A message: a part of the contents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) tag: u64,
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) how: How,
    /// Whether it lies in memory that all ranks map.
    pub(super) shared: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Send,
    Start,
    Synchronous,
    /// One of those of an exchange.
    Exchange,
    /// It is started, and taken back.
    Withdraw {
        drops: bool,
        synchronous: bool,
    },
}

impl Planned {
    pub(super) fn is_certain(&self) -> bool {
        !matches!(self.how, How::Withdraw { .. })
    }

    pub(super) fn bytes(&self) -> &'static [u8] {
        &contents()[self.start..self.start + self.len]
    }
}

/// What a receive asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) from: Source,
    pub(super) tag: Tag,
}

impl Asked {
    pub(super) fn matches(&self, message: &Planned) -> bool {
        let from = self.from == Source::Any || self.from == Source::Rank(message.from);
        from && (self.tag == Tag::Any || self.tag == Tag::Is(message.tag))
    }
}

#[derive(Debug)]
pub(super) enum Step {
    /// One after another, with no call in between.
    Send(Vec<usize>),
    /// From this message to the one that its receiver sends.
    Exchange(Vec<usize>),
    /// Both ranks complete this message, and those before it that could be in its way.
    Await(usize),
    Post {
        rank: usize,
        asked: Asked,
        capacity: usize,
    },
}

pub(super) struct Plan {
    pub(super) refused: bool,
    /// Whether senders take messages back, and receivers drop what they have started.
    pub(super) withdraws: bool,
    pub(super) drops: bool,
    pub(super) messages: Vec<Planned>,
    pub(super) steps: Vec<Step>,
    /// Each message that a rank gets, by what it is known by.
    pub(super) known: HashMap<(usize, usize, u64, usize), usize>,
}

impl Plan {
    pub(super) fn new(seed: u64, ranks: usize, refused: bool) -> Self {
        let mut random = Rng::with_seed(seed);
        let (withdraws, drops, tags) = (random.bool(), random.bool(), random.u64(1..4));
        let (messages, steps, known) = (Vec::new(), Vec::new(), HashMap::new());
        let mut plan = Plan { refused, withdraws, drops, messages, steps, known };
        // How often there is what, and how many of the messages are long.
        let [sends, awaits, posts, taken_back] = std::array::from_fn(|_| random.usize(1..8));
        let long = random.usize(..10);
        for _ in 0..random.usize(5..100) {
            let (from, to, tag) = (random.usize(..ranks), random.usize(..ranks), random.u64(..tags));
            match random.usize(..sends + awaits + posts) {
                0 if ranks > 1 && random.bool() => {
                    let shift = random.usize(1..ranks);
                    let tag = EXCHANGES + plan.steps.len() as u64;
                    let pairs = (0..ranks).map(|rank| (rank, (rank + shift) % ranks, tag));
                    let messages = pairs.map(|of| plan.add(&mut random, of, How::Exchange, long)).collect();
                    plan.steps.push(Step::Exchange(messages));
                }
                kind if kind < sends => {
                    // Now and then more than there is room for.
                    let burst = if random.usize(..30) == 0 { random.usize(..300) } else { 1 };
                    let sent = (0..burst).map(|_| {
                        let how = match random.usize(..8) {
                            kind if withdraws && kind < taken_back => {
                                How::Withdraw { drops: random.bool(), synchronous: random.bool() }
                            }
                            0..3 => How::Send,
                            3 => How::Synchronous,
                            _ => How::Start,
                        };
                        plan.add(&mut random, (from, to, tag), how, if burst > 1 { 0 } else { long })
                    });
                    let sent = sent.collect();
                    plan.steps.push(Step::Send(sent));
                }
                kind if kind < sends + awaits => {
                    let certain = |index: &usize| plan.messages[*index].is_certain();
                    let certain: Vec<usize> = (0..plan.messages.len()).filter(certain).collect();
                    plan.steps.extend(random.choice(certain).map(Step::Await));
                }
                _ => {
                    let from = if random.bool() { Source::Any } else { Source::Rank(from) };
                    let tag = if random.usize(..3) == 0 { Tag::Any } else { Tag::Is(tag) };
                    let capacity = if random.usize(..5) == 0 { random.usize(..1000) } else { MOST };
                    plan.steps.push(Step::Post { rank: to, asked: Asked { from, tag }, capacity });
                }
            }
        }
        for (from, to) in (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to))) {
            plan.add(&mut random, (from, to, LAST), How::Send, 0);
        }
        plan
    }

    /// A message of a length that no other one has which could be taken for it.
    fn add(&mut self, random: &mut Rng, (from, to, tag): (usize, usize, u64), how: How, long: usize) -> usize {
        // Where they come through buffers, one may ask for all of these.
        let longest = if self.refused { long / 2 } else { 1 };
        loop {
            let len = match random.usize(..16) {
                _ if tag == LAST => 1,
                kind if kind + longest < long => random.usize(EAGER..300_000),
                kind if kind < long => random.usize(EAGER..MOST),
                10 => EAGER - random.usize(..2),
                11 => random.usize(..EAGER),
                12 => random.usize(..9),
                13 => random.usize(..42),
                _ => random.usize(..3000),
            };
            let message = self.messages.len();
            if let Entry::Vacant(entry) = self.known.entry((from, to, tag, len)) {
                entry.insert(message);
                let start = random.usize(..MOST);
                let shared = random.usize(..3) == 0;
                self.messages.push(Planned { from, to, tag, start, len, how, shared });
                return message;
            }
        }
    }

    /// The messages that have to be received before this one, as far as it is known, and this one.
    pub(super) fn up_to(&self, message: usize) -> Vec<usize> {
        let Planned { from, to, tag, .. } = self.messages[message];
        let before = |other: &usize| {
            let other = &self.messages[*other];
            (other.from, other.to, other.tag) == (from, to, tag) && other.is_certain()
        };
        (0..=message).filter(before).collect()
    }
}
