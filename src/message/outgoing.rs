//! The sending side: what goes into the channels to other ranks, and what waits for room there.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::copy::cpu;
use crate::copy::publish::publishes_to_held_lines;
use crate::copy::rotation::{self, Rotation};
use crate::error::{Error, Operation};
use crate::message::core::{Core, address};
use crate::message::in_buffers::InBuffers;
use crate::protocol::message::channel::{INLINE, OFFERS, Slot, shifted};
use crate::protocol::message::offer::{Offer, Part, Want};
use crate::protocol::message::{Channel, Envelope, Kind, Mask, Outbox, Post, Settled, buffers};
use crate::protocol::{Failure, Killed, Payload};
use crate::segment::message_memory::MappedChannel;
use crate::segment::platform::ShmPlatform;
use crate::sys::cma::Token;
use crate::tuning::{MESSAGE_PREFETCH_BYTES, MESSAGE_ROTATES_FROM_BYTES, MESSAGE_ROTATES_FROM_BYTES_ON_INTEL};

/// The channel to one rank.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(super) outbox: Outbox,
    /// What waits for room, in order. Each is complete in itself, so that nothing refers to memory of the program.
    queue: VecDeque<Queued>,
    /// The number of the next offer, if that has a lease.
    offers: u32,
    /// The buffer behind those that a long message was copied to last.
    next_buffer: u32,
    /// How often these have begun again with the first.
    lap: usize,
    /// On Intel's processors the length of the last message in buffers, in bytes; 0 if what the next one is copied to was prefetched.
    unprefetched: usize,
    /// Where the parts of messages go that were asked for.
    rotation: Rotation,
    /// Whether this rank has sent a message in buffers since it received one last.
    pub(super) replies: bool,
    /// The buffers of the message that was received last, for the reply.
    pub(super) kept: Option<InBuffers>,
}

struct Queued {
    envelope: Envelope,
    ticket: Arc<Ticket>,
}

/// Where a message that was queued is on its way: shared by the queue and by the request.
#[derive(Debug)]
pub(crate) struct Ticket(Mutex<Stage>);

#[derive(Clone, Copy, Debug)]
enum Stage {
    Queued,
    /// A short message.
    Sent,
    /// An offer, with its number.
    Published(u32),
    Withdrawn,
}

impl Ticket {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the message back, on any thread.
    pub(crate) fn withdraw(&self, core: &Core, target: usize) -> Settled {
        let mut stage = self.stage();
        let settled = match *stage {
            Stage::Queued | Stage::Withdrawn => Settled::Withdrawn,
            Stage::Sent => return Settled::Pulled,
            Stage::Published(number) => core.post().withdraw(&core.to(target), number),
        };
        *stage = Stage::Withdrawn;
        // A receiver that sleeps notices, so that later offers can have the lease. An error occurs in tests only.
        let _ = core.post().ring(target);
        settled
    }
}

/// How far the sender has come with what the receiver wants.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Served {
    want: Option<Want>,
    /// In bytes.
    position: usize,
}

impl Served {
    /// In bytes.
    pub(crate) fn position(&self) -> usize {
        self.position
    }
}

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// A later call completes it.
    Started,
    /// The call that starts it also completes it.
    Attended,
    /// It is complete only when it is received: it is offered, however short it is.
    Synchronous,
}

/// What has become of a message.
pub(crate) enum Started {
    /// It is on its way, and the sender's memory is its own again.
    Sent,
    /// It is offered, or waits for room.
    Offered(Arc<Ticket>),
}

fn envelope(kind: Kind, len: usize, tag: u64, mask: u64) -> Envelope {
    Envelope { kind, len, tag, mask, inline: [0; INLINE] }
}

/// Parts, and messages in a buffer, begin at lines, in bytes. An estimate for other machines.
pub(super) const LINE: usize = 64;

impl Outgoing {
    /// Whether nothing waits for room.
    #[inline]
    pub(crate) fn is_flushed(&self) -> bool {
        self.queue.is_empty()
    }

    /// Publishes what waits, as far as there is room.
    pub(crate) fn flush(&mut self, core: &Core, target: usize) -> Result<(), Killed> {
        let (post, channel) = (core.post(), core.to(target));
        while let Some(Queued { envelope, ticket }) = self.queue.front_mut() {
            if !post.has_room(&channel, &mut self.outbox) {
                return Ok(());
            }
            let mut stage = ticket.stage();
            if matches!(*stage, Stage::Queued) {
                let published = if envelope.kind == Kind::Offer {
                    // One that nobody receives does not stand in the way of the others.
                    let mut next = (0..OFFERS as u32).map(|ahead| self.offers.wrapping_add(ahead));
                    let Some(number) = next.find(|number| post.open_lease(&channel, *number)) else {
                        return Ok(());
                    };
                    self.offers = number.wrapping_add(1);
                    let offer = Offer { number, ..Offer::decode(&envelope.inline, envelope.mask) };
                    envelope.inline = offer.encode().0;
                    Stage::Published(number)
                } else {
                    Stage::Sent
                };
                post.publish(&channel, &mut self.outbox, target, envelope)?;
                *stage = published;
            }
            drop(stage);
            self.queue.pop_front();
        }
        Ok(())
    }

