//! A rank of a model of messages: the steps that its role is made of, and what it shares with the others.

use std::cell::{Cell, RefCell};

use intranode::protocol::message::{
    Envelope, Inbox, Kind, Mask, Outbox, Post, Settled, Slot, buffers, channel, offer,
};
use intranode::protocol::symmetric::Cell as _;
use intranode::protocol::{Cause, CauseKind, Failure, Ordering, Payload, Segment, membership};

use crate::harness::atomic_cells::Cell64;
use crate::harness::cells::Bytes;
use crate::harness::channel_memory::{ChannelMemory, envelope};
use crate::harness::mutant::Simulated;
use crate::harness::segment::SegmentMemory;
use crate::harness::trace::Label;

/// What the ranks share.
pub(crate) struct Memory {
    pub(crate) segment: SegmentMemory,
    /// By sender and receiver.
    channels: Vec<Vec<ChannelMemory>>,
    /// By rank: memory of its own, from which others pull. Every access is checked against all others.
    own: Vec<Bytes<8>>,
    /// The same for what may change while another pulls: its accesses are not checked.
    changing: Vec<Cell64>,
    /// By rank: whether it has pulled.
    pulled: Vec<Cell64>,
    /// By rank: whether it sends no more.
    closed: Vec<Cell64>,
}

impl Memory {
    pub(crate) fn new(ranks: usize, room: (usize, usize), modulus: u64) -> Self {
        let cell = |what| move |rank| Cell64::new(Label { what, rank, parity: 0 });
        Memory {
            segment: SegmentMemory::of_bells(ranks),
            channels: (0..ranks)
                .map(|sender| (0..ranks).map(|_| ChannelMemory::new(sender, room, modulus)).collect())
                .collect(),
            own: (0..ranks).map(|rank| Bytes::new(Label { what: "own", rank, parity: 0 })).collect(),
            changing: (0..ranks).map(cell("cell")).collect(),
            pulled: (0..ranks).map(cell("cell")).collect(),
            closed: (0..ranks).map(cell("cell")).collect(),
        }
    }
}

/// A rank.
pub(crate) struct Correspondent<'s> {
    pub(crate) rank: usize,
    platform: &'s Simulated,
    memory: &'s Memory,
    segment: &'s Segment<'s, Simulated>,
    post: Post<'s, Simulated>,
    /// By peer.
    outboxes: Vec<Cell<Outbox>>,
    inboxes: Vec<Cell<Inbox>>,
    values: RefCell<Vec<u64>>,
}

/// The number of the only offer of a model: in the first place.
const OFFER: u32 = channel::OFFERS as u32;

impl<'s> Correspondent<'s> {
    pub(crate) fn new(
        rank: usize,
        platform: &'s Simulated,
        (memory, segment): (&'s Memory, &'s Segment<'s, Simulated>),
        in_line: bool,
    ) -> Self {
        let peers = memory.channels.len();
        let (outbox, inbox) = if in_line { (Outbox::in_line(), Inbox::in_line()) } else { Default::default() };
        Correspondent {
            rank,
            platform,
            memory,
            segment,
            post: Post::new(platform, segment, rank),
            outboxes: vec![Cell::new(outbox); peers],
            inboxes: vec![Cell::new(inbox); peers],
            values: RefCell::default(),
        }
    }

    /// Reports a value to the check.
    pub(crate) fn sees(&self, value: u64) {
        self.values.borrow_mut().push(value);
    }

    /// What it has reported.
    pub(crate) fn seen(&self) -> Vec<u64> {
        self.values.take()
    }

    fn to(&self, target: usize) -> &'s ChannelMemory {
        &self.memory.channels[self.rank][target]
    }

