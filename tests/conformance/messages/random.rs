//! Random programs of sends and receives, against MPI's rules of matching.
//!
//! All ranks make the same plan from a seed, and each plays its part of the steps. Calls that wait are steps of both sides, in one order,
//! so that no program deadlocks. Each rank writes down which receives it has started, and how each has ended; at the end it checks that each
//! message was received once or was taken back, with its bytes, and that no message or receive has overtaken another one.
//!
//! `CONFORMANCE_PROGRAMS` is the number of programs; `CONFORMANCE_SEED` is the seed of the first one, a failure tells its own.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use fastrand::Rng;
use intranode::{Cancelled, Communicator, Envelope, Error, Messages, Receiving, Request, Sending, Source, Tag};

use super::EAGER;
use super::refused::refuse_reading;
use crate::scenario::{Outcome, Scenario, row, seed};

/// A call that waits longer hangs.
const HANGS: Duration = Duration::from_secs(20);

/// The longest message, in bytes.
const MOST: usize = 3 << 20;

/// What no message has brought.
const CANARY: u8 = 0xC3;

/// The tag of each rank's last message, and the first of those of exchanges.
const LAST: u64 = u64::MAX;
const EXCHANGES: u64 = 1 << 40;

pub(super) fn rows() -> Vec<Scenario> {
    let rows = [
        row!(message_random_programs).ranks(&[1, 2, 3, 4]),
        row!(message_random_programs_where_memory_cannot_be_read).ranks(&[2, 3]),
    ];
    rows.into_iter().map(|row| row.timeout(HANGS)).collect()
}

fn message_random_programs(comm: Communicator) -> Outcome {
    play_all(&comm, false)
}

fn message_random_programs_where_memory_cannot_be_read(comm: Communicator) -> Outcome {
    refuse_reading()?;
    play_all(&comm, true)
}

fn play_all(comm: &Communicator, refused: bool) -> Outcome {
    let count = std::env::var("CONFORMANCE_PROGRAMS").map_or(Ok(8), |count| count.parse())?;
    let mut shared = comm.buffer::<u8>(2 * MOST)?;
    shared.copy_from_slice(contents());
    for seed in (0..count).map(|number| seed().wrapping_add(number)) {
        let plan = Plan::new(seed, comm.size(), refused);
        Player::play(comm, &plan, &shared, seed).with_context(|| format!("program {seed}"))?;
    }
    Ok(())
}

/// What all messages are parts of.
fn contents() -> &'static [u8] {
    static CONTENTS: OnceLock<Vec<u8>> = OnceLock::new();
    CONTENTS.get_or_init(|| {
        let mut random = Rng::with_seed(0);
        (0..2 * MOST / 8).flat_map(|_| random.u64(..).to_ne_bytes()).collect()
    })
}

/// A message: a part of the contents.
#[derive(Clone, Copy, Debug)]
struct Planned {
    from: usize,
    to: usize,
    tag: u64,
    start: usize,
    len: usize,
    how: How,
    /// Whether it lies in memory that all ranks map.
    shared: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
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
    fn is_certain(&self) -> bool {
        !matches!(self.how, How::Withdraw { .. })
    }

    fn bytes(&self) -> &'static [u8] {
        &contents()[self.start..self.start + self.len]
    }
}

/// What a receive asks for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    from: Source,
    tag: Tag,
}

impl Asked {
    fn matches(&self, message: &Planned) -> bool {
        let from = self.from == Source::Any || self.from == Source::Rank(message.from);
        from && (self.tag == Tag::Any || self.tag == Tag::Is(message.tag))
    }
}

