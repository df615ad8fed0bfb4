//! Blocks without staging: each is copied once, from where it lies in one rank's memory to where another wants it.
//!
//! Only the system can do that, if it allows it; [`BlockTransfer::fetch`] asks it to. What the ranks do:
//!
//! 1. Each says where in its memory the others find its block: one round.
//! 2. Each fetches the others' blocks.
//! 3. Each says whether that has worked: one more round. Until then nobody returns, so nobody's memory changes.
//!
//! Where it has not worked for one rank, all see that it says so, and all go the way through staging instead, from the
//! beginning of the call.
//!
//! A rank that has given the call up, because another was late, returns, and may change its memory while a third still
//! fetches from there. What that one gets does not matter: its call fails too.

use crate::tuning::SINGLE_COPY_PIECE_BYTES;
use core::num::NonZeroU64;
use core::ops::Range;

use super::block_transfer::{Address, BlockTransfer};
use super::call::HEAD;
use super::generation::POISON;
use super::{Call, Failure, Member, Ordering, Payload, Platform};
use crate::copy::Sink;
use Ordering::Relaxed;

/// What a rank says that has fetched all it needs.
const DONE: Address = NonZeroU64::new(1);

impl<P: Platform> Member<'_, P> {
    /// [`transfer`](Member::transfer) without staging. False: the blocks have to go through staging after all.
    pub(super) fn transfer_by_single_copy(
        &mut self,
        call: &Call,
        blocks: &mut impl BlockTransfer,
    ) -> Result<bool, Failure> {
        let (own, address) = (blocks.length(self.rank), blocks.address());
        let parity =
            self.begin_call_while(call, |header| say(header, address), || blocks.copy_own_block(0..own))?;
        let fetched = address.is_some()
            && self.others().all(|rank| {
                let from = self.said(rank, parity);
                from.is_some_and(|from| self.fetch(rank, 0..blocks.length(rank), from, blocks))
            });
        let done = DONE.filter(|_| fetched);
        self.header(self.rank, self.next_parity()).write(|header| say(header.after(HEAD), done));
        let parity = self.continue_call(call, || ())?;
        Ok(fetched && self.others().all(|rank| self.said(rank, parity).is_some()))
    }

    /// Fetches a rank's block, part by part, as long as the communicator has not ended.
    fn fetch(
        &self,
        rank: usize,
        block: Range<usize>,
        from: NonZeroU64,
        blocks: &mut impl BlockTransfer,
    ) -> bool {
        let word = &self.segment.slots[self.rank][self.completed.parity()].state;
        block.clone().step_by(SINGLE_COPY_PIECE_BYTES).all(|start| {
            let ended = self.platform.load("poll-poison", word, Relaxed) & POISON != 0;
            !ended && blocks.fetch(rank, start..(start + SINGLE_COPY_PIECE_BYTES).min(block.end), from)
        })
    }

    fn said(&self, rank: usize, parity: usize) -> Address {
        NonZeroU64::new(self.inline(rank, parity, |header| u64::from_ne_bytes(header.array(0))))
    }
}

fn say(mut header: Sink<'_>, what: Address) {
    header.put(0, &what.map_or(0, NonZeroU64::get).to_ne_bytes());
}
