//! One connection: what goes out, what has come and was not received yet, and what is to be reported of it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::endpoint::calls::Calls;
use crate::endpoint::ended::Ended;
use crate::endpoint::error::EndpointError;
use crate::endpoint::peer::{Event, Peer};
use crate::protocol::message::channel::INLINE;
use crate::protocol::message::{Channel, Envelope, Inbox, Kind, Mask, Outbox, Post, buffers};
use crate::segment::message_memory::BUFFER;
use crate::segment::pair_memory::{PairChannel, PairMemory};
use crate::segment::platform::{Fences, ShmPlatform, Wait};
use crate::segment::unit::unstopped;
use crate::sys::wait::spin::SpinPolicy;
use crate::tuning::{ENDPOINT_PRIVATE_BYTES, ENDPOINT_UNRECEIVED, ENDPOINT_UNRECEIVED_MOST, MESSAGE_BATCH};

/// The longest message, in bytes.
pub(crate) const LONGEST: usize = BUFFER;

/// A message that has come.
struct Arrived {
    expected: bool,
    tag: u64,
    bytes: usize,
    content: Content,
}

/// Where its bytes are.
enum Content {
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
    pub(crate) parked: bool,
    /// Whether it is in the queue of those of which something is to be reported.
    pub(crate) in_news: bool,
    pub(crate) calls: Calls,
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
    arrived: VecDeque<Arrived>,
    /// The bytes of contents in private memory.
    private: usize,
    /// How many of the last that have arrived were not reported yet.
    unreported: usize,
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
            parked: false,
            in_news: false,
            calls: Calls::default(),
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
        let left = ended == Ended::Died && self.memory.is_closed(&self.platform);
        self.stage = Stage::Ended(if left { Ended::Left } else { ended });
        // Its number may soon be that of another socket.
        self.platform.wait = Wait::Socket(-1);
        self.socket = None;
        self.process = None;
        self.wants_room = false;
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
        self.has_room
    }

    /// Whether there is something to do: a message that may be taken in, or room that was missing.
    pub(crate) fn has_work(&mut self) -> bool {
        let post = self.memory.post(&self.platform);
        let arrived = post.has_arrived(&self.memory.incoming(), &self.inbox);
        let wants_room = self.wants_room || self.calls.wants_room || self.calls.has_requests();
        arrived && self.arrived.len() < ENDPOINT_UNRECEIVED && !self.calls.is_full()
            || wants_room && self.finds_room(LONGEST)
    }

    /// Says that this side is about to sleep: the other rings after the next message.
    pub(crate) fn park(&mut self) {
        self.parked = true;
        self.memory.post(&self.platform).mark();
    }

    /// Takes in what has come.
    pub(crate) fn take_in(&mut self) -> Result<TakenIn, Violation> {
        self.take_in_up_to(MESSAGE_BATCH, ENDPOINT_UNRECEIVED)
    }

    /// All that has come, when no more can.
    pub(crate) fn take_in_rest(&mut self) -> Result<TakenIn, Violation> {
        let cells = self.memory.incoming().cells();
        self.take_in_up_to(cells, usize::MAX)
    }

    fn take_in_up_to(&mut self, batch: usize, limit: usize) -> Result<TakenIn, Violation> {
        let mut taken_in = TakenIn::default();
        for _ in 0..batch {
            if self.arrived.len() >= limit || self.calls.is_full() {
                break;
            }
            let (post, channel) = (self.memory.post(&self.platform), self.memory.incoming());
            let cell = match post.take(&channel, &mut self.inbox, self.memory.other()) {
                Ok(Some(cell)) => cell,
                Ok(None) => break,
                Err(_) => return Err(Violation),
            };
            taken_in.cells += 1;
            // That the length fits into the cell, or the buffers, and that these exist, was checked.
            if cell.mask.count_ones() > 1 {
                return Err(Violation);
            }
            let expected = match cell.kind {
                Kind::Message => false,
                Kind::Expected => true,
                Kind::Request => {
                    let request = self.copied(&cell);
                    self.calls.push_request(cell.tag, request);
                    continue;
                }
                Kind::Reply => {
                    let reply = self.copied(&cell);
                    self.calls.push_reply(cell.tag, reply);
                    continue;
                }
                Kind::Offer | Kind::Fragment => return Err(Violation),
            };
            let content =
                if cell.mask == 0 { Content::Inline(cell.inline) } else { Content::Buffer(cell.mask) };
            self.arrived.push_back(Arrived { expected, tag: cell.tag, bytes: cell.len, content });
            taken_in.messages += 1;
            taken_in.unexpected += usize::from(!expected);
        }
        self.unreported += taken_in.messages;
        Ok(taken_in)
    }

    /// The bytes of a cell, whose buffer is given back.
    fn copied(&self, cell: &Envelope) -> Vec<u8> {
        let mut bytes = vec![0; cell.len];
        if cell.mask == 0 {
            bytes.copy_from_slice(&cell.inline[..cell.len]);
        } else {
            self.read(cell.mask, &mut bytes);
        }
        bytes
    }

    /// Looks behind messages that nobody has received, for one that somebody asks for: these are moved out of the channel, as
    /// far as memory is granted to this peer.
    pub(crate) fn take_in_behind(&mut self) -> Result<Result<TakenIn, Violation>, EndpointError> {
        for index in 0..self.arrived.len() {
            let Arrived { content: Content::Buffer(mask), bytes, .. } = self.arrived[index] else { continue };
            if self.private + bytes > ENDPOINT_PRIVATE_BYTES {
                return Err(self.too_many());
            }
            let mut private = vec![0; bytes].into_boxed_slice();
            self.read(mask, &mut private);
            self.private += bytes;
            self.arrived[index].content = Content::Private(private);
        }
        if self.arrived.len() >= ENDPOINT_UNRECEIVED_MOST {
            return Err(self.too_many());
        }
        Ok(self.take_in_up_to(MESSAGE_BATCH, ENDPOINT_UNRECEIVED_MOST))
    }

    fn too_many(&self) -> EndpointError {
        EndpointError::TooManyUnreceived { peer: self.peer, messages: self.arrived.len() }
    }

    /// Whether it holds so many that no more are taken in, or the sender may have no buffer left.
    pub(crate) fn is_full(&self) -> bool {
        self.arrived.len() >= ENDPOINT_UNRECEIVED || self.memory.incoming().buffers() <= self.arrived.len()
    }

    /// Copies a buffer, and gives it back.
    fn read(&self, mask: Mask, target: &mut [u8]) {
        let channel = self.memory.incoming();
        buffers::read(&channel, mask, target);
        unstopped(self.memory.post(&self.platform).release(&channel, mask, self.memory.other()));
    }

    /// The place of the first message that was not expected.
    pub(crate) fn first_unexpected(&self) -> Option<usize> {
        self.arrived.iter().position(|message| !message.expected)
    }

    /// The place of the first message that is expected with this tag.
    pub(crate) fn first_expected(&self, tag: u64) -> Option<usize> {
        self.arrived.iter().position(|message| message.expected && message.tag == tag)
    }

    /// Receives the message at this place: its tag and length.
    pub(crate) fn receive(&mut self, index: usize, buffer: &mut [u8]) -> Result<(u64, usize), EndpointError> {
        let Arrived { tag, bytes, .. } = self.arrived[index];
        let room = buffer.len();
        let Some(target) = buffer.get_mut(..bytes) else {
            return Err(EndpointError::Truncated { peer: self.peer, bytes, room });
        };
        match &self.arrived[index].content {
            Content::Inline(inline) => target.copy_from_slice(&inline[..bytes]),
            Content::Buffer(mask) => self.read(*mask, target),
            Content::Private(private) => {
                target.copy_from_slice(private);
                self.private -= bytes;
            }
        }
        if index + self.unreported >= self.arrived.len() {
            self.unreported -= 1;
        }
        self.arrived.remove(index);
        Ok((tag, bytes))
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
