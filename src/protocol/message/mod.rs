//! Messages: what one rank sends to another, by channels of which each ordered pair of ranks has one.
//!
//! | file | question that it answers |
//! | --- | --- |
//! | [`channel`] | what does a channel consist of, and what is in a cell of its ring? |
//! | [`ring`] | how does a message get from the sender to the receiver, and who waits for whom? |
//! | [`pair_line`] | how do a message and its answer go over one line? |
//! | [`buffers`] | where are the bytes that a cell has no room for? |
//! | [`offer`] | how is a long message pulled, and how is one taken back? |
//! | [`wait`] | how does a rank wait for messages, and what ends its wait? |
//! | [`parking`] | how does an endpoint sleep on many channels? |
//!
//! A channel has one sender and one receiver. A rank that dies therefore leaves nothing half-done that a third would wait for:
//! what it has reserved and not published belongs to its own channels.

pub mod buffers;
pub mod channel;
pub mod offer;
pub mod pair_line;
pub mod parking;
pub mod ring;
pub mod wait;

use super::symmetric::{OneSided, SymmetricPlatform};
use super::{Killed, Segment};

pub use channel::{Channel, Envelope, InCell, Kind, Mask, Slot};
pub use offer::{Offer, Settled};
pub use parking::{Attention, Fenced, Marked};
pub use ring::{Inbox, Outbox};

/// One rank's access to its channels.
pub struct Post<'s, P: SymmetricPlatform>(OneSided<'s, P>);

impl<P: SymmetricPlatform> Clone for Post<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: SymmetricPlatform> Copy for Post<'_, P> {}

impl<'s, P: SymmetricPlatform> Post<'s, P> {
    /// That of `rank`.
    ///
    /// # Panics
    /// When the segment has no bell for this rank.
    #[inline]
    pub fn new(platform: &'s P, segment: &'s Segment<'s, P>, rank: usize) -> Self {
        Post(OneSided::new(platform, segment, rank))
    }

    /// Wakes `peer`, if it sleeps, after a write that it waits for.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    #[inline(always)]
    pub fn ring(&self, peer: usize) -> Result<(), Killed> {
        self.0.ring(peer)
    }
}
