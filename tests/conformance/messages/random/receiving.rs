//! The receiving side of a player: the calls that receive, probe, take and cancel, in all their forms. Those that wait are made only where
//! the message that they wait for is there or will be, and does not belong to a receive that was started before.

use anyhow::{Context, bail, ensure};
use intranode::{Cancelled, Error, Receiving, Request, Sending, Source, Tag};

use super::notes::End;
use super::plan::Asked;
use super::player::{Open, Player};
use super::{CANARY, MOST, is_unchanged, starts_with};
use crate::scenario::Outcome;

impl<'b> Player<'_, 'b> {
    /// Starts a receive that stays open.
    pub(super) fn post(&mut self, asked: Asked) -> Outcome {
        let buffer = self.buffers.next().context("a buffer for each")?;
        let receiving = self.messages.start_recv(buffer, asked.from, asked.tag)?;
        let note = self.notes.start(asked);
        self.posts.push(note);
        self.receivings.push((note, receiving));
        Ok(())
    }

    pub(super) fn test_receiving(&mut self, place: usize) -> Outcome {
        let (note, receiving) = &mut self.receivings[place];
        let (note, tested) = (*note, self.messages.test(receiving));
        match tested {
            Ok(None) => return Ok(()),
            Ok(Some(envelope)) => drop(self.notes.got(note, envelope)?),
            Err(error) => self.notes.failed(note, error)?,
        }
        drop(self.receivings.swap_remove(place));
        Ok(())
    }

    pub(super) fn cancel(&mut self, note: usize, mut receiving: Receiving<'_>) -> Outcome {
        match self.messages.cancel(&mut receiving) {
            Ok(Cancelled::Yes) => self.notes.end(note, End::Cancelled),
            Ok(Cancelled::TooLate(envelope)) => drop(self.notes.got(note, envelope)?),
            Err(error) => self.notes.failed(note, error)?,
        }
        Ok(())
    }

    /// Takes a message, and receives it unless its sender would have to send it.
    pub(super) fn take(&mut self) -> Outcome {
        let asked = self.any();
        let Some(message) = self.messages.take(asked.from, asked.tag)? else { return Ok(()) };
        let note = self.notes.start(asked);
        let envelope = message.envelope();
        if self.plan.refused || self.plan.drops && self.random.usize(..4) == 0 {
            self.drop_beside(message)?;
            self.notes.end(note, End::Dropped);
            return Ok(());
        }
        let mut buffer = vec![CANARY; envelope.bytes];
        let received = self.messages.recv_taken(message, &mut buffer);
        if matches!(received, Err(Error::Withdrawn { .. })) && self.plan.withdraws {
            self.notes.end(note, End::Dropped);
            return Ok(());
        }
        ensure!(received.as_ref().ok() == Some(&envelope), "took {envelope:?}, got {received:?}");
        self.notes.gave(note, received, &buffer)
    }

    /// Receives this message, and those before it of the same kind.
    pub(super) fn consume(&mut self, number: usize) -> Outcome {
        let message = self.plan.messages[number];
        let asked = Asked { from: Source::Rank(message.from), tag: Tag::Is(message.tag) };
        let all = self.plan.up_to(number);
        while !self.notes.has_received_all(&all) {
            let is_asked_for =
                self.receivings.iter().any(|(note, _)| self.notes.receives[*note].asked.matches(&message));
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
                let note = self.notes.start(asked);
                let (data, envelope) = self.messages.recv_vec::<u8>(from, tag)?;
                ensure!(data.len() == envelope.bytes);
                self.notes.gave(note, Ok(envelope), &data)
            }
            1 => {
                let envelope = self.messages.probe(from, tag)?;
                let note = self.notes.start(asked);
                let received = self.messages.recv(&mut buffer, from, tag);
                let is_same = match &received {
                    Ok(received) => *received == envelope,
                    Err(Error::Truncated { bytes, .. }) => *bytes == envelope.bytes,
                    Err(_) => true,
                };
                ensure!(is_same || !exact, "it has probed {envelope:?}, and then {received:?}");
                self.notes.gave(note, received, &buffer)
            }
            2 => {
                let note = self.notes.start(asked);
                let mut receiving = self.messages.start_recv(&mut buffer, from, tag)?;
                let received = self.messages.wait(&mut receiving);
                drop(receiving);
                self.notes.gave(note, received, &buffer)
            }
            _ => {
                let note = self.notes.start(asked);
                let received = self.messages.recv(&mut buffer, from, tag);
                if let Ok(envelope) = &received {
                    ensure!(!exact || is_unchanged(&buffer[envelope.bytes..]), "bytes behind {envelope:?}");
                }
                self.notes.gave(note, received, &buffer)
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
        let note = self.notes.start(asked);
        let mut is_open = true;
        while sending.is_some() || is_open && !self.notes.has_received_all(all) {
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
                    self.notes.got(note, envelope)?;
                }
                Ok(Some((place, _))) if place < second => drop(self.sendings.swap_remove(place - first)),
                Ok(Some((place, _))) if has_own && place == second => sending = None,
                Ok(Some((_, envelope))) => {
                    self.notes.got(note, envelope)?;
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
            self.notes.end(note, End::Dropped);
        } else if is_open {
            self.cancel(note, receiving)?;
        }
        let End::Got(number) = self.notes.receives[note].end else { return Ok(()) };
        ensure!(starts_with(buffer, self.plan.messages[number].bytes()), "{number}: other bytes");
        Ok(())
    }

    pub(super) fn exchange(&mut self, messages: &[usize]) -> Outcome {
        let own = self.plan.messages[messages[self.rank]];
        let place = messages.iter().position(|number| self.plan.messages[*number].to == self.rank);
        let coming = messages[place.context("each gets one")?];
        let from = self.plan.messages[coming].from;
        let data = self.data(&own);
        let asked = Asked { from: Source::Rank(from), tag: Tag::Is(own.tag) };
        let mut buffer = vec![CANARY; MOST];
        let is_asked_for =
            |(note, _): &Open<'_>| self.notes.receives[*note].asked.matches(&self.plan.messages[coming]);
        if self.notes.has_received(coming) || self.receivings.iter().any(is_asked_for) {
            let sending = self.messages.start_send(data, own.to, own.tag)?;
            return self.wait_beside(asked, &mut buffer, Some(sending), &[coming]);
        }
        let note = self.notes.start(asked);
        let received = self.messages.sendrecv(data, own.to, &mut buffer, from, own.tag)?;
        self.notes.gave(note, Ok(received), &buffer)
    }
}
