//! Reading a peer's memory, step by step: straight from there, or sent by the peer.

use std::time::{Duration, Instant};

use crate::endpoint::ended::Ended;
use crate::endpoint::error::EndpointError;
use crate::endpoint::link::Link;
use crate::endpoint::requests::{Answer, Content, Moved, Requests, Transfer, Way};
use crate::endpoint::slices::{Parts, pair, window_mut};
use crate::endpoint::state::State;
use crate::endpoint::wire::{Status, What, decode_map};
use crate::sys::cma::Fetched;
use crate::tuning::{
    ENDPOINT_LATE, ENDPOINT_OWNER_SENDS_KIB_WITHIN, ENDPOINT_OWNER_SENDS_WITHIN, ENDPOINT_READ_BETWEEN_BYTES,
    MESSAGE_PIECE_BYTES,
};

/// A get that is under way: it refers to no memory but in its [steps](Get::step).
pub(super) struct Get {
    pub(super) requests: Requests,
    /// Whether the peer is asked to send what could be read without it: both sides copy faster than the system, if both do nothing else.
    is_sent: bool,
    /// Whether the peer has all leases given that it can give.
    is_busy: bool,
    /// Whether the peer has been woken, and nothing has come since.
    wakes: bool,
    /// Since when nothing has come.
    idle: Option<Instant>,
    /// How often the peer was late since it has sent something in time.
    late: u32,
}

impl Get {
    /// `waits`: steps are made one after the other until it is done.
    pub(super) fn new(state: &mut State, transfer: Transfer, waits: bool) -> Result<Self, EndpointError> {
        let requests = Requests::new(state, transfer)?;
        let is_sent = waits && !transfer.is_short() && state.polls() && {
            let link = state.links.find_open(transfer.peer)?;
            link.calls.sender.is_worth_asking(transfer.len > MESSAGE_PIECE_BYTES)
        };
        Ok(Get { requests, is_sent, is_busy: false, wakes: false, idle: None, late: 0 })
    }

    /// Whether it can read at once.
    pub(super) fn is_mapped(&self, state: &mut State) -> bool {
        let Transfer { peer, handle, offset, .. } = self.requests.transfer;
        let link = state.links.get(peer);
        !self.requests.transfer.is_short() && link.is_some_and(|link| link.mapped(handle.key, offset).is_some())
    }

    /// Goes on as far as it can at once. `None`: it could not. `polls`: it is not the last step before the caller sleeps.
    pub(super) fn step(
        &mut self,
        state: &mut State,
        targets: &mut [&mut [u8]],
        polls: bool,
    ) -> Result<Option<Moved>, EndpointError> {
        if self.requests.are_done() {
            return Ok(Some(Moved::All));
        }
        let mut moved = None;
        if let Some(answer) = self.requests.answer(state)? {
            (self.idle, self.wakes) = (None, false);
            if answer.way == Way::Direct {
                // Of a peer that is gone nothing can be read.
                state.links.find_open(self.requests.transfer.peer)?;
                self.map(state, answer, targets)?;
                return Ok(Some(self.requests.moved()));
            }
            self.copy(state, answer, targets)?;
            moved = Some(self.requests.moved());
            if self.requests.ends_step(state) {
                return Ok(moved);
            }
        }
        // The peer copies again while this side takes what else has come.
        loop {
            let link = state.links.find_open(self.requests.transfer.peer)?;
            let by_messages = link.calls.cannot_read || self.is_busy || self.is_sent_by(link);
            let most = if self.is_sent { ENDPOINT_READ_BETWEEN_BYTES } else { MESSAGE_PIECE_BYTES };
            let Some(part @ (_, len)) = self.requests.next(by_messages, most) else { break };
            if self.requests.way == Way::Direct {
                if moved.is_some() {
                    break;
                }
                if self.read(link, part, targets)? {
                    return Ok(Some(self.requests.moved()));
                }
                if link.calls.cannot_read {
                    continue;
                }
            }
            if !self.requests.find_room(state)? {
                if self.is_sent && by_messages && !self.requests.are_under_way() {
                    // It can be read all the same.
                    self.is_sent = false;
                    continue;
                }
                break;
            }
            let what = match self.requests.way {
                Way::Direct => What::Map(self.requests.rest().1 as u64),
                Way::Messages => What::Read(len as u64),
            };
            self.wakes |= state.links.find_open(self.requests.transfer.peer)?.other_sleeps();
            self.requests.ask(state, part, what)?;
            moved = moved.or(Some(Moved::Asked));
        }
        if moved.is_some() {
            self.idle = None;
        } else if self.is_late(state, polls)? {
            (self.idle, self.wakes) = (None, false);
            if let Some(last) = self.requests.start_over(state) {
                state.links.find(self.requests.transfer.peer)?.calls.sender.is_given_up(last);
            }
            // One that always is, since it sleeps in between, is woken for nothing.
            self.late += 1;
            self.is_sent = self.late < ENDPOINT_LATE;
            return Ok(Some(Moved::Some));
        }
        Ok(moved)
    }

