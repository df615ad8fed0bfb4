//! Models of endpoints: each connection has memory of its own, and an endpoint sleeps on the bells of all at once.
//!
//! A ring is a packet in production: it waits in a socket until it is read, as here the bell differs from the ticket until it
//! is noticed. A side whose process has ended, or that has closed its socket, has *hung up*: the system tells the other side, which
//! is all that it tells.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use intranode::protocol::Ordering::Relaxed;
use intranode::protocol::message::{Attention, Envelope, Inbox, Kind, Outbox, Post, Settled, channel, parking};
use intranode::protocol::symmetric::Cell as _;
use intranode::protocol::{Failure, Killed, Platform, Segment};

use crate::harness::atomic_cells::Cell64;
use crate::harness::channel_memory::{ChannelMemory, envelope};
use crate::harness::machine::Fate;
use crate::harness::mutant::Simulated;
use crate::harness::search::{About, Run, Search};
use crate::harness::segment::SegmentMemory;
use crate::harness::trace::Label;
use crate::harness::waiting::Waiting::Parking;
use crate::harness::word::Word;

/// What an endpoint does. It dies with the first error.
pub(crate) type Role = fn(&mut Stranger<'_>) -> Result<(), Killed>;

/// What a connection is known by that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Left,
    Died,
}

type Check = Arc<dyn Fn(&[Vec<u64>]) + Send + Sync>;

/// An endpoint, thread 0, and one or two others that are connected to it; and what must hold of the values that they report.
#[derive(Clone)]
pub(crate) struct StrangerModel {
    name: String,
    roles: Vec<(Role, Fate)>,
    cells: usize,
    check: Check,
    bound: Option<usize>,
}

impl StrangerModel {
    /// Rings have two cells.
    pub(crate) fn new(name: impl Into<String>, roles: &[Role]) -> Self {
        let roles = roles.iter().map(|role| (*role, Fate::NONE)).collect();
        StrangerModel { name: name.into(), roles, cells: 2, check: Arc::new(|_| ()), bound: None }
    }

    pub(crate) fn cells(self, cells: usize) -> Self {
        StrangerModel { cells, ..self }
    }

    pub(crate) fn bound(self, bound: usize) -> Self {
        StrangerModel { bound: Some(bound), ..self }
    }

    pub(crate) fn fate(mut self, thread: usize, fate: Fate) -> Self {
        self.roles[thread].1 = fate;
        self
    }

    pub(crate) fn check(self, check: impl Fn(&[Vec<u64>]) + Send + Sync + 'static) -> Self {
        StrangerModel { check: Arc::new(check), ..self }
    }

    fn execute(&self, run: &Run) {
        let fates: Vec<Fate> = self.roles.iter().map(|(_, fate)| *fate).collect();
        let (roles, check) = (self.roles.clone(), Arc::clone(&self.check));
        let act = move |thread: usize, platform: &Simulated, connections: &Vec<Connection>| {
            let segments: Vec<_> = connections.iter().map(|connection| connection.segment.segment()).collect();
            let link = |index: usize, side| Link::new(platform, (&connections[index], &segments[index]), side);
            let links = match thread {
                0 => (0..connections.len()).map(|index| link(index, 1)).collect(),
                thread => vec![link(thread - 1, 0)],
            };
            let mut own = Stranger { platform, links, values: RefCell::default() };
            if roles[thread].0(&mut own).is_err() {
                own.hangs_up();
            }
            own.values.take()
        };
        let connections = (1..fates.len()).map(|number| Connection::new(number, self.cells)).collect();
        run.threads(connections, &fates, act, move |values| check(values));
    }
}

impl From<StrangerModel> for Search {
    fn from(model: StrangerModel) -> Search {
        let ranks = model.roles.len();
        let threads = (0..ranks).map(|thread| format!("endpoint {thread}")).collect();
        let (name, bound) = (model.name.clone(), model.bound);
        let search = Search::new(name, Parking, threads, move |run| model.execute(run));
        Search { about: About::Messages, ranks, bound, ..search }
    }
}

/// The memory of a connection. Side 1 is thread 0.
struct Connection {
    segment: SegmentMemory,
    /// By sender.
    channels: [ChannelMemory; 2],
    /// By side: whether it sends no more.
    closed: [Cell64; 2],
    /// By side: whether the system says that nobody is there.
    hung_up: [Word; 2],
    /// By side: memory of its own, of which the other reads two pieces while it may change.
    own: [[Cell64; 2]; 2],
}

impl Connection {
    fn new(number: usize, cells: usize) -> Self {
        let label = |what, parity| Label { what, rank: number, parity };
        let cell = |parity| Cell64::new(label("cell", parity));
        Connection {
            segment: SegmentMemory::of_bells(2),
            channels: [0, 1].map(|sender| ChannelMemory::new(sender, (cells, 1), channel::MODULUS)),
            closed: [0, 1].map(cell),
            hung_up: [0, 1].map(|side| Word::new(0, label("hung up", side))),
            own: [0, 1].map(|_| [0, 1].map(cell)),
        }
    }
}

