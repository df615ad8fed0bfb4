//! Offers: a long message stays where it is until the receiver pulls it.
//!
//! The sender sends the address in a cell. A word for each offer, its lease, decides what becomes of it, once:
//!
//! ```text
//!            ┌──▶ Settled      the receiver has all bytes
//!   Offered ─┤
//!            └──▶ Withdrawn ──▶ Settled      the receiver has noticed
//! ```
//!
//! Both steps from `Offered` are a compare-exchange, so exactly one of them happens. The receiver makes its step after the last
//! byte was copied: if that fails the sender has withdrawn, its memory may have changed meanwhile, and what was copied is thrown
//! away. So a sender may withdraw at any moment, and change its memory at once, without waiting for a receiver that has stopped.
//!
//! An offer may stay open, to be read again and again. Behind the last byte of each time the receiver *confirms* it: a compare-exchange from
//! `Offered` to `Offered`. A load would not do, since it may find an older state than that of the bytes that were copied.
//!
//! If the bytes lie in memory that the receiver has mapped, it copies them from there, else the system does. Where the receiver
//! cannot read the sender's memory at all it says which part it *wants*, and the sender sends that part through its
//! buffers. It wants no more than the buffers hold, and so a receive that was given up leaves no more than that behind.

use core::num::NonZeroU64;

use super::super::symmetric::SymmetricPlatform;
use super::super::{Killed, Ordering};
use super::channel::{INLINE, OFFERS};
use super::{Channel, Mask, Post};
use Ordering::{AcqRel, Acquire, Relaxed, Release};

const SETTLED: u64 = 0;
const OFFERED: u64 = 1;
const WITHDRAWN: u64 = 2;

/// What has become of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The receiver has the bytes.
    Pulled,
    /// The sender has withdrawn it before.
    Withdrawn,
}

/// What the receiver needs to pull a message: the contents of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The number of the offer in its channel, modulo 2³².
    pub number: u32,
    /// Whether the sender waits for this message, and so can send it through buffers at once.
    pub attended: bool,
    /// Whether all of it comes right behind the offer, without being asked for.
    pub unasked: bool,
    /// Where all ranks have the bytes, if they do: a number that means the same to each of them.
    pub place: Option<NonZeroU64>,
    /// Where the bytes are in the sender's memory.
    pub address: u64,
    /// In bytes.
    pub len: u64,
    /// Where a number is that only this process has.
    pub token_address: u64,
    /// That number.
    pub token: u64,
}

impl Offer {
    /// As bytes of a cell, and what takes the place of its mask: an offer has no buffers.
    pub fn encode(&self) -> ([u8; INLINE], Mask) {
        let head = u64::from(self.unasked) << 33 | u64::from(self.attended) << 32 | u64::from(self.number);
        let words = [head, self.address, self.len, self.token_address, self.token];
        let mut bytes = [0; INLINE];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        (bytes, self.place.map_or(0, NonZeroU64::get))
    }

    /// Any bytes are an offer: what they say is not believed.
    pub fn decode(bytes: &[u8; INLINE], mask: Mask) -> Self {
        let word = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
            u64::from_ne_bytes(word)
        };
        let [head, address, len, token_address, token] = core::array::from_fn(word);
        let (number, [attended, unasked]) = (head as u32, [32, 33].map(|bit| head >> bit & 1 == 1));
        Offer { number, attended, unasked, place: NonZeroU64::new(mask), address, len, token_address, token }
    }
}

/// A part of an offer that the receiver wants, in units of a buffer. Of an offer there is at most one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// The number of the offer, modulo 2¹⁶.
    pub number: u16,
    /// Tells an attempt from those before it, of which fragments may be under way. Modulo 2¹³.
    pub attempt: u16,
    /// The first.
    pub start: u32,
    /// How many.
    pub count: u16,
}

impl Want {
    /// The last attempt.
    pub const ATTEMPT: u16 = (1 << 13) - 1;
    const START: u32 = (1 << 28) - 1;
    const COUNT: u16 = (1 << 7) - 1;

