//! What comes over a connection: taking it out of the channel, and receiving it.

use crate::copy::lines;
use crate::endpoint::calls::{Reply, Wanted};
use crate::endpoint::error::EndpointError;
use crate::endpoint::link::{Arrived, Content, Link, TakenIn, Violation};
use crate::endpoint::short::{LONGEST, Short};
use crate::endpoint::wire::Request;
use crate::protocol::message::channel::most_under_way;
use crate::protocol::message::{Channel, Envelope, Kind, Mask, buffers};
use crate::segment::unit::unstopped;
use crate::tuning::{ENDPOINT_PRIVATE_BYTES, ENDPOINT_UNRECEIVED, ENDPOINT_UNRECEIVED_MOST, MESSAGE_BATCH};

impl Link {
    /// Takes in what has come.
    pub(crate) fn take_in(&mut self) -> TakenIn {
        self.take_in_up_to(None, MESSAGE_BATCH, Some(ENDPOINT_UNRECEIVED))
    }

    /// The same behind a cell that was taken, and rung for by nobody yet.
    pub(super) fn take_in_with(&mut self, cell: Envelope) -> TakenIn {
        self.take_in_up_to(Some(cell), MESSAGE_BATCH, Some(ENDPOINT_UNRECEIVED))
    }

    /// All that has come, when no more can. Requests that nobody will answer are in no message's way.
    pub(crate) fn take_in_rest(&mut self) -> TakenIn {
        self.take_in_up_to(None, most_under_way(&self.incoming()), None)
    }

    /// `limit`: of messages that are not received, and of requests that are not answered. `None`: none.
    fn take_in_up_to(&mut self, first: Option<Envelope>, batch: usize, limit: Option<usize>) -> TakenIn {
        let mut taken_in = TakenIn::default();
        taken_in.violated = self.take_cells(first, batch, limit, &mut taken_in).is_err();
        self.unreported += taken_in.messages;
        if taken_in.cells > 0 {
            // Once for all of them.
            self.ring();
        }
        taken_in
    }

    /// Counts what it takes, also of what is ahead of a violation.
    #[inline(always)]
    fn take_cells(
        &mut self,
        mut first: Option<Envelope>,
        batch: usize,
        limit: Option<usize>,
        taken_in: &mut TakenIn,
    ) -> Result<(), Violation> {
        let has_room =
            |link: &Self| limit.is_none_or(|limit| link.arrived.len() < limit && !link.calls.is_full());
        while first.is_some() || taken_in.cells < batch && has_room(self) {
            let cell = if first.is_some() { first.take() } else { self.next_cell()? };
            let Some(cell) = cell else { break };
            taken_in.cells += 1;
            // That the length fits into the cell, or the buffers, and that these exist, was checked.
            let is_part = matches!(cell.kind, Kind::Write | Kind::Data);
            if cell.mask & cell.mask.wrapping_sub(1) != 0 || !is_part && cell.len > LONGEST {
                return Err(Violation);
            }
            let expected = match cell.kind {
                Kind::Message => false,
                Kind::Expected => true,
                _ => {
                    self.take_in_call(cell)?;
                    continue;
                }
            };
            let content =
                if cell.mask == 0 { Content::Inline(Short(cell.inline)) } else { Content::Buffer(cell.mask) };
            self.arrived.push_back(Arrived { expected, tag: cell.tag, bytes: cell.len, content });
            taken_in.messages += 1;
            taken_in.unexpected += usize::from(!expected);
        }
        Ok(())
    }

    /// Takes in a cell that is no message.
    #[inline(never)]
    fn take_in_call(&mut self, cell: Envelope) -> Result<(), Violation> {
        match cell.kind {
            Kind::Request => {
                let request = self.request(&cell).ok_or(Violation)?;
                self.calls.push_request(cell.tag, Wanted::Request(request));
            }
            Kind::Write => {
                let (number, data) = self.body(&cell)?;
                self.calls.push_request(number, Wanted::Write { place: cell.place(), data });
            }
            Kind::Reply => {
                let reply = Reply::Message(self.copied(&cell));
                self.take_in_reply(cell.tag, reply);
            }
            Kind::Data => {
                let (number, mut data) = self.body(&cell)?;
                if self.calls.buffers() >= self.incoming().buffers() / 2 {
                    // Who has asked for it may be waiting for a message, for which there has to be room.
                    self.make_private(&mut data);
                }
                self.take_in_reply(number, Reply::Data(data));
            }
            _ => return Err(Violation),
        }
        Ok(())
    }