/// A side of a connection.
struct Link<'s> {
    post: Post<'s, Simulated>,
    connection: &'s Connection,
    side: usize,
    outbox: Cell<Outbox>,
    inbox: Cell<Inbox>,
    attention: Attention,
    gone: Option<Gone>,
    /// What was taken in and not received.
    arrived: Vec<Envelope>,
    /// Whether it has to send, and there was no room.
    wants_room: bool,
}

impl<'s> Link<'s> {
    fn new(
        platform: &'s Simulated,
        (connection, segment): (&'s Connection, &'s Segment<'s, Simulated>),
        side: usize,
    ) -> Self {
        Link {
            post: Post::new(platform, segment, side),
            connection,
            side,
            outbox: Cell::default(),
            inbox: Cell::default(),
            attention: Attention::Awake,
            gone: None,
            arrived: Vec::new(),
            wants_room: false,
        }
    }

    fn outgoing(&self) -> &'s ChannelMemory {
        &self.connection.channels[self.side]
    }

    fn incoming(&self) -> &'s ChannelMemory {
        &self.connection.channels[1 - self.side]
    }

    fn bell(&self) -> &'s Word {
        &self.connection.segment.segment().bells[self.side].word
    }

    /// As the production's: it rings once behind all cells that are there.
    fn take_in(&mut self) -> Result<(), Killed> {
        let before = self.arrived.len();
        loop {
            let mut inbox = self.inbox.get();
            let mut outbox = self.outbox.get();
            let taken = self.post.take_unrung(&self.incoming(), &mut inbox, &mut outbox);
            self.inbox.set(inbox);
            self.outbox.set(outbox);
            match taken {
                Ok(Some(cell)) => self.arrived.push(cell),
                Ok(None) if self.arrived.len() > before => return self.post.ring(1 - self.side),
                Ok(None) => return Ok(()),
                Err(Failure::Killed) => return Err(Killed),
                Err(failure) => panic!("wrong data: {failure:?}"),
            }
        }
    }

    fn has_room(&self) -> bool {
        let mut outbox = self.outbox.get();
        let has_room = self.post.has_room(&self.outgoing(), &mut outbox);
        self.outbox.set(outbox);
        has_room
    }

    fn has_work(&self) -> bool {
        self.post.has_arrived(&self.incoming(), &self.inbox.get()) || self.wants_room && self.has_room()
    }

    /// As the production's: all that was sent before can be taken in behind the look at what is closed.
    fn ends(&mut self) -> Result<(), Killed> {
        let closed = self.post.is_closed(&self.connection.closed[1 - self.side]);
        self.take_in()?;
        self.gone = Some(if closed { Gone::Left } else { Gone::Died });
        Ok(())
    }
}

/// An endpoint.
pub(crate) struct Stranger<'s> {
    platform: &'s Simulated,
    links: Vec<Link<'s>>,
    values: RefCell<Vec<u64>>,
}

