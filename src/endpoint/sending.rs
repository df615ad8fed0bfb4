//! What goes out over a connection: finding room for it, and sending it.

use crate::copy::cpu;
use crate::copy::publish::publishes_to_held_lines;
use crate::endpoint::link::Link;
use crate::endpoint::short::LONGEST;
use crate::endpoint::wire::{BODY_STEP, Request, encode_number};
use crate::protocol::message::channel::{INLINE, Slot};
use crate::protocol::message::{Envelope, Kind, Mask, buffers};
use crate::segment::message_memory::PAIR_BUFFER;
use crate::segment::unit::unstopped;
use crate::tuning::ENDPOINT_SHORT_BYTES;

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
        if !is_sent {
            self.is_refused(data.len());
        }
        is_sent
    }

    /// There was no room for a message of this length. Also where others are sent after it: the program may wait for room for this one.
    #[cold]
    fn is_refused(&mut self, bytes: usize) {
        self.refused = Some(self.refused.map_or(bytes, |shortest| shortest.min(bytes)));
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

    /// Sends a request, if there is room.
    pub(super) fn send_request(&mut self, number: u64, request: &Request) -> bool {
        let mut bytes = core::mem::take(&mut self.calls.made);
        bytes.clear();
        request.encode(&mut bytes);
        let is_sent = self.send_quietly(Kind::Request, number, &bytes);
        self.calls.made = bytes;
        if is_sent {
            self.calls.is_sent();
        }
        is_sent
    }

    /// Whether a request can be sent, of any kind.
    pub(crate) fn finds_place(&mut self) -> bool {
        self.calls.has_place() && self.finds_room(LONGEST)
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

    /// Sends bytes that lie in slices of this length together, for which room was [found](Self::finds_room), behind what a cell of this
    /// kind has in front.
    pub(crate) fn send_slices<'a>(
        &mut self,
        kind: Kind,
        number: u64,
        front: &[u64],
        len: usize,
        slices: impl Iterator<Item = &'a [u8]>,
    ) {
        let (mut inline, head) = ([0; INLINE], kind.head());
        for (place, word) in inline[..head].chunks_exact_mut(8).zip(front) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let is_short = len <= INLINE - head;
        let (mask, start) = match is_short {
            true => (0, 0),
            false if len > LONGEST => {
                // What is measured of so few bytes says little: docs/adr/0069-short-transfers-use-whole-buffers.md.
                let is_dear =
                    if len <= ENDPOINT_SHORT_BYTES { !cpu::has_strings() } else { publishes_to_held_lines() };
                self.takes_buffer_for_part(len, is_dear)
            }
            false => (core::mem::take(&mut self.reserved), 0),
        };
        let (post, channel) = (self.memory.post(&self.platform), self.memory.outgoing());
        let mut at = 0;
        for slice in slices {
            if is_short {
                inline[head + at..][..slice.len()].copy_from_slice(slice);
            } else {
                buffers::fill_from(&channel, mask, start + at, slice);
            }
            at += slice.len();
        }
        debug_assert_eq!(at, len);
        if kind == Kind::Write {
            self.calls.is_sent();
        }
        let cell = Envelope { kind, len, tag: encode_number(number, start), mask, inline };
        unstopped(post.publish(&channel, &mut self.outbox, self.memory.other(), &cell));
    }

    /// A buffer for what is longer than a message, and at which byte of it that begins: behind the last such, where the lowest buffers are dear, or at the
    /// beginning of that which was found. What is shorter than a buffer begins at another byte in the next lap through all of them, so that it takes as
    /// long until a line is written again.
    fn takes_buffer_for_part(&mut self, len: usize, is_dear: bool) -> (Mask, usize) {
        let takes_next = if len <= ENDPOINT_SHORT_BYTES {
            is_dear
        } else {
            let takes_next = self.rotation.takes_next(is_dear);
            self.rotation.took(len);
            takes_next
        };
        if takes_next {
            let (post, channel) = (self.memory.post(&self.platform), self.memory.outgoing());
            if let Some((mask, _)) = unstopped(post.reserve_from(&channel, 1, self.next_buffer)) {
                let buffer = mask.trailing_zeros();
                self.lap = self.lap.wrapping_add(usize::from(buffer < self.next_buffer));
                self.next_buffer = buffer + 1;
                let stride = len.next_multiple_of(BODY_STEP);
                return (mask, self.lap % (PAIR_BUFFER / stride) * stride);
            }
        }
        (core::mem::take(&mut self.reserved), 0)
    }

    /// Notices that there is room again, if it was missing.
    pub(crate) fn notices_room(&mut self) -> bool {
        let for_message = self.finds_room_for_refused();
        if for_message {
            (self.refused, self.has_room) = (None, true);
        }
        let for_request = self.calls.wants_room && self.finds_place();
        self.calls.wants_room &= !for_request;
        for_message || for_request
    }

    /// Whether there is room for the shortest message that was refused, if one was. It may need no buffer, which longer ones do.
    pub(super) fn finds_room_for_refused(&mut self) -> bool {
        self.refused.is_some_and(|bytes| self.finds_room(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::link::{Stage, connected};
    use crate::endpoint::peer::Peer;
    use crate::tuning::MESSAGE_ASKED_MEASURE_BYTES;

    /// A connection to nobody.
    fn link() -> Link {
        let [link, _] = connected(Peer { slot: 0, generation: 0 }, Stage::Open).unwrap();
        link
    }

    /// The number of the buffer that the next part takes, and where in it it begins.
    fn take_for(link: &mut Link, len: usize, is_dear: bool) -> (u32, usize) {
        assert!(link.finds_room(len));
        let (mask, start) = link.takes_buffer_for_part(len, is_dear);
        assert_eq!(mask.count_ones(), 1);
        (mask.trailing_zeros(), start)
    }

    /// The same for one that fills it.
    fn take(link: &mut Link, is_dear: bool) -> u32 {
        let (buffer, start) = take_for(link, PAIR_BUFFER, is_dear);
        assert_eq!(start, 0);
        buffer
    }

    fn give_back(link: &Link, buffer: u32) {
        let post = link.memory.post(&link.platform);
        unstopped(post.release(&link.memory.outgoing(), 1 << buffer, link.memory.other()));
    }

    /// The buffers of `parts` parts, of which each is read at once.
    fn take_and_give_back(link: &mut Link, parts: usize, is_dear: bool) -> Vec<u32> {
        let mut take = || {
            let buffer = take(link, is_dear);
            give_back(link, buffer);
            buffer
        };
        (0..parts).map(|_| take()).collect()
    }

    #[test]
    fn parts_take_the_buffers_in_turn_where_the_lowest_are_dear() {
        let link = &mut link();
        let measured = MESSAGE_ASKED_MEASURE_BYTES / PAIR_BUFFER;
        assert_eq!(take_and_give_back(link, 2 * measured, false), vec![0; 2 * measured]);
        // The lowest stays the one that was found for the next message.
        let (last, turns) = (Mask::BITS - 1, 2);
        let in_turn: Vec<u32> = (0..turns).flat_map(|_| 1..=last).collect();
        assert_eq!(take_and_give_back(link, in_turn.len(), true), in_turn);
        assert_eq!(link.reserved, 1);
    }

    #[test]
    fn a_part_that_finds_no_other_buffer_takes_the_one_that_was_found() {
        let link = &mut link();
        take_and_give_back(link, MESSAGE_ASKED_MEASURE_BYTES / PAIR_BUFFER, true);
        let mut taken: Vec<u32> = (0..Mask::BITS).map(|_| take(link, true)).collect();
        assert_eq!((taken.pop(), link.reserved), (Some(0), 0));
        assert_eq!(taken, Vec::from_iter(1..Mask::BITS));
        assert!(!link.finds_room(PAIR_BUFFER));
        // The next one that is read is found.
        give_back(link, 5);
        assert_eq!(take(link, true), 5);
    }

    #[test]
    fn short_parts_begin_at_another_byte_in_each_lap() {
        let link = &mut link();
        let mut lap = |len: usize, is_dear: bool| -> Vec<usize> {
            let taken = (1..Mask::BITS).map(|_| {
                let (buffer, start) = take_for(link, len, is_dear);
                give_back(link, buffer);
                start
            });
            let mut starts: Vec<_> = taken.collect();
            starts.dedup();
            starts
        };
        let len = ENDPOINT_SHORT_BYTES / 2 - 1;
        let starts: Vec<_> = (0..5).flat_map(|_| lap(len, true)).collect();
        let stride = ENDPOINT_SHORT_BYTES / 2;
        assert_eq!(starts, [0, stride, 2 * stride, 3 * stride, 0]);
        assert_eq!(lap(len, false), [0]);
        for len in LONGEST + 1..=PAIR_BUFFER {
            let (buffer, start) = take_for(link, len, true);
            give_back(link, buffer);
            assert!(start + len <= PAIR_BUFFER && start.is_multiple_of(BODY_STEP));
        }
    }
}