    /// As a word; not 0, since at least one buffer is wanted.
    pub fn encode(self) -> u64 {
        let Want { number, attempt, start, count } = self;
        debug_assert!(attempt <= Self::ATTEMPT && (1..=Self::COUNT).contains(&count));
        Part { number, attempt, start }.encode() << 7 | u64::from(count & Self::COUNT)
    }

    /// `None`: nothing is wanted.
    pub fn decode(word: u64) -> Option<Self> {
        let (Part { number, attempt, start }, count) = (Part::decode(word >> 7), word as u16 & Self::COUNT);
        (count > 0).then_some(Want { number, attempt, start, count })
    }
}

/// Of which offer and attempt a fragment is, and at which buffer of the message it begins: the tag of its cell. Modulo the numbers of a
/// [`Want`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub number: u16,
    pub attempt: u16,
    pub start: u32,
}

impl Part {
    pub fn encode(self) -> u64 {
        debug_assert!(self.start <= Want::START);
        u64::from(self.number) << 41
            | u64::from(self.attempt & Want::ATTEMPT) << 28
            | u64::from(self.start & Want::START)
    }

    pub fn decode(word: u64) -> Self {
        let (number, attempt) = ((word >> 41) as u16, (word >> 28) as u16 & Want::ATTEMPT);
        Part { number, attempt, start: word as u32 & Want::START }
    }
}

fn slot(number: u32) -> usize {
    number as usize % OFFERS
}

fn lease(number: u32, state: u64) -> u64 {
    u64::from(number) << 2 | state
}

