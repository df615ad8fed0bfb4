//! The state of a rank's messages, and its progress: which happens in calls only.

use crate::error::{Error, Operation};
use crate::message::arrivals::{Arrivals, Content, Staged};
use crate::message::core::Core;
use crate::message::envelope::{Envelope, Pattern};
use crate::message::outgoing::Outgoing;
use crate::protocol::message::offer::{Offer, Want};
use crate::protocol::message::{Inbox, Kind, Mask, Settled, buffers};
use crate::protocol::{Failure, Killed, message};
use crate::segment::message_memory::BUFFER;
use crate::sys::cma::{self, Fetched, Token};
use crate::sys::wait::clock::Moment;
use crate::tuning::{
    MESSAGE_BATCH, MESSAGE_IDLE_POLLS, MESSAGE_PIECE_BYTES, MESSAGE_POLLS_OF_ONE, MESSAGE_PRIVATE_BYTES,
};

/// The messages of a rank.
pub struct State {
    /// By rank.
    pub(crate) peers: Vec<Peer>,
    pub(crate) arrivals: Arrivals,
    fragments: Vec<Fragment>,
    /// The rank whose turn it is.
    turn: usize,
    polls: u32,
    /// The number of the next attempt to get a message through buffers.
    attempts: u8,
}

/// What there is for each other rank.
#[derive(Default)]
pub(crate) struct Peer {
    pub(crate) outgoing: Outgoing,
    inbox: Inbox,
    /// How many of its buffers hold messages that were not received.
    held: usize,
    /// Its memory cannot be read.
    refused: bool,
}

/// A part of a message that is sent through buffers.
struct Fragment {
    source: usize,
    number: u16,
    attempt: u8,
    mask: Mask,
    len: usize,
}

/// What a receive may do with a message.
pub(crate) struct Receive<'b> {
    pub(crate) id: u64,
    pub(crate) pattern: Pattern,
    pub(crate) target: &'b mut [u8],
    /// The length of an element, in bytes.
    pub(crate) element: usize,
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
}

impl Wait {
    /// For a message from one rank, or from any.
    pub(crate) fn from(operation: Operation, source: Option<usize>) -> Self {
        Wait { operation, focus: source, peer: source }
    }

    /// For a rank that receives.
    pub(crate) fn to(target: usize) -> Self {
        Wait { operation: Operation::Send, focus: None, peer: Some(target) }
    }
}

impl State {
    pub(crate) fn new(ranks: usize) -> Self {
        State {
            peers: (0..ranks).map(|_| Peer::default()).collect(),
            arrivals: Arrivals::default(),
            fragments: Vec::new(),
            turn: 0,
            polls: 0,
            attempts: 0,
        }
    }

    /// What was dropped since the last call is withdrawn.
    #[inline]
    pub(crate) fn begin(&mut self, core: &Core) {
        let dropped = core.dropped();
        if !dropped.is_empty() {
            dropped.into_iter().for_each(|id| self.withdraw(core, id));
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
        let result = core.post().wait(&deadline, || {
            if let Err(error) = self.take_in(core, wait) {
                // What is there already does not need the room.
                return Some(poll(self).unwrap_or(Err(error)));
            }
            self.poll_or_gone(core, wait, &mut poll)
        });
        match result {
            Ok(Some(done)) => done.map(Some),
            Ok(None) => Ok(None),
            Err(failure) => Err(core.failed(wait.operation, failure)),
        }
    }

    /// What `poll` finds, or else an error if those are gone that are waited for.
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
        let error = core.check_gone(wait.operation, wait.peer).err()?;
        // Now all can be seen that they have done before.
        match poll(self) {
            None if !self.has_more(core, wait.peer) => Some(Err(error)),
            found => found,
        }
    }

