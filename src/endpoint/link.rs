//! One connection: what goes out, what has come and was not received yet, and what is to be reported of it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::copy::rotation::Rotation;
use crate::endpoint::calls::{Calls, Wanted};
use crate::endpoint::ended::Ended;
use crate::endpoint::mapped::Mapped;
use crate::endpoint::peer::{Event, Peer};
use crate::endpoint::postings::Postings;
use crate::endpoint::short::{LONGEST, Short};
use crate::protocol::message::{Attention, Envelope, Fenced, Inbox, Marked, Mask, Outbox, Post};
use crate::segment::pair_memory::{PairChannel, PairMemory};
use crate::segment::platform::{ShmPlatform, Wait};
use crate::segment::unit::unstopped;
use crate::sys::socket;
use crate::sys::wait::first_poll::FirstPoll;
use crate::tuning::ENDPOINT_UNRECEIVED;

/// A message that has come.
pub(super) struct Arrived {
    pub(super) expected: bool,
    pub(super) tag: u64,
    pub(super) bytes: usize,
    pub(super) content: Content,
}

/// Where its bytes are.
pub(super) enum Content {
    Inline(Short),
    /// In a buffer of the channel from its sender.
    Buffer(Mask),
    /// In private memory.
    Private(Box<[u8]>),
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// This side has connected, and the other has not said anything yet.
    Asked,
    Open,
    Ended(Ended),
}

/// Whether the program may wait for the end of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The peer has connected, and nothing was reported of it.
    Unknown,
    /// The program has connected to it.
    Dialled,
    /// It was reported as connected.
    Reported,
}

/// The other side has written what this library does not write.
#[derive(Debug)]
pub(crate) struct Violation;

/// What has come in one go.
#[derive(Default)]
pub(crate) struct TakenIn {
    pub(crate) messages: usize,
    /// With requests and answers.
    pub(crate) cells: usize,
    /// Those of them that were not expected.
    pub(crate) unexpected: usize,
    /// Whether the cell behind these is none of this library's.
    pub(crate) violated: bool,
}

pub(crate) struct Link {
    pub(crate) peer: Peer,
    pub(crate) stage: Stage,
    /// Whether the other side rings before this one looks at its channel again.
    pub(crate) attention: Attention,
    /// Whether it is in the queue of those of which something is to be reported.
    pub(crate) in_news: bool,
    pub(crate) known: Known,
    pub(crate) calls: Calls,
    pub(crate) postings: Postings,
    socket: Option<OwnedFd>,
    process: Option<OwnedFd>,
    /// The number of the other side's process; 0 if it has none here.
    process_number: u32,
    /// How many leases this side has given: modulo 2³², the number of the last.
    pub(super) leases: u64,
    /// What this side may read of the other's memory; the oldest first.
    pub(super) mapped: Vec<Mapped>,
    /// By key, up to which byte the other side has said that its memory reaches; the oldest first.
    pub(super) reached: VecDeque<(u64, u64)>,
    pub(super) platform: ShmPlatform,
    pub(super) memory: PairMemory,
    pub(super) outbox: Outbox,
    pub(super) inbox: Inbox,
    pub(super) first_poll: FirstPoll,
    /// Whether, when a message in a slot was sent last, one had been taken since the one before.
    pub(super) alternates: bool,
    /// The buffer that the next message is written to, if it was found; the bit of one, or none.
    pub(super) reserved: Mask,
    /// Which buffers parts of long transfers take, and the one behind the last that was taken in turn, also by short ones.
    pub(super) rotation: Rotation,
    pub(super) next_buffer: u32,
    /// How often that was before the last, wrapping.
    pub(super) lap: usize,
    pub(super) arrived: VecDeque<Arrived>,
    /// The bytes of contents in private memory.
    pub(super) private: usize,
    /// How many of the last that have arrived were not reported yet.
    pub(super) unreported: usize,
    connected: bool,
    /// The length of the shortest message that there was no room for, until there is.
    pub(super) refused: Option<usize>,
    pub(super) has_room: bool,
    closed: bool,
}

impl Link {
    pub(crate) fn new(
        peer: Peer,
        stage: Stage,
        socket: OwnedFd,
        (process, process_number): (Option<OwnedFd>, u32),
        memory: PairMemory,
    ) -> Self {
        let wait = Wait::Socket(socket.as_raw_fd());
        let platform = ShmPlatform::of_connection(wait);
        Link {
            peer,
            stage,
            attention: Attention::Awake,
            in_news: false,
            known: if stage == Stage::Asked { Known::Dialled } else { Known::Unknown },
            calls: Calls::default(),
            postings: Postings::default(),
            socket: Some(socket),
            process,
            process_number,
            leases: 0,
            mapped: Vec::new(),
            reached: VecDeque::new(),
            platform,
            memory,
            outbox: Outbox::default(),
            inbox: Inbox::default(),
            first_poll: FirstPoll::default(),
            alternates: false,
            reserved: 0,
            rotation: Rotation::default(),
            next_buffer: 0,
            lap: 0,
            arrived: VecDeque::new(),
            private: 0,
            unreported: 0,
            connected: stage == Stage::Open,
            refused: None,
            has_room: false,
            closed: false,
        }
    }