    fn take_in_reply(&mut self, number: u64, reply: Reply) {
        if let Some(abandoned) = self.calls.push_reply(number, reply) {
            self.give_back(abandoned);
        }
    }

    /// The request in a cell, whose buffer is given back. `None`: it is none of this library's.
    fn request(&mut self, cell: &Envelope) -> Option<Request> {
        if cell.mask == 0 {
            return Request::decode(cell.short());
        }
        let bytes = self.copied(cell);
        let request = Request::decode(&bytes);
        self.calls.keep_spare(bytes);
        request
    }

    /// The bytes of a cell, whose buffer is given back.
    pub(super) fn copied(&mut self, cell: &Envelope) -> Vec<u8> {
        let mut bytes = self.calls.memory(cell.len);
        if cell.mask == 0 {
            bytes.copy_from_slice(cell.short());
        } else {
            self.read(cell.mask, &mut bytes);
        }
        bytes
    }

    /// Looks behind messages that nobody has received, for one that somebody asks for: these are moved out of the channel, as
    /// far as memory is granted to this peer.
    pub(crate) fn take_in_behind(&mut self) -> Result<TakenIn, EndpointError> {
        for index in 0..self.arrived.len() {
            let Arrived { content: Content::Buffer(_), bytes, .. } = self.arrived[index] else { continue };
            if self.private + bytes > ENDPOINT_PRIVATE_BYTES {
                return Err(self.too_many());
            }
            self.make_message_private(index);
        }
        if self.arrived.len() >= ENDPOINT_UNRECEIVED_MOST {
            return Err(self.too_many());
        }
        Ok(self.take_in_up_to(None, MESSAGE_BATCH, Some(ENDPOINT_UNRECEIVED_MOST)))
    }

    fn too_many(&self) -> EndpointError {
        EndpointError::TooManyUnreceived { peer: self.peer, messages: self.arrived.len() }
    }

    /// Whether it holds the most that are taken in, or the sender may have no buffer left: answers that nobody has taken hold some, too.
    pub(crate) fn is_full(&self) -> bool {
        let held = self.arrived.len() + self.calls.buffers();
        self.arrived.len() >= ENDPOINT_UNRECEIVED || self.incoming().buffers() <= held
    }

    /// Copies a buffer, and gives it back.
    #[inline(never)]
    pub(super) fn read(&self, mask: Mask, target: &mut [u8]) {
        let channel = self.incoming();
        buffers::read(&channel, mask, target);
        unstopped(self.post().release(&channel, mask, self.other()));
    }

    /// The place of the first message that was not expected.
    pub(crate) fn first_unexpected(&self) -> Option<usize> {
        if self.arrived.front().is_some_and(|message| !message.expected) {
            return Some(0);
        }
        self.arrived.iter().position(|message| !message.expected)
    }

    /// The place of the message that is expected with this tag, and has this number of these before it.
    pub(crate) fn expected(&self, tag: u64, before: usize) -> Option<usize> {
        let matches = |message: &Arrived| message.expected && message.tag == tag;
        if before == 0 && self.arrived.front().is_some_and(matches) {
            return Some(0);
        }
        let mut expected = self.arrived.iter().enumerate().filter(|(_, message)| matches(message));
        expected.nth(before).map(|(index, _)| index)
    }

    /// Receives the message at this place: its tag and length.
    pub(crate) fn receive(&mut self, index: usize, buffer: &mut [u8]) -> Result<(u64, usize), EndpointError> {
        let Arrived { tag, bytes, .. } = self.arrived[index];
        let room = buffer.len();
        let Some(target) = buffer.get_mut(..bytes) else {
            return Err(EndpointError::Truncated { peer: self.peer, bytes, room });
        };
        match &self.arrived[index].content {
            Content::Inline(Short(inline)) => target.copy_from_slice(&inline[..bytes]),
            Content::Buffer(mask) => self.read(*mask, target),
            Content::Private(private) => {
                lines::copy_slice(private, target);
                self.private -= bytes;
            }
        }
        if index + self.unreported >= self.arrived.len() {
            self.unreported -= 1;
        }
        if index == 0 {
            // What is most often received takes the least time.
            self.arrived.pop_front();
        } else {
            self.arrived.remove(index);
        }
        Ok((tag, bytes))
    }
}
