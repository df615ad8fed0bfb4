//! A rank plays its part of a plan: it sends, completes what it has started, and between the steps makes calls that do not wait. At the end
//! it receives what is left. What it receives is in [`receiving`](super::receiving).

use std::slice;
use std::thread;
use std::time::Instant;

use anyhow::{Context, ensure};
use fastrand::Rng;
use intranode::{Cancelled, Communicator, Messages, Receiving, Request, Sending, Source, Tag};

use super::super::EAGER;
use super::notes::{End, Notes, TAKEN_BACK, TOO_LATE};
use super::plan::{Asked, How, LAST, Plan, Planned, Step};
use super::{CANARY, HANGS, MOST, contents};
use crate::scenario::Outcome;

/// A receive that was started, and its note.
pub(super) type Open<'b> = (usize, Receiving<'b>);

/// Requests borrow from the plan what they send, and the buffers of those who receive.
pub(super) struct Player<'p, 'b> {
    pub(super) plan: &'p Plan,
    pub(super) rank: usize,
    shared: &'p [u8],
    pub(super) messages: Messages,
    pub(super) random: Rng,
    pub(super) notes: Notes<'p>,
    /// By message: what this rank knows of one that it has sent and taken back.
    taken_back: Vec<u8>,
    /// For the receives that are steps, and the notes of those.
    pub(super) buffers: slice::IterMut<'b, Vec<u8>>,
    pub(super) posts: Vec<usize>,
    pub(super) receivings: Vec<Open<'b>>,
    pub(super) sendings: Vec<(usize, Sending<'p>)>,
    /// What receives that were dropped had borrowed.
    buried: Vec<Vec<u8>>,
}

/// What is left of a player.
pub(super) struct Played<'p> {
    pub(super) messages: Messages,
    pub(super) notes: Notes<'p>,
    /// The notes of the receives that are steps.
    pub(super) posts: Vec<usize>,
    pub(super) taken_back: Vec<u8>,
    pub(super) buried: Vec<Vec<u8>>,
}

impl<'p, 'b> Player<'p, 'b> {
    pub(super) fn new(
        comm: &Communicator,
        (plan, seed): (&'p Plan, u64),
        shared: &'p [u8],
        buffers: &'b mut [Vec<u8>],
    ) -> anyhow::Result<Self> {
        let rank = comm.rank();
        Ok(Player {
            plan,
            rank,
            shared,
            messages: comm.messages()?,
            random: Rng::with_seed(seed ^ (rank as u64 + 1) << 32),
            notes: Notes::new(plan, rank),
            taken_back: vec![0; plan.messages.len()],
            buffers: buffers.iter_mut(),
            posts: Vec::new(),
            receivings: Vec::new(),
            sendings: Vec::new(),
            buried: Vec::new(),
        })
    }

    pub(super) fn play(mut self) -> anyhow::Result<Played<'p>> {
        for (number, step) in self.plan.steps.iter().enumerate() {
            let played = self.step(step).and_then(|()| self.idle(0));
            played.with_context(|| {
                format!("rank {}, step {number}: {step:?}, open: {:?}", self.rank, self.receivings)
            })?;
        }
        self.finish()
    }

    fn step(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Send(messages) => messages.iter().try_for_each(|message| self.send(*message)),
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
            Step::Post { rank, asked, .. } if *rank == self.rank => self.post(*asked),
            Step::Post { .. } => Ok(()),
        }
    }

    pub(super) fn data(&self, message: &Planned) -> &'p [u8] {
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
                    self.taken_back[number] = match self.messages.cancel(&mut sending)? {
                        Cancelled::Yes => TAKEN_BACK,
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
    pub(super) fn drop_beside(&mut self, request: impl Send) -> Outcome {
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
                    self.notes.end(note, End::Dropped);
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
                    let note = self.notes.start(asked);
                    self.drop_beside(receiving)?;
                    self.notes.end(note, End::Dropped);
                    buffer.fill(CANARY);
                    self.buried.push(buffer);
                }
                _ => self.take_in()?,
            }
        }
        Ok(())
    }

    /// A pattern of any kind.
    pub(super) fn any(&mut self) -> Asked {
        let message = self.random.choice(&self.plan.messages).expect("the last ones");
        let from = if self.random.bool() { Source::Any } else { Source::Rank(message.from) };
        Asked { from, tag: if self.random.bool() { Tag::Any } else { Tag::Is(message.tag) } }
    }

    /// Completes what this rank has started to send up to this message.
    fn complete(&mut self, number: usize) -> Outcome {
        let all = self.plan.up_to(number);
        let (mut these, others) = self.sendings.drain(..).partition(|(number, _)| all.contains(number));
        self.sendings = others;
        let these: &mut Vec<(usize, Sending<'p>)> = &mut these;
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

    /// Receives all that is sent, and completes all requests.
    fn finish(mut self) -> anyhow::Result<Played<'p>> {
        let began = Instant::now();
        let any = Asked { from: Source::Any, tag: Tag::Any };
        let mut buffer = vec![CANARY; MOST];
        let mut is_last_sent = false;
        loop {
            let mut receiving = self.messages.start_recv(&mut buffer, any.from, any.tag)?;
            let note = self.notes.start(any);
            let received = loop {
                self.idle(0)?;
                let open = self.receivings.len();
                for place in (0..open).rev() {
                    self.test_receiving(place)?;
                }
                // One that had no room has given its message to another, which may have been tested before.
                let is_same = self.receivings.len() == open;
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
                let certain = |number: &usize| self.plan.messages[*number].is_certain();
                let missing: Vec<usize> = self.notes.missing().filter(certain).collect();
                if missing.is_empty() && is_same && is_last_sent && self.sendings.is_empty() {
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
            self.notes.gave(note, Ok(envelope), &buffer)?;
        }
        for (note, receiving) in std::mem::take(&mut self.receivings) {
            self.cancel(note, receiving)?;
            let noted = &self.notes.receives[note];
            ensure!(noted.end == End::Cancelled, "nothing is left for {noted:?}");
        }
        ensure!(self.messages.try_probe(Source::Any, Tag::Any)?.is_none(), "something is left");
        let Player { messages, notes, posts, taken_back, buried, .. } = self;
        Ok(Played { messages, notes, posts, taken_back, buried })
    }
}