#[derive(Debug)]
enum Step {
    Send(usize),
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

struct Plan {
    refused: bool,
    /// Whether senders take messages back, and receivers drop what they have started.
    withdraws: bool,
    drops: bool,
    messages: Vec<Planned>,
    steps: Vec<Step>,
    /// Each message that a rank gets, by what it is known by.
    known: HashMap<(usize, usize, u64, usize), usize>,
}

impl Plan {
    fn new(seed: u64, ranks: usize, refused: bool) -> Self {
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
                    for _ in 0..burst {
                        let how = match random.usize(..8) {
                            kind if withdraws && kind < taken_back => {
                                How::Withdraw { drops: random.bool(), synchronous: random.bool() }
                            }
                            0..3 => How::Send,
                            3 => How::Synchronous,
                            _ => How::Start,
                        };
                        let long = if burst > 1 { 0 } else { long };
                        let message = plan.add(&mut random, (from, to, tag), how, long);
                        plan.steps.push(Step::Send(message));
                    }
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
        loop {
            let len = match random.usize(..16) {
                _ if tag == LAST => 1,
                kind if kind + 1 < long => random.usize(EAGER..300_000),
                kind if kind < long => random.usize(EAGER..MOST),
                10 => EAGER - random.usize(..2),
                11 => random.usize(..EAGER),
                12 => random.usize(..9),
                13 => random.usize(..42),
                _ => random.usize(..3000),
            };
            let message = self.messages.len();
            if let std::collections::hash_map::Entry::Vacant(entry) = self.known.entry((from, to, tag, len)) {
                entry.insert(message);
                let start = random.usize(..MOST);
                let shared = random.usize(..3) == 0;
                self.messages.push(Planned { from, to, tag, start, len, how, shared });
                return message;
            }
        }
    }

