//! The state of a rank's messages, and its progress: which happens in calls only.

use crate::codes::Codes;
use crate::copy::lines;
use crate::error::{Error, Operation};
use crate::message::arrivals::{Arrivals, Content, Staged};
use crate::message::core::Core;
use crate::message::envelope::{Envelope, Pattern};
use crate::message::in_buffers::InBuffers;
use crate::message::outgoing::Outgoing;
use crate::protocol::message::channel::{INLINE, most_under_way};
use crate::protocol::message::offer::{Offer, Part};
use crate::protocol::message::{Inbox, Kind, Mask, Outbox, Post, Settled};
use crate::protocol::{Failure, Killed, message};
use crate::segment::message_memory::MappedChannel;
use crate::segment::platform::ShmPlatform;
use crate::sys::wait::before_yield::BeforeYield;
use crate::sys::wait::clock::Moment;
use crate::sys::wait::first_poll::FirstPoll;
use crate::tuning::{MESSAGE_BATCH, MESSAGE_POLLS_OF_ONE, MESSAGE_PRIVATE_BYTES};

/// The messages of a rank.
pub struct State {
    /// By rank.
    pub(crate) peers: Vec<Peer>,
    pub(crate) arrivals: Arrivals,
    pub(super) fragments: Vec<Fragment>,
    /// The rank whose turn it is.
    pub(super) turn: usize,
    pub(super) polls: u32,
    /// Whether the call waits: a test does not.
    pub(super) waits: bool,
    /// The rank from which a message was received last whose buffers were kept for the reply.
    pub(super) kept: Option<usize>,
}

/// What there is for each other rank.
#[derive(Default)]
pub(crate) struct Peer {
    pub(crate) outgoing: Outgoing,
    pub(super) inbox: Inbox,
    pub(super) first_poll: FirstPoll,
    pub(super) before_yield: BeforeYield,
    /// How many of its buffers hold messages that were not received.
    held: usize,
    /// Its memory cannot be read by the system.
    pub(super) refused: bool,
    /// It has offered memory that this rank has not found.
    pub(super) unfound: bool,
}

impl Peer {
    /// Its first message is in the line of the pair.
    fn new(is_co_located: bool) -> Self {
        let before_yield = if is_co_located { BeforeYield::NEVER } else { BeforeYield::default() };
        let mut peer = Peer { inbox: Inbox::in_line(), before_yield, ..Peer::default() };
        peer.outgoing.outbox = Outbox::in_line();
        peer
    }

    /// Takes what comes next in the channel from this rank, if that has come.
    pub(super) fn take(
        &mut self,
        post: Post<'_, ShmPlatform>,
        channel: &MappedChannel<'_>,
        source: usize,
    ) -> Result<Option<message::Envelope>, Failure> {
        post.take(channel, &mut self.inbox, &mut self.outgoing.outbox, source)
    }
}

/// A part of a message that is sent through buffers.
pub(super) struct Fragment {
    pub(super) source: usize,
    pub(super) part: Part,
    pub(super) mask: Mask,
    pub(super) len: usize,
}

/// Where a receive writes its message.
pub(crate) enum Target<'b> {
    Lent(&'b mut [u8]),
    /// It grows to the length of its message.
    Own(Vec<u8>),
}

impl Target<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Target::Lent(bytes) => bytes,
            Target::Own(bytes) => bytes,
        }
    }

    /// Its beginning, of this length, if there is room.
    fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        match self {
            Target::Lent(bytes) => bytes.get_mut(..len),
            Target::Own(bytes) => {
                bytes.try_reserve_exact(len.saturating_sub(bytes.len())).ok()?;
                bytes.resize(len, 0);
                Some(bytes)
            }
        }
    }
}

/// What a receive may do with a message.
pub(crate) struct Receive<'r, 'b> {
    pub(crate) id: u64,
    pub(crate) target: &'r mut Target<'b>,
    /// The length of an element, in bytes.
    pub(crate) element: usize,
}

/// How many of its sender's buffers a message holds.
fn pages(mask: Mask, returned: bool) -> usize {
    if returned { 0 } else { mask.count_ones() as usize }
}

/// Why a message stays where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kept {
    /// It does not fit.
    Truncated(Envelope),
    /// It is no whole number of elements.
    NotWhole(Envelope),
}