impl Stranger<'_> {
    pub(crate) fn sees(&self, value: u64) {
        self.values.borrow_mut().push(value);
    }

    /// Reads what the system has for this endpoint, which says nothing about memory.
    fn looks(&mut self) -> Result<(), Killed> {
        let machine = self.platform.machine();
        for link in &mut self.links {
            if let Attention::Parked(ticket) = link.attention
                && machine.load("packet", link.bell(), Relaxed) != ticket
            {
                link.attention = Attention::Awake;
            }
            let hung_up = &link.connection.hung_up[1 - link.side];
            if link.gone.is_none() && machine.load("hang-up", hung_up, Relaxed) == 1 {
                link.ends()?;
            }
        }
        Ok(())
    }

    fn parks(&mut self) -> Result<bool, Killed> {
        self.looks()?;
        let awake =
            self.links.iter_mut().filter(|link| link.gone.is_none() && link.attention == Attention::Awake);
        let marks: Vec<_> = awake.map(|link| (link.post.park(), link)).collect();
        let fenced = parking::fence(self.platform);
        let mut has_work = false;
        for (marked, link) in marks {
            link.attention = marked.look(&fenced, || link.has_work());
            has_work |= link.attention == Attention::Awake;
        }
        Ok(has_work)
    }

    fn sleeps(&self) {
        let bells = self.links.iter().filter(|link| link.gone.is_none()).flat_map(|link| {
            let Attention::Parked(ticket) = link.attention else { unreachable!("it is parked") };
            [(link.bell(), ticket), (&link.connection.hung_up[1 - link.side], 0)]
        });
        self.platform.machine().wait_any("epoll", &bells.collect::<Vec<_>>());
    }

    /// As the production's: tries again and again, and sleeps in between.
    fn blocks<R>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<Option<R>, Killed>,
    ) -> Result<R, Killed> {
        loop {
            for link in self.links.iter_mut().filter(|link| link.gone.is_none()) {
                if link.attention == Attention::Awake {
                    link.take_in()?;
                }
            }
            if let Some(found) = attempt(self)? {
                return Ok(found);
            }
            if self.parks()? {
                continue;
            }
            if let Some(found) = attempt(self)? {
                return Ok(found);
            }
            self.sleeps();
            self.looks()?;
        }
    }

    /// Sends a number, when there is room.
    pub(crate) fn sends(&mut self, peer: usize, value: u64) -> Result<(), Killed> {
        self.blocks(|own| {
            let link = &mut own.links[peer];
            link.wants_room = !link.has_room();
            if link.wants_room {
                return Ok(None);
            }
            let mut outbox = link.outbox.get();
            let other = 1 - link.side;
            link.post.publish(&link.outgoing(), &mut outbox, other, &envelope(Kind::Message, 0, value))?;
            link.outbox.set(outbox);
            Ok(Some(()))
        })
    }

    /// Receives a number from any peer, and reports it.
    pub(crate) fn receives(&mut self) -> Result<(), Killed> {
        let value = self.blocks(|own| {
            let found = own.links.iter_mut().find(|link| !link.arrived.is_empty());
            Ok(found.map(|link| number(&link.arrived.remove(0))))
        })?;
        self.sees(value);
        Ok(())
    }

    /// Receives until the peer is gone, and reports the numbers, and 100 if it has left.
    pub(crate) fn receives_until_it_is_gone(&mut self, peer: usize) -> Result<(), Killed> {
        let (values, gone) = self.blocks(|own| {
            let link = &mut own.links[peer];
            Ok(link.gone.map(|gone| (link.arrived.iter().map(number).collect::<Vec<_>>(), gone)))
        })?;
        values.into_iter().for_each(|value| self.sees(value));
        if gone == Gone::Left {
            self.sees(100);
        }
        Ok(())
    }

    /// Begins to end its connections: it sends no more.
    pub(crate) fn closes(&mut self) -> Result<(), Killed> {
        self.links.iter().try_for_each(|link| link.post.close(&link.connection.closed[link.side]))
    }

    /// What the system does when a socket is closed, or a process ends.
    pub(crate) fn hangs_up(&self) {
        for link in &self.links {
            let hung_up = &link.connection.hung_up[link.side];
            self.platform.machine().store("hangs up", hung_up, 1, Relaxed);
            self.platform.machine().wake_all("hang-up-wake", hung_up);
        }
    }

    /// Writes its own memory, both pieces.
    pub(crate) fn changes(&self, peer: usize, value: u64) {
        let link = &self.links[peer];
        link.connection.own[link.side].iter().for_each(|piece| piece.store(value, Relaxed));
    }

    /// Gives a lease.
    pub(crate) fn gives_lease(&mut self, peer: usize) -> Result<(), Killed> {
        let link = &self.links[peer];
        assert!(
            link.post.open_lease(&link.outgoing(), LEASE),
            "wrong verdict: the lease before is not given back"
        );
        self.sends(peer, 0)
    }

    /// Revokes. Reports whether that was in time.
    pub(crate) fn revokes(&self, peer: usize) {
        let link = &self.links[peer];
        let withdrawn = link.post.withdraw(&link.outgoing(), LEASE) == Settled::Withdrawn;
        self.sees(u64::from(withdrawn));
    }

    /// Whether the peer has given the lease back.
    pub(crate) fn is_settled(&self, peer: usize) -> bool {
        let link = &self.links[peer];
        link.post.is_settled(&link.outgoing(), LEASE)
    }

    /// Receives a lease, if the peer is not gone before, and reads both pieces under it. Reports whether they are what was shared, and
    /// then both; or 100 if they are not since the peer has closed.
    pub(crate) fn reads(&mut self, peer: usize) -> Result<(), Killed> {
        if !self.awaits_lease(peer)? {
            return Ok(());
        }
        let link = &self.links[peer];
        let other = 1 - link.side;
        let mut pieces = link.connection.own[other].iter();
        let mut values = Vec::new();
        let stands = link.post.read(&link.incoming(), LEASE, || {
            let Some(piece) = pieces.next() else { return false };
            values.push(piece.load(Relaxed));
            values.len() < 2
        });
        self.sees(u64::from(stands));
        if stands {
            values.into_iter().for_each(|value| self.sees(value));
        } else if link.post.is_closed(&link.connection.closed[other]) {
            self.sees(100);
        }
        Ok(())
    }

    /// Receives a lease, and gives it back unused: nobody waits for it any more.
    pub(crate) fn gives_back(&mut self, peer: usize) -> Result<(), Killed> {
        let has_come = self.awaits_lease(peer)?;
        assert!(has_come, "wrong data: no lease has come");
        let link = &self.links[peer];
        link.post.settle(&link.incoming(), LEASE, 1 - link.side).map(drop)
    }

    /// Whether a lease has come before the peer was gone.
    fn awaits_lease(&mut self, peer: usize) -> Result<bool, Killed> {
        self.blocks(|own| {
            let link = &mut own.links[peer];
            if link.arrived.is_empty() {
                return Ok(link.gone.map(|_| false));
            }
            link.arrived.remove(0);
            Ok(Some(true))
        })
    }
}

/// The number of the lease of a model: in the first place.
const LEASE: u32 = channel::OFFERS as u32;

fn number(cell: &Envelope) -> u64 {
    u64::from_ne_bytes(cell.inline[..8].try_into().expect("8 bytes"))
}