    /// The messages that have to be received before this one, as far as it is known, and this one.
    fn up_to(&self, message: usize) -> Vec<usize> {
        let Planned { from, to, tag, .. } = self.messages[message];
        let before = |other: &usize| {
            let other = &self.messages[*other];
            (other.from, other.to, other.tag) == (from, to, tag) && other.is_certain()
        };
        (0..=message).filter(before).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Got(usize),
    Cancelled,
    Dropped,
    Truncated,
}

/// A receive, as it was started and has ended.
#[derive(Debug)]
struct Noted {
    asked: Asked,
    end: End,
    at: usize,
}

/// What a rank has written down.
struct Notes {
    messages: Messages,
    receives: Vec<Noted>,
    received: Vec<bool>,
    withdrawn: Vec<u8>,
    buried: Vec<Vec<u8>>,
}

/// A receive that was started, and its note.
type Open<'a> = (usize, Receiving<'a>);

struct Player<'a> {
    plan: &'a Plan,
    rank: usize,
    shared: &'a [u8],
    messages: Messages,
    random: Rng,
    notes: Vec<Noted>,
    clock: usize,
    /// By message: whether this rank has received it, or what it knows of one that it has sent.
    received: Vec<bool>,
    withdrawn: Vec<u8>,
    receivings: Vec<Open<'a>>,
    sendings: Vec<(usize, Sending<'a>)>,
    /// What receives that were dropped had borrowed.
    buried: Vec<Vec<u8>>,
}

const WITHDRAWN: u8 = 1;
const TOO_LATE: u8 = 2;

impl<'a> Player<'a> {
    fn play(comm: &Communicator, plan: &Plan, shared: &[u8], seed: u64) -> Outcome {
        let rank = comm.rank();
        let mut buffers: Vec<Vec<u8>> = plan
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Post { rank: of, capacity, .. } if *of == rank => Some(vec![CANARY; *capacity]),
                _ => None,
            })
            .collect();
        let mut player = Player {
            plan,
            rank,
            shared,
            messages: comm.messages()?,
            random: Rng::with_seed(seed ^ (rank as u64 + 1) << 32),
            notes: Vec::new(),
            clock: 0,
            received: vec![false; plan.messages.len()],
            withdrawn: vec![0; plan.messages.len()],
            receivings: Vec::new(),
            sendings: Vec::new(),
            buried: Vec::new(),
        };
        let mut slices = buffers.iter_mut();
        let mut posts = Vec::new();
        for (number, step) in plan.steps.iter().enumerate() {
            let context = |player: &Player<'_>| {
                format!("rank {rank}, step {number}: {step:?}, open: {:?}", player.receivings)
            };
            if let Step::Post { rank: of, asked, .. } = step {
                if *of == rank {
                    let buffer = slices.next().context("a buffer for each")?;
                    posts.push(player.notes.len());
                    player.post(*asked, buffer)?;
                }
            } else {
                player.step(step).with_context(|| context(&player))?;
            }
            player.idle(0).with_context(|| context(&player))?;
        }
        let Notes { messages, receives: notes, received, withdrawn, buried } = player.finish()?;
        let all = comm.allgather_vec(&withdrawn)?.0;
        drop(messages);
        for (number, message) in plan.messages.iter().enumerate().filter(|(_, message)| message.to == rank) {
            let known = all[message.from * plan.messages.len() + number];
            ensure!(
                if received[number] { known != WITHDRAWN } else { !message.is_certain() && known != TOO_LATE },
                "message {number}, {message:?}: received is {}, taken back {known}",
                received[number]
            );
        }
        for (post, buffer) in posts.into_iter().zip(&buffers) {
            let len = match notes[post].end {
                End::Got(message) => {
                    ensure!(
                        starts_with(buffer, plan.messages[message].bytes()),
                        "{:?}: other bytes",
                        notes[post]
                    );
                    plan.messages[message].len
                }
                End::Truncated => 0,
                _ => continue,
            };
            let unchanged = buffer[len..].iter().all(|byte| *byte == CANARY);
            ensure!(unchanged || plan.withdraws, "{:?}: bytes behind it", notes[post]);
        }
        ensure!(buried.iter().flatten().all(|byte| *byte == CANARY), "written to what was dropped");
        check_order(plan, &notes, &received, rank)
    }

    fn step(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Send(message) => self.send(*message),
            Step::Await(message) => {
                let Planned { from, to, .. } = self.plan.messages[*message];
                if to == self.rank {
                    self.consume(*message)?;
                }
                if from == self.rank {
                    self.complete(*message)?;
                }
                Ok(())
            }
            Step::Exchange(messages) => self.exchange(messages),
            Step::Post { .. } => Ok(()),
        }
    }

    fn data(&self, message: &Planned) -> &'a [u8] {
        let data = if message.shared { self.shared } else { contents() };
        &data[message.start..message.start + message.len]
    }

    fn send(&mut self, number: usize) -> Outcome {
        let message = self.plan.messages[number];
        let Planned { from, to, tag, len, how, .. } = message;
        let is_long = how == How::Send && len > EAGER && from != to;
        if to == self.rank && is_long {
            self.consume(number)?;
        }
        if from != self.rank {
            return Ok(());
        }
        let data = self.data(&message);
        match how {
            How::Send if is_long => {
                self.complete(number)?;
                self.messages.send(data, to, tag)?;
            }
            How::Send if from != to && self.random.bool() => self.messages.send(data, to, tag)?,
            How::Send if len <= EAGER && self.messages.try_send(data, to, tag)? => {}
            How::Withdraw { drops, synchronous } => {
                let mut copy = data.to_vec();
                let data = if message.shared { data } else { &copy };
                let mut sending = if synchronous {
                    self.messages.start_send_synchronous(data, to, tag)?
                } else {
                    self.messages.start_send(data, to, tag)?
                };
                self.idle(1)?;
                if drops {
                    self.drop_beside(sending)?;
                } else {
                    self.withdrawn[number] = match self.messages.cancel(&mut sending)? {
                        Cancelled::Yes => WITHDRAWN,
                        Cancelled::TooLate(_) => TOO_LATE,
                    };
                    drop(sending);
                }
                copy.fill(!CANARY);
            }
            How::Synchronous => {
                self.sendings.push((number, self.messages.start_send_synchronous(data, to, tag)?));
            }
            _ => self.sendings.push((number, self.messages.start_send(data, to, tag)?)),
        }
        Ok(())
    }

    /// Drops a request, on this thread or while this one goes on.
    fn drop_beside(&mut self, request: impl Send) -> Outcome {
        if self.random.usize(..4) > 0 {
            drop(request);
            return Ok(());
        }
        thread::scope(|scope| {
            scope.spawn(move || drop(request));
            self.take_in()
        })
    }

    fn take_in(&mut self) -> Outcome {
        // No message has this tag.
        ensure!(self.messages.try_probe(Source::Any, LAST - 1)?.is_none());
        Ok(())
    }

    fn note(&mut self, asked: Asked) -> usize {
        self.notes.push(Noted { asked, end: End::Open, at: 0 });
        self.notes.len() - 1
    }

    fn end(&mut self, note: usize, end: End) {
        self.clock += 1;
        (self.notes[note].end, self.notes[note].at) = (end, self.clock);
    }

    fn post(&mut self, asked: Asked, buffer: &'a mut [u8]) -> Outcome {
        let receiving = self.messages.start_recv(buffer, asked.from, asked.tag)?;
        let note = self.note(asked);
        self.receivings.push((note, receiving));
        Ok(())
    }

    /// A receive has got a message.
    fn got(&mut self, note: usize, Envelope { source, tag, bytes, .. }: Envelope) -> anyhow::Result<Planned> {
        let known = self.plan.known.get(&(source, self.rank, tag, bytes)).copied();
        let number =
            known.with_context(|| format!("nobody has sent {bytes} bytes from {source}, tag {tag}"))?;
        let message = self.plan.messages[number];
        ensure!(self.notes[note].asked.matches(&message), "{:?} got {message:?}", self.notes[note]);
        ensure!(!std::mem::replace(&mut self.received[number], true), "{message:?} was received twice");
        self.end(note, End::Got(number));
        Ok(message)
    }

    /// What a receive of this buffer has given.
    fn ended(&mut self, note: usize, ended: Result<Envelope, Error>, buffer: &[u8]) -> Outcome {
        match ended {
            Ok(envelope) => {
                let message = self.got(note, envelope)?;
                ensure!(starts_with(buffer, message.bytes()), "{message:?}: other bytes");
            }
            Err(error) => self.failed(note, error)?,
        }
        Ok(())
    }

    /// The only error of a receive is that its buffer is too short.
    fn failed(&mut self, note: usize, error: Error) -> Outcome {
        let Error::Truncated { rank, bytes, capacity, .. } = error else { bail!(error) };
        let Noted { asked, .. } = self.notes[note];
        let is_sent = |message: &Planned| {
            (message.from, message.to, message.len) == (rank, self.rank, bytes) && asked.matches(message)
        };
        ensure!(bytes > capacity && self.plan.messages.iter().any(is_sent), "{error}");
        self.end(note, End::Truncated);
        Ok(())
    }

    /// Calls that do not wait, on whatever there is.
    fn idle(&mut self, depth: usize) -> Outcome {
        for _ in 0..self.random.usize(..4) {
            let (receivings, sendings) = (self.receivings.len(), self.sendings.len());
            match self.random.usize(..12) {
                0..3 if receivings > 0 => {
                    let place = self.random.usize(..receivings);
                    self.test_receiving(place)?;
                }
                3 if receivings > 0 && self.plan.drops => {
                    let (note, receiving) = self.receivings.swap_remove(self.random.usize(..receivings));
                    self.drop_beside(receiving)?;
                    self.end(note, End::Dropped);
                }
                // Too late, it waits for its sender, who may have to send it.
                4 if receivings > 0 && !self.plan.refused => {
                    let (note, receiving) = self.receivings.swap_remove(self.random.usize(..receivings));
                    self.cancel(note, receiving)?;
                }
                5..7 if sendings > 0 => {
                    let place = self.random.usize(..sendings);
                    if self.messages.test(&mut self.sendings[place].1)?.is_some() {
                        drop(self.sendings.swap_remove(place));
                    }
                }
                7 if self.plan.drops || !self.plan.refused => self.take()?,
                8 => {
                    for _ in 0..self.random.usize(..5000) {
                        std::hint::spin_loop();
                    }
                }
                9 => thread::yield_now(),
                10 if self.plan.drops && depth < 2 => {
                    let mut buffer = vec![CANARY; 100_000];
                    let asked = self.any();
                    let receiving = self.messages.start_recv(&mut buffer, asked.from, asked.tag)?;
                    let note = self.note(asked);
                    self.drop_beside(receiving)?;
                    self.end(note, End::Dropped);
                    buffer.fill(CANARY);
                    self.buried.push(buffer);
                }
                _ => self.take_in()?,
            }
        }
        Ok(())
    }

    /// A pattern of any kind.
    fn any(&mut self) -> Asked {
        let message = self.random.choice(&self.plan.messages).expect("the last ones");
        let from = if self.random.bool() { Source::Any } else { Source::Rank(message.from) };
        Asked { from, tag: if self.random.bool() { Tag::Any } else { Tag::Is(message.tag) } }
    }

    fn test_receiving(&mut self, place: usize) -> Outcome {
        let (note, receiving) = &mut self.receivings[place];
        let (note, tested) = (*note, self.messages.test(receiving));
        match tested {
            Ok(None) => return Ok(()),
            Ok(Some(envelope)) => drop(self.got(note, envelope)?),
            Err(error) => self.failed(note, error)?,
        }
        drop(self.receivings.swap_remove(place));
        Ok(())
    }

    fn cancel(&mut self, note: usize, mut receiving: Receiving<'_>) -> Outcome {
        match self.messages.cancel(&mut receiving) {
            Ok(Cancelled::Yes) => self.end(note, End::Cancelled),
            Ok(Cancelled::TooLate(envelope)) => drop(self.got(note, envelope)?),
            Err(error) => self.failed(note, error)?,
        }
        Ok(())
    }

    /// Takes a message, and receives it unless its sender would have to send it.
    fn take(&mut self) -> Outcome {
        let asked = self.any();
        let Some(message) = self.messages.take(asked.from, asked.tag)? else { return Ok(()) };
        let note = self.note(asked);
        let envelope = message.envelope();
        if self.plan.refused || self.plan.drops && self.random.usize(..4) == 0 {
            self.drop_beside(message)?;
            self.end(note, End::Dropped);
            return Ok(());
        }
        let mut buffer = vec![CANARY; envelope.bytes];
        let received = self.messages.recv_taken(message, &mut buffer);
        if matches!(received, Err(Error::Withdrawn { .. })) && self.plan.withdraws {
            self.end(note, End::Dropped);
            return Ok(());
        }
        ensure!(received.as_ref().ok() == Some(&envelope), "took {envelope:?}, got {received:?}");
        self.ended(note, received, &buffer)
    }

    /// Receives this message, and those before it of the same kind.
    fn consume(&mut self, number: usize) -> Outcome {
        let message = self.plan.messages[number];
        let asked = Asked { from: Source::Rank(message.from), tag: Tag::Is(message.tag) };
        let all = self.plan.up_to(number);
        while all.iter().any(|number| !self.received[*number]) {
            let is_asked_for =
                self.receivings.iter().any(|(note, _)| self.notes[*note].asked.matches(&message));
            if is_asked_for || message.from == self.rank || self.random.usize(..5) == 0 {
                let mut buffer = vec![CANARY; MOST];
                self.wait_beside(asked, &mut buffer, None, &all)?;
            } else {
                self.receive(asked)?;
            }
        }
        Ok(())
    }

    /// Receives a message that nothing else asks for, and that is there or will be.
    fn receive(&mut self, asked: Asked) -> Outcome {
        let Asked { from, tag } = asked;
        let short = self.random.usize(..4) == 0;
        let mut buffer = vec![CANARY; if short { self.random.usize(..100) } else { MOST }];
        let exact = !self.plan.withdraws;
        match self.random.usize(..5) {
            0 => {
                let note = self.note(asked);
                let (data, envelope) = self.messages.recv_vec::<u8>(from, tag)?;
                ensure!(data.len() == envelope.bytes);
                self.ended(note, Ok(envelope), &data)
            }
            1 => {
                let envelope = self.messages.probe(from, tag)?;
                let note = self.note(asked);
                let received = self.messages.recv(&mut buffer, from, tag);
                let is_same = match &received {
                    Ok(received) => *received == envelope,
                    Err(Error::Truncated { bytes, .. }) => *bytes == envelope.bytes,
                    Err(_) => true,
                };
                ensure!(is_same || !exact, "it has probed {envelope:?}, and then {received:?}");
                self.ended(note, received, &buffer)
            }
            2 => {
                let note = self.note(asked);
                let mut receiving = self.messages.start_recv(&mut buffer, from, tag)?;
                let received = self.messages.wait(&mut receiving);
                drop(receiving);
                self.ended(note, received, &buffer)
            }
            _ => {
                let note = self.note(asked);
                let received = self.messages.recv(&mut buffer, from, tag);
                if let Ok(envelope) = &received {
                    let unchanged = buffer[envelope.bytes..].iter().all(|byte| *byte == CANARY);
                    ensure!(unchanged || !exact, "bytes behind {envelope:?}");
                }
                self.ended(note, received, &buffer)
            }
        }
    }

    /// Receives by one receive more until all of these have come, and what is sent is sent.
    fn wait_beside(
        &mut self,
        asked: Asked,
        buffer: &mut [u8],
        mut sending: Option<Sending<'_>>,
        all: &[usize],
    ) -> Outcome {
        let mut receiving = self.messages.start_recv(&mut *buffer, asked.from, asked.tag)?;
        let note = self.note(asked);
        let mut is_open = true;
        while sending.is_some() || is_open && all.iter().any(|number| !self.received[*number]) {
            let Player { receivings, sendings, messages, .. } = self;
            let mut requests: Vec<&mut dyn Request> = Vec::new();
            let (first, second) = (receivings.len(), receivings.len() + sendings.len());
            let has_own = sending.is_some();
            requests.extend(receivings.iter_mut().map(|(_, request)| request as &mut dyn Request));
            requests.extend(sendings.iter_mut().map(|(_, request)| request as &mut dyn Request));
            requests.extend(sending.as_mut().map(|request| request as &mut dyn Request));
            if is_open {
                requests.push(&mut receiving);
            }
            match messages.wait_any(&mut requests) {
                Ok(Some((place, envelope))) if place < first => {
                    let (note, _) = self.receivings.swap_remove(place);
                    self.got(note, envelope)?;
                }
                Ok(Some((place, _))) if place < second => drop(self.sendings.swap_remove(place - first)),
                Ok(Some((place, _))) if has_own && place == second => sending = None,
                Ok(Some((_, envelope))) => {
                    self.got(note, envelope)?;
                    is_open = false;
                }
                Ok(None) => bail!("nothing to wait for"),
                Err(Error::Truncated { .. }) => {
                    for place in (0..self.receivings.len()).rev() {
                        self.test_receiving(place)?;
                    }
                }
                Err(error) => bail!(error),
            }
        }
        if is_open && self.plan.refused {
            drop(receiving);
            self.end(note, End::Dropped);
        } else if is_open {
            self.cancel(note, receiving)?;
        }
        let End::Got(number) = self.notes[note].end else { return Ok(()) };
        ensure!(starts_with(buffer, self.plan.messages[number].bytes()), "{number}: other bytes");
        Ok(())
    }

    /// Completes what this rank has started to send up to this message.
    fn complete(&mut self, number: usize) -> Outcome {
        let all = self.plan.up_to(number);
        let (mut these, others) = self.sendings.drain(..).partition(|(number, _)| all.contains(number));
        self.sendings = others;
        let these: &mut Vec<(usize, Sending<'a>)> = &mut these;
        self.random.shuffle(these);
        let one_by_one = !self.plan.refused && self.random.bool();
        if one_by_one {
            for (_, sending) in these {
                self.messages.wait(sending)?;
            }
            return Ok(());
        }
        let mut requests: Vec<_> = these.iter_mut().map(|(_, sending)| sending as &mut dyn Request).collect();
        if self.random.bool() {
            self.messages.wait_all(&mut requests)?;
        } else {
            while self.messages.wait_any(&mut requests)?.is_some() {}
        }
        Ok(())
    }

    fn exchange(&mut self, messages: &[usize]) -> Outcome {
        let own = self.plan.messages[messages[self.rank]];
        let place = messages.iter().position(|number| self.plan.messages[*number].to == self.rank);
        let coming = messages[place.context("each gets one")?];
        let from = self.plan.messages[coming].from;
        let data = self.data(&own);
        let asked = Asked { from: Source::Rank(from), tag: Tag::Is(own.tag) };
        let mut buffer = vec![CANARY; MOST];
        let is_asked_for = |(note, _): &Open<'_>| self.notes[*note].asked.matches(&self.plan.messages[coming]);
        if self.received[coming] || self.receivings.iter().any(is_asked_for) {
            let sending = self.messages.start_send(data, own.to, own.tag)?;
            return self.wait_beside(asked, &mut buffer, Some(sending), &[coming]);
        }
        let note = self.note(asked);
        let received = self.messages.sendrecv(data, own.to, &mut buffer, from, own.tag)?;
        self.ended(note, Ok(received), &buffer)
    }

    /// Receives all that is sent, and completes all requests.
    fn finish(mut self) -> anyhow::Result<Notes> {
        let began = Instant::now();
        let any = Asked { from: Source::Any, tag: Tag::Any };
        let mut buffer = vec![CANARY; MOST];
        let mut is_last_sent = false;
        loop {
            let mut receiving = self.messages.start_recv(&mut buffer, any.from, any.tag)?;
            let note = self.note(any);
            let received = loop {
                self.idle(0)?;
                for place in (0..self.receivings.len()).rev() {
                    self.test_receiving(place)?;
                }
                for place in (0..self.sendings.len()).rev() {
                    if self.messages.test(&mut self.sendings[place].1)?.is_some() {
                        drop(self.sendings.swap_remove(place));
                    }
                }
                if self.sendings.is_empty() && !is_last_sent {
                    is_last_sent = true;
                    for (number, message) in self.plan.messages.iter().enumerate() {
                        if message.from == self.rank && message.tag == LAST {
                            self.send(number)?;
                        }
                    }
                }
                if let Some(envelope) = self.messages.test(&mut receiving)? {
                    break Some(envelope);
                }
                let missing: Vec<_> = (0..self.plan.messages.len())
                    .filter(|number| {
                        let message = &self.plan.messages[*number];
                        message.to == self.rank && message.is_certain() && !self.received[*number]
                    })
                    .collect();
                if missing.is_empty() && is_last_sent && self.sendings.is_empty() {
                    break None;
                }
                let (rank, open) = (self.rank, &self.sendings);
                ensure!(began.elapsed() < HANGS, "rank {rank}: not received: {missing:?}, not sent: {open:?}");
                thread::yield_now();
            };
            let Some(envelope) = received else {
                self.cancel(note, receiving)?;
                break;
            };
            drop(receiving);
            self.ended(note, Ok(envelope), &buffer)?;
        }
        for (note, receiving) in std::mem::take(&mut self.receivings) {
            self.cancel(note, receiving)?;
            ensure!(self.notes[note].end == End::Cancelled, "nothing is left for {:?}", self.notes[note]);
        }
        ensure!(self.messages.try_probe(Source::Any, Tag::Any)?.is_none(), "something is left");
        let Player { messages, notes: receives, received, withdrawn, buried, .. } = self;
        Ok(Notes { messages, receives, received, withdrawn, buried })
    }
}