/// Who waits for what.
#[derive(Clone, Copy)]
pub struct Wait {
    pub(crate) operation: Operation,
    /// The only rank that can send what is waited for.
    pub(crate) focus: Option<usize>,
    /// The only rank that can end the wait, if it is one.
    pub(crate) peer: Option<usize>,
    /// The receive that waits, if it is one.
    pub(crate) receive: Option<u64>,
    /// Whether it is for several requests, each of which finds out by itself who is gone.
    pub(crate) is_of_several: bool,
}

impl Wait {
    /// For a message from one rank, or from any.
    pub(crate) fn from(operation: Operation, source: Option<usize>) -> Self {
        Wait { operation, focus: source, peer: source, receive: None, is_of_several: false }
    }

    /// For several requests.
    pub(crate) fn of_several(operation: Operation) -> Self {
        Wait { is_of_several: true, ..Wait::from(operation, None) }
    }

    /// For a rank that receives.
    pub(crate) fn to(target: usize) -> Self {
        Wait {
            operation: Operation::Send,
            focus: None,
            peer: Some(target),
            receive: None,
            is_of_several: false,
        }
    }
}

impl State {
    /// `co_located`: of each rank, whether it is bound to the one processor that this rank is bound to.
    pub(crate) fn new(co_located: &[bool]) -> Self {
        State {
            peers: co_located.iter().map(|is_co_located| Peer::new(*is_co_located)).collect(),
            arrivals: Arrivals::default(),
            fragments: Vec::new(),
            turn: 0,
            polls: 0,
            waits: false,
            kept: None,
        }
    }

    /// What was dropped since the last call is withdrawn.
    #[inline]
    pub(crate) fn begin(&mut self, core: &Core) {
        if core.has_dropped() {
            core.dropped().into_iter().for_each(|id| self.withdraw(core, id));
        }
    }

    /// Withdraws a receive.
    #[cold]
    pub(crate) fn withdraw(&mut self, core: &Core, id: u64) {
        self.arrivals.withdraw(id);
        // An error occurs in tests only.
        let _ = self.drop_stale_fragments(core);
    }

    /// Waits until `poll` has a result. Meanwhile this rank takes in what comes.
    ///
    /// # Errors
    /// `None` if the time-out has passed without one.
    pub(crate) fn wait<R>(
        &mut self,
        core: &Core,
        wait: Wait,
        mut poll: impl FnMut(&mut Self) -> Option<Result<R, Error>>,
    ) -> Result<Option<R>, Error> {
        if let Some(done) = poll(self) {
            return done.map(Some);
        }
        let deadline = core.rank_state.platform.timeout.map(Moment::after);
        self.waits = true;
        let mut waits = || {
            core.post().wait(&deadline, || {
                if let Err(error) = self.take_in(core, wait) {
                    // What is there already does not need the room.
                    return Some(poll(self).unwrap_or(Err(error)));
                }
                self.poll_or_gone(core, wait, &mut poll)
            })
        };
        let result = match core.recorder() {
            None => waits(),
            Some(lane) => lane.wait_for(wait.operation.code(), wait.peer, waits),
        };
        self.waits = false;
        match result {
            Ok(Some(done)) => done.map(Some),
            Ok(None) => Ok(None),
            Err(failure) => Err(core.failed(wait.operation, failure)),
        }
    }

    /// What `poll` finds, or else an error if those are gone that are waited for, or if the communicator has ended.
    #[inline]
    pub(crate) fn poll_or_gone<R>(
        &mut self,
        core: &Core,
        wait: Wait,
        mut poll: impl FnMut(&mut Self) -> Option<Result<R, Error>>,
    ) -> Option<Result<R, Error>> {
        if let Some(found) = poll(self) {
            return Some(found);
        }
        self.check(core, wait).err()?;
        // Now all can be seen that they have done before.
        loop {
            if let Some(found) = poll(self) {
                return Some(found);
            }
            // A send waits for nothing that comes.
            if wait.operation == Operation::Send || !self.has_more(core, wait.peer) {
                return self.check(core, wait).err().map(Err);
            }
            if let Err(full) = self.take_in(core, Wait { focus: None, ..wait }) {
                return Some(poll(self).unwrap_or(Err(full)));
            }
        }
    }