    /// Receives the next message of a rank straight from its channel, if nothing else comes first. `None`: it has not come at
    /// once, or it is not what is asked for; then it is found in the usual way, where it has been put.
    #[inline]
    pub(crate) fn receive_next(
        &mut self,
        core: &Core,
        source: usize,
        pattern: Pattern,
        target: &mut [u8],
        element: usize,
    ) -> Option<Result<Envelope, Error>> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(MESSAGE_POLLS_OF_ONE) {
            // The other ranks have their turn too. If that fails, the usual way finds it out.
            let _ = self.take_in(core, Wait::from(Operation::Recv, None));
        }
        if !self.arrivals.is_empty() {
            return None;
        }
        let failed = |killed: Killed| Some(Err(core.failed(Operation::Recv, killed.into())));
        let (post, channel) = (core.post(), core.from(source));
        let polls = if core.rank_state.platform.spin.yields() { 1 } else { MESSAGE_POLLS_OF_ONE };
        for _ in 0..polls {
            let cell = match post.take(&channel, &mut self.peers[source].inbox, source) {
                Err(failure) => return Some(Err(core.failed(Operation::Recv, failure))),
                Ok(None) => {
                    core::hint::spin_loop();
                    continue;
                }
                Ok(Some(cell)) => cell,
            };
            let bytes = cell.len;
            let envelope = Envelope { source, tag: cell.tag, bytes };
            let is_asked_for = cell.kind == Kind::Message
                && pattern.matches(&envelope)
                && bytes <= target.len()
                && is_whole(bytes, element);
            if !is_asked_for {
                if let Err(killed) = self.arrives(core, source, &cell) {
                    return failed(killed);
                }
                return self.make_room(core, source, Operation::Recv).err().map(Err);
            }
            if cell.mask == 0 {
                target[..bytes].copy_from_slice(&cell.inline[..bytes]);
            } else {
                buffers::read(&channel, cell.mask, &mut target[..bytes]);
                if let Err(killed) = post.release(&channel, cell.mask, source) {
                    return failed(killed);
                }
            }
            return Some(Ok(envelope));
        }
        None
    }

    /// Takes in what has come, without waiting.
    pub(crate) fn take_in(&mut self, core: &Core, wait: Wait) -> Result<(), Error> {
        self.polls = self.polls.wrapping_add(1);
        match wait.focus {
            Some(source) if !self.polls.is_multiple_of(MESSAGE_POLLS_OF_ONE) => {
                self.take_in_from(core, source, wait.operation)
            }
            _ => {
                let ranks = self.peers.len();
                for source in self.turn..self.turn + ranks {
                    let source = source % ranks;
                    if !self.peers[source].outgoing.is_flushed() {
                        self.peers[source].outgoing.flush(core, source).map_err(|_| self.killed(core, wait))?;
                    }
                    self.take_in_from(core, source, wait.operation)?;
                }
                self.turn = (self.turn + 1) % ranks;
                Ok(())
            }
        }
    }

    fn killed(&self, core: &Core, wait: Wait) -> Error {
        core.failed(wait.operation, Failure::Killed)
    }

    fn take_in_from(&mut self, core: &Core, source: usize, operation: Operation) -> Result<(), Error> {
        let channel = core.from(source);
        for _ in 0..MESSAGE_BATCH {
            if self.arrivals.private() >= MESSAGE_PRIVATE_BYTES {
                return self.full(operation);
            }
            let taken = core.post().take(&channel, &mut self.peers[source].inbox, source);
            let Some(cell) = taken.map_err(|failure| core.failed(operation, failure))? else { return Ok(()) };
            self.arrives(core, source, &cell).map_err(|killed| core.failed(operation, killed.into()))?;
            self.make_room(core, source, operation)?;
        }
        Ok(())
    }

    /// Whether a rank that is gone has sent more than was taken in at once.
    fn has_more(&self, core: &Core, source: Option<usize>) -> bool {
        let mut sources = source.map_or(0..self.peers.len(), |source| source..source + 1);
        sources.any(|source| core.post().has_arrived(&core.from(source), &self.peers[source].inbox))
    }

    /// Too much has come that nobody has received. A sender is not told: it is the receivers' error.
    fn full(&self, operation: Operation) -> Result<(), Error> {
        match operation {
            Operation::Send => Ok(()),
            _ => Err(Error::TooManyUnreceived { operation, bytes: self.arrivals.private() }),
        }
    }

    fn arrives(&mut self, core: &Core, source: usize, cell: &message::Envelope) -> Result<(), Killed> {
        let pages = cell.mask.count_ones() as usize;
        let content = match cell.kind {
            Kind::Fragment => {
                let (number, attempt) = ((cell.tag >> 8) as u16, cell.tag as u8);
                if !self.arrivals.is_staged(source, number, attempt) {
                    // Nobody waits for it any more.
                    return core.post().release(&core.from(source), cell.mask, source);
                }
                self.peers[source].held += pages;
                self.fragments.push(Fragment { source, number, attempt, mask: cell.mask, len: cell.len });
                return Ok(());
            }
            Kind::Offer => Content::Offer(Offer::decode(&cell.inline), None),
            Kind::Message if cell.mask == 0 => Content::Inline(cell.inline),
            Kind::Message => Content::Buffers(cell.mask),
        };
        let bytes = match &content {
            Content::Offer(offer, _) => usize::try_from(offer.len).unwrap_or(usize::MAX),
            _ => cell.len,
        };
        self.peers[source].held += pages;
        self.arrivals.push(Envelope { source, tag: cell.tag, bytes }, content);
        Ok(())
    }

    /// Copies the oldest messages of a sender's to private memory if it may have too few buffers for the next.
    fn make_room(&mut self, core: &Core, source: usize, operation: Operation) -> Result<(), Error> {
        while self.peers[source].held + core.eager_buffers() > core.layout.buffers {
            let Some(index) = self.arrivals.oldest_in_buffers(source) else { return Ok(()) };
            let message = self.arrivals.at(index);
            let (Content::Buffers(mask), len) = (&message.content, message.envelope.bytes) else {
                return Ok(());
            };
            let mask = *mask;
            if self.arrivals.private() + len > MESSAGE_PRIVATE_BYTES {
                return self.full(operation);
            }
            let mut bytes = vec![0; len].into_boxed_slice();
            buffers::read(&core.from(source), mask, &mut bytes);
            self.release(core, source, mask).map_err(|killed| core.failed(operation, killed.into()))?;
            self.arrivals.move_to_private(index, bytes);
        }
        Ok(())
    }

    fn release(&mut self, core: &Core, source: usize, mask: Mask) -> Result<(), Killed> {
        self.peers[source].held -= mask.count_ones() as usize;
        core.post().release(&core.from(source), mask, source)
    }

    /// Completes a receive if its message is there. `Err`: the message stays, for another receive.
    pub(crate) fn receive(
        &mut self,
        core: &Core,
        receive: &mut Receive<'_>,
    ) -> Result<Option<Result<Envelope, Kept>>, Killed> {
        let Some(index) = self.next_standing(core, receive)? else { return Ok(None) };
        let message = self.arrivals.at(index);
        let envelope = message.envelope;
        let Envelope { source, bytes, .. } = envelope;
        let kept = match bytes {
            _ if bytes > receive.target.len() => Some(Kept::Truncated(envelope)),
            _ if !is_whole(bytes, receive.element) => Some(Kept::NotWhole(envelope)),
            _ => None,
        };
        if let Some(kept) = kept {
            self.arrivals.withdraw(receive.id);
            return Ok(Some(Err(kept)));
        }
        let target = &mut receive.target[..bytes];
        match &mut message.content {
            Content::Inline(inline) => target.copy_from_slice(&inline[..bytes]),
            Content::Private(private) => target.copy_from_slice(private),
            Content::Buffers(mask) => {
                let mask = *mask;
                buffers::read(&core.from(source), mask, target);
                self.release(core, source, mask)?;
            }
            Content::Offer(offer, _) => {
                let offer = *offer;
                match self.pull(core, index, source, &offer, target)? {
                    None => return Ok(None),
                    Some(Settled::Withdrawn) => {
                        self.arrivals.remove_withdrawn(index, receive.id, receive.pattern);
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
    fn next_standing(&mut self, core: &Core, receive: &Receive<'_>) -> Result<Option<usize>, Killed> {
        loop {
            let Some(index) = self.arrivals.index_of(receive.id) else { return Ok(None) };
            if !self.settles_withdrawn(core, index)? {
                return Ok(Some(index));
            }
            self.arrivals.remove_withdrawn(index, receive.id, receive.pattern);
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
        loop {
            let index = self.arrivals.find(pattern)?;
            // An error occurs in tests only.
            if !self.settles_withdrawn(core, index).unwrap_or(false) {
                return Some(self.arrivals.at(index).envelope);
            }
            self.arrivals.remove(index);
        }
    }

    /// Takes that message. Returns the receive that gets it.
    pub(crate) fn take(&mut self, core: &Core, pattern: Pattern) -> Option<(u64, Envelope)> {
        let envelope = self.find(core, pattern)?;
        Some((self.arrivals.start(pattern), envelope))
    }

    /// How much of a receive's message has come through buffers, in bytes.
    pub(crate) fn received_of(&mut self, id: u64) -> usize {
        let Some(index) = self.arrivals.index_of(id) else { return 0 };
        match &self.arrivals.at(index).content {
            Content::Offer(_, Some(staged)) => staged.received,
            _ => 0,
        }
    }

    /// Pulls a message that was offered. `None`: it is not complete.
    fn pull(
        &mut self,
        core: &Core,
        index: usize,
        source: usize,
        offer: &Offer,
        target: &mut [u8],
    ) -> Result<Option<Settled>, Killed> {
        let channel = core.from(source);
        let settle = || core.post().settle(&channel, offer.number, source).map(Some);
        if !core.post().is_offered(&channel, offer.number) {
            return settle();
        }
        let Content::Offer(_, staged) = &self.arrivals.at(index).content else { return Ok(None) };
        let staged = *staged;
        // Through buffers if that is faster, as long as the sender takes part.
        let pulls = staged
            .map_or(!(offer.attended && core.prefers_buffers), |staged| staged.idle == MESSAGE_IDLE_POLLS);
        if pulls && !self.peers[source].refused {
            let done = staged.map_or(0, |staged| staged.received);
            match read(core, source, offer, done, target) {
                Fetched::All => return settle(),
                Fetched::Refused => {
                    self.peers[source].refused = true;
                    core.rank_state.settings.debug(&format!(
                        "messages from rank {source} go through buffers: its memory cannot be read"
                    ));
                }
                Fetched::Unmapped => {}
            }
        }
        let mut staged = match staged {
            Some(staged) => staged,
            None => {
                self.attempts = self.attempts.wrapping_add(1);
                Staged { attempt: self.attempts, received: 0, wanted: 0, idle: 0 }
            }
        };
        let before = staged.received;
        self.collect(core, source, offer, &mut staged, target)?;
        staged.idle = if staged.received > before { 0 } else { staged.idle.saturating_add(1) };
        if staged.received == target.len() {
            return settle();
        }
        // In time, so that the sender does not wait for it.
        if staged.wanted < target.len() && staged.wanted - staged.received <= core.window_buffers() / 2 * BUFFER
        {
            let pages = (target.len() - staged.wanted).div_ceil(BUFFER).min(core.window_buffers());
            let (number, start) = (offer.number as u16, (staged.wanted / BUFFER) as u32);
            staged.wanted = (staged.wanted + pages * BUFFER).min(target.len());
            let want = Want { number, attempt: staged.attempt, start, count: pages as u16 };
            core.post().want(&channel, want, source)?;
        }
        self.arrivals.at(index).content = Content::Offer(*offer, Some(staged));
        Ok(None)
    }

    /// Copies the fragments of a message that have come, in order.
    fn collect(
        &mut self,
        core: &Core,
        source: usize,
        offer: &Offer,
        staged: &mut Staged,
        target: &mut [u8],
    ) -> Result<(), Killed> {
        let mut index = 0;
        while index < self.fragments.len() {
            let Fragment { source: from, number, attempt, mask, len } = self.fragments[index];
            if (from, number, attempt) != (source, offer.number as u16, staged.attempt) {
                index += 1;
                continue;
            }
            self.fragments.remove(index);
            let end = staged.received.saturating_add(len).min(staged.wanted);
            buffers::read(&core.from(source), mask, &mut target[staged.received..end]);
            staged.received = end;
            self.release(core, source, mask)?;
        }
        Ok(())
    }

    /// Throws away the fragments that nobody waits for any more.
    fn drop_stale_fragments(&mut self, core: &Core) -> Result<(), Killed> {
        let mut index = 0;
        while index < self.fragments.len() {
            let Fragment { source, number, attempt, mask, .. } = self.fragments[index];
            if self.arrivals.is_staged(source, number, attempt) {
                index += 1;
            } else {
                self.fragments.remove(index);
                self.release(core, source, mask)?;
            }
        }
        Ok(())
    }
}

/// Whether this length is a whole number of elements, of this length.
pub(crate) fn is_whole(bytes: usize, element: usize) -> bool {
    if element == 0 { bytes == 0 } else { bytes.is_multiple_of(element) }
}

/// Reads a message, but for the first `done` bytes, out of its sender's memory, piece by piece, as long as it is offered.
fn read(core: &Core, source: usize, offer: &Offer, done: usize, target: &mut [u8]) -> Fetched {
    let token = Token { address: offer.token_address, value: offer.token };
    let (process, channel) = (core.rank_state.pid(source), core.from(source));
    let mut from = offer.address.wrapping_add(done as u64);
    for piece in target[done..].chunks_mut(MESSAGE_PIECE_BYTES) {
        match cma::read(process, token, from, piece) {
            Fetched::All => {}
            other => return other,
        }
        if !core.post().is_offered(&channel, offer.number) {
            // Settling will say so.
            return Fetched::All;
        }
        from = from.wrapping_add(piece.len() as u64);
    }
    Fetched::All
}
