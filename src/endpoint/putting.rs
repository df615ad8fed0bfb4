//! Writing to a peer's memory, step by step: the peer reads from this process's memory, or is sent the bytes, or both at a time.

use crate::endpoint::error::EndpointError;
use crate::endpoint::handle::Access;
use crate::endpoint::requests::{Messages, Moved, Requests, Transfer, Way};
use crate::endpoint::slices::{part, window};
use crate::endpoint::state::State;
use crate::endpoint::wire::{PARTS, Status, What};
use crate::segment::message_memory::BUFFER;
use crate::tuning::{
    ENDPOINT_BOTH_WAYS_BYTES, ENDPOINT_WRITE_BUFFERS, ENDPOINT_WRITES_IN_FLIGHT, ENDPOINT_WRITTEN_BYTES,
    MESSAGE_PIECE_BYTES,
};

/// A put that is under way. Between its [steps](Put::step) the peer may read the data.
pub(super) struct Put {
    pub(super) requests: Requests,
}

impl Put {
    pub(super) fn new(state: &mut State, transfer: Transfer) -> Result<Self, EndpointError> {
        if transfer.handle.access != Access::ReadWrite {
            return Err(EndpointError::NotWritable { peer: transfer.peer });
        }
        Ok(Put { requests: Requests::new(state, transfer)? })
    }

    /// Goes on as far as it can at once. `None`: it could not.
    pub(super) fn step(&mut self, state: &mut State, data: &[&[u8]]) -> Result<Option<Moved>, EndpointError> {
        let Requests { transfer, .. } = self.requests;
        if self.requests.are_done() {
            return Ok(Some(Moved::All));
        }
        if let Some(answer) = self.requests.answer(state)? {
            match (answer.way, answer.status) {
                (Way::Direct, Status::Refused) => {
                    state.links.find_open(transfer.peer)?.calls.cannot_be_read = true;
                    self.requests.is_missing(&answer);
                }
                (Way::Direct, Status::Fault) => {
                    let read = <[u8; 8]>::try_from(answer.content()).map_or(0, u64::from_ne_bytes);
                    let bytes = answer.start as u64 + read.min(answer.len as u64);
                    return Err(EndpointError::Fault { peer: transfer.peer, bytes });
                }
                (_, status) => transfer.check(status)?,
            }
            self.requests.is_dealt_with(state, answer);
            return Ok(Some(self.requests.moved()));
        }
        let mut moved = None;
        loop {
            let cannot = state.links.find_open(transfer.peer)?.calls.cannot_be_read;
            let next = self.requests.next(cannot, MESSAGE_PIECE_BYTES, messages(transfer.len));
            let Some((start, len)) = next else { break };
            let asked = match self.requests.way {
                Way::Direct => self.pull(state, (start, len), data)?,
                Way::Messages => self.requests.write(state, (start, len), data)?,
            };
            if asked == 0 {
                break;
            }
            moved = Some(Moved::Asked);
        }
        Ok(moved)
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
        let end = if is_long { 0 } else { (len / 2 / BUFFER * BUFFER).min(ENDPOINT_WRITTEN_BYTES) };
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

/// How a put of this length goes by messages: as long as the peer copies one, this side fills another.
fn messages(bytes: usize) -> Messages {
    let len = (bytes / 4).clamp(BUFFER, ENDPOINT_WRITE_BUFFERS * BUFFER).next_multiple_of(BUFFER);
    Messages { len, in_flight: ENDPOINT_WRITES_IN_FLIGHT }
}