    /// For a call that does not wait: takes in what has come until `look` has a result. Nothing would tell its caller to look once more. A rank
    /// that never stops sending holds it up for as many messages as a channel holds.
    pub(crate) fn take_in_until<R>(
        &mut self,
        core: &Core,
        wait: Wait,
        mut look: impl FnMut(&mut Self) -> Option<Result<R, Error>>,
    ) -> Option<Result<R, Error>> {
        for _ in 0..most_under_way(&core.from(core.rank())).div_ceil(MESSAGE_BATCH) {
            if let Err(error) = self.take_in(core, Wait { focus: None, ..wait }) {
                return Some(Err(error));
            }
            let found = look(self);
            // A send waits for nothing that comes.
            if found.is_some() || wait.operation == Operation::Send || !self.has_more(core, wait.peer) {
                return found;
            }
        }
        None
    }

    /// Whether what is waited for may still come.
    #[inline]
    fn check(&self, core: &Core, wait: Wait) -> Result<(), Error> {
        // What this rank sends itself comes in any case.
        let is_own = |id| self.arrivals.source_of(id) == Some(core.rank());
        core.check(wait.operation, wait.peer, || wait.is_of_several || wait.receive.is_some_and(is_own))
    }

    /// Takes in what has come, without waiting.
    pub(crate) fn take_in(&mut self, core: &Core, wait: Wait) -> Result<(), Error> {
        self.polls = self.polls.wrapping_add(1);
        // Another thread may have dropped a receive that gets what is waited for.
        self.begin(core);
        self.release_kept(core).map_err(|_| self.killed(core, wait))?;
        match wait.focus {
            Some(source) if !self.polls.is_multiple_of(MESSAGE_POLLS_OF_ONE) => {
                self.take_in_from(core, source, wait.operation, true)
            }
            _ => self.take_in_all(core, wait, None),
        }?;
        if self.arrivals.offers() > 0 {
            self.settle_withdrawn(core).map_err(|_| self.killed(core, wait))?;
        }
        Ok(())
    }

    /// Gives all ranks their turn, but for one that is looked at anyway.
    pub(super) fn take_in_all(&mut self, core: &Core, wait: Wait, except: Option<usize>) -> Result<(), Error> {
        self.flush_all(core).map_err(|_| self.killed(core, wait))?;
        let ranks = self.peers.len();
        for source in self.turn..self.turn + ranks {
            let source = source % ranks;
            if except != Some(source) {
                self.take_in_from(core, source, wait.operation, false)?;
            }
        }
        self.turn = (self.turn + 1) % ranks;
        Ok(())
    }

    /// Publishes what waits for room, as far as there is some.
    pub(super) fn flush_all(&mut self, core: &Core) -> Result<(), Killed> {
        for (target, peer) in self.peers.iter_mut().enumerate() {
            if !peer.outgoing.is_flushed() {
                peer.outgoing.flush(core, target)?;
            }
        }
        Ok(())
    }

    /// Removes offers that their senders have withdrawn, and what has come of them. Otherwise these would keep the senders from offering
    /// more.
    fn settle_withdrawn(&mut self, core: &Core) -> Result<(), Killed> {
        let before = self.arrivals.len();
        for index in (0..before).rev() {
            if self.settles_withdrawn(core, index)? {
                self.arrivals.remove_withdrawn(index);
            }
        }
        if self.arrivals.len() < before { self.drop_stale_fragments(core) } else { Ok(()) }
    }

    fn killed(&self, core: &Core, wait: Wait) -> Error {
        core.failed(wait.operation, Failure::Killed)
    }

    /// `focused`: no other rank is waited for.
    pub(super) fn take_in_from(
        &mut self,
        core: &Core,
        source: usize,
        operation: Operation,
        focused: bool,
    ) -> Result<(), Error> {
        let channel = core.from(source);
        for _ in 0..MESSAGE_BATCH {
            if self.arrivals.private() >= MESSAGE_PRIVATE_BYTES {
                return self.full(operation);
            }
            self.make_room(core, source, operation)?;
            let taken = self.peers[source].take(core.post(), &channel, source);
            let Some(cell) = taken.map_err(|failure| core.failed(operation, failure))? else { return Ok(()) };
            let arrived = self.arrives(core, source, &cell);
            let awaited = arrived.map_err(|killed| core.failed(operation, killed.into()))?;
            if awaited && focused {
                // What comes next may not have to be put aside.
                break;
            }
        }
        Ok(())
    }

