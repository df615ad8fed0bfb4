//! Messages between ranks, as MPI's point-to-point communication.
//!
//! | file | what it has |
//! | --- | --- |
//! | messages.rs | [`Messages`]: sending and receiving |
//! | probing.rs | finding messages, and receiving what was found |
//! | completing.rs | tests of requests, waiting for them, taking them back |
//! | request.rs | [`Sending`](request::Sending), [`Receiving`](request::Receiving) |
//! | envelope.rs | what a message is known by, and what a receive asks for |
//! | notifier.rs | [`Notifier`](notifier::Notifier): a descriptor for event loops |
//! | state.rs | progress: taking in what comes, completing receives |
//! | direct.rs | receiving straight from a channel |
//! | pulling.rs | getting what was offered |
//! | arrivals.rs | who gets which message |
//! | outgoing.rs | what goes into the channels to other ranks |
//! | parts.rs | parts of a message that are published before it is complete |
//! | unasked.rs | long messages that come right behind their offers |
//! | core.rs | what all of these share |

mod arrivals;
pub(crate) mod completing;
mod core;
mod direct;
pub(crate) mod envelope;
mod in_buffers;
pub(crate) mod messages;
pub(crate) mod notifier;
mod outgoing;
mod parts;
pub(crate) mod probing;
mod pulling;
pub(crate) mod request;
mod returned;
mod state;
// Messages need a mapping that Miri does not support.
#[cfg(all(test, not(miri)))]
mod tests;
mod unasked;

use crate::communicator::{Communicator, call};
use crate::error::{Error, Operation};
use crate::message::messages::Messages;
use crate::segment::message_memory::ChannelLayout;
use crate::symmetric::allocate;
use crate::symmetric::options::SymmetricOptions;

impl Communicator {
    /// Makes this rank's messages: what it sends by them the other ranks receive by theirs of the same call. Collective.
    /// Example: [`Messages`].
    ///
    /// A rank takes up to 4 MiB of shared memory for them, and 9.5 KiB for each rank; with more than 256 ranks, 25.5 KiB for
    /// each. Messages of several communicators, and of several calls of this method, have nothing to do with each other.
    ///
    /// # Errors
    /// [`Error::AllocationFailed`] on every rank if there is not enough memory. Otherwise as
    /// [`barrier`](Communicator::barrier).
    pub fn messages(&self) -> Result<Messages, Error> {
        let layout = ChannelLayout::new(self.size());
        let (operation, options) = (Operation::Messages, SymmetricOptions::new());
        let memory =
            allocate::make(&self.rank_state, &call::<u64>(operation), operation, layout.words, &options)?;
        Ok(Messages::new(&self.rank_state, &self.tree, memory, layout))
    }
}
