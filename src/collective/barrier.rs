//! barrier: one round, which carries no data.

use crate::communicator::Communicator;
use crate::error::{Error, Operation};
use crate::protocol::Call;

impl Communicator {
    /// Waits until every rank has called it. One round, as in `protocol::barrier`.
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Mismatch`], after which the communicator can be used further; any fatal
    /// error.
    pub fn barrier(&self) -> Result<(), Error> {
        let call = Call { operation: Operation::Barrier as u8, ..Call::default() };
        self.seat.collective(Operation::Barrier, |member| self.seat.barrier.enter(member, &call))
    }
}
