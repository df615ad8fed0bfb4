//! A transfer's requests to a peer, and their answers: those that are on their way.

use std::collections::VecDeque;

use crate::copy::cpu;
use crate::endpoint::calls::{Body, Kept, Reply};
use crate::endpoint::ended::Ended;
use crate::endpoint::error::EndpointError;
use crate::endpoint::handle::Handle;
use crate::endpoint::left::Unanswered;
use crate::endpoint::link::Stage;
use crate::endpoint::peer::Peer;
use crate::endpoint::short::LONGEST;
use crate::endpoint::slices::window;
use crate::endpoint::state::{BATCHES_BEHIND, State};
use crate::endpoint::wire::{DATA, FARTHEST, Request, Status, What, decode_reply, encode_place};
use crate::protocol::message::Kind;
use crate::tuning::{ENDPOINT_BULK_IN_FLIGHT, ENDPOINT_SHORT_BYTES, RECEIVE_NON_TEMPORAL_FROM_BYTES};

/// An access to a peer's memory.
#[derive(Clone, Copy)]
pub(super) struct Transfer {
    pub(super) peer: Peer,
    pub(super) handle: Handle,
    pub(super) offset: u64,
    pub(super) len: usize,
}

/// What a step of a transfer has done. Where there was nothing to do, something has to come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// It has asked for something.
    Asked,
    /// It has moved bytes, or has found out that they have to go another way.
    Some,
    /// Nothing is left to be done.
    All,
}

/// A part of a transfer, which has been asked for.
struct Asked {
    number: u64,
    way: Way,
    start: usize,
    len: usize,
}

/// The answer to the oldest request: its status and content, and which part of the transfer it is about.
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) way: Way,
    pub(super) content: Content,
    pub(super) start: usize,
    pub(super) len: usize,
}

/// What an answer has brought.
pub(super) enum Content {
    /// A message, and where in it the content begins.
    Message(Vec<u8>, usize),
    /// Bytes of the memory, no more than were asked for.
    Data(Body),
}

impl Content {
    /// That of a message.
    pub(super) fn message(&self) -> &[u8] {
        match self {
            Content::Message(message, start) => &message[*start..],
            Content::Data(_) => &[],
        }
    }
}

/// The way that a part goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// One process reads the other's memory: one request at a time.
    Direct,
    /// By messages, several of which are on their way.
    Messages,
}

/// The requests of a transfer.
pub(super) struct Requests {
    pub(super) transfer: Transfer,
    pub(super) way: Way,
    /// The bytes at the front that have been asked for.
    asked: usize,
    under_way: VecDeque<Asked>,
    /// What has to be sent, since it could not be read: start and length.
    missing: Option<(usize, usize)>,
}

impl Requests {
    /// # Errors
    /// When the peer is gone, or what is to be moved is beyond the memory's end.
    pub(super) fn new(state: &mut State, transfer: Transfer) -> Result<Self, EndpointError> {
        let Transfer { peer, handle, offset, len } = transfer;
        state.check()?;
        state.links.find_open(peer)?;
        // A handle may say more than there is.
        let most = handle.len.min(FARTHEST);
        if offset.checked_add(len as u64).is_none_or(|end| end > most) {
            return Err(EndpointError::OutOfBounds { peer, offset, bytes: len as u64, len: handle.len });
        }
        let (under_way, missing) = Default::default();
        Ok(Requests { transfer, way: Way::Direct, asked: 0, under_way, missing })
    }

    pub(super) fn are_done(&self) -> bool {
        self.asked == self.transfer.len && self.under_way.is_empty() && self.missing.is_none()
    }

    /// What a step has done that has dealt with an answer.
    pub(super) fn moved(&self) -> Moved {
        if self.are_done() { Moved::All } else { Moved::Some }
    }

    /// Whether a step that has dealt with an answer is over: nothing is left to be done, or the peer is gone, of which further answers may have
    /// come.
    pub(super) fn ends_step(&self, state: &mut State) -> bool {
        let peer = self.transfer.peer;
        let is_gone = state.links.find_open(peer).is_err();
        if is_gone && self.are_done() {
            state.links.remove_if_done(peer);
        }
        is_gone || self.are_done()
    }

