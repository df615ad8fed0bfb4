//! Whether the other ranks read this rank's data where it lies, in the heap.

use crate::copy::publish::writing_is_cheap;
use crate::protocol::block_transfer::Address;
use crate::rank::rank_state::RankState;

impl RankState {
    /// Where all ranks find these bytes, if they lie in the heap, and it pays to read them there.
    pub(crate) fn lend(&self, bytes: &[u8]) -> Address {
        self.heap.place_of(bytes).filter(|_| self.lends())
    }

    /// The same for bytes that the caller has an exclusive reference to.
    pub(crate) fn lend_mut(&self, bytes: &mut [u8]) -> Address {
        self.heap.place_of_mut(bytes).filter(|_| self.lends())
    }

    /// Memory that others have read has to be taken back when it is written again: by staging, or else by the program.
    fn lends(&self) -> bool {
        self.settings.in_place.unwrap_or_else(writing_is_cheap)
    }
}
