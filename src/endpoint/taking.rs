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

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::endpoint::api::Endpoint;
    use crate::endpoint::handle::Access;
    use crate::endpoint::peer::{Armed, Peer};
    use crate::tuning::ENDPOINT_GONE_BYTES;

    /// A server, its client, and the peers that each is to the other.
    fn pair(name: &str) -> Result<(Endpoint, Peer, Endpoint, Peer), EndpointError> {
        let mut server = Endpoint::listen(&format!("taking-{name}-{}", std::process::id()))?;
        let mut client = Endpoint::client()?;
        let to_server = client.connect(server.address().expect("it listens"))?;
        let to_client = server.wait(None)?.expect("a client connects").peer();
        Ok((server, to_client, client, to_server))
    }

    /// Has a server take in more messages than it does of a peer that is there.
    fn sends_too_many(server: &mut Endpoint, client: &mut Endpoint, to: Peer) -> Result<usize, EndpointError> {
        let mut sent = 0;
        for _ in 0..4 {
            while client.try_send_unexpected(to, 0, b"message")? {
                sent += 1;
            }
            for _ in 0..1000 {
                server.poll()?;
            }
        }
        Ok(sent)
    }

    #[test]
    fn all_that_a_peer_has_sent_is_received_when_it_is_gone() -> Result<(), EndpointError> {
        let (mut server, to_client, mut client, to_server) = pair("rest")?;
        let sent = sends_too_many(&mut server, &mut client, to_server)?;
        assert!(sent > ENDPOINT_UNRECEIVED && server.state.full.contains(&to_client));
        drop(client);
        while server.state.links.find_open(to_client).is_ok() {
            server.poll()?;
        }
        // Nothing is polled for, and no descriptor is kept, of a peer that is gone.
        let state = &mut server.state;
        assert!(state.awake.is_empty() && state.full.is_empty());
        assert_eq!(state.links.find(to_client)?.descriptors().count(), 0);
        for number in 0..sent {
            assert!(server.try_recv_unexpected(&mut [0; 7])?.is_some(), "message {number} of {sent}");
        }
        assert!(server.state.links.get(to_client).is_none());
        Ok(())
    }

    #[test]
    fn nothing_is_kept_of_a_peer_that_was_disconnected() -> Result<(), EndpointError> {
        let (mut server, to_client, mut client, to_server) = pair("disconnected")?;
        sends_too_many(&mut server, &mut client, to_server)?;
        server.disconnect(to_client);
        let state = &server.state;
        assert!(state.awake.is_empty() && state.full.is_empty() && state.unexpected.is_empty());
        Ok(())
    }

    /// Its link is removed when those that are gone take too much.
    #[test]
    fn nothing_is_to_be_received_of_a_peer_whose_messages_are_kept_no_longer() -> Result<(), EndpointError> {
        let (mut server, to_client, mut client, to_server) = pair("gone")?;
        sends_too_many(&mut server, &mut client, to_server)?;
        server.state.links.find(to_client)?.private = ENDPOINT_GONE_BYTES;
        drop(client);
        while server.state.links.find(to_client).is_ok() {
            server.poll()?;
        }
        assert!(server.state.unexpected.is_empty());
        assert!(server.try_recv_unexpected(&mut [0; 7])?.is_none());
        Ok(())
    }

    #[test]
    fn messages_of_no_length_are_no_more_than_others() -> Result<(), EndpointError> {
        let (mut server, to_client, mut client, to_server) = pair("short")?;
        let error = (0..ENDPOINT_UNRECEIVED_MOST).find_map(|_| {
            while client.try_send_unexpected(to_server, 0, b"").is_ok_and(|sent| sent) {}
            server.try_recv_expected(to_client, 1, &mut []).err()
        });
        assert!(matches!(error, Some(EndpointError::TooManyUnreceived { .. })), "{error:?}");
        Ok(())
    }

    #[test]
    fn memory_of_messages_that_were_received_is_granted_again() -> Result<(), EndpointError> {
        let (mut server, to_client, mut client, to_server) = pair("granted")?;
        for _ in 0..3 {
            assert!(client.try_send_unexpected(to_server, 0, &[1; LONGEST])?);
            while server.state.unexpected.is_empty() {
                server.poll()?;
            }
            let link = server.state.links.find(to_client)?;
            link.make_message_private(0);
            assert_eq!(link.private, LONGEST);
            server.recv_unexpected(&mut [0; LONGEST])?;
            assert_eq!(server.state.links.find(to_client)?.private, 0);
        }
        Ok(())
    }

    /// After some that were received, of a peer that does not ring again.
    #[test]
    fn messages_that_were_left_in_the_channel_follow() -> Result<(), EndpointError> {
        let (mut server, _, mut client, to_server) = pair("follow")?;
        let sent = sends_too_many(&mut server, &mut client, to_server)?;
        while server.poll()?.is_some() {}
        assert_eq!(server.arm()?, Armed::Sleep);
        for number in 0..sent {
            assert!(server.try_recv_unexpected(&mut [0; 7])?.is_some(), "message {number} of {sent}");
        }
        Ok(())
    }

    #[test]
    fn answers_that_nobody_takes_are_in_no_messages_way() -> Result<(), EndpointError> {
        let (mut server, to_client, mut client, to_server) = pair("answers")?;
        let handle = server.share(vec![[1; LONGEST].into()], Access::Read).handle();
        let get = |_| client.start_get(to_server, &handle, 0, vec![[0; LONGEST]]);
        let gets = (0..Mask::BITS).map(get).collect::<Result<Vec<_>, _>>()?;
        let poll = |client: &mut Endpoint, server: &mut Endpoint| {
            (0..1000).try_for_each(|_| client.poll().and(server.poll()).map(drop))
        };
        poll(&mut client, &mut server)?;
        // Half of the buffers are left for messages, of which one is behind as many as there is room for.
        let mut sent = 0;
        while server.try_send_unexpected(to_client, 0, &[2; LONGEST])? {
            sent += 1;
            poll(&mut client, &mut server)?;
        }
        assert_eq!(sent, Mask::BITS / 2);
        assert_eq!(client.try_recv_expected(to_server, 1, &mut [])?, None);
        assert!(server.try_send_expected(
            to_client,
            1,
            b"behind, and longer than a cell is: so it takes a buffer"
        )?);
        poll(&mut client, &mut server)?;
        assert!(client.try_recv_expected(to_server, 1, &mut [0; 100])?.is_some());
        drop(gets);
        Ok(())
    }
}