    /// What has not been asked for yet: its start and length.
    pub(super) fn rest(&self) -> (usize, usize) {
        self.missing.unwrap_or((self.asked, self.transfer.len - self.asked))
    }

    /// The next part that can be asked for at once: its start and length. What is short goes by messages, too. The way changes when nothing is
    /// under way.
    pub(super) fn next(&mut self, by_messages: bool, most: usize) -> Option<(usize, usize)> {
        let (start, rest) = self.rest();
        let is_first = self.under_way.is_empty();
        if is_first {
            self.way = if by_messages || self.transfer.is_short() { Way::Messages } else { Way::Direct };
        }
        let (has_turn, most) = match self.way {
            Way::Direct => (is_first, most),
            // As few as there can be, of about the same length.
            Way::Messages => {
                let count = rest.div_ceil(self.transfer.message()).max(1);
                (self.under_way.len() < ENDPOINT_BULK_IN_FLIGHT, rest.div_ceil(count))
            }
        };
        (has_turn && rest > 0).then_some((start, rest.min(most)))
    }

    /// Whether answers are waited for.
    pub(super) fn are_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// How many bytes the oldest of these is about.
    pub(super) fn awaited(&self) -> usize {
        self.under_way.front().map_or(0, |asked| asked.len)
    }

    /// Whether there is room for a request. Room that is found stays until one is made; room that is missing is noticed later.
    pub(super) fn find_room(&self, state: &mut State) -> Result<bool, EndpointError> {
        let peer = self.transfer.peer;
        let mut batches = 0..BATCHES_BEHIND;
        while !state.links.find_open(peer)?.finds_place() {
            // An answer that makes room may be behind messages that nobody has received, or wait for their buffers.
            if self.are_under_way() || batches.next().is_none() || !state.take_in_behind(peer)? {
                state.links.find_open(peer)?.calls.wants_room = true;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Asks for a part, for which there is room.
    pub(super) fn ask(
        &mut self,
        state: &mut State,
        (start, len): (usize, usize),
        what: What,
    ) -> Result<(), EndpointError> {
        let Transfer { peer, handle, offset, len: all } = self.transfer;
        let link = state.links.find_open(peer)?;
        let number = link.calls.ask(matches!(what, What::Map(_)));
        let left = (all - start) as u64;
        let request = Request { key: handle.key, offset: offset + start as u64, left, what };
        let sent = link.send_request(number, &request);
        debug_assert!(sent, "room was found for it");
        self.is_asked(Asked { number, way: self.way, start, len });
        Ok(())
    }

    /// Writes a part of the data, or as much of it as a message has, or nothing, if there is no room. Returns how much.
    pub(super) fn write(
        &mut self,
        state: &mut State,
        (start, len): (usize, usize),
        data: &[&[u8]],
    ) -> Result<usize, EndpointError> {
        if !self.find_room(state)? {
            return Ok(0);
        }
        let Transfer { peer, handle, offset, .. } = self.transfer;
        let link = state.links.find_open(peer)?;
        let len = len.min(DATA);
        let number = link.calls.ask(false);
        let is_large = self.transfer.len >= RECEIVE_NON_TEMPORAL_FROM_BYTES;
        let place = encode_place(handle.key, offset + start as u64, is_large);
        link.send_slices(Kind::Write, number, &place, len, window(data.iter().copied(), start, len));
        self.is_asked(Asked { number, way: Way::Messages, start, len });
        Ok(len)
    }

    /// A request for all, which was not answered at once.
    pub(super) fn waits_for(&mut self, number: u64) {
        self.way = Way::Messages;
        self.is_asked(Asked { number, way: self.way, start: 0, len: self.transfer.len });
    }

    fn is_asked(&mut self, asked: Asked) {
        let end = asked.start + asked.len;
        match self.missing {
            Some((start, len)) => self.missing = Some((end, start + len - end)).filter(|(_, left)| *left > 0),
            None => self.asked = end,
        }
        self.under_way.push_back(asked);
    }

    /// The peer could not read this: it has to be sent.
    pub(super) fn is_missing(&mut self, answer: &Answer) {
        self.missing = Some((answer.start, answer.len));
    }

    /// What was asked for from here on has to be asked for once more.
    pub(super) fn ask_again_from(&mut self, start: usize) {
        debug_assert!(self.under_way.is_empty(), "what is under way would come twice");
        self.asked = start;
    }

    /// What is under way is not waited for any longer, and has to be asked for once more. Returns the number of the last request of it.
    pub(super) fn start_over(&mut self, state: &mut State) -> Option<u64> {
        let (start, last) = (self.under_way.front()?.start, self.under_way.back()?.number);
        self.abandon(state, None);
        self.ask_again_from(start);
        Some(last)
    }

    /// The answer to the oldest request, once it is there.
    pub(super) fn answer(&mut self, state: &mut State) -> Result<Option<Answer>, EndpointError> {
        let peer = self.transfer.peer;
        let Some(&Asked { number, way, start, len }) = self.under_way.front() else { return Ok(None) };
        let mut batches = 0..BATCHES_BEHIND;
        let reply = loop {
            let link = state.links.find(peer)?;
            if let Some(reply) = link.calls.take_reply(number) {
                break reply;
            }
            if let Stage::Ended(ended) = link.stage {
                return Err(EndpointError::PeerGone { peer, ended });
            }
            // It may be behind messages that nobody has received.
            if batches.next().is_none() || !state.take_in_behind(peer)? {
                return Ok(None);
            }
        };
        self.under_way.pop_front();
        let (status, content) = match reply {
            Reply::Data(data) if (1..=len).contains(&data.len()) => (Status::Done, Content::Data(data)),
            Reply::Data(_) => return self.violated(state),
            Reply::Message(message) => match decode_reply(&message) {
                Some((status, content)) => {
                    let start = message.len() - content.len();
                    (status, Content::Message(message, start))
                }
                None => return self.violated(state),
            },
        };
        Ok(Some(Answer { status, way, content, start, len }))
    }

    /// An answer was dealt with: its memory serves others.
    pub(super) fn is_dealt_with(&self, state: &mut State, content: Content) {
        if let (Some(link), Content::Message(message, _)) = (state.links.get(self.transfer.peer), content) {
            link.calls.keep_spare(message);
        }
    }

    /// The peer has answered what this library does not answer.
    pub(super) fn violated<R>(&self, state: &mut State) -> Result<R, EndpointError> {
        let peer = self.transfer.peer;
        state.end(peer, Ended::Violated);
        Err(EndpointError::PeerGone { peer, ended: Ended::Violated })
    }

    /// Nobody waits for answers any more. What the peer may still read is kept until it has answered.
    pub(super) fn abandon(&mut self, state: &mut State, kept: Option<Kept>) {
        state.abandon(self.unanswered(kept));
    }

    /// What was asked, when nobody waits for answers any more.
    pub(super) fn unanswered(&mut self, kept: Option<Kept>) -> Unanswered {
        let numbers = self.under_way.drain(..).map(|asked| asked.number).collect();
        Unanswered { peer: self.transfer.peer, numbers, kept }
    }
}

impl Transfer {
    /// Behind its last byte in the memory.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    /// Whether all of it goes by messages.
    pub(super) fn is_short(&self) -> bool {
        self.len <= ENDPOINT_SHORT_BYTES
    }

    /// The most bytes of a message. Where buffers are taken in turn, since the lowest are dear, all of their lines are to be used.
    pub(super) fn message(&self) -> usize {
        let parts = match cpu::has_strings() {
            true => ENDPOINT_BULK_IN_FLIGHT,
            false if self.is_short() => 1,
            false => 2,
        };
        (self.len / parts).clamp(LONGEST, DATA).next_multiple_of(LONGEST)
    }

    pub(super) fn check(&self, status: Status) -> Result<(), EndpointError> {
        let Transfer { peer, handle, offset, len } = *self;
        match status {
            Status::Done => Ok(()),
            Status::Bounds => {
                Err(EndpointError::OutOfBounds { peer, offset, bytes: len as u64, len: handle.len })
            }
            Status::NotWritable => Err(EndpointError::NotWritable { peer }),
            Status::Unknown | Status::Refused | Status::Busy | Status::Fault => {
                Err(EndpointError::NotShared { peer })
            }
        }
    }
}