    /// Whether the peer is asked to send what is next, although it could be read.
    fn is_sent_by(&self, link: &Link) -> bool {
        let Transfer { handle, offset, .. } = self.requests.transfer;
        let (start, _) = self.requests.rest();
        let is_known = || link.mapped(handle.key, offset + start as u64).is_some_and(|mapped| mapped.is_sent);
        self.is_sent && link.calls.sender.is_free() && is_known()
    }

    /// Whether what the peer was asked to send, and has not, is to be read.
    fn is_late(&mut self, state: &mut State, polls: bool) -> Result<bool, EndpointError> {
        let Transfer { peer, .. } = self.requests.transfer;
        let cannot_read = state.links.find_open(peer)?.calls.cannot_read;
        if !self.is_sent || self.requests.way == Way::Direct || cannot_read {
            return Ok(false);
        }
        let idle = self.idle.get_or_insert_with(Instant::now);
        let within = sends_within(self.requests.awaited(), self.wakes);
        let is_late = !polls || idle.elapsed() >= within;
        Ok(is_late && self.requests.are_under_way())
    }

    /// Learns where the peer's memory lies, and reads from there.
    fn map(
        &mut self,
        state: &mut State,
        answer: Answer,
        targets: &mut [&mut [u8]],
    ) -> Result<(), EndpointError> {
        let Transfer { peer, handle, offset, .. } = self.requests.transfer;
        self.requests.ask_again_from(answer.start);
        if answer.status == Status::Busy {
            // It has given all leases that it can give, some of them for memory that this side remembers.
            state.links.find(peer)?.unmap_if(|_| true);
            self.is_busy = true;
            return Ok(());
        }
        self.requests.transfer.check(answer.status)?;
        let Some(map) = decode_map(answer.content.message()) else { return self.requests.violated(state) };
        self.requests.is_dealt_with(state, answer.content);
        let link = state.links.find(peer)?;
        if !link.map(handle.key, offset + answer.start as u64, map) {
            return self.requests.violated(state);
        }
        // It was asked for all that is left.
        link.has_reached(handle.key, self.requests.transfer.end());
        if self.is_sent_by(link)
            || self.read(link, (answer.start, answer.len), targets)?
            || link.calls.cannot_read
        {
            Ok(())
        } else {
            Err(self.why_withdrawn(state))
        }
    }

    /// Why a lease does not stand that was just given: the owner has ended, which withdraws all of them, or the memory is shared no more.
    fn why_withdrawn(&self, state: &mut State) -> EndpointError {
        let peer = self.requests.transfer.peer;
        if state.links.find_open(peer).is_ok_and(|link| link.is_closed()) {
            // As the system is about to tell.
            state.end(peer, Ended::Left);
        }
        state.links.find_open(peer).err().unwrap_or(EndpointError::NotShared { peer })
    }

