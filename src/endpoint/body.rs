//! Bytes for memory, which a peer writes there or was asked for: they stay in the buffers of its channel until they are copied to where
//! they belong.

use crate::copy::policy::StorePolicy;
use crate::endpoint::calls::Body;
use crate::endpoint::link::Link;
use crate::protocol::message::{Envelope, buffers};
use crate::segment::unit::unstopped;

impl Link {
    /// The bytes of a cell.
    pub(super) fn body(&mut self, cell: &Envelope) -> Body {
        match cell.mask {
            0 => Body::Private(self.copied(cell)),
            mask => Body::Buffers { mask, len: cell.len },
        }
    }

    /// Copies it to slices of the same length, a part of a transfer of this number of bytes, and gives its buffers back.
    pub(crate) fn deliver<'a>(
        &mut self,
        body: Body,
        targets: impl Iterator<Item = &'a mut [u8]>,
        transfer: usize,
    ) {
        let stores = StorePolicy::of_call(transfer);
        let mut at = 0;
        for target in targets {
            match &body {
                Body::Private(bytes) => target.copy_from_slice(&bytes[at..at + target.len()]),
                Body::Buffers { mask, .. } => buffers::read_part(&self.incoming(), *mask, at, target, &stores),
            }
            at += target.len();
        }
        self.dispose(body);
    }

    /// It is not used any more.
    pub(crate) fn dispose(&mut self, body: Body) {
        match body {
            Body::Private(bytes) => self.calls.keep_spare(bytes),
            Body::Buffers { mask, .. } => unstopped(self.post().release(&self.incoming(), mask, self.other())),
        }
    }

    /// Moves what waits to be written to private memory, so that its sender has room for other messages.
    pub(crate) fn keep_requests(&mut self) {
        if !self.has_requests() {
            return;
        }
        let mut calls = core::mem::take(&mut self.calls);
        for data in calls.writes() {
            self.make_private(data);
        }
        self.calls = calls;
    }

    /// Moves it to private memory.
    pub(super) fn make_private(&self, data: &mut Body) {
        if let Body::Buffers { mask, len } = *data {
            let mut bytes = vec![0; len];
            self.read(mask, &mut bytes);
            *data = Body::Private(bytes);
        }
    }
}
