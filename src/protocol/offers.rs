//! Places that some ranks may not have mapped any more: of a region, which each rank drops when it likes.
//!
//! 1. A rank [offers](OFFER) a place with the first round of a call, in which nothing is read.
//! 2. Each rank says whether it has all that was offered, and keeps it until the call has ended: one round.
//! 3. The call begins again. If all have all, what was offered is read in place, else it goes through staging. Nothing is an offer then:
//!    another process that writes the bit of one cannot keep a call from its end.
//!
//! All ranks see the same offers and the same answers, so all go the same way.

use core::num::NonZeroU64;

use super::block_transfer::{Address, Lend, OFFER};
use super::{Call, Failure, Member, Platform};

/// Whether a place is offered.
pub(super) fn is_offer(place: Address) -> bool {
    place.is_some_and(|place| place.get() & OFFER != 0)
}

impl<P: Platform> Member<'_, P> {
    /// The bits of all places that ranks have published in the first round of a call, `own` by this one: an offer if one is.
    /// `None`: nobody has.
    #[inline]
    pub(super) fn all_places(&self, parity: usize, own: Address) -> Address {
        let bits = |place: Address| place.map_or(0, NonZeroU64::get);
        NonZeroU64::new(self.others().fold(bits(own), |all, rank| all | bits(self.status(rank, parity))))
    }

    /// Whether all ranks find all that was offered.
    #[cold]
    pub(super) fn all_find(
        &mut self,
        call: &Call,
        parity: usize,
        lending: Option<&mut dyn Lend>,
    ) -> Result<bool, Failure> {
        let offers = self.others().map(|rank| self.status(rank, parity)).filter(|place| is_offer(*place));
        let found = lending.is_some_and(|lending| offers.flatten().all(|place| lending.find(place)));
        self.all_done(call, found)
    }
}