    /// Whether more has come than was taken in at once.
    fn has_more(&self, core: &Core, source: Option<usize>) -> bool {
        let mut sources = source.map_or(0..self.peers.len(), |source| source..source + 1);
        sources.any(|source| core.post().has_arrived(&core.from(source), &self.peers[source].inbox))
    }

    /// Whether an offer of a rank that could not be pulled never can be: that rank has died, and all was taken in that it has sent.
    fn is_lost(&self, core: &Core, source: usize) -> bool {
        core.has_died(source) && !self.has_more(core, Some(source))
    }

    /// Too much has come that nobody has received. A sender is not told: it is the receivers' error.
    fn full(&self, operation: Operation) -> Result<(), Error> {
        match operation {
            Operation::Send => Ok(()),
            _ => Err(Error::TooManyUnreceived { operation, bytes: self.arrivals.private() }),
        }
    }

    /// Puts a message aside. Whether a receive has waited for it.
    pub(super) fn arrives(
        &mut self,
        core: &Core,
        source: usize,
        cell: &message::Envelope,
    ) -> Result<bool, Killed> {
        let mut pages = pages(cell.mask, cell.kind.is_returned());
        let content = match cell.kind {
            // The message comes behind it.
            Kind::Part | Kind::ReturnedPart => return Ok(false),
            Kind::Fragment => {
                let part = Part::decode(cell.tag);
                if !self.arrivals.is_staged(source, part.number, part.attempt) {
                    // Nobody waits for it any more.
                    return core.post().release(&core.from(source), cell.mask, source).map(|()| false);
                }
                self.peers[source].held += pages;
                self.fragments.push(Fragment { source, part, mask: cell.mask, len: cell.len });
                return Ok(false);
            }
            Kind::Offer => {
                pages = 0;
                let offer = Offer::decode(&cell.inline, cell.mask);
                Content::Offer(offer, Staged::unasked(core, &offer))
            }
            // Ranks send no other kinds: those are another process's mistake, and messages like any.
            _ if cell.mask == 0 => Content::Inline(cell.inline),
            _ => Content::Buffers(InBuffers::of(cell)),
        };
        let bytes = match &content {
            Content::Offer(offer, _) => usize::try_from(offer.len).unwrap_or(usize::MAX),
            _ => cell.len,
        };
        self.peers[source].held += pages;
        Ok(self.arrivals.push(Envelope { source, tag: cell.tag, bytes }, content))
    }

    /// Copies the oldest messages of a sender's to private memory if it may have too few buffers for the next.
    pub(super) fn make_room(&mut self, core: &Core, source: usize, operation: Operation) -> Result<(), Error> {
        while self.peers[source].held > core.most_put_aside {
            let Some(index) = self.arrivals.oldest_in_buffers(source) else { return Ok(()) };
            let message = self.arrivals.at(index);
            let (Content::Buffers(place), len) = (&message.content, message.envelope.bytes) else {
                return Ok(());
            };
            let place = *place;
            if self.arrivals.private() + len > MESSAGE_PRIVATE_BYTES {
                return self.full(operation);
            }
            let mut bytes = vec![0; len].into_boxed_slice();
            place.read(core, source, &mut bytes);
            self.release(core, source, place).map_err(|killed| core.failed(operation, killed.into()))?;
            self.arrivals.move_to_private(index, bytes);
        }
        Ok(())
    }

    /// Frees the buffers of a message that was put aside.
    pub(super) fn release(&mut self, core: &Core, source: usize, place: InBuffers) -> Result<(), Killed> {
        self.peers[source].held -= pages(place.mask, place.returned);
        place.release(core, source)
    }

