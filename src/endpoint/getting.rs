//! Reading a peer's memory, step by step.

use crate::endpoint::error::EndpointError;
use crate::endpoint::requests::{Answer, Moved, Requests, Transfer, Way};
use crate::endpoint::slices::{pair, scatter, window_mut};
use crate::endpoint::state::State;
use crate::endpoint::wire::{Source, Status, What, decode_map};
use crate::sys::cma::{self, Fetched};
use crate::tuning::MESSAGE_PIECE_BYTES;

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
            match self.requests.way {
                Way::Direct => self.read(state, &answer, targets)?,
                Way::Messages => self.copy(state, &answer, targets)?,
            }
            self.requests.is_dealt_with(state, answer);
            return Ok(Some(self.requests.moved()));
        }
        let mut moved = None;
        loop {
            let cannot = state.links.find_open(self.requests.transfer.peer)?.calls.cannot_read;
            let Some(part @ (_, len)) = self.requests.next(cannot, self.most) else { break };
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

    /// Reads straight from the peer's memory, under the lease that it has given.
    fn read(
        &mut self,
        state: &mut State,
        answer: &Answer,
        targets: &mut [&mut [u8]],
    ) -> Result<(), EndpointError> {
        let Transfer { peer, .. } = self.requests.transfer;
        if answer.status == Status::Busy {
            self.requests.way = Way::Messages;
            self.requests.ask_again_from(answer.start);
            return Ok(());
        }
        self.requests.transfer.check(answer.status)?;
        let Some((lease, source)) = decode_map(answer.content()) else { return self.requests.violated(state) };
        let Some(len) = length(&source).filter(|len| (1..=answer.len).contains(len)) else {
            return self.requests.violated(state);
        };
        let link = state.links.find(peer)?;
        let mut parts = &source.parts[..];
        let mut skipped = 0;
        let (mut fetched, mut read) = (Fetched::All, 0);
        // Piece by piece, so that a lease that was withdrawn is noticed soon.
        let mut pieces = (0..len).step_by(MESSAGE_PIECE_BYTES).peekable();
        let stands = link.pull(lease, || {
            let Some(start) = pieces.next() else { return false };
            let piece = MESSAGE_PIECE_BYTES.min(len - start);
            let slices =
                window_mut(targets.iter_mut().map(|target| &mut target[..]), answer.start + start, piece);
            let from = take_parts(&mut parts, &mut skipped, piece);
            fetched = cma::read_parts(link.process_number(), source.token, &mut pair(&from, slices), &mut read);
            fetched == Fetched::All && pieces.peek().is_some()
        });
        let read_to = match fetched {
            _ if !stands => return Err(EndpointError::NotShared { peer }),
            Fetched::All => answer.start + len,
            Fetched::Refused => {
                link.calls.cannot_read = true;
                answer.start
            }
            // Its owner would be ended by touching it, so it is not asked to.
            Fetched::Unmapped => {
                return Err(EndpointError::Fault { peer, bytes: (answer.start + read) as u64 });
            }
        };
        self.requests.ask_again_from(read_to);
        Ok(())
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

fn length(source: &Source) -> Option<usize> {
    source.len().and_then(|len| usize::try_from(len).ok())
}

/// The next `len` bytes of parts, of the first of which some are taken.
fn take_parts(parts: &mut &[(u64, u64)], skipped: &mut u64, len: usize) -> Vec<(u64, u64)> {
    let (mut taken, mut left) = (Vec::new(), len as u64);
    while left > 0
        && let Some(((address, part), rest)) = parts.split_first()
    {
        let now = left.min(part - *skipped);
        taken.push((address.wrapping_add(*skipped), now));
        left -= now;
        *skipped += now;
        if *skipped == *part {
            (*parts, *skipped) = (rest, 0);
        }
    }
    taken
}
