//! What goes out over a connection: finding room for it, and sending it.

use crate::endpoint::link::{LONGEST, Link};
use crate::protocol::message::channel::INLINE;
use crate::protocol::message::{Envelope, Kind, buffers};
use crate::segment::unit::unstopped;

impl Link {
    /// Sends a message, if there is room; if not, that is noticed later, and reported.
    pub(crate) fn send(&mut self, kind: Kind, tag: u64, data: &[u8]) -> bool {
        self.wants_room = !self.send_quietly(kind, tag, data);
        !self.wants_room
    }

    /// Sends a message, if there is room.
    pub(crate) fn send_quietly(&mut self, kind: Kind, tag: u64, data: &[u8]) -> bool {
        if !self.finds_room(data.len()) {
            return false;
        }
        let mask = if data.len() > INLINE { core::mem::take(&mut self.reserved) } else { 0 };
        let (post, channel, mut outbox) = (self.post(), self.outgoing(), self.outbox);
        if mask != 0 {
            buffers::fill(&channel, mask, data);
        }
        // Of what is in a buffer nothing is written to the cell.
        let cell = Envelope { kind, len: data.len(), tag, mask, inline: data };
        unstopped(post.publish(&channel, &mut outbox, self.other(), &cell));
        self.outbox = outbox;
        true
    }

    /// Whether a message of this length can be sent. Room that is found stays until one is.
    pub(crate) fn finds_room(&mut self, bytes: usize) -> bool {
        let mut outbox = self.outbox;
        let has_room = self.post().has_room(&self.outgoing(), &mut outbox);
        self.outbox = outbox;
        if !has_room {
            return false;
        }
        if bytes > INLINE && self.reserved == 0 {
            self.reserved = unstopped(self.post().reserve(&self.outgoing(), 1)).unwrap_or(0);
        }
        bytes <= INLINE || self.reserved != 0
    }

    /// Notices that there is room again, if it was missing.
    pub(crate) fn notices_room(&mut self) -> bool {
        if !(self.wants_room || self.calls.wants_room) || !self.finds_room(LONGEST) {
            return false;
        }
        self.calls.wants_room = false;
        self.has_room |= core::mem::take(&mut self.wants_room);
        true
    }
}
