//! Reading a peer's memory, step by step.

use crate::endpoint::error::EndpointError;
use crate::endpoint::link::Link;
use crate::endpoint::requests::{Answer, Messages, Moved, Requests, Transfer, Way};
use crate::endpoint::slices::{Parts, pair, scatter, window_mut};
use crate::endpoint::state::State;
use crate::endpoint::wire::{DATA, Status, What, decode_map};
use crate::sys::cma::Fetched;
use crate::tuning::{ENDPOINT_READS_IN_FLIGHT, MESSAGE_PIECE_BYTES};

/// A get that is under way: it refers to no memory but in its [steps](Get::step).
pub(super) struct Get {
    pub(super) requests: Requests,
    /// The most bytes that are read in one step.
    most: usize,
}

impl Get {
    pub(super) fn new(state: &mut State, transfer: Transfer, most: usize) -> Result<Self, EndpointError> {
        Ok(Get { requests: Requests::new(state, transfer)?, most })
    }

    /// Whether it can read at once.
    pub(super) fn is_mapped(&self, state: &mut State) -> bool {
        let Transfer { peer, handle, offset, .. } = self.requests.transfer;
        let link = state.links.get(peer);
        !self.requests.transfer.is_short() && link.is_some_and(|link| link.mapped(handle.key, offset).is_some())
    }

    /// Goes on as far as it can at once. `None`: it could not.
    pub(super) fn step(
        &mut self,
        state: &mut State,
        targets: &mut [&mut [u8]],
    ) -> Result<Option<Moved>, EndpointError> {
        if self.requests.are_done() {
            return Ok(Some(Moved::All));
        }
        if let Some(answer) = self.requests.answer(state)? {
            match answer.way {
                Way::Direct => self.map(state, &answer, targets)?,
                Way::Messages => self.copy(state, &answer, targets)?,
            }
            self.requests.is_dealt_with(state, answer);
            return Ok(Some(self.requests.moved()));
        }
        let mut moved = None;
        loop {
            let link = state.links.find_open(self.requests.transfer.peer)?;
            let messages = Messages { len: DATA, in_flight: ENDPOINT_READS_IN_FLIGHT };
            let next = self.requests.next(link.calls.cannot_read, self.most, messages);
            let Some(part @ (_, len)) = next else { break };
            if self.requests.way == Way::Direct {
                if self.read(link, part, targets)? {
                    return Ok(Some(self.requests.moved()));
                }
                if link.calls.cannot_read {
                    continue;
                }
            }
            if !self.requests.find_room(state)? {
                break;
            }
            let len = len as u64;
            let what = if self.requests.way == Way::Direct { What::Map(len) } else { What::Read(len) };
            self.requests.ask(state, part, what)?;
            moved = Some(Moved::Asked);
        }
        Ok(moved)
    }

    /// Learns where the peer's memory lies, and reads from there.
    fn map(
        &mut self,
        state: &mut State,
        answer: &Answer,
        targets: &mut [&mut [u8]],
    ) -> Result<(), EndpointError> {
        let Transfer { peer, handle, offset, .. } = self.requests.transfer;
        self.requests.ask_again_from(answer.start);
        if answer.status == Status::Busy {
            // It has given all leases that it can give, some of them for memory that this side remembers.
            state.links.find(peer)?.unmap_if(|_| true);
            self.requests.way = Way::Messages;
            return Ok(());
        }
        self.requests.transfer.check(answer.status)?;
        let Some(map) = decode_map(answer.content()) else { return self.requests.violated(state) };
        let link = state.links.find(peer)?;
        if !link.map(handle.key, offset + answer.start as u64, handle.len, map) {
            return self.requests.violated(state);
        }
        if self.read(link, (answer.start, answer.len), targets)? || link.calls.cannot_read {
            Ok(())
        } else {
            Err(EndpointError::NotShared { peer })
        }
    }

    /// Reads a part, or the beginning of it, straight from the peer's memory, if it is known where that lies. If not, or not any more,
    /// nothing is read.
    fn read(
        &mut self,
        link: &mut Link,
        (start, len): (usize, usize),
        targets: &mut [&mut [u8]],
    ) -> Result<bool, EndpointError> {
        let Transfer { peer, handle, offset, .. } = self.requests.transfer;
        let first = offset + start as u64;
        let Some(mapped) = link.mapped(handle.key, first) else { return Ok(false) };
        let skipped = first - mapped.start;
        let len = usize::try_from(mapped.len - skipped).map_or(len, |there| there.min(len));
        let mut parts = Parts::behind(skipped, &mapped.parts);
        let (mut fetched, mut read) = (Fetched::All, 0);
        // Piece by piece, so that a lease that was withdrawn is noticed soon.
        let mut pieces = (0..len).step_by(MESSAGE_PIECE_BYTES).peekable();
        let stands = link.read_under(mapped.lease, || {
            let Some(at) = pieces.next() else { return false };
            let piece = MESSAGE_PIECE_BYTES.min(len - at);
            let slices = window_mut(targets.iter_mut().map(|target| &mut target[..]), start + at, piece);
            let mut pairs = pair(&mut parts, slices);
            fetched = link.read_parts(&mut pairs, &mut read);
            fetched == Fetched::All && pieces.peek().is_some()
        });
        match fetched {
            Fetched::All if stands => {
                self.requests.ask_again_from(start + len);
                return Ok(true);
            }
            // Its owner would be ended by touching it, so it is not asked to.
            Fetched::Unmapped if stands => {
                return Err(EndpointError::Fault { peer, bytes: (start + read) as u64 });
            }
            Fetched::Refused if stands => link.calls.cannot_read = true,
            _ => {}
        }
        link.unmap_if(|mapped| mapped.key == handle.key);
        Ok(false)
    }

    /// Takes what a message has brought.
    fn copy(
        &mut self,
        state: &mut State,
        answer: &Answer,
        targets: &mut [&mut [u8]],
    ) -> Result<(), EndpointError> {
        self.requests.transfer.check(answer.status)?;
        if answer.content().len() != answer.len {
            return self.requests.violated(state);
        }
        let slices = targets.iter_mut().map(|target| &mut target[..]);
        scatter(answer.content(), window_mut(slices, answer.start, answer.len));
        Ok(())
    }
}
