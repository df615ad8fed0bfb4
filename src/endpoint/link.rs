//! One connection: what goes out, what has come and was not received yet, and what is to be reported of it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::endpoint::calls::Calls;
use crate::endpoint::ended::Ended;
use crate::endpoint::peer::{Event, Peer};
use crate::endpoint::postings::Postings;
use crate::protocol::message::channel::INLINE;
use crate::protocol::message::{Attention, Envelope, Inbox, Kind, Mask, Outbox, Post, buffers};
use crate::segment::message_memory::BUFFER;
use crate::segment::pair_memory::{PairChannel, PairMemory};
use crate::segment::platform::{Fences, ShmPlatform, Wait};
use crate::segment::unit::unstopped;
use crate::sys::wait::spin::SpinPolicy;
use crate::tuning::ENDPOINT_UNRECEIVED;

/// The longest message, in bytes.
pub(crate) const LONGEST: usize = BUFFER;

/// A message that has come.
pub(super) struct Arrived {
    pub(super) expected: bool,
    pub(super) tag: u64,
    pub(super) bytes: usize,
    pub(super) content: Content,
}

/// Where its bytes are.
pub(super) enum Content {
    Inline([u8; INLINE]),
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
}

pub(crate) struct Link {
    pub(crate) peer: Peer,
    pub(crate) stage: Stage,
    /// Whether the other side rings before this one looks at its channel again.
    pub(crate) attention: Attention,
    /// Whether it is in the queue of those of which something is to be reported.
    pub(crate) in_news: bool,
    pub(crate) calls: Calls,
    pub(crate) postings: Postings,
    socket: Option<OwnedFd>,
    process: Option<OwnedFd>,
    /// The number of the other side's process; 0 if it has none here.
    process_number: u32,
    /// The number of the last lease that this side has given.
    pub(super) lease: u32,
    platform: ShmPlatform,
    memory: PairMemory,
    outbox: Outbox,
    inbox: Inbox,
    /// A buffer that the next message is written to.
    reserved: Mask,
    pub(super) arrived: VecDeque<Arrived>,
    /// The bytes of contents in private memory.
    pub(super) private: usize,
    /// How many of the last that have arrived were not reported yet.
    pub(super) unreported: usize,
    connected: bool,
    wants_room: bool,
    has_room: bool,
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
        let platform = ShmPlatform {
            wait,
            spin: SpinPolicy::NONE,
            timeout: None,
            fences: Fences::Symmetric,
            interrupt: None,
            recorder: None,
        };
        Link {
            peer,
            stage,
            attention: Attention::Awake,
            in_news: false,
            calls: Calls::default(),
            postings: Postings::default(),
            socket: Some(socket),
            process,
            process_number,
            lease: 0,
            platform,
            memory,
            outbox: Outbox::default(),
            inbox: Inbox::default(),
            reserved: 0,
            arrived: VecDeque::new(),
            private: 0,
            unreported: 0,
            connected: stage == Stage::Open,
            wants_room: false,
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
        self.socket = None;
        self.process = None;
        self.wants_room = false;
    }

    /// How a connection has ended of which the system says that nobody is at its other end: what has been sent can be taken in
    /// afterwards.
    pub(crate) fn died_or_left(&self) -> Ended {
        if self.memory.is_closed(&self.platform) { Ended::Left } else { Ended::Died }
    }

    /// Tells the other side that this one sends no more.
    pub(crate) fn close(&self) {
        if !self.memory.forked() {
            self.memory.close(&self.platform);
        }
    }

    /// Sends a message, if there is room; if not, that is noticed later, and reported.
    pub(crate) fn send(&mut self, kind: Kind, tag: u64, data: &[u8]) -> bool {
        self.wants_room = !self.send_quietly(kind, tag, data);
        !self.wants_room
    }

    /// Sends a message, if there is room.
    pub(crate) fn send_quietly(&mut self, kind: Kind, tag: u64, data: &[u8]) -> bool {
        if !self.finds_room(data.len()) {
            return false;
        }
        let mut cell = Envelope { kind, len: data.len(), tag, mask: 0, inline: [0; INLINE] };
        let (post, channel) = (self.memory.post(&self.platform), self.memory.outgoing());
        if data.len() <= INLINE {
            cell.inline[..data.len()].copy_from_slice(data);
        } else {
            cell.mask = core::mem::take(&mut self.reserved);
            buffers::fill(&channel, cell.mask, data);
        }
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

    /// Whether there is something to do: a message that may be taken in, or room that was missing.
    pub(crate) fn has_work(&mut self) -> bool {
        let post = self.memory.post(&self.platform);
        let arrived = post.has_arrived(&self.memory.incoming(), &self.inbox);
        let wants_room = self.wants_room || self.calls.wants_room || self.calls.has_requests();
        arrived && self.arrived.len() < ENDPOINT_UNRECEIVED && !self.calls.is_full()
            || wants_room && self.finds_room(LONGEST)
    }

    /// Parks the channel, if nothing has come: the other side rings after the next message.
    pub(crate) fn park(&mut self) {
        let marked = self.memory.post(&self.platform).park();
        self.attention = marked.look(|| self.has_work());
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.attention != Attention::Awake
    }

    /// The next that is to be reported.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let peer = self.peer;
        if core::mem::take(&mut self.connected) {
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
    pub(super) fn next_cell(&mut self) -> Result<Option<Envelope>, Violation> {
        let (post, channel) = (self.memory.post(&self.platform), self.memory.incoming());
        post.take(&channel, &mut self.inbox, self.memory.other()).map_err(|_| Violation)
    }

    pub(crate) fn has_requests(&self) -> bool {
        self.calls.has_requests()
    }

    pub(crate) fn next_request(&mut self) -> Option<(u64, Vec<u8>)> {
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

    /// Whether it has ended, and everything that has come is received.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Ended(_)) && self.arrived.is_empty()
    }
}
