//! What goes out over a connection: finding room for it, and sending it.

use crate::endpoint::link::{LONGEST, Link};
use crate::protocol::message::channel::{INLINE, Slot};
use crate::protocol::message::{Envelope, Kind, buffers};
use crate::segment::unit::unstopped;

impl Link {
    /// Sends a message, which its receiver `EXPECTS` or not, if there is room; if not, that is noticed later, and reported. What fits into a
    /// slot is sent in line.
    #[inline(always)]
    pub(crate) fn send<const EXPECTS: bool>(&mut self, tag: u64, data: &[u8]) -> bool {
        let is_sent = if Slot::fits(tag, data) {
            self.send_slot(&Slot::new(EXPECTS, tag, data))
        } else {
            self.send_quietly(if EXPECTS { Kind::Expected } else { Kind::Message }, tag, data)
        };
        self.wants_room = !is_sent;
        is_sent
    }

    #[inline(always)]
    fn send_slot(&mut self, message: &Slot) -> bool {
        let (post, channel) = (self.memory.post(&self.platform), self.memory.outgoing());
        if !post.has_slot(&channel, &mut self.outbox) {
            return false;
        }
        // Where one side sends all messages, each has a cell, so that there is room for 64, and no more.
        let alternates = self.outbox.has_heard();
        let is_followed = alternates & core::mem::replace(&mut self.alternates, alternates);
        unstopped(post.publish_slot(&channel, &mut self.outbox, self.memory.other(), message, is_followed));
        true
    }

    /// Sends a message in a cell or in a buffer, if there is room.
    pub(crate) fn send_quietly(&mut self, kind: Kind, tag: u64, data: &[u8]) -> bool {
        if data.len() > INLINE {
            return self.send_in_buffer(kind, tag, data);
        }
        let (post, channel) = (self.memory.post(&self.platform), self.memory.outgoing());
        if !post.has_room(&channel, &mut self.outbox) {
            return false;
        }
        let cell = Envelope { kind, len: data.len(), tag, mask: 0, inline: data };
        unstopped(post.publish(&channel, &mut self.outbox, self.memory.other(), &cell));
        true
    }

    /// The same for one that a cell has no room for.
    fn send_in_buffer(&mut self, kind: Kind, tag: u64, data: &[u8]) -> bool {
        if !self.finds_room(data.len()) {
            return false;
        }
        let mask = core::mem::take(&mut self.reserved);
        let (post, channel) = (self.memory.post(&self.platform), self.memory.outgoing());
        buffers::fill(&channel, mask, data);
        // Of what is in a buffer nothing is written to the cell.
        let cell = Envelope { kind, len: data.len(), tag, mask, inline: data };
        unstopped(post.publish(&channel, &mut self.outbox, self.memory.other(), &cell));
        true
    }

    /// Whether a message of this length can be sent. Room that is found stays until one is.
    pub(crate) fn finds_room(&mut self, bytes: usize) -> bool {
        let (post, channel) = (self.memory.post(&self.platform), self.memory.outgoing());
        if !post.has_room(&channel, &mut self.outbox) {
            return false;
        }
        if bytes > INLINE && self.reserved == 0 {
            self.reserved = unstopped(post.reserve(&channel, 1)).unwrap_or(0);
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