    /// Reads a part, or the beginning of it, straight from the peer's memory, if it is known where that lies. If not, or not any more,
    /// nothing is read.
    fn read(
        &mut self,
        link: &mut Link,
        (start, len): (usize, usize),
        targets: &mut [&mut [u8]],
    ) -> Result<bool, EndpointError> {
        let Transfer { peer, handle, offset, .. } = self.requests.transfer;
        let first = offset + start as u64;
        // Before anything is read its owner has to know how far the transfer goes: the handle may say more than there is.
        if start == 0 && !link.reaches(handle.key, self.requests.transfer.end()) {
            return Ok(false);
        }
        let Some(mapped) = link.mapped(handle.key, first) else { return Ok(false) };
        let skipped = first - mapped.start;
        let len = usize::try_from(mapped.len - skipped).map_or(len, |there| there.min(len));
        let mut parts = Parts::behind(skipped, &mapped.parts);
        let (mut fetched, mut read) = (Fetched::All, 0);
        // Piece by piece, so that a lease that was withdrawn is noticed soon.
        let mut pieces = (0..len).step_by(MESSAGE_PIECE_BYTES).peekable();
        let stands = link.read_under(mapped.lease, || {
            let Some(at) = pieces.next() else { return false };
            let piece = MESSAGE_PIECE_BYTES.min(len - at);
            let slices = window_mut(targets.iter_mut().map(|target| &mut target[..]), start + at, piece);
            let mut pairs = pair(&mut parts, slices);
            fetched = link.read_parts(&mut pairs, &mut read);
            fetched == Fetched::All && pieces.peek().is_some()
        });
        match fetched {
            Fetched::All if stands => {
                self.requests.ask_again_from(start + len);
                return Ok(true);
            }
            // Its owner would be ended by touching it, so it is not asked to.
            Fetched::Unmapped if stands => {
                return Err(EndpointError::Fault { peer, bytes: (start + read) as u64 });
            }
            Fetched::Refused if stands => link.calls.cannot_read = true,
            _ => {}
        }
        link.unmap_if(|mapped| mapped.key == handle.key);
        Ok(false)
    }

    /// Takes what a message has brought.
    fn copy(
        &mut self,
        state: &mut State,
        answer: Answer,
        targets: &mut [&mut [u8]],
    ) -> Result<(), EndpointError> {
        let Answer { status, content, start, len, .. } = answer;
        self.requests.transfer.check(status)?;
        let Content::Data(data) = content else { return self.requests.violated(state) };
        let sent = data.len();
        let slices = targets.iter_mut().map(|target| &mut target[..]);
        let link = state.links.find(self.requests.transfer.peer)?;
        link.deliver(data, window_mut(slices, start, sent), self.requests.transfer.len);
        if self.is_sent {
            link.calls.sender.has_sent();
            self.late = 0;
        }
        if sent < len {
            // This library does not. What is behind that comes again, in order.
            self.requests.start_over(state);
            self.requests.ask_again_from(start + sent);
        }
        Ok(())
    }
}