    /// Sends a message that needs no receiver, if there is room for it now.
    pub(crate) fn try_eager(
        &mut self,
        core: &Core,
        target: usize,
        tag: u64,
        bytes: &[u8],
    ) -> Result<bool, Killed> {
        if !self.queue.is_empty() {
            self.flush(core, target)?;
            if !self.queue.is_empty() {
                return Ok(false);
            }
        }
        if bytes.len() > INLINE {
            return self.try_buffers(core, target, tag, bytes);
        }
        let (post, channel) = (core.post(), core.to(target));
        if Slot::fits(tag, bytes) {
            return self.try_slot(&post, &channel, target, tag, bytes);
        }
        self.try_cell(&post, &channel, target, tag, bytes)
    }

    /// The same for a message that fits into a cell. Nothing waits for room.
    #[inline(always)]
    pub(crate) fn try_cell(
        &mut self,
        post: &Post<'_, ShmPlatform>,
        channel: &MappedChannel<'_>,
        target: usize,
        tag: u64,
        bytes: &[u8],
    ) -> Result<bool, Killed> {
        let has_room = post.has_room(channel, &mut self.outbox);
        if has_room {
            let cell = Envelope { kind: Kind::Message, len: bytes.len(), tag, mask: 0, inline: bytes };
            post.publish(channel, &mut self.outbox, target, &cell)?;
        }
        Ok(has_room)
    }

    /// The same for a message that [fits](Slot::fits) into a slot. Nothing waits for room.
    #[inline(always)]
    pub(crate) fn try_slot(
        &mut self,
        post: &Post<'_, ShmPlatform>,
        channel: &MappedChannel<'_>,
        target: usize,
        tag: u64,
        bytes: &[u8],
    ) -> Result<bool, Killed> {
        let has_slot = post.has_slot(channel, &mut self.outbox);
        if has_slot {
            post.publish_slot(channel, &mut self.outbox, target, &Slot::new(false, tag, bytes), true)?;
        }
        Ok(has_slot)
    }

    #[inline(never)]
    fn try_buffers(&mut self, core: &Core, target: usize, tag: u64, bytes: &[u8]) -> Result<bool, Killed> {
        let (post, channel) = (core.post(), core.to(target));
        if !post.has_room(&channel, &mut self.outbox) {
            return Ok(false);
        }
        let (place, is_only) = match self.take_kept(core, target, bytes.len())? {
            Some(place) => {
                let own = if place.returned { 0 } else { place.mask };
                (place, post.has_read_all_but(&channel, own))
            }
            None => {
                let Some((mask, is_only)) = self.reserve(core, target, bytes.len())? else { return Ok(false) };
                let start =
                    start_in_lap(self.lap, bytes.len(), core.layout.buffer_len, rotates_from(core, target));
                (InBuffers { mask, start, returned: false }, is_only)
            }
        };
        self.replies = target != core.rank();
        let InBuffers { mask, start, .. } = place;
        let cell = Envelope { inline: shifted(start, 0), ..envelope(place.kind(), bytes.len(), tag, mask) };
        // A receiver that has read all others may poll for this one: not this rank itself. With fewer processors than ranks it may sleep,
        // and would be woken too early.
        let is_awaited = is_only && target != core.rank() && !core.rank_state.platform.spin.yields();
        let buffers = place.channel_to(core, target);
        let filled = if is_awaited { self.publish_parts(core, target, (&cell, &buffers), bytes)? } else { 0 };
        buffers::fill_from(&buffers, mask, start + filled, &bytes[filled..]);
        post.publish(&channel, &mut self.outbox, target, &cell)?;
        Ok(true)
    }

    /// Takes buffers for this many bytes, if there are enough, and whether the receiver has read all others.
    pub(super) fn reserve(
        &mut self,
        core: &Core,
        target: usize,
        bytes: usize,
    ) -> Result<Option<(Mask, bool)>, Killed> {
        let (post, channel) = (core.post(), core.to(target));
        let count = bytes.div_ceil(core.layout.buffer_len);
        self.unprefetched = if cpu::is_intel() { bytes } else { 0 };
        if bytes < rotates_from(core, target) {
            return post.reserve_from(&channel, count, 0);
        }
        self.reserve_next(&post, &channel, count)
    }

