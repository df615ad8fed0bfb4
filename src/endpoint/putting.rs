//! Writing to a peer's memory, step by step: the peer reads from this process's memory, or is sent the bytes.

use crate::endpoint::error::EndpointError;
use crate::endpoint::handle::Access;
use crate::endpoint::requests::{Moved, Requests, Transfer, Way};
use crate::endpoint::slices::window;
use crate::endpoint::state::State;
use crate::endpoint::wire::{PARTS, Status, What};
use crate::rank::cma_peers::address;
use crate::tuning::MESSAGE_PIECE_BYTES;

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
            match (self.requests.way, answer.status) {
                (Way::Direct, Status::Refused) => {
                    state.links.find_open(transfer.peer)?.calls.cannot_be_read = true;
                    self.requests.ask_again_from(answer.start);
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
            let Some((start, len)) = self.requests.next(cannot, MESSAGE_PIECE_BYTES) else { break };
            if !self.requests.find_room(state)? {
                break;
            }
            let slices: Vec<_> = window(data.iter().copied(), start, len).collect();
            let copy;
            let (what, len) = match (self.requests.way, &slices[..]) {
                (Way::Direct, _) => pull(&slices),
                (Way::Messages, [slice]) => (What::Write(slice), len),
                (Way::Messages, _) => {
                    copy = slices.concat();
                    (What::Write(&copy), len)
                }
            };
            self.requests.ask(state, (start, len), what)?;
            moved = Some(Moved::Asked);
        }
        Ok(moved)
    }
}

/// Asks the peer to read these, as many as one request can name; with their length.
fn pull(slices: &[&[u8]]) -> (What<'static>, usize) {
    let slices = &slices[..slices.len().min(PARTS)];
    let part = |slice: &&[u8]| (address(slice).map_or(0, |at| at.get()), slice.len() as u64);
    (What::Pull(slices.iter().map(part).collect()), slices.iter().map(|slice| slice.len()).sum())
}
