//! Transfers of one message, most of which are answered while the caller polls: then neither the request nor its answer is kept, and
//! the bytes are copied straight from the channel to where they belong.

use std::io::{IoSlice, IoSliceMut};

use crate::endpoint::ended::Ended;
use crate::endpoint::error::EndpointError;
use crate::endpoint::getting::Get;
use crate::endpoint::link::Link;
use crate::endpoint::putting::Put;
use crate::endpoint::requests::{Requests, Transfer};
use crate::endpoint::state::State;
use crate::endpoint::wire::{Request, Status, What, encode_place, status_alone};
use crate::protocol::message::{Envelope, Kind};
use crate::tuning::ENDPOINT_POLLS_PER_CALL;

impl State {
    /// Whether an answer is polled for, and nothing else: the transfer is one message, and nobody else is awake.
    fn may_answer_at_once(&mut self, transfer: &Transfer) -> bool {
        let Transfer { peer, len, .. } = *transfer;
        let is_one = len > 0 && transfer.is_short() && len <= transfer.message();
        is_one
            && self.polls()
            && self.awake[..] == [peer]
            && !self.is_due(0)
            && self.links.get(peer).is_some_and(|link| link.is_direct())
    }

    /// Polls for a moment for the answer to this request, which `accept` deals with. False: it has not come, or not as the next, or is
    /// another than is wanted. Then it is waited for in the usual way.
    fn is_answered_at_once(
        &mut self,
        requests: &mut Requests,
        number: u64,
        accept: impl FnOnce(&mut Link, &Envelope) -> bool,
    ) -> bool {
        let peer = requests.transfer.peer;
        self.polls += ENDPOINT_POLLS_PER_CALL;
        let Some(link) = self.links.get(peer) else { return false };
        let next = self.spin.spin_briefly(true, || link.next_cell().transpose());
        if let Some(Ok(cell)) = &next
            && accept(link, cell)
        {
            link.ring();
            link.calls.is_answered(number);
            self.is_busy = true;
            return true;
        }
        link.calls.waits_for(number, false);
        requests.waits_for(number);
        match next {
            Some(Ok(cell)) => self.keep(peer, cell),
            Some(Err(_)) => self.end(peer, Ended::Violated),
            None => {}
        }
        false
    }
}