    /// Takes this number of buffers behind the last.
    fn reserve_next(
        &mut self,
        post: &Post<'_, ShmPlatform>,
        channel: &MappedChannel<'_>,
        count: usize,
    ) -> Result<Option<(Mask, bool)>, Killed> {
        let reserved = post.reserve_from(channel, count, self.next_buffer)?;
        if let Some((mask, _)) = reserved {
            self.lap = self.lap.wrapping_add(usize::from(mask.trailing_zeros() < self.next_buffer));
            self.next_buffer = Mask::BITS - mask.leading_zeros();
        }
        Ok(reserved)
    }

    /// Prefetches for write what the next message is copied to if it is as long as the last one, when an answer to that has come. For one that
    /// does not rotate: the answer's sender has read the same buffer.
    #[inline]
    pub(super) fn prefetch_after_answer(&mut self, core: &Core, target: usize) {
        let bytes = self.unprefetched;
        if bytes > 0 && bytes < MESSAGE_ROTATES_FROM_BYTES_ON_INTEL && !self.outbox.awaits_answer() {
            self.unprefetched = 0;
            core.to(target).buffer(0).prefetch_for_write(0, bytes);
        }
    }

    /// The same while this rank waits for the answer, for one that rotates: it goes to buffers that were read long ago.
    #[inline(always)]
    pub(super) fn prefetch_before_answer(&mut self, core: &Core, target: usize) {
        if self.unprefetched >= MESSAGE_ROTATES_FROM_BYTES_ON_INTEL {
            self.prefetch_next_buffers(core, target);
        }
    }

    #[cold]
    fn prefetch_next_buffers(&mut self, core: &Core, target: usize) {
        let (channel, buffer_len) = (core.to(target), core.layout.buffer_len);
        let bytes = std::mem::take(&mut self.unprefetched);
        let next = self.next_buffer as usize;
        let has_room = next + bytes.div_ceil(buffer_len) <= core.layout.buffers;
        let (first, lap) = if has_room { (next, self.lap) } else { (0, self.lap.wrapping_add(1)) };
        let start = start_in_lap(lap, bytes, buffer_len, rotates_from(core, target));
        let end = start + bytes.min(MESSAGE_PREFETCH_BYTES);
        for (buffer, begin) in (first..core.layout.buffers).zip((0..end).step_by(buffer_len)) {
            let from = start.saturating_sub(begin);
            channel.buffer(buffer).prefetch_for_write(from, end - begin - from);
        }
    }

    /// Sends a message, or queues it. It never waits.
    pub(crate) fn start(
        &mut self,
        core: &Core,
        target: usize,
        tag: u64,
        bytes: &[u8],
        how: How,
    ) -> Result<Started, Killed> {
        if how != How::Synchronous && bytes.len() <= core.eager() && self.try_eager(core, target, tag, bytes)? {
            return Ok(Started::Sent);
        }
        // That may have published other offers.
        let (attended, number, mut unasked) = (how == How::Attended, self.offers, None);
        let cell = if how != How::Synchronous && bytes.len() <= INLINE {
            let mut cell = envelope(Kind::Message, bytes.len(), tag, 0);
            cell.inline[..bytes.len()].copy_from_slice(bytes);
            cell
        } else {
            let Token { address: token_address, value: token } = core.token();
            let len = bytes.len() as u64;
            // This rank may have a `&mut` to what lies in its own memory.
            let place = if target == core.rank() { None } else { core.rank_state.lend_unbound(bytes) };
            if attended && place.is_none() {
                unasked = self.reserve_unasked(core, target, number, bytes.len())?;
            }
            let offer = Offer {
                number,
                attended,
                unasked: unasked.is_some(),
                place,
                address: address(bytes),
                len,
                token_address,
                token,
            };
            let (inline, mask) = offer.encode();
            Envelope { inline, ..envelope(Kind::Offer, INLINE, tag, mask) }
        };
        let ticket = Arc::new(Ticket(Mutex::new(Stage::Queued)));
        self.queue.push_back(Queued { envelope: cell, ticket: Arc::clone(&ticket) });
        self.flush(core, target)?;
        if let Some(mask) = unasked {
            self.send_unasked(core, target, number, mask, bytes)?;
        }
        Ok(Started::Offered(ticket))
    }