    /// The connection, and the process at its other end, as long as it has not ended.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.socket.iter().chain(&self.process).map(AsFd::as_fd)
    }

    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// The other side has accepted.
    pub(crate) fn accept(&mut self) {
        self.stage = Stage::Open;
        self.connected = true;
    }

    /// Nothing goes out any more, and nothing comes in.
    pub(crate) fn end(&mut self, ended: Ended) {
        self.stage = Stage::Ended(ended);
        self.withdraw_all();
        self.calls.end();
        // Its number may soon be that of another socket.
        self.platform.wait = Wait::Socket(-1);
        self.hang_up();
        self.process = None;
        self.refused = None;
    }

    /// How a connection has ended of which the system says that nobody is at its other end: what has been sent can be taken in
    /// afterwards.
    pub(crate) fn died_or_left(&self) -> Ended {
        if self.is_closed() { Ended::Left } else { Ended::Died }
    }

    /// Whether the other side sends no more, of which the system may not have told yet.
    pub(super) fn is_closed(&self) -> bool {
        self.memory.is_closed(&self.platform)
    }

    /// Tells the other side that this one sends no more.
    pub(crate) fn close(&self) {
        if !self.memory.forked() {
            self.memory.close(&self.platform);
        }
    }

    /// The system tells the other side that nobody is here any more.
    pub(crate) fn hang_up(&mut self) {
        self.socket.take().into_iter().for_each(socket::close);
    }

    /// Whether there is nothing to be taken in, and nothing else to be gone on with.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        let waits = self.refused.is_some() || self.calls.wants_room || self.calls.has_requests();
        !waits && !self.post().has_arrived(&self.incoming(), &self.inbox)
    }

    /// Whether there is something to do: a message that may be taken in, or room that was missing.
    pub(crate) fn has_work(&mut self) -> bool {
        let post = self.memory.post(&self.platform);
        let arrived = post.has_arrived(&self.memory.incoming(), &self.inbox);
        arrived && self.arrived.len() < ENDPOINT_UNRECEIVED && !self.calls.is_full()
            || self.calls.has_requests() && self.finds_room(LONGEST)
            || self.calls.wants_room && self.finds_place()
            || self.finds_room_for_refused()
    }

    /// Begins to park the channel: the other side rings after the next message.
    pub(crate) fn mark(&self) -> Marked {
        self.post().park()
    }

    /// Parks the channel, if nothing has come.
    pub(crate) fn park(&mut self, marked: Marked, fenced: &Fenced) {
        self.attention = marked.look(fenced, || self.has_work());
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.attention != Attention::Awake
    }

    /// The next that is to be reported.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let peer = self.peer;
        if core::mem::take(&mut self.connected) {
            self.known = Known::Reported;
            return Some(Event::Connected { peer });
        }
        if self.unreported > 0 {
            let Arrived { expected, tag, bytes, .. } = self.arrived[self.arrived.len() - self.unreported];
            self.unreported -= 1;
            return Some(Event::Message { peer, expected, tag, bytes });
        }
        if core::mem::take(&mut self.has_room) {
            return Some(Event::Room { peer });
        }
        match self.stage {
            Stage::Ended(ended) if !self.closed => {
                self.closed = true;
                Some(Event::Closed { peer, ended })
            }
            _ => None,
        }
    }

    /// The next cell that has come. `Err`: it holds what cannot be there.
    #[inline]
    pub(super) fn next_cell(&mut self) -> Result<Option<Envelope>, Violation> {
        let (post, channel) = (self.memory.post(&self.platform), self.memory.incoming());
        post.take_unrung(&channel, &mut self.inbox, &mut self.outbox).map_err(|_| Violation)
    }

    /// Tells the other side, if it sleeps, that cells were taken.
    pub(super) fn ring(&self) {
        unstopped(self.post().ring(self.memory.other()));
    }

    /// Whether the other side would have to be woken by what is sent.
    pub(super) fn other_sleeps(&self) -> bool {
        self.post().is_marked(self.memory.other())
    }

    pub(crate) fn has_requests(&self) -> bool {
        self.calls.has_requests()
    }

    pub(crate) fn next_request(&mut self) -> Option<(u64, Wanted)> {
        self.calls.next_request()
    }

    pub(crate) fn process_number(&self) -> u32 {
        self.process_number
    }

    pub(super) fn post(&self) -> Post<'_, ShmPlatform> {
        self.memory.post(&self.platform)
    }

    pub(super) fn outgoing(&self) -> PairChannel<'_> {
        self.memory.outgoing()
    }

    pub(super) fn incoming(&self) -> PairChannel<'_> {
        self.memory.incoming()
    }

    pub(super) fn other(&self) -> usize {
        self.memory.other()
    }

    /// The memory that it takes at most: of the connection's, pages that were not used take none.
    pub(crate) fn bytes(&self) -> usize {
        #[cfg(test)]
        MEASURED.set(MEASURED.get() + 1);
        let arrived = self.arrived.capacity() * size_of::<Arrived>() + self.private;
        let mapped = self.mapped.iter().map(Mapped::bytes).sum::<usize>();
        size_of::<Self>() + arrived + mapped + self.calls.bytes() + self.memory.bytes()
    }

    /// Whether it has ended, and everything that has come is received, or was given up.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Ended(_)) && self.arrived.is_empty() && !self.calls.has_replies()
    }
}

#[cfg(test)]
std::thread_local! {
    /// For unit tests: how often this thread has asked how much memory a connection takes.
    pub(super) static MEASURED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// For unit tests: the two sides of a connection, without a listener.
#[cfg(test)]
pub(super) fn connected(peer: Peer, stage: Stage) -> std::io::Result<[Link; 2]> {
    let ((memory, file), sockets) = (PairMemory::create()?, std::os::unix::net::UnixDatagram::pair()?);
    let other = PairMemory::open(&file)?.expect("it has the right length");
    let sides = [(sockets.0, memory), (sockets.1, other)];
    Ok(sides.map(|(socket, memory)| Link::new(peer, stage, OwnedFd::from(socket), (None, 0), memory)))
}