    fn from(&self, source: usize) -> &'s ChannelMemory {
        &self.memory.channels[source][self.rank]
    }

    fn waits<R>(&self, poll: impl FnMut() -> Option<Result<R, Failure>>) -> Result<R, Failure> {
        self.post.wait(&false, poll)?.expect("no model is late")
    }

    /// Publishes a cell, when there is room.
    fn publishes(&self, target: usize, envelope: &Envelope) -> Result<(), Failure> {
        let (channel, outbox) = (&self.to(target), &self.outboxes[target]);
        let mut state = outbox.get();
        self.waits(|| self.post.has_room(channel, &mut state).then_some(Ok(())))?;
        self.post.publish(channel, &mut state, target, envelope)?;
        outbox.set(state);
        Ok(())
    }

    /// Sends a number in a cell.
    pub(crate) fn sends(&self, target: usize, value: u64) -> Result<(), Failure> {
        self.publishes(target, &envelope(Kind::Message, 0, value))
    }

    /// Sends a number in a slot. `is_followed`: the next slot stays open for another.
    pub(crate) fn sends_in_slot(&self, target: usize, value: u64, is_followed: bool) -> Result<(), Failure> {
        let (channel, outbox) = (&self.to(target), &self.outboxes[target]);
        let mut state = outbox.get();
        self.waits(|| self.post.has_slot(channel, &mut state).then_some(Ok(())))?;
        let slot = Slot::new(false, 7, &value.to_ne_bytes());
        self.post.publish_slot(channel, &mut state, target, &slot, is_followed)?;
        outbox.set(state);
        Ok(())
    }

    /// Sends a number in a buffer, when one is free.
    pub(crate) fn sends_in_buffer(&self, target: usize, value: u64) -> Result<(), Failure> {
        self.sends_buffer(Kind::Message, target, value)
    }

    fn sends_buffer(&self, kind: Kind, target: usize, value: u64) -> Result<(), Failure> {
        let channel = &self.to(target);
        let mask = self.waits(|| self.post.reserve(channel, 1).map_err(Failure::from).transpose())?;
        buffers::fill(channel, mask, &value.to_ne_bytes());
        self.publishes(target, &envelope(kind, mask, 0))
    }

    /// Sends a number in the second of two buffers.
    pub(crate) fn sends_shifted(&self, target: usize, value: u64) -> Result<(), Failure> {
        const START: usize = 8;
        let channel = &self.to(target);
        let mask = self.waits(|| self.post.reserve(channel, 2).map_err(Failure::from).transpose())?;
        buffers::fill_from(channel, mask, START, &value.to_ne_bytes());
        let inline = channel::shifted(START, 0);
        self.publishes(target, &Envelope { inline, ..envelope(Kind::Shifted, mask, 0) })
    }

    /// Receives a number in a buffer, and keeps that for the reply.
    pub(crate) fn receives_and_keeps(&self, source: usize) -> Result<Mask, Failure> {
        let (_, cell) = self.takes(&[source])?;
        let channel = if cell.kind.is_returned() { self.to(source) } else { self.from(source) };
        let mut number = [0; 8];
        buffers::read_from(&channel, cell.mask, cell.start(), &mut number);
        self.sees(u64::from_ne_bytes(number));
        Ok(cell.mask)
    }

    /// Sends a number in a buffer that was kept: of the channel to `target`, or, if it is `returned`, of that from it.
    pub(crate) fn replies(&self, target: usize, mask: Mask, returned: bool, value: u64) -> Result<(), Failure> {
        let channel = if returned { self.from(target) } else { self.to(target) };
        buffers::fill(&channel, mask, &value.to_ne_bytes());
        let kind = if returned { Kind::Returned } else { Kind::Message };
        self.publishes(target, &Envelope { inline: channel::shifted(0, 0), ..envelope(kind, mask, 0) })
    }

    /// Gives back a buffer of the channel to `target` that was kept.
    pub(crate) fn gives_back(&self, target: usize, mask: Mask) -> Result<(), Failure> {
        Ok(self.post.release(&self.to(target), mask, target)?)
    }

    /// Sends two numbers, each in a buffer; the first is published as a part before the second is there.
    pub(crate) fn sends_in_parts(&self, target: usize, first: u64, second: u64) -> Result<(), Failure> {
        let channel = &self.to(target);
        let mask = self.waits(|| self.post.reserve(channel, 2).map_err(Failure::from).transpose())?;
        for (start, number, kind) in [(0, first, Kind::Part), (8, second, Kind::Message)] {
            buffers::fill_from(channel, mask, start, &number.to_ne_bytes());
            self.publishes(target, &Envelope { len: 16, ..envelope(kind, mask, 0) })?;
        }
        Ok(())
    }

    /// Receives them: the first when its part has come, if it does not pass over that.
    pub(crate) fn receives_parts(&self, source: usize, passes: bool) -> Result<(), Failure> {
        let channel = &self.from(source);
        let (_, part) = self.takes(&[source])?;
        let mut numbers = [[0; 8]; 2];
        let read = if passes { 0 } else { 1 };
        buffers::read(channel, part.mask, numbers[..read].as_flattened_mut());
        let (_, whole) = self.takes(&[source])?;
        assert!((part.kind, whole.kind) == (Kind::Part, Kind::Message), "wrong data: {whole:?}");
        buffers::read_from(channel, whole.mask, read * 8, numbers[read..].as_flattened_mut());
        self.post.release(channel, whole.mask, source)?;
        numbers.iter().for_each(|number| self.sees(u64::from_ne_bytes(*number)));
        Ok(())
    }

    /// Waits for the next cell of any of these ranks.
    fn takes(&self, sources: &[usize]) -> Result<(usize, Envelope), Failure> {
        self.waits(|| sources.iter().find_map(|source| self.tries_to_take(*source)))
    }

    fn tries_to_take(&self, source: usize) -> Option<Result<(usize, Envelope), Failure>> {
        let (inbox, outbox) = (&self.inboxes[source], &self.outboxes[source]);
        let (mut incoming, mut outgoing) = (inbox.get(), outbox.get());
        let taken = self.post.take(&self.from(source), &mut incoming, &mut outgoing, source);
        inbox.set(incoming);
        outbox.set(outgoing);
        taken.map(|taken| taken.map(|envelope| (source, envelope))).transpose()
    }

    /// Receives a number from any of these ranks, wherever it is, and reports it.
    pub(crate) fn receives_from(&self, sources: &[usize]) -> Result<(), Failure> {
        let (source, envelope) = self.takes(sources)?;
        let mut bytes = [0; 8];
        if envelope.mask == 0 {
            bytes.copy_from_slice(&envelope.inline[..8]);
        } else {
            buffers::read_from(&self.from(source), envelope.mask, envelope.start(), &mut bytes);
            self.post.release(&self.from(source), envelope.mask, source)?;
        }
        self.sees(u64::from_ne_bytes(bytes));
        Ok(())
    }

    /// Receives numbers, and reports them, until the sender has closed its side.
    pub(crate) fn receives_until_closed(&self, source: usize) -> Result<(), Failure> {
        loop {
            let poll = || {
                if let Some(taken) = self.tries_to_take(source) {
                    return Some(taken.map(Some));
                }
                if !self.post.is_closed(&self.memory.closed[source]) {
                    return None;
                }
                // Now all can be seen that was sent before.
                Some(self.tries_to_take(source).transpose())
            };
            let Some((_, envelope)) = self.waits(poll)? else { return Ok(()) };
            self.sees(u64::from_ne_bytes(envelope.inline[..8].try_into().expect("eight bytes")));
        }
    }

    pub(crate) fn receives(&self, source: usize) -> Result<(), Failure> {
        self.receives_from(&[source])
    }

    /// Writes the memory from which others pull.
    pub(crate) fn writes_own(&self, value: u64) {
        self.memory.own[self.rank].write(|mut bytes| bytes.put(0, &value.to_ne_bytes()));
    }

    /// The same for memory that may change while another pulls.
    pub(crate) fn changes(&self, value: u64) {
        self.memory.changing[self.rank].store(value, Ordering::Relaxed);
    }

    /// Offers what lies in its own memory.
    pub(crate) fn offers(&self, target: usize) -> Result<(), Failure> {
        assert!(self.post.open_lease(&self.to(target), OFFER), "the first offer");
        let (inline, mask) = offer::Offer {
            number: OFFER,
            attended: false,
            unasked: false,
            place: None,
            address: 0,
            len: 8,
            token_address: 0,
            token: 0,
        }
        .encode();
        self.publishes(target, &Envelope { inline, ..envelope(Kind::Offer, mask, 0) })
    }

    /// Waits until the receiver has pulled.
    pub(crate) fn awaits_settled(&self, target: usize) -> Result<(), Failure> {
        self.waits(|| self.post.is_settled(&self.to(target), OFFER).then_some(Ok(())))
    }

    /// Takes the offer back. Reports whether that was in time.
    pub(crate) fn withdraws(&self, target: usize) -> bool {
        let withdrawn = self.post.withdraw(&self.to(target), OFFER) == Settled::Withdrawn;
        self.sees(u64::from(withdrawn));
        withdrawn
    }

    /// Whether a rank is known to have pulled.
    pub(crate) fn knows_pulled(&self, rank: usize) -> bool {
        self.memory.pulled[rank].load(Ordering::Relaxed) == 1
    }

    /// Takes an offer.
    pub(crate) fn takes_offer(&self, source: usize) -> Result<(), Failure> {
        let (_, envelope) = self.takes(&[source])?;
        assert!(
            offer::Offer::decode(&envelope.inline, envelope.mask).number == OFFER,
            "wrong data: {envelope:?}"
        );
        Ok(())
    }

    /// Pulls from memory that nobody changes meanwhile, and reports it.
    pub(crate) fn pulls(&self, source: usize) -> Result<(), Failure> {
        let value = self.memory.own[source].read(|bytes| u64::from_ne_bytes(bytes.array(0)));
        let settled = self.post.settle(&self.from(source), OFFER, source)?;
        assert!(settled == Settled::Pulled, "wrong verdict: {settled:?}");
        self.sees(value);
        Ok(())
    }

    /// Pulls from memory that may change, if the offer stands. Reports whether it has a message, and which.
    pub(crate) fn pulls_changing(&self, source: usize) -> Result<(), Failure> {
        let channel = &self.from(source);
        let offered = self.post.is_offered(channel, OFFER);
        let value = self.memory.changing[source].load(Ordering::Relaxed);
        self.memory.pulled[self.rank].store(1, Ordering::Relaxed);
        let settled = self.post.settle(channel, OFFER, source)?;
        assert!(offered || settled == Settled::Withdrawn, "wrong verdict: it was withdrawn, and then pulled");
        self.sees(u64::from(settled == Settled::Pulled));
        if settled == Settled::Pulled {
            self.sees(value);
        }
        Ok(())
    }

    /// Reads memory that nobody changes before it has confirmed that, under an offer that stays open. Reports it.
    pub(crate) fn reads(&self, source: usize) {
        let mut value = 0;
        let stands = self.post.read(&self.from(source), OFFER, || {
            value = self.memory.own[source].read(|bytes| u64::from_ne_bytes(bytes.array(0)));
            false
        });
        assert!(stands, "wrong verdict: it was not withdrawn");
        self.memory.pulled[self.rank].store(1, Ordering::Relaxed);
        self.sees(value);
    }

    /// Reads memory that may change. Reports whether it is what was offered, and then which.
    pub(crate) fn reads_changing(&self, source: usize) {
        let mut value = 0;
        let stands = self.post.read(&self.from(source), OFFER, || {
            value = self.memory.changing[source].load(Ordering::Relaxed);
            false
        });
        self.sees(u64::from(stands));
        if stands {
            self.sees(value);
        }
    }

    /// Wants the message in a buffer, since it cannot pull it; and receives it.
    pub(crate) fn wants(&self, source: usize) -> Result<(), Failure> {
        let want = offer::Want { number: OFFER as u16, attempt: 0, start: 0, count: 1 };
        self.post.want(&self.from(source), want, source)?;
        self.receives(source)?;
        let settled = self.post.settle(&self.from(source), OFFER, source)?;
        assert!(settled == Settled::Pulled, "wrong verdict: {settled:?}");
        Ok(())
    }

    /// Wants a part, and settles the offer without it.
    pub(crate) fn wants_and_settles(&self, source: usize) -> Result<(), Failure> {
        let want = offer::Want { number: OFFER as u16, attempt: 1, start: 3, count: 1 };
        self.post.want(&self.from(source), want, source)?;
        self.post.settle(&self.from(source), OFFER, source)?;
        Ok(())
    }

    /// Waits until a later offer can have the lease, and opens it: one whose number a want takes for that of the first.
    pub(crate) fn offers_once_more(&self, target: usize) -> Result<(), Failure> {
        let (channel, later) = (&self.to(target), OFFER + (1 << 16));
        self.waits(|| self.post.open_lease(channel, later).then_some(Ok(())))?;
        let want = self.post.wanted(channel, later);
        assert!(want.is_none(), "stale data: of an earlier offer {want:?}");
        Ok(())
    }

    /// Sends what is wanted, once it is.
    pub(crate) fn sends_wanted(&self, target: usize, value: u64) -> Result<(), Failure> {
        let want = self.waits(|| self.post.wanted(&self.to(target), OFFER).map(Ok))?;
        assert!((want.number, want.start, want.count) == (OFFER as u16, 0, 1), "wrong data: {want:?}");
        self.sends_buffer(Kind::Fragment, target, value)
    }

    /// The rank sends no more.
    pub(crate) fn closes(&self) -> Result<(), Failure> {
        self.post.close(&self.memory.closed[self.rank])?;
        for peer in (0..self.memory.closed.len()).filter(|peer| *peer != self.rank) {
            self.post.ring(peer)?;
        }
        Ok(())
    }

    /// The rank leaves the communicator.
    pub(crate) fn leaves(&self) -> Result<(), Failure> {
        self.poison(CauseKind::Left)
    }

    pub(crate) fn poison(&self, kind: CauseKind) -> Result<(), Failure> {
        let cause = Cause { kind, rank: self.rank, detail: 0 };
        Ok(membership::poison(self.platform, self.segment, cause)?)
    }
}