    /// Completes a receive if its message is there. `Err`: the message stays, for another receive.
    pub(crate) fn receive(
        &mut self,
        core: &Core,
        receive: &mut Receive<'_, '_>,
    ) -> Result<Option<Result<Envelope, Kept>>, Killed> {
        let Some(index) = self.standing(core, receive.id)? else { return Ok(None) };
        let message = self.arrivals.at(index);
        let envelope = message.envelope;
        let Envelope { source, bytes, .. } = envelope;
        let kept = match bytes {
            _ if receive.target.room(bytes).is_none() => Some(Kept::Truncated(envelope)),
            _ if !is_whole(bytes, receive.element) => Some(Kept::NotWhole(envelope)),
            _ => None,
        };
        if let Some(kept) = kept {
            self.arrivals.withdraw(receive.id);
            return Ok(Some(Err(kept)));
        }
        let target = receive.target.room(bytes).unwrap_or_default();
        if bytes > INLINE {
            // What comes next may be put aside, too.
            self.peers[source].outgoing.replies = false;
        }
        match &mut message.content {
            Content::Inline(inline) => target.copy_from_slice(&inline[..bytes]),
            Content::Private(private) => lines::copy_slice(private, target),
            Content::Buffers(place) => {
                let place = *place;
                core.copies(bytes, || place.read(core, source, target));
                self.release(core, source, place)?;
            }
            Content::Offer(offer, _) => {
                let offer = *offer;
                match self.pull(core, index, source, &offer, target)? {
                    None if !self.is_lost(core, source) => return Ok(None),
                    None | Some(Settled::Withdrawn) => {
                        self.arrivals.remove_withdrawn(index);
                        self.drop_stale_fragments(core)?;
                        // Perhaps there is another one.
                        return self.receive(core, receive);
                    }
                    Some(Settled::Pulled) => {
                        self.arrivals.remove(index);
                        // Parts that came after this rank had begun to pull.
                        self.drop_stale_fragments(core)?;
                        return Ok(Some(Ok(envelope)));
                    }
                }
            }
        }
        self.arrivals.remove(index);
        Ok(Some(Ok(envelope)))
    }

    /// The place of a receive's message. What its sender has withdrawn is removed first.
    pub(crate) fn standing(&mut self, core: &Core, id: u64) -> Result<Option<usize>, Killed> {
        loop {
            let Some(index) = self.arrivals.index_of(id) else { return Ok(None) };
            if !self.settles_withdrawn(core, index)? {
                return Ok(Some(index));
            }
            self.arrivals.remove_withdrawn(index);
            self.drop_stale_fragments(core)?;
        }
    }

    /// Whether a message is an offer that its sender has withdrawn; then this rank has noticed.
    fn settles_withdrawn(&mut self, core: &Core, index: usize) -> Result<bool, Killed> {
        let message = self.arrivals.at(index);
        let Content::Offer(Offer { number, .. }, _) = message.content else { return Ok(false) };
        let (source, channel) = (message.envelope.source, core.from(message.envelope.source));
        if core.post().is_offered(&channel, number) {
            return Ok(false);
        }
        core.post().settle(&channel, number, source)?;
        Ok(true)
    }

    /// The first message that no receive has got and that matches.
    pub(crate) fn find(&mut self, core: &Core, pattern: Pattern) -> Option<Envelope> {
        self.find_free(core, pattern).map(|index| self.arrivals.at(index).envelope)
    }

    /// Its place.
    fn find_free(&mut self, core: &Core, pattern: Pattern) -> Option<usize> {
        loop {
            let index = self.arrivals.find(pattern)?;
            // An error occurs in tests only.
            if !self.settles_withdrawn(core, index).unwrap_or(false) {
                return Some(index);
            }
            self.arrivals.remove(index);
            // An error occurs in tests only.
            let _ = self.drop_stale_fragments(core);
        }
    }

    /// Takes that message. Returns the receive that gets it.
    pub(crate) fn take(&mut self, core: &Core, pattern: Pattern) -> Option<(u64, Envelope)> {
        let index = self.find_free(core, pattern)?;
        Some((self.arrivals.take(index), self.arrivals.at(index).envelope))
    }

    /// How much of a receive's message has come through buffers, in bytes.
    pub(crate) fn received_of(&mut self, id: u64) -> usize {
        let Some(index) = self.arrivals.index_of(id) else { return 0 };
        match &self.arrivals.at(index).content {
            Content::Offer(_, Some(staged)) => staged.received,
            _ => 0,
        }
    }
}

/// Whether this length is a whole number of elements, of this length.
pub(crate) fn is_whole(bytes: usize, element: usize) -> bool {
    if element == 0 { bytes == 0 } else { bytes.is_multiple_of(element) }
}
