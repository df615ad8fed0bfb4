//! What calls with a root have in common.

use crate::communicator::Communicator;
use crate::error::{Error, Operation};

/// Checks that there is such a rank.
pub(super) fn check_root(comm: &Communicator, operation: Operation, root: usize) -> Result<(), Error> {
    let size = comm.size();
    if root < size { Ok(()) } else { Err(Error::InvalidRoot { operation, root, size }) }
}

/// Checks that a buffer which only the root has is `given` exactly there.
pub(super) fn check_buffer(
    comm: &Communicator,
    operation: Operation,
    root: usize,
    given: bool,
) -> Result<(), Error> {
    let right = given == (comm.rank() == root);
    if right { Ok(()) } else { Err(Error::RootBuffer { operation, root, given }) }
}
