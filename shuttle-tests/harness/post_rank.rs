//! A rank that sends and receives messages of all kinds, as the library does: a rank that waits takes in what comes.

use intranode::protocol::message::offer::{Offer, Want};
use intranode::protocol::message::{Envelope, Inbox, Kind, Outbox, Post, Settled, Slot, buffers, channel};
use intranode::protocol::symmetric::Cell as _;
use intranode::protocol::{Cause, CauseKind, Failure, Ordering, Payload, membership};
use shuttle::sync::atomic::Ordering::SeqCst;

use crate::harness::channels::{BUFFER, ChannelMemory, Channels};
use crate::harness::choice;
use crate::harness::post_plan::{How, Plan};
use crate::harness::simulation::{FOREVER, Simulation};

/// The buffers of a message that is sent in parts, and the most that its receiver wants at a time.
const PARTS: usize = 3;
const WANTED: usize = 2;

/// What became of a rank.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// By rank: the numbers of the messages that it has received, and of those that were withdrawn before.
    pub received: Vec<Vec<u64>>,
    /// By rank: the numbers of those that it has withdrawn.
    pub withdrawn: Vec<Vec<u64>>,
    pub late: bool,
    pub end: Option<Failure>,
}

/// An own offer that stands.
struct Open {
    message: u64,
    how: How,
    want: Option<Want>,
    /// The next buffer that is sent.
    position: usize,
}

#[derive(Default)]
struct Outgoing {
    outbox: Outbox,
    messages: u64,
    offers: u32,
    open: Option<Open>,
}

/// An offer that has come.
struct Arrived {
    message: u64,
    number: u32,
    how: How,
    /// In buffers.
    received: usize,
    wanted: usize,
}

#[derive(Default)]
struct Incoming {
    inbox: Inbox,
    /// The messages that have come, and those of which it is known whether they are received.
    messages: u64,
    settled: u64,
    arrived: Option<Arrived>,
}

/// What a rank does, and what becomes of it.
pub fn live(plan: &Plan, rank: usize, simulation: &Simulation, memory: &Channels) -> Log {
    let ranks = plan.ranks();
    let segment = memory.segment.segment();
    let post = Post::new(simulation, &segment, rank);
    let log = Log { received: vec![Vec::new(); ranks], withdrawn: vec![Vec::new(); ranks], ..Log::default() };
    let outgoing = (0..ranks).map(|_| Outgoing { outbox: Outbox::in_line(), ..Outgoing::default() }).collect();
    let incoming = (0..ranks).map(|_| Incoming { inbox: Inbox::in_line(), ..Incoming::default() }).collect();
    let mut actor = Actor { plan, rank, simulation, memory, post, outgoing, incoming, log };
    actor.log.end = actor.play().err();
    actor.log
}

struct Actor<'s> {
    plan: &'s Plan,
    rank: usize,
    simulation: &'s Simulation,
    memory: &'s Channels,
    post: Post<'s, Simulation>,
    /// By rank.
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    log: Log,
}

impl<'s> Actor<'s> {
    fn play(&mut self) -> Result<(), Failure> {
        let plan = self.plan;
        for (round, sends) in plan.sends[self.rank].iter().enumerate() {
            for (target, how) in sends {
                self.post.check()?;
                if self.send(*target, *how)?.is_none() {
                    return Ok(());
                }
            }
            self.withdraw_all()?;
            let through = self.wait(|actor| {
                let settled =
                    |source: usize| actor.incoming[source].settled >= plan.due(source, actor.rank, round + 1);
                let sent = actor.outgoing.iter().all(|outgoing| outgoing.open.is_none());
                Ok((sent && (0..plan.ranks()).all(settled)).then_some(()))
            })?;
            if through.is_none() {
                return Ok(());
            }
        }
        self.close()
    }

    /// It sends no more. Unless it leaves early it awaits that of all others.
    fn close(&mut self) -> Result<(), Failure> {
        let (memory, post) = (self.memory, self.post);
        post.close(&memory.closed[self.rank])?;
        (0..memory.ranks()).try_for_each(|peer| post.ring(peer))?;
        let rounds = self.plan.sends.iter().map(Vec::len).max().unwrap_or(0);
        if self.plan.sends[self.rank].len() < rounds {
            let cause = Cause { kind: CauseKind::Left, rank: self.rank, detail: 0 };
            return Ok(membership::poison(self.simulation, &memory.segment.segment(), cause)?);
        }
        let through =
            self.wait(|_| Ok(memory.closed.iter().all(|closed| post.is_closed(closed)).then_some(())))?;
        if through.is_some() {
            (0..memory.ranks()).for_each(|source| self.nothing_more_from(source));
        }
        Ok(())
    }

