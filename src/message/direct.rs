//! Receiving straight from a channel: the message that comes next, into the buffer of a receive that waits for it.

use crate::codes::Codes;
use crate::error::{Error, Operation};
use crate::message::core::Core;
use crate::message::envelope::{Envelope, Pattern};
use crate::message::in_buffers::InBuffers;
use crate::message::state::{Peer, State, Wait, is_whole};
use crate::protocol::message::{Kind, Post};
use crate::protocol::{Killed, message};
use crate::segment::message_memory::MappedChannel;
use crate::segment::platform::ShmPlatform;
use crate::tuning::{MESSAGE_DIRECT_POLLS, MESSAGE_POLLS_OF_ONE};

/// A channel that is received from, found once for a call.
pub(crate) struct Incoming<'c> {
    post: Post<'c, ShmPlatform>,
    channel: MappedChannel<'c>,
}

impl<'c> Incoming<'c> {
    /// That from a rank.
    #[inline(always)]
    pub(crate) fn new(core: &'c Core, source: usize) -> Self {
        Incoming { post: core.post(), channel: core.from(source) }
    }
}

impl Peer {
    /// The word of an answer that has not come at once where ranks share a processor: they are given it before anything else is looked at.
    #[inline(never)]
    fn next_yielding(&mut self, core: &Core, source: usize) -> Option<(&mut Peer, u64)> {
        // Found again: the caller's would have to lie in memory for this call, and for all that make none.
        let Incoming { post, channel } = Incoming::new(core, source);
        let mut word = None;
        let mut spin = || {
            core.platform.spin.spin_directly(&mut self.before_yield, || {
                word = post.arrived(&channel, &mut self.inbox);
                word.is_some()
            });
        };
        match core.recorder() {
            None => spin(),
            // Others may run for a whole time slice meanwhile.
            Some(lane) => lane.wait_for(Operation::Recv.code(), Some(source), spin),
        }
        word.map(|word| (self, word))
    }

    /// Receives the message that has arrived with this word, if it is in a slot and asked for.
    ///
    /// All of it is in line, and what it returns in registers: through memory a message took twice as long.
    #[inline(always)]
    pub(crate) fn receive_slot(
        &mut self,
        Incoming { post, channel }: &Incoming<'_>,
        (source, word): (usize, u64),
        pattern: Pattern,
        target: &mut [u8],
        element: usize,
    ) -> Option<Envelope> {
        let Peer { inbox, outgoing, .. } = self;
        let slot = post.read_slot(channel, inbox, word)?;
        let envelope = Envelope { source, tag: slot.tag, bytes: slot.len };
        if slot.is_expected || !is_asked_for(pattern, &envelope, target.len(), element) {
            return None;
        }
        slot.copy_to(target);
        // An error occurs in tests only.
        post.take_slot(channel, inbox, &mut outgoing.outbox, source, word).ok()?;
        Some(envelope)
    }
}