impl Get {
    /// Gets all, if that is answered at once. False: it goes on step by step.
    pub(super) fn at_once(
        &mut self,
        state: &mut State,
        targets: &mut [IoSliceMut<'_>],
    ) -> Result<bool, EndpointError> {
        let asked = self.ask_at_once(state)?;
        Ok(asked.is_some_and(|number| self.is_got_at_once(state, number, targets)))
    }

    /// The number of the request, if it is made.
    fn ask_at_once(&self, state: &mut State) -> Result<Option<u64>, EndpointError> {
        let Transfer { peer, handle, offset, len } = self.requests.transfer;
        if !state.may_answer_at_once(&self.requests.transfer) {
            return Ok(None);
        }
        let link = state.links.find_open(peer)?;
        if !link.calls.has_place() {
            return Ok(None);
        }
        let number = link.calls.number();
        let request = Request { key: handle.key, offset, left: len as u64, what: What::Read(len as u64) };
        Ok(link.send_request(number, &request).then_some(number))
    }

    fn is_got_at_once(&mut self, state: &mut State, number: u64, targets: &mut [IoSliceMut<'_>]) -> bool {
        let len = self.requests.transfer.len;
        state.is_answered_at_once(&mut self.requests, number, |link, cell| {
            if cell.kind != Kind::Data || cell.len != len || cell.mask.count_ones() > 1 {
                return false;
            }
            match link.body(cell) {
                Ok((of, data)) if of == number => {
                    link.deliver(data, targets.iter_mut().map(|target| &mut target[..]), len);
                    true
                }
                _ => false,
            }
        })
    }
}

impl Put {
    /// Puts all, if that is answered at once. False: it goes on step by step.
    pub(super) fn at_once(&mut self, state: &mut State, data: &[IoSlice<'_>]) -> Result<bool, EndpointError> {
        let asked = self.write_at_once(state, data)?;
        Ok(asked.is_some_and(|number| self.is_put_at_once(state, number)))
    }

    /// The number of the request, if the data is sent.
    fn write_at_once(&self, state: &mut State, data: &[IoSlice<'_>]) -> Result<Option<u64>, EndpointError> {
        let Transfer { peer, handle, offset, len } = self.requests.transfer;
        if !state.may_answer_at_once(&self.requests.transfer) {
            return Ok(None);
        }
        let link = state.links.find_open(peer)?;
        if !link.finds_place() {
            return Ok(None);
        }
        let number = link.calls.number();
        let place = encode_place(handle.key, offset, false);
        link.send_slices(Kind::Write, number, &place, len, data.iter().map(|slice| &slice[..]));
        Ok(Some(number))
    }

    fn is_put_at_once(&mut self, state: &mut State, number: u64) -> bool {
        state.is_answered_at_once(&mut self.requests, number, |_, cell| {
            let is_it = cell.kind == Kind::Reply && cell.tag == number && cell.mask == 0;
            is_it && cell.short() == status_alone(Status::Done)
        })
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::endpoint::api::Endpoint;
    use crate::endpoint::handle::{Access, Registration};
    use crate::endpoint::peer::Peer;
    use crate::endpoint::requests::Moved;
    use crate::endpoint::wire::{BODY_STEP, encode_number};
    use crate::protocol::message::Channel;
    use crate::protocol::message::channel::INLINE;
    use crate::segment::message_memory::PAIR_BUFFER;
    use crate::segment::unit::unstopped;

    const BYTES: usize = 3 << 10;

    /// A client, and a server that shares [`BYTES`].
    struct Pair {
        server: Endpoint,
        memory: Registration,
        client: Endpoint,
        to_server: Peer,
        to_client: Peer,
    }

    fn pair(name: &str) -> Result<Pair, EndpointError> {
        let mut server = Endpoint::listen(&format!("at-once-{name}-{}", std::process::id()))?;
        let memory = server.share(vec![vec![1; BYTES].into()], Access::ReadWrite);
        let mut client = Endpoint::builder().spin(Duration::from_millis(10)).client()?;
        let to_server = client.connect(server.address().expect("it listens"))?;
        client.send_unexpected(to_server, 0, b"")?;
        let to_client = server.recv_unexpected(&mut [])?.peer;
        // It has accepted, and nothing is left in the channel.
        while client.poll()?.is_none() {}
        Ok(Pair { server, memory, client, to_server, to_client })
    }

    impl Pair {
        fn transfer(&self, offset: usize) -> Transfer {
            let len = BYTES - offset;
            Transfer { peer: self.to_server, handle: self.memory.handle(), offset: offset as u64, len }
        }

        /// The server sends a cell that its library would not send.
        fn server_forges(&mut self, cell: Envelope) -> Result<(), EndpointError> {
            let link = self.server.state.links.find(self.to_client)?;
            let (post, channel) = (link.memory.post(&link.platform), link.memory.outgoing());
            unstopped(post.publish(&channel, &mut link.outbox, link.memory.other(), &cell));
            Ok(())
        }

        /// Completes a put that was written at once.
        fn complete_put(&mut self, put: &mut Put) -> Result<(), EndpointError> {
            assert!(put.requests.are_under_way());
            while put.step(&mut self.client.state, &[&[2; BYTES]])? != Some(Moved::All) {
                self.server.poll()?;
                self.client.state.progress()?;
            }
            Ok(())
        }

        /// Completes a get that was asked for at once.
        fn complete(&mut self, get: &mut Get, target: &mut [u8]) -> Result<(), EndpointError> {
            assert!(get.requests.are_under_way());
            while get.step(&mut self.client.state, &mut [&mut target[..]], true)? != Some(Moved::All) {
                self.server.poll()?;
                self.client.state.progress()?;
            }
            Ok(())
        }
    }

    #[test]
    fn an_answer_that_does_not_come_at_once_is_waited_for() -> Result<(), EndpointError> {
        let mut pair = pair("late")?;
        let (mut target, transfer) = (vec![0; BYTES], pair.transfer(0));
        let mut get = Get::new(&mut pair.client.state, transfer, true)?;
        assert!(!get.at_once(&mut pair.client.state, &mut [IoSliceMut::new(&mut target)])?);
        pair.complete(&mut get, &mut target)?;
        assert_eq!(target, [1; BYTES]);
        // So it is for a put.
        let mut put = Put::new(&mut pair.client.state, transfer, true)?;
        assert!(!put.at_once(&mut pair.client.state, &[IoSlice::new(&[2; BYTES])])?);
        pair.complete_put(&mut put)?;
        assert_eq!(pair.server.shared(&pair.memory)?, [&[2; BYTES][..]]);
        Ok(())
    }

    #[test]
    fn a_message_before_the_answer_is_kept() -> Result<(), EndpointError> {
        let mut pair = pair("behind")?;
        pair.server.send_unexpected(pair.to_client, 7, b"before")?;
        let (mut target, transfer) = (vec![0; BYTES], pair.transfer(0));
        let mut get = Get::new(&mut pair.client.state, transfer, true)?;
        assert!(!get.at_once(&mut pair.client.state, &mut [IoSliceMut::new(&mut target)])?);
        pair.complete(&mut get, &mut target)?;
        assert_eq!(target, [1; BYTES]);
        // What is kept is received before anything is polled for alone.
        let mut next = Get::new(&mut pair.client.state, transfer, true)?;
        assert!(!next.at_once(&mut pair.client.state, &mut [IoSliceMut::new(&mut target)])?);
        assert!(!next.requests.are_under_way());
        let mut message = [0; 6];
        assert_eq!(pair.client.recv_unexpected(&mut message)?.tag, 7);
        assert_eq!(&message, b"before");
        Ok(())
    }

    #[test]
    fn what_is_refused_is_an_error_and_moves_nothing() -> Result<(), EndpointError> {
        let mut pair = pair("refused")?;
        let (mut target, transfer) = (vec![0; BYTES], pair.transfer(0));
        let memory = pair.server.revoke(pair.memory)?;
        let mut get = Get::new(&mut pair.client.state, transfer, true)?;
        assert!(!get.at_once(&mut pair.client.state, &mut [IoSliceMut::new(&mut target)])?);
        assert!(get.requests.are_under_way());
        // The answer is there when the next transfer looks for its own.
        pair.server.poll()?;
        let mut put = Put::new(&mut pair.client.state, transfer, true)?;
        assert!(!put.at_once(&mut pair.client.state, &[IoSlice::new(&[2; BYTES])])?);
        assert!(put.requests.are_under_way());
        let got = get.step(&mut pair.client.state, &mut [&mut target[..]], true);
        assert!(matches!(got, Err(EndpointError::NotShared { .. })), "{got:?}");
        pair.server.poll()?;
        pair.client.state.progress()?;
        let done = put.step(&mut pair.client.state, &[&[2; BYTES]]);
        assert!(matches!(done, Err(EndpointError::NotShared { .. })), "{done:?}");
        assert_eq!((target, memory), (vec![0; BYTES], vec![vec![1; BYTES].into()]));
        Ok(())
    }

    #[test]
    fn what_is_no_answer_to_a_get_ends_its_peer() -> Result<(), EndpointError> {
        // Longer than what was asked for; in two buffers; and behind the end of its own.
        let forged = [(BYTES + 1, 0b1, 0), (BYTES, 0b11, 0), (BYTES, 0b1, PAIR_BUFFER - BODY_STEP)];
        for (len, mask, start) in forged {
            let mut pair = pair("forged")?;
            let (mut target, transfer) = (vec![0; BYTES], pair.transfer(0));
            let mut get = Get::new(&mut pair.client.state, transfer, true)?;
            let number = get.ask_at_once(&mut pair.client.state)?.expect("there is room");
            let tag = encode_number(number, start);
            pair.server_forges(Envelope { kind: Kind::Data, len, tag, mask, inline: [0; INLINE] })?;
            let state = &mut pair.client.state;
            assert!(!get.is_got_at_once(state, number, &mut [IoSliceMut::new(&mut target)]));
            let got = get.step(state, &mut [&mut target[..]], true);
            let is_ended = matches!(got, Err(EndpointError::PeerGone { ended: Ended::Violated, .. }));
            assert!(is_ended && target == [0; BYTES], "{len} {mask} {start}: {got:?}");
        }
        Ok(())
    }

    #[test]
    fn what_is_no_answer_to_a_put_ends_its_peer() -> Result<(), EndpointError> {
        // Bytes; what is no status; and a part of one.
        for (kind, len, byte) in [(Kind::Data, 5, 0), (Kind::Reply, 8, 255), (Kind::Reply, 5, 0)] {
            let mut pair = pair("forged-put")?;
            let transfer = pair.transfer(0);
            let mut put = Put::new(&mut pair.client.state, transfer, true)?;
            let number = put.write_at_once(&mut pair.client.state, &[IoSlice::new(&[2; BYTES])])?;
            let number = number.expect("there is room");
            pair.server_forges(Envelope { kind, len, tag: number, mask: 0, inline: [byte; INLINE] })?;
            let state = &mut pair.client.state;
            assert!(!put.is_put_at_once(state, number));
            let done = put.step(state, &[&[2; BYTES]]);
            let is_ended = matches!(done, Err(EndpointError::PeerGone { ended: Ended::Violated, .. }));
            assert!(is_ended, "{kind:?}: {done:?}");
        }
        Ok(())
    }

    #[test]
    fn the_answer_to_another_request_is_none() -> Result<(), EndpointError> {
        let mut pair = pair("other")?;
        let (mut target, transfer) = (vec![0; BYTES], pair.transfer(0));
        let mut put = Put::new(&mut pair.client.state, transfer, true)?;
        let number = put.write_at_once(&mut pair.client.state, &[IoSlice::new(&[2; BYTES])])?;
        let number = number.expect("there is room");
        let mut inline = [0; INLINE];
        inline[..8].copy_from_slice(&status_alone(Status::Done));
        pair.server_forges(Envelope { kind: Kind::Reply, len: 8, tag: number + 1, mask: 0, inline })?;
        assert!(!put.is_put_at_once(&mut pair.client.state, number));
        pair.complete_put(&mut put)?;
        let mut get = Get::new(&mut pair.client.state, transfer, true)?;
        let number = get.ask_at_once(&mut pair.client.state)?.expect("there is room");
        let tag = encode_number(number + 1, 0);
        pair.server_forges(Envelope { kind: Kind::Data, len: BYTES, tag, mask: 0b1, inline: [0; INLINE] })?;
        let targets = &mut [IoSliceMut::new(&mut target)];
        assert!(!get.is_got_at_once(&mut pair.client.state, number, targets));
        pair.complete(&mut get, &mut target)?;
        assert_eq!(target, [2; BYTES]);
        Ok(())
    }

    #[test]
    fn buffers_are_given_back() -> Result<(), EndpointError> {
        let mut pair = pair("buffers")?;
        let (transfer, mut target) = (pair.transfer(0), vec![0; BYTES]);
        let state = &mut pair.client.state;
        // As many as the other way.
        let buffers = state.links.find(pair.to_server)?.incoming().buffers();
        for round in 0..2 * buffers {
            // As often as it is due the endpoint looks at all instead.
            state.polls = 0;
            let data = [round as u8; BYTES];
            let mut put = Put::new(state, transfer, true)?;
            let number = put.write_at_once(state, &[IoSlice::new(&data)])?.expect("there is room");
            pair.server.poll()?;
            assert!(put.is_put_at_once(state, number));
            let mut get = Get::new(state, transfer, true)?;
            let number = get.ask_at_once(state)?.expect("there is room");
            pair.server.poll()?;
            assert!(get.is_got_at_once(state, number, &mut [IoSliceMut::new(&mut target)]), "{round}");
            assert_eq!(target, data);
        }
        Ok(())
    }

    #[test]
    fn an_answer_that_comes_at_once_is_copied_from_the_channel() -> Result<(), EndpointError> {
        // In a cell, and in a buffer.
        for len in [5, BYTES] {
            let mut pair = pair("now")?;
            let transfer = pair.transfer(BYTES - len);
            let state = &mut pair.client.state;
            let mut put = Put::new(state, transfer, true)?;
            let number = put.write_at_once(state, &[IoSlice::new(&[2, 3]), IoSlice::new(&vec![4; len - 2])])?;
            pair.server.poll()?;
            assert!(put.is_put_at_once(state, number.expect("there is room")));
            let get = &mut Get::new(state, transfer, true)?;
            let (number, mut bytes) = (get.ask_at_once(state)?, vec![0; len]);
            pair.server.poll()?;
            let (first, last) = bytes.split_at_mut(3);
            let targets = &mut [IoSliceMut::new(first), IoSliceMut::new(last)];
            assert!(get.is_got_at_once(state, number.expect("there is room"), targets));
            assert_eq!([&[2, 3], &vec![4; len - 2][..]].concat(), bytes);
            assert!(!get.requests.are_under_way());
            // Nothing was noted, and nothing is left.
            let link = state.links.find(pair.to_server)?;
            assert_eq!((link.calls.bytes(), link.is_quiet()), (0, true));
        }
        Ok(())
    }
}