    /// Copies a part of a long message into these buffers, and publishes it.
    pub(super) fn publish_fragment(
        &mut self,
        core: &Core,
        target: usize,
        mask: Mask,
        place: Part,
        part: &[u8],
    ) -> Result<(), Killed> {
        let channel = core.to(target);
        core.copies(part.len(), || buffers::fill(&channel, mask, part));
        let cell = envelope(Kind::Fragment, part.len(), place.encode(), mask);
        core.post().publish(&channel, &mut self.outbox, target, &cell)
    }

    /// Whether a message is sent: a short one is published, an offer is pulled. If not, sends what the receiver wants of an
    /// offer through buffers.
    pub(crate) fn serve(
        &mut self,
        core: &Core,
        target: usize,
        ticket: &Ticket,
        bytes: &[u8],
        served: &mut Served,
    ) -> Result<bool, Killed> {
        self.flush(core, target)?;
        let number = match *ticket.stage() {
            Stage::Published(number) => number,
            Stage::Sent => return Ok(true),
            Stage::Queued | Stage::Withdrawn => return Ok(false),
        };
        let (post, channel) = (core.post(), core.to(target));
        if post.is_settled(&channel, number) {
            return Ok(true);
        }
        let Some(want) = post.wanted(&channel, number) else { return Ok(false) };
        self.release_kept(core, target)?;
        let buffer_len = core.layout.buffer_len;
        if served.want.is_some_and(|before| before.attempt == want.attempt) {
            // It follows the part that was wanted before.
            served.want = Some(want);
        } else {
            *served = Served { want: Some(want), position: want.start as usize * buffer_len };
        }
        let end = (want.start as usize + usize::from(want.count)).saturating_mul(buffer_len).min(bytes.len());
        while served.position < end && post.has_room(&channel, &mut self.outbox) {
            let rest = &bytes[served.position..end];
            let part = &rest[..rest.len().min(core.part_buffers * buffer_len)];
            let count = part.len().div_ceil(buffer_len);
            let is_dear = rotation::pays_in(core.layout.buffers * buffer_len) && publishes_to_held_lines();
            let reserved = match self.rotation.takes_next(is_dear) {
                true => self.reserve_next(&post, &channel, count)?,
                // The lowest that are free: as few as the receiver's pace allows, so that they stay in the caches.
                false => post.reserve_from(&channel, count, 0)?,
            };
            let Some((mask, _)) = reserved else { break };
            self.rotation.took(part.len());
            let start = (served.position / buffer_len) as u32;
            let place = Part { number: want.number, attempt: want.attempt, start };
            self.publish_fragment(core, target, mask, place, part)?;
            served.position += part.len();
        }
        Ok(false)
    }
}

/// From how many bytes on a message takes the buffers behind the last.
fn rotates_from(core: &Core, target: usize) -> usize {
    match core.rank_state.co_located[target] {
        // The lowest are in the caches that both ranks use.
        true => usize::MAX,
        false if cpu::is_intel() => MESSAGE_ROTATES_FROM_BYTES_ON_INTEL,
        false => MESSAGE_ROTATES_FROM_BYTES,
    }
}

/// Where a message of `bytes` bytes begins in its buffer, which has `buffer_len`. If it fills half of that at most, with each lap
/// elsewhere, so that all lines of all buffers are used in turn.
fn start_in_lap(lap: usize, bytes: usize, buffer_len: usize, rotates_from: usize) -> usize {
    let room = bytes.next_multiple_of(LINE);
    if bytes < rotates_from || room > buffer_len / 2 {
        return 0;
    }
    lap % (buffer_len / room) * room
}

/// The error of a send after the communicator has ended.
pub(crate) fn failed(core: &Core, killed: Killed) -> Error {
    core.failed(Operation::Send, Failure::from(killed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_less_than_half_a_buffer_begins_elsewhere_in_each_lap() {
        let starts =
            |bytes, buffer_len| [0, 1, 2, 3, 4].map(|lap| start_in_lap(lap, bytes, buffer_len, 8 << 10));
        assert_eq!(starts(8 << 10, 32 << 10), [0, 8 << 10, 16 << 10, 24 << 10, 0]);
        assert_eq!(starts(10_001, 32 << 10), [0, 10_048, 20_096, 0, 10_048]);
        assert_eq!(starts(16 << 10, 32 << 10), [0, 16 << 10, 0, 16 << 10, 0]);
        assert_eq!([starts(4000, 32 << 10), starts(20_000, 32 << 10), starts(8 << 10, 8 << 10)], [[0; 5]; 3]);
        for (lap, bytes) in (0..9).flat_map(|lap| (0..40_000).step_by(33).map(move |bytes| (lap, bytes))) {
            assert!(bytes > 32 << 10 || start_in_lap(lap, bytes, 32 << 10, 2 << 10) + bytes <= 32 << 10);
        }
    }
}
