//! A transfer's requests to a peer, and their answers: those that are on their way.

use std::collections::VecDeque;

use crate::endpoint::calls::Kept;
use crate::endpoint::ended::Ended;
use crate::endpoint::error::EndpointError;
use crate::endpoint::handle::Handle;
use crate::endpoint::left::Unanswered;
use crate::endpoint::link::{LONGEST, Stage};
use crate::endpoint::peer::Peer;
use crate::endpoint::slices::window;
use crate::endpoint::state::State;
use crate::endpoint::wire::{Request, Status, What, decode_reply};
use crate::protocol::message::Kind;
use crate::segment::message_memory::BUFFER;
use crate::tuning::{ENDPOINT_SHORT_BYTES, ENDPOINT_WRITE_BUFFERS};

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
    reply: Vec<u8>,
    /// Where the content begins.
    content: usize,
    pub(super) start: usize,
    pub(super) len: usize,
}

impl Answer {
    pub(super) fn content(&self) -> &[u8] {
        &self.reply[self.content..]
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

/// How a transfer goes by messages.
#[derive(Clone, Copy)]
pub(super) struct Messages {
    /// The most bytes of each.
    pub(super) len: usize,
    /// The most that are on their way.
    pub(super) in_flight: usize,
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
        if offset.checked_add(len as u64).is_none_or(|end| end > handle.len) {
            return Err(EndpointError::OutOfBounds { offset, bytes: len as u64, len: handle.len });
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

    /// Whether it is an answer that is waited for, and not room for a request.
    #[cfg(feature = "tokio")]
    pub(super) fn await_answer(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// The next part that can be asked for at once: its start and length. What is short goes by messages, too.
    pub(super) fn next(
        &mut self,
        cannot_go_directly: bool,
        most: usize,
        messages: Messages,
    ) -> Option<(usize, usize)> {
        let (start, rest) = self.missing.unwrap_or((self.asked, self.transfer.len - self.asked));
        let is_first = self.under_way.is_empty();
        let is_short = rest <= messages.len || self.transfer.is_short();
        if is_first && (is_short || cannot_go_directly) {
            self.way = Way::Messages;
        }
        let (has_turn, most) = match self.way {
            Way::Direct => (is_first, most),
            // As few as there can be, of about the same length.
            Way::Messages => {
                let count = rest.div_ceil(messages.len).max(1);
                (self.under_way.len() < messages.in_flight, rest.div_ceil(count))
            }
        };
        (has_turn && rest > 0).then_some((start, rest.min(most)))
    }

    /// Whether there is room for a request. Room that is found stays until one is made; room that is missing is noticed later.
    pub(super) fn find_room(&self, state: &mut State) -> Result<bool, EndpointError> {
        let link = state.links.find_open(self.transfer.peer)?;
        let found = link.finds_room(LONGEST);
        link.calls.wants_room |= !found;
        Ok(found)
    }

    /// Asks for a part, for which there is room.
    pub(super) fn ask(
        &mut self,
        state: &mut State,
        (start, len): (usize, usize),
        what: What,
    ) -> Result<(), EndpointError> {
        let Transfer { peer, handle, offset, .. } = self.transfer;
        let link = state.links.find_open(peer)?;
        let number = link.calls.ask(matches!(what, What::Map(_)));
        let mut request = core::mem::take(&mut link.calls.made);
        request.clear();
        Request { key: handle.key, offset: offset + start as u64, what }.encode(&mut request);
        let sent = link.send_quietly(Kind::Request, number, &request);
        link.calls.made = request;
        debug_assert!(sent, "room was found for it");
        self.is_asked(Asked { number, way: self.way, start, len });
        Ok(())
    }

    /// Writes a part of the data, or as much of it as there is room for, which may be nothing. Returns how much.
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
        let buffers = link.finds_buffers(len.div_ceil(BUFFER).min(ENDPOINT_WRITE_BUFFERS));
        let len = len.min(buffers * BUFFER);
        let number = link.calls.ask(false);
        let slices: Vec<_> = window(data.iter().copied(), start, len).collect();
        link.send_write(number, [handle.key, offset + start as u64], &slices);
        self.is_asked(Asked { number, way: Way::Messages, start, len });
        Ok(len)
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
        debug_assert!(self.under_way.is_empty(), "directly one request is on its way at a time");
        self.asked = start;
    }

    /// The answer to the oldest request, once it is there.
    pub(super) fn answer(&mut self, state: &mut State) -> Result<Option<Answer>, EndpointError> {
        let peer = self.transfer.peer;
        let Some(&Asked { number, way, start, len }) = self.under_way.front() else { return Ok(None) };
        let reply = loop {
            let link = state.links.find(peer)?;
            if let Some(reply) = link.calls.take_reply(number) {
                break reply;
            }
            if let Stage::Ended(ended) = link.stage {
                return Err(EndpointError::PeerGone { peer, ended });
            }
            // It may be behind messages that nobody has received.
            if !state.take_in_behind(peer)? {
                return Ok(None);
            }
        };
        self.under_way.pop_front();
        match decode_reply(&reply) {
            Some((status, content)) => {
                let content = reply.len() - content.len();
                Ok(Some(Answer { status, way, content, reply, start, len }))
            }
            None => self.violated(state),
        }
    }

    /// An answer was dealt with: its memory serves others.
    pub(super) fn is_dealt_with(&self, state: &mut State, answer: Answer) {
        if let Some(link) = state.links.get(self.transfer.peer) {
            link.calls.keep_spare(answer.reply);
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
    /// Whether all of it goes by messages.
    pub(super) fn is_short(&self) -> bool {
        self.len <= ENDPOINT_SHORT_BYTES
    }

    pub(super) fn check(&self, status: Status) -> Result<(), EndpointError> {
        let Transfer { peer, handle, offset, len } = *self;
        match status {
            Status::Done => Ok(()),
            Status::Bounds => Err(EndpointError::OutOfBounds { offset, bytes: len as u64, len: handle.len }),
            Status::NotWritable => Err(EndpointError::NotWritable { peer }),
            Status::Unknown | Status::Refused | Status::Busy | Status::Fault => {
                Err(EndpointError::NotShared { peer })
            }
        }
    }
}