    fn nothing_more_from(&self, source: usize) {
        let more = self.post.has_arrived(&self.from(source), &self.incoming[source].inbox);
        // The dead go on when all others are done, and this rank may have died while it looked.
        let dead = self.simulation.dead().contains(&self.rank);
        assert!(dead || !more, "lost: rank {source} had sent more to {}", self.rank);
    }

    fn to(&self, target: usize) -> &'s ChannelMemory {
        self.memory.between(self.rank, target)
    }

    fn from(&self, source: usize) -> &'s ChannelMemory {
        self.memory.between(source, self.rank)
    }

    /// Waits, and takes in what comes meanwhile. `None`: it took too long. A wait that ends because a rank has died has taken in
    /// all that this rank had published.
    fn wait<R>(
        &mut self,
        mut poll: impl FnMut(&mut Self) -> Result<Option<R>, Failure>,
    ) -> Result<Option<R>, Failure> {
        let post = self.post;
        let mut once = || {
            let dead = self.memory.dead.load(SeqCst);
            self.take_in()?;
            self.serve_all()?;
            match poll(self)? {
                None if dead != 0 => {
                    let cause =
                        Cause { kind: CauseKind::Died, rank: dead.trailing_zeros() as usize, detail: 0 };
                    Err(Failure::Dead(Some(cause)))
                }
                found => Ok(found),
            }
        };
        let waited = post.wait(&FOREVER, || once().transpose()).and_then(Option::transpose);
        match &waited {
            Ok(found) => self.log.late |= found.is_none(),
            Err(Failure::Dead(Some(Cause { kind: CauseKind::Died, rank, .. }))) => {
                self.nothing_more_from(*rank);
            }
            Err(_) => {}
        }
        waited
    }

    fn send(&mut self, target: usize, how: How) -> Result<Option<()>, Failure> {
        self.outgoing[target].messages += 1;
        let message = self.outgoing[target].messages;
        match how {
            How::InCell if choice::once_in(2) => {
                let channel = self.to(target);
                let room = self.wait(|actor| {
                    let outbox = &mut actor.outgoing[target].outbox;
                    Ok(actor.post.has_slot(&channel, outbox).then_some(()))
                })?;
                let slot = Slot::new(false, message, &message.to_ne_bytes());
                let (post, outbox) = (self.post, &mut self.outgoing[target].outbox);
                let is_followed = choice::once_in(2);
                room.map(|()| Ok(post.publish_slot(&channel, outbox, target, &slot, is_followed)?)).transpose()
            }
            How::InCell => {
                let room = self.wait(|actor| Ok(actor.has_room(target).then_some(())))?;
                room.map(|()| self.publish(target, &envelope(Kind::Message, message, 0, BUFFER))).transpose()
            }
            How::InBuffers(count) => {
                let channel = self.to(target);
                let mask = self.wait(|actor| {
                    let room = actor.has_room(target);
                    Ok(if room { actor.post.reserve(&channel, count)? } else { None })
                })?;
                let Some(mask) = mask else { return Ok(None) };
                buffers::fill(&channel, mask, &message.to_ne_bytes().repeat(count));
                self.publish(target, &envelope(Kind::Message, message, mask, count * BUFFER)).map(Some)
            }
            How::Pulled | How::InParts | How::Withdrawn => self.offer(target, message, how),
        }
    }

    fn offer(&mut self, target: usize, message: u64, how: How) -> Result<Option<()>, Failure> {
        if self.outgoing[target].open.as_ref().is_some_and(|open| open.how == How::Withdrawn) {
            self.withdraw(target)?;
        }
        let channel = self.to(target);
        let number = self.wait(|actor| {
            let Outgoing { open, offers, .. } = &actor.outgoing[target];
            let (free, number) = (open.is_none(), *offers);
            let is_open = free && actor.has_room(target) && actor.post.open_lease(&channel, number);
            Ok(is_open.then_some(number))
        })?;
        let Some(number) = number else { return Ok(None) };
        match how {
            How::Withdrawn => channel.changing.store(message, Ordering::Relaxed),
            _ => channel.own.write(|mut sink| sink.put(0, &message.to_ne_bytes())),
        }
        let code = match how {
            How::Pulled => 0,
            How::InParts => 1,
            _ => 2,
        };
        let len = BUFFER as u64;
        let place = None;
        let offer = Offer {
            number,
            attended: false,
            unasked: false,
            place,
            address: code,
            len,
            token_address: 0,
            token: 0,
        };
        let (inline, mask) = offer.encode();
        let cell = Envelope { inline, ..envelope(Kind::Offer, message, mask, BUFFER) };
        self.publish(target, &cell)?;
        self.outgoing[target].open = Some(Open { message, how, want: None, position: 0 });
        if how == How::Withdrawn && choice::once_in(2) {
            self.withdraw(target)?;
        }
        Ok(Some(()))
    }

    fn withdraw_all(&mut self) -> Result<(), Failure> {
        for target in 0..self.outgoing.len() {
            if self.outgoing[target].open.as_ref().is_some_and(|open| open.how == How::Withdrawn) {
                self.withdraw(target)?;
            }
        }
        Ok(())
    }

    /// Takes the offer back, and changes what was offered.
    fn withdraw(&mut self, target: usize) -> Result<(), Failure> {
        let channel = self.to(target);
        let Some(open) = self.outgoing[target].open.take() else { return Ok(()) };
        if self.post.withdraw(&channel, self.outgoing[target].offers) == Settled::Withdrawn {
            self.log.withdrawn[target].push(open.message);
        }
        channel.changing.store(u64::MAX, Ordering::Relaxed);
        self.outgoing[target].offers += 1;
        Ok(())
    }

    fn has_room(&mut self, target: usize) -> bool {
        let channel = self.to(target);
        self.post.has_room(&channel, &mut self.outgoing[target].outbox)
    }

    fn publish(&mut self, target: usize, envelope: &Envelope) -> Result<(), Failure> {
        let channel = self.to(target);
        Ok(self.post.publish(&channel, &mut self.outgoing[target].outbox, target, envelope)?)
    }

    fn serve_all(&mut self) -> Result<(), Failure> {
        (0..self.outgoing.len()).try_for_each(|target| self.serve(target))
    }

    /// Goes on with what is offered to a rank.
    fn serve(&mut self, target: usize) -> Result<(), Failure> {
        let (channel, number) = (self.to(target), self.outgoing[target].offers);
        let Some(open) = &mut self.outgoing[target].open else { return Ok(()) };
        if open.how == How::Withdrawn {
            return Ok(());
        }
        if self.post.is_settled(&channel, number) {
            self.outgoing[target].open = None;
            self.outgoing[target].offers += 1;
            return Ok(());
        }
        if open.how == How::Pulled {
            return Ok(());
        }
        let Some(want) = self.post.wanted(&channel, number) else { return Ok(()) };
        if open.want != Some(want) {
            (open.want, open.position) = (Some(want), want.start as usize);
        }
        let (message, end) = (open.message, want.start as usize + usize::from(want.count));
        loop {
            let position = self.outgoing[target].open.as_ref().map_or(end, |open| open.position);
            if position == end || !self.has_room(target) {
                return Ok(());
            }
            let Some(mask) = self.post.reserve(&channel, 1)? else { return Ok(()) };
            buffers::fill(&channel, mask, &message.to_ne_bytes());
            let tag = u64::from(want.number) << 8 | u64::from(want.attempt);
            self.publish(target, &envelope(Kind::Fragment, tag, mask, BUFFER))?;
            if let Some(open) = &mut self.outgoing[target].open {
                open.position += 1;
            }
        }
    }

    fn take_in(&mut self) -> Result<(), Failure> {
        for source in 0..self.incoming.len() {
            let due = self.plan.due(source, self.rank, usize::MAX);
            let incoming = &self.incoming[source];
            if incoming.messages < due || incoming.arrived.is_some() {
                self.take_in_from(source)?;
            }
        }
        Ok(())
    }

    fn take_in_from(&mut self, source: usize) -> Result<(), Failure> {
        let channel = self.from(source);
        while let Some(cell) = {
            let outbox = &mut self.outgoing[source].outbox;
            self.post.take(&channel, &mut self.incoming[source].inbox, outbox, source)?
        } {
            if cell.kind == Kind::Fragment {
                self.take_part(source, &cell)?;
                continue;
            }
            let incoming = &mut self.incoming[source];
            incoming.messages += 1;
            let message = incoming.messages;
            assert!(cell.tag == message, "out of order: {} from {source}, not {message}", cell.tag);
            if cell.kind == Kind::Offer {
                let Offer { number, address, .. } = Offer::decode(&cell.inline, cell.mask);
                let how = [How::Pulled, How::InParts, How::Withdrawn][address as usize];
                let before = incoming.arrived.replace(Arrived { message, number, how, received: 0, wanted: 0 });
                assert!(before.is_none(), "two offers of {source} at once");
                continue;
            }
            let mut bytes = vec![0; cell.len];
            if cell.mask == 0 {
                bytes.copy_from_slice(&cell.inline[..cell.len]);
            } else {
                buffers::read(&channel, cell.mask, &mut bytes);
                self.post.release(&channel, cell.mask, source)?;
            }
            self.receives(source, message, &bytes);
        }
        self.pull(source)
    }

    fn receives(&mut self, source: usize, message: u64, bytes: &[u8]) {
        let expected = message.to_ne_bytes();
        let right = bytes.chunks(BUFFER).all(|chunk| *chunk == expected);
        assert!(right, "wrong data: {bytes:?} as message {message} from {source} to {}", self.rank);
        self.settles(source, message, true);
    }

    fn settles(&mut self, source: usize, message: u64, received: bool) {
        let incoming = &mut self.incoming[source];
        incoming.settled += 1;
        // Another message may have overtaken an offer that is not pulled yet.
        incoming.arrived.take_if(|arrived| arrived.message == message);
        if received {
            self.log.received[source].push(message);
        }
    }

    fn take_part(&mut self, source: usize, cell: &Envelope) -> Result<(), Failure> {
        let channel = self.from(source);
        let mut bytes = [0; BUFFER];
        buffers::read(&channel, cell.mask, &mut bytes);
        if let Some(arrived) = &mut self.incoming[source].arrived {
            let value = u64::from_ne_bytes(bytes);
            assert!(value == arrived.message, "wrong data: {value} as a part of {}", arrived.message);
            arrived.received += 1;
        }
        Ok(self.post.release(&channel, cell.mask, source)?)
    }

    /// Goes on with what a rank has offered.
    fn pull(&mut self, source: usize) -> Result<(), Failure> {
        let (channel, post) = (self.from(source), self.post);
        let Some(arrived) = &mut self.incoming[source].arrived else { return Ok(()) };
        let (message, number) = (arrived.message, arrived.number);
        match arrived.how {
            How::InParts if arrived.received < PARTS => {
                if arrived.received == arrived.wanted {
                    let count = WANTED.min(PARTS - arrived.wanted);
                    let start = arrived.wanted as u32;
                    arrived.wanted += count;
                    let want = Want { number: number as u16, attempt: 0, start, count: count as u16 };
                    post.want(&channel, want, source)?;
                }
                Ok(())
            }
            How::Withdrawn => {
                if choice::once_in(4) {
                    let mut read = 0;
                    let stands = post.read(&channel, number, || {
                        read = channel.changing.load(Ordering::Relaxed);
                        false
                    });
                    assert!(!stands || read == message, "withdrawn bytes: {read} as {message} of {source}");
                }
                let offered = post.is_offered(&channel, number);
                let copied = channel.changing.load(Ordering::Relaxed);
                let pulled = post.settle(&channel, number, source)? == Settled::Pulled;
                assert!(offered || !pulled, "received and withdrawn: {message} of {source}");
                assert!(!pulled || copied == message, "withdrawn bytes: {copied} as {message} of {source}");
                self.settles(source, message, pulled);
                Ok(())
            }
            how => {
                let mut bytes = message.to_ne_bytes();
                if how == How::Pulled {
                    bytes = channel.own.read(|source| source.array(0));
                }
                let settled = post.settle(&channel, number, source)?;
                assert!(settled == Settled::Pulled, "withdrawn: {message} of {source}");
                self.receives(source, message, &bytes);
                Ok(())
            }
        }
    }
}

fn envelope(kind: Kind, tag: u64, mask: u64, len: usize) -> Envelope {
    let mut inline = [0; channel::INLINE];
    inline[..BUFFER].copy_from_slice(&tag.to_ne_bytes());
    Envelope { kind, len, tag, mask, inline }
}