impl<P: SymmetricPlatform> Post<'_, P> {
    /// Whether an offer can have its lease. False: an earlier one still needs the word.
    #[inline]
    pub fn has_lease<C: Channel>(&self, channel: &C, number: u32) -> bool {
        // Acquire: nothing is wanted any more of the one before, whose number may be taken for this one's.
        self.0.platform.load_cell("lease-free", channel.lease(slot(number)), Acquire) & 3 == SETTLED
    }

    /// Opens the lease of an offer, before its cell is published, if it [has](Self::has_lease) one.
    #[inline]
    pub fn open_lease<C: Channel>(&self, channel: &C, number: u32) -> bool {
        let free = self.has_lease(channel, number);
        if free {
            // Relaxed: published with the cell.
            let word = channel.lease(slot(number));
            self.0.platform.store_cell("lease-open", word, lease(number, OFFERED), Relaxed);
        }
        free
    }

    /// Whether the receiver has pulled an offer, which this rank has not withdrawn. Its memory is the sender's again then.
    #[inline]
    pub fn is_settled<C: Channel>(&self, channel: &C, number: u32) -> bool {
        // Acquire: the receiver's copy is made.
        let word = self.0.platform.load_cell("lease-settled", channel.lease(slot(number)), Acquire);
        word != lease(number, OFFERED)
    }

    /// Takes an offer back. Its memory is the sender's again in any case.
    #[inline]
    pub fn withdraw<C: Channel>(&self, channel: &C, number: u32) -> Settled {
        let (from, to) = (lease(number, OFFERED), lease(number, WITHDRAWN));
        let word = channel.lease(slot(number));
        // Acquire: the receiver's copy is made, where it was faster, or has confirmed the lease before. Release: a receiver that finds it
        // withdrawn sees what this side has written before, such as that it has closed.
        match self.0.platform.exchange_cell("withdraw", word, from, to, AcqRel, Acquire) {
            Ok(_) => Settled::Withdrawn,
            Err(_) => Settled::Pulled,
        }
    }

    /// Whether it is worth to begin, or to go on with, pulling an offer.
    #[inline]
    pub fn is_offered<C: Channel>(&self, channel: &C, number: u32) -> bool {
        self.0.platform.load_cell("lease-offered", channel.lease(slot(number)), Relaxed)
            == lease(number, OFFERED)
    }

    /// The receiver has pulled all bytes of `source`'s offer, or has seen that it was withdrawn. Only if the result is
    /// [`Settled::Pulled`] are the bytes a message.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    #[inline]
    pub fn settle<C: Channel>(&self, channel: &C, number: u32, source: usize) -> Result<Settled, Killed> {
        self.0.platform.fail_point("offer-pulled")?;
        self.wants_no_more(channel, number);
        let word = channel.lease(slot(number));
        let (from, to) = (lease(number, OFFERED), lease(number, SETTLED));
        // Release: the copy is made, and nothing is wanted.
        let pulled = self.0.platform.exchange_cell("settle", word, from, to, Release, Relaxed).is_ok();
        if !pulled {
            // Release: nothing is wanted.
            self.0.platform.store_cell("settle-withdrawn", word, to, Release);
        }
        self.ring(source)?;
        Ok(if pulled { Settled::Pulled } else { Settled::Withdrawn })
    }

    /// Reads what is offered, which stays open for more: `copy` copies a piece, and says whether there is another one. It is looked at the
    /// offer between pieces, so that one that was withdrawn is not read to its end, and confirmed behind the last. Returns whether it stands;
    /// if not, what was copied is not what was offered.
    pub fn read<C: Channel>(&self, channel: &C, number: u32, mut copy: impl FnMut() -> bool) -> bool {
        while copy() && self.is_offered(channel, number) {}
        let (word, offered) = (channel.lease(slot(number)), lease(number, OFFERED));
        // Release: the copy is made. The same is stored once more, so that a sender that withdraws sees that. Acquire: what one that has
        // withdrawn had written before.
        self.0.platform.exchange_cell("confirm", word, offered, offered, Release, Acquire).is_ok()
    }

    /// The receiver wants a part of an offer of `source`'s.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    #[inline]
    pub fn want<C: Channel>(&self, channel: &C, want: Want, source: usize) -> Result<(), Killed> {
        // Relaxed: nothing is published with it.
        self.0.platform.store_cell("want", channel.want(slot(want.number.into())), want.encode(), Relaxed);
        self.ring(source)
    }

    /// What was wanted of an offer is not wanted of a later one.
    #[inline]
    fn wants_no_more<C: Channel>(&self, channel: &C, number: u32) {
        let word = channel.want(slot(number));
        // Relaxed: this rank's own. Where nothing was wanted it stays in the sender's cache.
        if self.0.platform.load_cell("want-left", word, Relaxed) != 0 {
            // Relaxed: before the lease is settled.
            self.0.platform.store_cell("want-over", word, 0, Relaxed);
        }
    }

    /// What the receiver wants of this offer.
    #[inline]
    pub fn wanted<C: Channel>(&self, channel: &C, number: u32) -> Option<Want> {
        let want = Want::decode(self.0.platform.load_cell("wanted", channel.want(slot(number)), Relaxed))?;
        (want.number == number as u16).then_some(want)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_and_wants_survive_encoding() {
        for (attended, unasked, place) in [(false, true, None), (true, false, NonZeroU64::new(u64::MAX))] {
            let (number, len) = (u32::MAX, u64::MAX);
            let offer = Offer { number, attended, unasked, place, address: 1, len, token_address: 3, token: 4 };
            let (bytes, mask) = offer.encode();
            assert_eq!(Offer::decode(&bytes, mask), offer);
        }
        for want in [
            Want { number: u16::MAX, attempt: 0, start: Want::START, count: Want::COUNT },
            Want { number: 0, attempt: Want::ATTEMPT, start: 0, count: 1 },
            Want { number: 0, attempt: 0, start: Want::START, count: 64 },
        ] {
            assert_eq!(Want::decode(want.encode()), Some(want));
            let part = Part { number: want.number, attempt: want.attempt, start: want.start };
            assert_eq!(Part::decode(part.encode()), part);
        }
        assert_eq!(Want::decode(0), None);
    }
}
