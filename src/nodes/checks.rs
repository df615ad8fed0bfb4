//! The checks of arguments, and the descriptions of calls with a root.

use crate::collective::counts;
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;

impl<L: Leaders> Hierarchical<L> {
    /// Checks the arguments that all ranks of it have: the table, the own block and the root.
    pub(super) fn check_blocks(
        &self,
        operation: Operation,
        counts: &[usize],
        own: usize,
        root: usize,
        given: bool,
    ) -> Result<(), Error> {
        self.check_root(operation, root, given)?;
        counts::check_tables(operation, self.size(), [counts])?;
        check_len(operation, counts[self.rank()], own)
    }

    /// Checks that there is such a root.
    pub(super) fn is_root(&self, operation: Operation, root: usize) -> Result<(), Error> {
        let size = self.size();
        if root < size { Ok(()) } else { Err(Error::InvalidRoot { operation, root, size }) }
    }

    /// Checks that there is such a root, and that exactly the root has passed a buffer.
    pub(super) fn check_root(&self, operation: Operation, root: usize, given: bool) -> Result<(), Error> {
        self.is_root(operation, root)?;
        if given == (self.rank() == root) { Ok(()) } else { Err(Error::RootBuffer { operation, root, given }) }
    }
}

/// Checks that a buffer has the length that is needed.
pub(super) fn check_len(operation: Operation, expected: usize, actual: usize) -> Result<(), Error> {
    if expected == actual { Ok(()) } else { Err(Error::InvalidBufferSize { operation, expected, actual }) }
}