/// How long an owner may take until it has sent a part of this length. Who `wakes` for what is short sends it later than it can be read.
fn sends_within(bytes: usize, wakes: bool) -> Duration {
    let kib = if wakes { 0 } else { bytes.div_ceil(1 << 10) };
    ENDPOINT_OWNER_SENDS_WITHIN + ENDPOINT_OWNER_SENDS_KIB_WITHIN * u32::try_from(kib).unwrap_or(u32::MAX)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::endpoint::api::Endpoint;
    use crate::endpoint::handle::Access;
    use crate::endpoint::peer::Armed;
    use crate::endpoint::putting::Put;
    use crate::tuning::{ENDPOINT_BULK_IN_FLIGHT, ENDPOINT_SHORT_BYTES};

    const LEN: usize = 1 << 20;

    /// How many requests the first step of a get and of a put makes, of an endpoint that polls for so long.
    fn requests(spin: Duration, waits: bool) -> Result<[usize; 2], EndpointError> {
        let mut owner = Endpoint::listen(&format!("sent-{spin:?}-{waits}-{}", std::process::id()))?;
        let handle = owner.share(vec![vec![1; LEN].into()], Access::ReadWrite).handle();
        let mut client = Endpoint::builder().spin(spin).client()?;
        let peer = client.connect(owner.address().expect("it listens"))?;
        let transfer = Transfer { peer, handle, offset: 0, len: LEN };
        let (mut memory, state) = (vec![0; LEN], &mut client.state);
        // This one learns where the memory lies.
        let mut get = Get::new(state, transfer, waits)?;
        while get.step(state, &mut [&mut memory[..]], true)? != Some(Moved::All) {
            owner.poll()?;
            state.progress()?;
        }
        assert!(memory.iter().all(|byte| *byte == 1));
        let asked = |state: &mut State| state.links.find(peer).map(|link| link.calls.asked());
        let before = asked(state)?;
        let mut get = Get::new(state, transfer, waits)?;
        assert!(get.step(state, &mut [&mut memory[..]], true)?.is_some());
        let between = asked(state)?;
        let mut put = Put::new(state, transfer, waits)?;
        assert!(put.step(state, &[&memory[..]])?.is_some());
        let after = asked(state)?;
        Ok([between - before, after - between].map(|asked| asked as usize))
    }

    #[test]
    fn an_owner_that_is_always_late_is_not_asked_again_and_again() -> Result<(), EndpointError> {
        const LEN: usize = 16 << 20;
        let mut owner = Endpoint::listen(&format!("late-{}", std::process::id()))?;
        let handle = owner.share(vec![vec![1; LEN].into()], Access::Read).handle();
        let mut client = Endpoint::builder().spin(Duration::from_millis(10)).client()?;
        let peer = client.connect(owner.address().expect("it listens"))?;
        let (mut memory, state) = (vec![0; LEN], &mut client.state);
        let mut get = Get::new(state, Transfer { peer, handle, offset: 0, len: LEN }, true)?;
        let mut asked = 0;
        while get.step(state, &mut [&mut memory[..]], true)? != Some(Moved::All) {
            let now = state.links.find(peer)?.calls.asked();
            if get.requests.way == Way::Messages && core::mem::replace(&mut asked, now) != now {
                // What it has asked for is not there in time.
                while get.step(state, &mut [&mut memory[..]], true)?.is_none() {}
            }
            owner.poll()?;
            state.progress()?;
        }
        assert!(memory.iter().all(|byte| *byte == 1));
        let asked = state.links.find(peer)?.calls.asked() as usize;
        assert_eq!(asked, 1 + ENDPOINT_LATE as usize * ENDPOINT_BULK_IN_FLIGHT);
        Ok(())
    }

    #[test]
    fn an_owner_has_more_time_for_more_unless_it_wakes() -> Result<(), EndpointError> {
        assert!(sends_within(32 << 10, false) >= Duration::from_micros(2 * 20));
        assert_eq!([sends_within(0, false), sends_within(32 << 10, true)], [ENDPOINT_OWNER_SENDS_WITHIN; 2]);
        let mut owner = Endpoint::listen(&format!("wakes-{}", std::process::id()))?;
        let handle = owner.share(vec![vec![1; LEN].into()], Access::Read).handle();
        let mut client = Endpoint::builder().spin(Duration::from_millis(10)).client()?;
        let peer = client.connect(owner.address().expect("it listens"))?;
        let (mut memory, state) = (vec![0; LEN], &mut client.state);
        for sleeps in [true, false] {
            while sleeps && owner.arm()? == Armed::Work {
                owner.poll()?;
            }
            let mut get = Get::new(state, Transfer { peer, handle, offset: 0, len: LEN }, true)?;
            get.step(state, &mut [&mut memory[..]], true)?;
            assert_eq!((get.wakes, get.requests.are_under_way()), (sleeps, true));
            while get.step(state, &mut [&mut memory[..]], true)? != Some(Moved::All) {
                owner.poll()?;
                state.progress()?;
            }
            assert!(!get.wakes);
        }
        Ok(())
    }

    #[test]
    fn a_put_of_one_message_asks_for_no_room_first() -> Result<(), EndpointError> {
        let mut owner = Endpoint::listen(&format!("one-{}", std::process::id()))?;
        let mut client = Endpoint::client()?;
        let peer = client.connect(owner.address().expect("it listens"))?;
        let state = &mut client.state;
        for len in [ENDPOINT_SHORT_BYTES, ENDPOINT_SHORT_BYTES / 4, 1] {
            // Of which nothing is known.
            let handle = owner.share(vec![vec![1; len].into()], Access::ReadWrite).handle();
            let transfer = Transfer { peer, handle, offset: 0, len };
            let before = state.links.find(peer)?.calls.asked();
            let (mut put, data) = (Put::new(state, transfer, true)?, vec![2; len]);
            while put.step(state, &[&data])? != Some(Moved::All) {
                owner.poll()?;
                state.progress()?;
            }
            let messages = len.div_ceil(transfer.message()) as u64;
            let asked = state.links.find(peer)?.calls.asked() - before;
            assert_eq!(asked, if messages == 1 { 1 } else { 1 + messages }, "{len}");
        }
        Ok(())
    }

    #[test]
    fn who_polls_and_waits_is_sent_what_it_could_read_and_sends_what_could_be_read() -> Result<(), EndpointError>
    {
        for (spin, waits) in [(Duration::ZERO, true), (Duration::from_millis(10), false)] {
            assert_eq!(requests(spin, waits)?, [0, 1], "{spin:?}, {waits}");
        }
        assert_eq!(requests(Duration::from_millis(10), true)?, [ENDPOINT_BULK_IN_FLIGHT; 2]);
        Ok(())
    }
}
