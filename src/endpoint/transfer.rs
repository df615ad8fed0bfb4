//! Large transfers: what an endpoint gets from memory that its peers share, and puts there.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use crate::endpoint::api::Endpoint;
use crate::endpoint::ended::Ended;
use crate::endpoint::error::EndpointError;
use crate::endpoint::handle::{Access, Handle};
use crate::endpoint::link::Stage;
use crate::endpoint::peer::Peer;
use crate::endpoint::slices::{pair, scatter, window, window_mut};
use crate::endpoint::wire::{DATA, PARTS, Request, Source, Status, What, decode_map, decode_reply};
use crate::protocol::message::Kind;
use crate::rank::cma_peers::address;
use crate::sys::cma::{self, Fetched};
use crate::tuning::{ENDPOINT_IN_FLIGHT, MESSAGE_PIECE_BYTES};

/// An access to a peer's memory.
#[derive(Clone, Copy)]
struct Transfer {
    operation: &'static str,
    peer: Peer,
    handle: Handle,
    offset: u64,
    len: usize,
}

impl Endpoint {
    /// Reads memory that a peer shares, from an offset in bytes on, into slices that count as one. The peer's part of it takes
    /// place in the peer's calls; the bytes are copied once, straight from its memory, or through the connection's buffers where the
    /// system does not allow that (`process_vm_readv`). After an error the slices may have any content. Example:
    /// [`Endpoint::share`].
    ///
    /// # Errors
    /// [`EndpointError::OutOfBounds`]; [`EndpointError::NotShared`], also if the memory was revoked meanwhile;
    /// [`EndpointError::Fault`] if some of it is not mapped;
    /// [`EndpointError::PeerGone`], [`EndpointError::UnknownPeer`], [`EndpointError::TimedOut`] after a time without progress,
    /// [`EndpointError::TooManyUnreceived`], [`EndpointError::Forked`].
    pub fn get(
        &mut self,
        from: Peer,
        handle: &Handle,
        offset: u64,
        targets: &mut [IoSliceMut<'_>],
    ) -> Result<(), EndpointError> {
        let len = targets.iter().map(|target| target.len()).sum();
        let transfer = Transfer { operation: "get", peer: from, handle: *handle, offset, len };
        self.transfer(transfer, |endpoint| {
            let done = endpoint.get_directly(&transfer, targets)?;
            endpoint.get_in_messages(&transfer, done, targets)
        })
    }

    /// Writes to memory that a peer shares for that, from an offset in bytes on: slices that count as one. Returns when the data is
    /// there: the peer has read it, in its own calls. After an error the memory may have any content there. Example:
    /// [`Endpoint::share`].
    ///
    /// # Errors
    /// Those of [`get`](Endpoint::get); [`EndpointError::NotWritable`].
    pub fn put(
        &mut self,
        to: Peer,
        handle: &Handle,
        offset: u64,
        data: &[IoSlice<'_>],
    ) -> Result<(), EndpointError> {
        let len = data.iter().map(|data| data.len()).sum();
        let transfer = Transfer { operation: "put", peer: to, handle: *handle, offset, len };
        if handle.access != Access::ReadWrite {
            return Err(EndpointError::NotWritable { peer: to });
        }
        self.transfer(transfer, |endpoint| {
            let done = endpoint.put_directly(&transfer, data)?;
            endpoint.put_in_messages(&transfer, done, data)
        })
    }

    fn transfer(
        &mut self,
        transfer: Transfer,
        run: impl FnOnce(&mut Self) -> Result<(), EndpointError>,
    ) -> Result<(), EndpointError> {
        self.state.check()?;
        let Transfer { peer, handle, offset, len, .. } = transfer;
        self.state.links.find_open(peer)?;
        if offset.checked_add(len as u64).is_none_or(|end| end > handle.len) {
            return Err(EndpointError::OutOfBounds { offset, bytes: len as u64, len: handle.len });
        }
        let result = run(self);
        // After an error answers may be on their way.
        self.state.links.get(peer).into_iter().for_each(|link| link.calls.forget());
        result
    }

    /// Reads straight from the peer's memory. Returns how many bytes were read; the rest has to come another way.
    fn get_directly(
        &mut self,
        transfer: &Transfer,
        targets: &mut [IoSliceMut<'_>],
    ) -> Result<usize, EndpointError> {
        let mut done = 0;
        while transfer.len - done > DATA && !self.state.links.find_open(transfer.peer)?.calls.cannot_read {
            let rest = transfer.len - done;
            let (status, content) = self.ask(transfer, done, What::Map(rest as u64))?;
            if status == Status::Busy {
                break;
            }
            transfer.check(status)?;
            let link = self.state.links.find(transfer.peer)?;
            let Some((lease, source)) = decode_map(&content) else { return self.violated(transfer.peer) };
            let len = source.len().and_then(|len| usize::try_from(len).ok());
            let Some(len) = len.filter(|len| (1..=rest).contains(len)) else {
                return self.violated(transfer.peer);
            };
            let mut parts = &source.parts[..];
            let mut skipped = 0;
            let (mut fetched, mut read) = (Fetched::All, 0);
            // Piece by piece, so that a lease that was withdrawn is noticed soon.
            let mut pieces = (0..len).step_by(MESSAGE_PIECE_BYTES).peekable();
            let stands = link.pull(lease, || {
                let Some(start) = pieces.next() else { return false };
                let piece = MESSAGE_PIECE_BYTES.min(len - start);
                let slices = window_mut(targets.iter_mut().map(|target| &mut target[..]), done + start, piece);
                let from = take_parts(&mut parts, &mut skipped, piece);
                fetched =
                    cma::read_parts(link.process_number(), source.token, &mut pair(&from, slices), &mut read);
                fetched == Fetched::All && pieces.peek().is_some()
            });
            match fetched {
                _ if !stands => return Err(EndpointError::NotShared { peer: transfer.peer }),
                Fetched::All => done += len,
                Fetched::Refused => link.calls.cannot_read = true,
                // Its owner would be ended by touching it, so it is not asked to.
                Fetched::Unmapped => {
                    return Err(EndpointError::Fault { peer: transfer.peer, bytes: (done + read) as u64 });
                }
            }
        }
        Ok(done)
    }

    /// Reads by messages, several of which are on their way at a time.
    fn get_in_messages(
        &mut self,
        transfer: &Transfer,
        done: usize,
        targets: &mut [IoSliceMut<'_>],
    ) -> Result<(), EndpointError> {
        let (mut asked, mut under_way) = (done, VecDeque::new());
        while asked < transfer.len || !under_way.is_empty() {
            while asked < transfer.len && under_way.len() < ENDPOINT_IN_FLIGHT {
                let len = DATA.min(transfer.len - asked);
                under_way.push_back((self.request(transfer, asked, What::Read(len as u64))?, asked, len));
                asked += len;
            }
            let Some((number, start, len)) = under_way.pop_front() else { break };
            let (status, content) = self.answer(transfer, number)?;
            transfer.check(status)?;
            if content.len() != len {
                return self.violated(transfer.peer);
            }
            scatter(&content, window_mut(targets.iter_mut().map(|target| &mut target[..]), start, len));
        }
        Ok(())
    }

    /// Lets the peer read straight from this process's memory. Returns how many bytes it has read; the rest has to go another way.
    fn put_directly(&mut self, transfer: &Transfer, data: &[IoSlice<'_>]) -> Result<usize, EndpointError> {
        let mut done = 0;
        while transfer.len - done > DATA && !self.state.links.find_open(transfer.peer)?.calls.cannot_be_read {
            let piece = MESSAGE_PIECE_BYTES.min(transfer.len - done);
            let slices = window(data.iter().map(|data| &data[..]), done, piece);
            let part = |slice: &&[u8]| (address(slice).map_or(0, |at| at.get()), slice.len() as u64);
            let parts: Vec<_> = slices.iter().take(PARTS).map(part).collect();
            let len: u64 = parts.iter().map(|(_, len)| len).sum();
            let source = Source { token: self.state.shares.cookie.token(), parts };
            let (status, content) = self.ask(transfer, done, What::Pull(source))?;
            if status == Status::Refused {
                self.state.links.find_open(transfer.peer)?.calls.cannot_be_read = true;
                break;
            }
            if status == Status::Fault {
                let read = <[u8; 8]>::try_from(content).map_or(0, u64::from_ne_bytes).min(len);
                return Err(EndpointError::Fault { peer: transfer.peer, bytes: done as u64 + read });
            }
            transfer.check(status)?;
            done += len as usize;
        }
        Ok(done)
    }

    /// Writes by messages, several of which are on their way at a time.
    fn put_in_messages(
        &mut self,
        transfer: &Transfer,
        done: usize,
        data: &[IoSlice<'_>],
    ) -> Result<(), EndpointError> {
        let (mut sent, mut under_way) = (done, VecDeque::new());
        while sent < transfer.len || !under_way.is_empty() {
            while sent < transfer.len && under_way.len() < ENDPOINT_IN_FLIGHT {
                let len = DATA.min(transfer.len - sent);
                let piece = window(data.iter().map(|data| &data[..]), sent, len).concat();
                under_way.push_back(self.request(transfer, sent, What::Write(piece))?);
                sent += len;
            }
            let Some(number) = under_way.pop_front() else { break };
            let (status, _) = self.answer(transfer, number)?;
            transfer.check(status)?;
        }
        Ok(())
    }

    fn ask(
        &mut self,
        transfer: &Transfer,
        done: usize,
        what: What,
    ) -> Result<(Status, Vec<u8>), EndpointError> {
        let number = self.request(transfer, done, what)?;
        self.answer(transfer, number)
    }

    /// Sends a request, when there is room. Returns its number.
    fn request(&mut self, transfer: &Transfer, done: usize, what: What) -> Result<u64, EndpointError> {
        let Transfer { operation, peer, handle, offset, .. } = *transfer;
        let gives_lease = matches!(what, What::Map(_));
        let request = Request { key: handle.key, offset: offset + done as u64, what }.encode();
        let number = self.state.links.find_open(peer)?.calls.ask(gives_lease);
        let sent = self.block(operation, |state| {
            let link = state.links.find_open(peer)?;
            let sent = link.send_quietly(Kind::Request, number, &request);
            link.calls.wants_room = !sent;
            Ok(sent.then_some(number))
        });
        if sent.is_err() {
            self.state.links.get(peer).into_iter().for_each(|link| link.calls.take_back(number));
        }
        sent
    }

    /// Waits for the answer to a request.
    fn answer(&mut self, transfer: &Transfer, number: u64) -> Result<(Status, Vec<u8>), EndpointError> {
        let peer = transfer.peer;
        let reply = self.block(transfer.operation, |state| {
            loop {
                let link = state.links.find(peer)?;
                if let Some(reply) = link.calls.take_reply(number) {
                    return Ok(Some(reply));
                }
                if let Stage::Ended(ended) = link.stage {
                    return Err(EndpointError::PeerGone { peer, ended });
                }
                // It may be behind messages that nobody has received.
                if !state.take_in_behind(peer)? {
                    return Ok(None);
                }
            }
        })?;
        match decode_reply(&reply) {
            Some((status, content)) => Ok((status, content.to_vec())),
            None => self.violated(peer),
        }
    }

    /// The peer has answered what this library does not answer.
    fn violated<R>(&mut self, peer: Peer) -> Result<R, EndpointError> {
        self.state.end(peer, Ended::Violated);
        Err(EndpointError::PeerGone { peer, ended: Ended::Violated })
    }
}

impl Transfer {
    fn check(&self, status: Status) -> Result<(), EndpointError> {
        let Transfer { peer, handle, offset, len, .. } = *self;
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
