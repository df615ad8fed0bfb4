//! Writing to a peer's memory, step by step: the peer is sent the bytes, or reads from this process's memory, or both at a time.

use crate::endpoint::error::EndpointError;
use crate::endpoint::handle::Access;
use crate::endpoint::requests::{Content, Moved, Requests, Transfer, Way};
use crate::endpoint::short::LONGEST;
use crate::endpoint::slices::{part, window};
use crate::endpoint::state::State;
use crate::endpoint::wire::{DATA, PARTS, Status, What};
use crate::sys::memory::readable::is_readable;
use crate::tuning::{ENDPOINT_BOTH_WAYS_BYTES, ENDPOINT_WRITTEN_BYTES, MESSAGE_PIECE_BYTES};

/// A put that is under way. Between its [steps](Put::step) the peer may read the data.
pub(super) struct Put {
    pub(super) requests: Requests,
    /// Whether the bytes are sent, although the peer could read them: both sides copy faster than the system, if both do nothing else.
    is_sent: bool,
    /// The bytes at the front that this process can read, as far as it knows.
    readable: usize,
    /// Whether the peer has not said yet that its memory has room for all: the handle may say more than there is. What it reads itself it
    /// checks as a whole.
    is_unchecked: bool,
}

impl Put {
    /// `waits`: steps are made one after the other until it is done.
    pub(super) fn new(state: &mut State, transfer: Transfer, waits: bool) -> Result<Self, EndpointError> {
        if transfer.handle.access != Access::ReadWrite {
            return Err(EndpointError::NotWritable { peer: transfer.peer });
        }
        let is_long = transfer.len > ENDPOINT_BOTH_WAYS_BYTES;
        let is_sent = waits && state.polls();
        let requests = Requests::new(state, transfer)?;
        // What is written by one request is checked with that.
        let is_known = state.links.find_open(transfer.peer)?.reaches(transfer.handle.key, transfer.end());
        let is_unchecked = transfer.len > transfer.message() && !is_known;
        Ok(Put { requests, is_sent, is_unchecked, readable: if is_long { 0 } else { transfer.len } })
    }

    /// Goes on as far as it can at once. `None`: it could not.
    pub(super) fn step(&mut self, state: &mut State, data: &[&[u8]]) -> Result<Option<Moved>, EndpointError> {
        let Requests { transfer, .. } = self.requests;
        if self.requests.are_done() {
            return Ok(Some(Moved::All));
        }
        let mut moved = None;
        if let Some(answer) = self.requests.answer(state)? {
            if matches!(answer.content, Content::Data(_)) {
                return self.requests.violated(state);
            }
            // Both are said of what is all there.
            if self.is_unchecked && matches!(answer.status, Status::Done | Status::Refused) {
                state.links.find(transfer.peer)?.has_reached(transfer.handle.key, transfer.end());
                self.is_unchecked = false;
            }
            match (answer.way, answer.status) {
                (Way::Direct, Status::Refused) => {
                    state.links.find_open(transfer.peer)?.calls.cannot_be_read = true;
                    self.requests.is_missing(&answer);
                }
                (Way::Direct, Status::Fault) => {
                    let read = <[u8; 8]>::try_from(answer.content.message()).map_or(0, u64::from_ne_bytes);
                    let bytes = answer.start as u64 + read.min(answer.len as u64);
                    return Err(EndpointError::Fault { peer: transfer.peer, bytes });
                }
                (_, status) => transfer.check(status)?,
            }
            self.requests.is_dealt_with(state, answer.content);
            moved = Some(self.requests.moved());
            if self.requests.ends_step(state) {
                return Ok(moved);
            }
        }
        loop {
            let cannot_be_read = state.links.find_open(transfer.peer)?.calls.cannot_be_read;
            if self.requests.way == Way::Direct && self.requests.are_under_way() {
                break;
            }
            let by_messages = cannot_be_read || self.is_sent && self.is_readable(data);
            if !by_messages && self.is_sent && self.requests.are_under_way() {
                break;
            }
            let Some((start, len)) = self.requests.next(by_messages, MESSAGE_PIECE_BYTES) else { break };
            if self.is_unchecked && self.requests.way == Way::Messages {
                moved = moved.or(self.check(state)?);
                break;
            }
            let asked = match self.requests.way {
                Way::Direct => self.pull(state, (start, len), data)?,
                Way::Messages => self.requests.write(state, (start, len), data)?,
            };
            if asked == 0 {
                break;
            }
            moved = moved.or(Some(Moved::Asked));
        }
        Ok(moved)
    }

    /// Asks whether all can be written: of several messages the first are written when the last are refused.
    fn check(&mut self, state: &mut State) -> Result<Option<Moved>, EndpointError> {
        if self.requests.are_under_way() || !self.requests.find_room(state)? {
            return Ok(None);
        }
        self.requests.ask(state, (0, 0), What::Check)?;
        Ok(Some(Moved::Asked))
    }

    /// Whether this process can read what is next: what lies in a file that somebody has truncated it leaves to the system, which notices.
    fn is_readable(&mut self, data: &[&[u8]]) -> bool {
        let (start, rest) = self.requests.rest();
        let next = start + rest.min(DATA);
        if next > self.readable {
            let piece = rest.min(MESSAGE_PIECE_BYTES);
            if !window(data.iter().copied(), start, piece).all(is_readable) {
                return false;
            }
            self.readable = start + piece;
        }
        true
    }

    /// Has the peer read a part, or as much of it as one request can name. As long as it does, this side copies the end of a part that is
    /// not long. Returns how many bytes go either way: none, if there is no room for a request.
    fn pull(
        &mut self,
        state: &mut State,
        (start, len): (usize, usize),
        data: &[&[u8]],
    ) -> Result<usize, EndpointError> {
        if !self.requests.find_room(state)? {
            return Ok(0);
        }
        let is_long = self.requests.transfer.len > ENDPOINT_BOTH_WAYS_BYTES;
        // What is not known to have room is not written by a second request.
        let end = if is_long || self.is_unchecked {
            0
        } else {
            (len / 2 / LONGEST * LONGEST).min(ENDPOINT_WRITTEN_BYTES)
        };
        let parts: Vec<_> = window(data.iter().copied(), start, len - end).take(PARTS).map(part).collect();
        let pulled = parts.iter().map(|(_, len)| *len as usize).sum();
        self.requests.ask(state, (start, pulled), What::Pull(parts))?;
        let mut done = pulled;
        while (len - end..len).contains(&done) {
            match self.requests.write(state, (start + done, len - done), data)? {
                0 => break,
                written => done += written,
            }
        }
        Ok(done)
    }
}
