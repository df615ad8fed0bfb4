//! Bytes for memory, which a peer writes there or was asked for: they stay in the buffers of its channel until they are copied to where
//! they belong.

use crate::copy::lines;
use crate::copy::policy::StorePolicy;
use crate::endpoint::calls::Body;
use crate::endpoint::link::{Link, Violation};
use crate::endpoint::short::Short;
use crate::endpoint::wire::decode_number;
use crate::protocol::message::{Envelope, buffers};
use crate::segment::message_memory::PAIR_BUFFER;
use crate::segment::unit::unstopped;

impl Link {
    /// The bytes of a cell, and the number of the request that they are for.
    ///
    /// # Errors
    /// When they are said to lie beyond the end of their buffer.
    pub(super) fn body(&self, cell: &Envelope) -> Result<(u64, Body), Violation> {
        let (number, start) = decode_number(cell.tag);
        match cell.mask {
            0 => Ok((number, Body::Inline(Short::of(cell.short()), cell.len))),
            mask if start + cell.len <= PAIR_BUFFER => {
                Ok((number, Body::Buffer { mask, start, len: cell.len }))
            }
            _ => Err(Violation),
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
                Body::Inline(Short(bytes), _) => target.copy_from_slice(&bytes[at..at + target.len()]),
                Body::Private(bytes) => lines::copy_slice(&bytes[at..at + target.len()], target),
                Body::Buffer { mask, start, .. } => {
                    buffers::read_part(&self.incoming(), *mask, start + at, target, &stores);
                }
            }
            at += target.len();
        }
        self.dispose(body);
    }

    /// It is not used any more.
    pub(crate) fn dispose(&mut self, body: Body) {
        match body {
            Body::Inline(..) => {}
            Body::Private(bytes) => self.calls.keep_spare(bytes),
            Body::Buffer { mask, .. } => unstopped(self.post().release(&self.incoming(), mask, self.other())),
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
    pub(super) fn make_private(&mut self, data: &mut Body) {
        if let Body::Buffer { mask, start, len } = *data {
            let mut bytes = vec![0; len];
            buffers::read_from(&self.incoming(), mask, start, &mut bytes);
            self.dispose(std::mem::replace(data, Body::Private(bytes)));
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::io;

    use super::*;
    use crate::endpoint::link::{Stage, connected};
    use crate::endpoint::peer::Peer;
    use crate::protocol::message::Mask;

    #[test]
    fn what_begins_inside_a_buffer_is_moved_whole_and_the_buffer_given_back() -> io::Result<()> {
        let [sender, mut receiver] = connected(Peer { slot: 0, generation: 0 }, Stage::Open)?;
        let (post, channel) = (sender.memory.post(&sender.platform), sender.memory.outgoing());
        let sent: Vec<u8> = (0..1000u32).map(|number| (number % 251) as u8).collect();
        let mask = unstopped(post.reserve(&channel, Mask::BITS as usize)).expect("nothing was sent");
        for start in [0, 640, PAIR_BUFFER - sent.len()] {
            let last = 1 << (Mask::BITS - 1);
            buffers::fill_from(&channel, last, start, &sent);
            let mut body = Body::Buffer { mask: last, start, len: sent.len() };
            receiver.make_private(&mut body);
            assert!(matches!(&body, Body::Private(bytes) if *bytes == sent), "from byte {start} on");
            assert_eq!(unstopped(post.reserve(&channel, 1)), Some(last));
            // What is private stays as it is.
            receiver.make_private(&mut body);
            assert!(matches!(&body, Body::Private(bytes) if *bytes == sent), "twice");
        }
        assert_eq!(mask, Mask::MAX);
        Ok(())
    }
}
