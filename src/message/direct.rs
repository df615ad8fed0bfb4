//! Receiving straight from a channel: the message that comes next, into the buffer of a receive that waits for it.

use crate::error::{Error, Operation};
use crate::message::core::Core;
use crate::message::envelope::{Envelope, Pattern};
use crate::message::state::{State, Wait, is_whole};
use crate::protocol::message::{Kind, buffers};
use crate::protocol::{Failure, Killed, message};
use crate::tuning::{MESSAGE_DIRECT_POLLS, MESSAGE_POLLS_OF_ONE};

/// A cell that was taken: a message that was received, or what is to be gone on with, and whether it is what is asked for.
type Taken = Result<Envelope, (message::Envelope, bool)>;

/// How often channels are polled before the receive waits in the usual way.
#[inline(always)]
fn direct_polls(core: &Core) -> u32 {
    if core.rank_state.platform.spin.yields() { 1 } else { MESSAGE_DIRECT_POLLS }
}

impl State {
    /// Receives the next message of a rank straight from its channel, if nothing else comes first. `None`: it has not come at
    /// once, or it is not what is asked for; then it is found in the usual way, where it has been put.
    #[inline(always)]
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
            self.take_in_others(core, source);
        }
        if !self.arrivals.is_empty() {
            return None;
        }
        let mut polls = direct_polls(core);
        loop {
            match self.take_next::<false>(core, source, pattern, target, element) {
                Ok(Some(taken)) => return self.go_on(core, source, taken, target),
                Err(failure) => return Some(Err(core.failed(Operation::Recv, failure))),
                Ok(None) => {}
            }
            polls -= 1;
            if polls == 0 {
                return None;
            }
            core::hint::spin_loop();
        }
    }

    /// The same for the next message of any rank: each is the first to be looked at in its turn.
    #[inline(always)]
    pub(crate) fn receive_any(
        &mut self,
        core: &Core,
        pattern: Pattern,
        target: &mut [u8],
        element: usize,
    ) -> Option<Result<Envelope, Error>> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(MESSAGE_POLLS_OF_ONE) {
            // If that fails, the usual way finds it out.
            let _ = self.flush_all(core);
        }
        if !self.arrivals.is_empty() {
            return None;
        }
        for _ in 0..(direct_polls(core) as usize).div_ceil(self.peers.len()) {
            for _ in 0..self.peers.len() {
                let source = self.turn;
                self.turn = if source + 1 < self.peers.len() { source + 1 } else { 0 };
                match self.take_next::<true>(core, source, pattern, target, element) {
                    Ok(Some(taken)) => return self.go_on(core, source, taken, target),
                    Err(failure) => return Some(Err(core.failed(Operation::Recv, failure))),
                    Ok(None) => {}
                }
            }
            core::hint::spin_loop();
        }
        None
    }

    /// Takes the next cell of a rank. A message in it that is asked for is received.
    ///
    /// `ANY` makes two of it, with a caller each: so all of it is in line, and what it returns in registers. Through memory a message took
    /// twice as long.
    #[inline(always)]
    fn take_next<const ANY: bool>(
        &mut self,
        core: &Core,
        source: usize,
        pattern: Pattern,
        target: &mut [u8],
        element: usize,
    ) -> Result<Option<Taken>, Failure> {
        core.post().take_with(&core.from(source), &mut self.peers[source].inbox, |cell| {
            let envelope = Envelope { source, tag: cell.tag, bytes: cell.len };
            let is_asked_for =
                pattern.matches(&envelope) && cell.len <= target.len() && is_whole(cell.len, element);
            if is_asked_for && cell.kind == Kind::Message && cell.mask == 0 {
                cell.inline.get_few(0, &mut target[..cell.len]);
                return Ok(envelope);
            }
            Err((message::Envelope::of(&cell), is_asked_for))
        })
    }

    /// Goes on with a cell that was taken.
    #[inline(always)]
    fn go_on(
        &mut self,
        core: &Core,
        source: usize,
        taken: Taken,
        target: &mut [u8],
    ) -> Option<Result<Envelope, Error>> {
        // An error occurs in tests only.
        if let Err(killed) = core.post().ring(source) {
            return Some(Err(core.failed(Operation::Recv, killed.into())));
        }
        match taken {
            Ok(envelope) => Some(Ok(envelope)),
            Err((cell, is_asked_for)) => {
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
            (Kind::Message | Kind::Shifted, Some(target)) => {
                let channel = core.from(source);
                buffers::read_from(&channel, cell.mask, cell.start(), &mut target[..cell.len]);
                core.post().release(&channel, cell.mask, source).map_err(failed)?;
                core.to(source).prefetch_held();
                Ok(Some(Envelope { source, tag: cell.tag, bytes: cell.len }))
            }
            (Kind::Part, Some(target)) => self.receive_parts(core, source, cell, target),
            _ => {
                self.arrives(core, source, cell).map_err(failed)?;
                self.make_room(core, source, Operation::Recv).map(|()| None)
            }
        }
    }
}
