//! Large transfers: what an endpoint gets from memory that its peers share, and puts there.

use std::io::{IoSlice, IoSliceMut};

use crate::endpoint::api::Endpoint;
use crate::endpoint::error::EndpointError;
use crate::endpoint::getting::Get;
use crate::endpoint::handle::Handle;
use crate::endpoint::peer::Peer;
use crate::endpoint::putting::Put;
use crate::endpoint::requests::{Moved, Transfer};
use crate::endpoint::state::State;

impl Endpoint {
    /// Reads memory that a peer shares, from an offset in bytes on, into slices that count as one. The peer is asked where that lies the first
    /// time, and answers in its calls. If it polls, it is asked for the bytes, too, and both sides copy. If it does not answer at once, they are copied
    /// straight from its memory (`process_vm_readv`), which needs nothing of it, until the memory is revoked. Up to 16 KiB, and where
    /// the system does not allow that, the peer sends the bytes, in its calls. What is asked comes behind the messages to the peer: once 128 of
    /// them are not received, or 64 that are longer than 40 bytes, it answers nothing until it receives, or asks for, messages of this endpoint. After
    /// an error the slices may have any content. Example: [`Endpoint::share`].
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
        let transfer = Transfer { peer: from, handle: *handle, offset, len };
        let mut get = Get::new(&mut self.state, transfer, true)?;
        if get.at_once(&mut self.state, targets)? {
            return Ok(());
        }
        let mut targets: Vec<&mut [u8]> = targets.iter_mut().map(|target| &mut target[..]).collect();
        let result = self.go_through("get", from, |state, polls| get.step(state, &mut targets, polls));
        get.requests.abandon(&mut self.state, None);
        result
    }

    /// Writes to memory that a peer shares for that, from an offset in bytes on: slices that count as one. Returns when the data is
    /// there: the peer has taken it from the connection's buffers, or has read it, in its own calls, unless too many messages that it has not received
    /// are before it, as for a [`get`](Endpoint::get). After an error the memory may have any content
    /// there. Example: [`Endpoint::share`].
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
        let transfer = Transfer { peer: to, handle: *handle, offset, len };
        let mut put = Put::new(&mut self.state, transfer, true)?;
        if put.at_once(&mut self.state, data)? {
            return Ok(());
        }
        let data: Vec<&[u8]> = data.iter().map(|data| &data[..]).collect();
        let result = self.go_through("put", to, |state, _| put.step(state, &data));
        put.requests.abandon(&mut self.state, None);
        result
    }

    /// Makes all steps of a transfer. Each of them is waited for anew.
    fn go_through(
        &mut self,
        operation: &'static str,
        peer: Peer,
        mut step: impl FnMut(&mut State, bool) -> Result<Option<Moved>, EndpointError>,
    ) -> Result<(), EndpointError> {
        loop {
            let moved = self.state.block_knowing(self.timeout, &mut step)?;
            if moved.ok_or_else(|| self.timed_out(operation, Some(peer)))? == Moved::All {
                return Ok(());
            }
        }
    }
}