impl State {
    /// The word of what comes next from a rank, straight from its channel, if nothing else comes first; and that rank's. `None`: it has
    /// not come at once.
    #[inline(always)]
    pub(crate) fn next_of(
        &mut self,
        core: &Core,
        incoming: &Incoming<'_>,
        source: usize,
    ) -> Option<(&mut Peer, u64)> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(MESSAGE_POLLS_OF_ONE) {
            self.take_in_others(core, source);
        }
        if !self.arrivals.is_empty() {
            return None;
        }
        let peer = &mut self.peers[source];
        let is_answer = peer.outgoing.outbox.awaits_answer();
        if core.platform.spin.yields() {
            return match incoming.post.arrived(&incoming.channel, &mut peer.inbox) {
                None if is_answer => peer.next_yielding(core, source),
                word => word.map(|word| (peer, word)),
            };
        }
        if is_answer {
            peer.outgoing.prefetch_before_answer(core, source);
            if peer.first_poll.wait() {
                peer.inbox.waits();
            }
        }
        for polls in 0..MESSAGE_DIRECT_POLLS {
            if let Some(word) = incoming.post.arrived(&incoming.channel, &mut peer.inbox) {
                if is_answer {
                    peer.first_poll.found(polls == 0);
                }
                return Some((peer, word));
            }
            core::hint::spin_loop();
        }
        None
    }

    /// The same for what comes next from any rank, and that rank. They are polled round-robin.
    #[inline(always)]
    pub(crate) fn next_of_any(&mut self, core: &Core) -> Option<(usize, u64)> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(MESSAGE_POLLS_OF_ONE) {
            // If that fails, the usual way finds it out.
            let _ = self.flush_all(core);
        }
        if !self.arrivals.is_empty() {
            return None;
        }
        let (post, ranks) = (core.post(), self.peers.len());
        let polls = if core.platform.spin.yields() { 1 } else { MESSAGE_DIRECT_POLLS };
        for _ in 0..(polls as usize).div_ceil(ranks) {
            for _ in 0..ranks {
                let source = self.turn;
                self.turn = if source + 1 < ranks { source + 1 } else { 0 };
                if let Some(word) = post.arrived(&core.from(source), &mut self.peers[source].inbox) {
                    return Some((source, word));
                }
            }
            core::hint::spin_loop();
        }
        None
    }

    /// Receives what has arrived with this word in a cell, or puts it aside. `None`: it is in a slot, or not what is asked for; then it is
    /// found in the usual way.
    #[inline(always)]
    pub(crate) fn receive_cell(
        &mut self,
        core: &Core,
        (source, word): (usize, u64),
        pattern: Pattern,
        target: &mut [u8],
        element: usize,
    ) -> Option<Result<Envelope, Error>> {
        let (post, channel) = (core.post(), core.from(source));
        let Peer { inbox, outgoing, .. } = &mut self.peers[source];
        if post.read_slot(&channel, inbox, word).is_some() {
            return None;
        }
        let taken = post.take_cell(&channel, inbox, &mut outgoing.outbox, word, |cell| {
            let envelope = Envelope { source, tag: cell.tag, bytes: cell.len };
            let is_asked_for = is_asked_for(pattern, &envelope, target.len(), element);
            if is_asked_for && cell.kind == Kind::Message && cell.mask == 0 {
                cell.inline.copy_to(&mut target[..cell.len]);
                return Ok(envelope);
            }
            Err((message::Envelope::of(&cell), is_asked_for))
        });
        let rung = taken.and_then(|taken| Ok(post.ring(source).map(|()| taken)?));
        match rung {
            Err(failure) => Some(Err(core.failed(Operation::Recv, failure))),
            Ok(Ok(envelope)) => Some(Ok(envelope)),
            Ok(Err((cell, is_asked_for))) => {
                let target = is_asked_for.then_some(target);
                self.receive_other(core, source, &cell, target).transpose()
            }
        }
    }

    /// Gives the other ranks their turn. If that fails, the usual way finds it out.
    #[cold]
    fn take_in_others(&mut self, core: &Core, source: usize) {
        let _ = self.take_in_all(core, Wait::from(Operation::Recv, None), Some(source));
    }

    /// Receives a message in buffers, or one of which a part has come, or puts aside what is not asked for.
    #[inline(never)]
    pub(super) fn receive_other(
        &mut self,
        core: &Core,
        source: usize,
        cell: &message::Envelope,
        target: Option<&mut [u8]>,
    ) -> Result<Option<Envelope>, Error> {
        let failed = |killed: Killed| core.failed(Operation::Recv, killed.into());
        match (cell.kind, target) {
            (Kind::Message | Kind::Shifted | Kind::Returned, Some(target)) => {
                let place = InBuffers::of(cell);
                place.read(core, source, &mut target[..cell.len]);
                self.has_read(core, source, place).map_err(failed)?;
                self.peers[source].outgoing.prefetch_after_answer(core, source);
                Ok(Some(Envelope { source, tag: cell.tag, bytes: cell.len }))
            }
            (Kind::Part | Kind::ReturnedPart, Some(target)) => self.receive_parts(core, source, cell, target),
            _ => {
                self.arrives(core, source, cell).map_err(failed)?;
                self.make_room(core, source, Operation::Recv).map(|()| None)
            }
        }
    }
}

/// Whether a message is what a receive into a buffer of this length asks for, and fits.
#[inline(always)]
fn is_asked_for(pattern: Pattern, envelope: &Envelope, len: usize, element: usize) -> bool {
    pattern.matches(envelope) && envelope.bytes <= len && is_whole(envelope.bytes, element)
}
