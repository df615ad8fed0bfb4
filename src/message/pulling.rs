//! How a receiver gets a message that was offered: from where it lies, if this rank has mapped that too; else the system copies it
//! out of its sender's memory; or it comes through buffers where that is not allowed or is slower.

use std::num::NonZeroU64;

use crate::copy::policy::StorePolicy;
use crate::copy::raw::RawTarget;
use crate::error::Operation;
use crate::message::arrivals::{Content, Staged};
use crate::message::core::Core;
use crate::message::in_buffers::InBuffers;
use crate::message::state::{Fragment, State};
use crate::protocol::Killed;
use crate::protocol::block_transfer::{Lend, OFFER};
use crate::protocol::message::offer::{Offer, Part, Want};
use crate::protocol::message::{Settled, buffers};
use crate::rank::lending::Lending;
use crate::sys::cma::{self, Fetched, Token};
use crate::tuning::{MESSAGE_FRAGMENT_POLLS, MESSAGE_IDLE_POLLS, MESSAGE_PIECE_BYTES};

impl State {
    /// Pulls a message that was offered. `None`: it is not complete.
    pub(super) fn pull(
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
        let (before, staged) = (*staged, staged.filter(|staged| !staged.is_new));
        if let (Some(place), None, false) = (offer.place, staged, self.peers[source].unfound) {
            if core.copies(target.len(), || read_in_place(core, source, offer, place, target)) {
                return settle();
            }
            self.peers[source].unfound = true;
            core.rank_state.settings.debug(&format!("messages from rank {source} are not read where they lie"));
        }
        // Through buffers if that is faster, as long as the sender takes part.
        let pulls = staged
            .map_or(!(offer.attended && core.prefers_buffers), |staged| staged.idle == MESSAGE_IDLE_POLLS);
        if pulls && !self.peers[source].refused {
            let done = staged.map_or(0, |staged| staged.received);
            match core.copies(target.len(), || read(core, source, offer, done, target)) {
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
        let mut staged = Staged { is_new: false, ..before.unwrap_or_default() };
        self.follow(core, source, offer, &mut staged, target)?;
        if staged.received == target.len() {
            return settle();
        }
        self.ask(core, index, source, offer, &mut staged, target.len())?;
        self.arrivals.at(index).content = Content::Offer(*offer, Some(staged));
        if before.is_some_and(|before| before.attempt != staged.attempt) {
            self.drop_stale_fragments(core)?;
        }
        Ok(None)
    }

    /// Asks for the next part, in time, so that the sender does not wait for it.
    fn ask(
        &mut self,
        core: &Core,
        index: usize,
        source: usize,
        offer: &Offer,
        staged: &mut Staged,
        len: usize,
    ) -> Result<(), Killed> {
        let (window, buffer_len) = (core.window_buffers(), core.layout.buffer_len);
        if has_asked(core, staged, len) {
            return Ok(());
        }
        let others: usize =
            self.arrivals.others_staged(source, index).map(|other| other.asked(buffer_len)).sum();
        let asked = staged.asked(buffer_len);
        // One more for each, of those that are left to short ones: its sender may send this one and none of the others.
        let one_more = usize::from(asked == 0 && others < core.most_asked());
        let room = window.saturating_sub(others + asked).max(one_more);
        if room == 0 {
            // The others may be of receives that nobody tests any more: what has come of them comes once more.
            if asked == 0 && others > 0 && staged.idle > MESSAGE_IDLE_POLLS {
                staged.idle = 0;
                self.arrivals.others_staged(source, index).for_each(Staged::starts_over);
                self.drop_stale_fragments(core)?;
                // Before they ask again.
                return self.ask(core, index, source, offer, staged, len);
            }
            return Ok(());
        }
        let pages = (len - staged.wanted).div_ceil(buffer_len).min(room);
        staged.wanted = (staged.wanted + pages * buffer_len).min(len);
        // From what has come on, since the sender may not have seen what was asked for before.
        let (number, start) = (offer.number as u16, (staged.received / buffer_len) as u32);
        let count = staged.asked(buffer_len) as u16;
        core.post().want(&core.from(source), Want { number, attempt: staged.attempt, start, count }, source)
    }

    /// Copies the fragments of a message that have come, and in a call that waits those that come soon.
    fn follow(
        &mut self,
        core: &Core,
        source: usize,
        offer: &Offer,
        staged: &mut Staged,
        target: &mut [u8],
    ) -> Result<(), Killed> {
        // With fewer processors than ranks the sender may need this one.
        let polls = self.waits && !core.rank_state.platform.spin.yields();
        let most = if polls { MESSAGE_FRAGMENT_POLLS } else { 0 };
        loop {
            let before = staged.received;
            self.collect(core, source, offer, staged, target)?;
            staged.idle = if staged.received > before { 0 } else { staged.idle.saturating_add(1) };
            // If that fails, the usual way finds it out.
            let goes_on =
                staged.idle < most && staged.received < target.len() && has_asked(core, staged, target.len());
            if !goes_on || self.take_in_from(core, source, Operation::Recv, false).is_err() {
                return Ok(());
            }
        }
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
        let stores = StorePolicy::of_call(target.len());
        let (mut index, mut follows) = (0, true);
        while index < self.fragments.len() {
            let Fragment { source: from, part: Part { number, attempt, start }, mask, len } =
                self.fragments[index];
            if (from, number, attempt) != (source, offer.number as u16, staged.attempt) {
                index += 1;
                continue;
            }
            self.fragments.remove(index);
            // A sender that takes this attempt for one of long ago, with the same number, sends from elsewhere on.
            follows &= (start as usize).checked_mul(core.layout.buffer_len) == Some(staged.received);
            if follows {
                let end = staged.received.saturating_add(len).min(staged.wanted);
                let part = &mut target[staged.received..end];
                core.copies(part.len(), || buffers::read_part(&core.from(source), mask, 0, part, &stores));
                staged.received = end;
            }
            self.release(core, source, InBuffers { mask, start: 0, returned: false })?;
        }
        if !follows {
            staged.starts_over();
        }
        Ok(())
    }

    /// Throws away the fragments that nobody waits for any more.
    pub(super) fn drop_stale_fragments(&mut self, core: &Core) -> Result<(), Killed> {
        let mut index = 0;
        while index < self.fragments.len() {
            let Fragment { source, part, mask, .. } = self.fragments[index];
            if self.arrivals.is_staged(source, part.number, part.attempt) {
                index += 1;
            } else {
                self.fragments.remove(index);
                self.release(core, source, InBuffers { mask, start: 0, returned: false })?;
            }
        }
        Ok(())
    }
}

/// Whether so much of a message of this length was asked for that its sender has enough to do.
fn has_asked(core: &Core, staged: &Staged, len: usize) -> bool {
    staged.wanted == len || staged.asked(core.layout.buffer_len) > core.window_buffers() / 2
}

/// Copies a message from memory that all ranks map, piece by piece, as long as it is offered. False: this rank does not have it.
///
/// If the request was forgotten its bytes may change meanwhile.
fn read_in_place(core: &Core, source: usize, offer: &Offer, place: NonZeroU64, target: &mut [u8]) -> bool {
    let mut lending = Lending::new(&core.rank_state, None);
    if place.get() & OFFER != 0 && !lending.find(place) {
        return false;
    }
    let (channel, stores) = (core.from(source), StorePolicy::of_call(target.len()));
    for (index, piece) in target.chunks_mut(MESSAGE_PIECE_BYTES).enumerate() {
        let Some(found) = lending.at(place, index * MESSAGE_PIECE_BYTES, piece.len()) else { return false };
        RawTarget::from(piece).fetch(&found.view(), stores.receive());
        if !core.post().is_offered(&channel, offer.number) {
            // Settling will say so.
            break;
        }
    }
    true
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