/// That no message or receive has overtaken another one.
fn check_order(plan: &Plan, notes: &[Noted], received: &[bool], rank: usize) -> Outcome {
    let message = |number: usize| &plan.messages[number];
    // Those that were taken back may have had a receive, when others came.
    let taken_back: Vec<&Planned> = plan
        .messages
        .iter()
        .zip(received)
        .filter(|(message, received)| message.to == rank && !message.is_certain() && !**received)
        .map(|(message, _)| message)
        .collect();
    let may_have_lost = |receive: &Noted| taken_back.iter().any(|message| receive.asked.matches(message));
    for (first, earlier) in notes.iter().enumerate() {
        if may_have_lost(earlier) {
            // Also those behind it then had others.
            break;
        }
        // Those that were dropped, or had no room, have given theirs back to those behind them.
        let gave_back = |other: &Noted| {
            matches!(other.end, End::Dropped | End::Truncated) && (other.at > earlier.at || plan.refused)
        };
        let were_given_back = notes.iter().any(gave_back);
        for later in &notes[first + 1..] {
            let End::Got(number) = later.end else { continue };
            let overtakes = match earlier.end {
                End::Got(other) if message(other).from == message(number).from => {
                    other > number && !were_given_back
                }
                End::Cancelled => later.at < earlier.at,
                _ => false,
            };
            ensure!(
                !overtakes || !earlier.asked.matches(message(number)),
                "{earlier:?} was started before {later:?}, of {:?}",
                message(number)
            );
        }
    }
    Ok(())
}

fn starts_with(buffer: &[u8], bytes: &[u8]) -> bool {
    buffer.get(..bytes.len()) == Some(bytes)
}
