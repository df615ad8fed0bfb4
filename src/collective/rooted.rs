//! What calls with a root have in common.

use super::counts;
use super::reduction::check_len;
use crate::communicator::Communicator;
use crate::error::{Error, Operation};

/// A check of counts and displacements against the length of the buffer.
pub(crate) type BlockCheck = fn(Operation, usize, &[usize], &[usize]) -> Result<(), Error>;

/// What ranks have numbers in: a communicator of one node, or of several.
pub(crate) trait Ranks {
    /// This rank's number.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;
}

impl Ranks for Communicator {
    #[inline]
    fn rank(&self) -> usize {
        self.rank()
    }

    #[inline]
    fn size(&self) -> usize {
        self.size()
    }
}

/// Checks that there is such a rank.
pub(crate) fn check_root(comm: &impl Ranks, operation: Operation, root: usize) -> Result<(), Error> {
    let size = comm.size();
    if root < size { Ok(()) } else { Err(Error::InvalidRoot { operation, root, size }) }
}

/// Checks that a buffer which only the root has is `given` exactly there.
pub(crate) fn check_buffer(
    comm: &impl Ranks,
    operation: Operation,
    root: usize,
    given: bool,
) -> Result<(), Error> {
    let right = given == (comm.rank() == root);
    if right { Ok(()) } else { Err(Error::RootBuffer { operation, root, given }) }
}

/// Checks the lengths of a gather or a scatter: `own` elements on every rank, and on the root alone a buffer of as many for each.
#[inline]
pub(crate) fn check_equal_blocks(
    comm: &impl Ranks,
    operation: Operation,
    root: usize,
    own: usize,
    whole: Option<usize>,
) -> Result<(), Error> {
    let total = own.saturating_mul(comm.size());
    check_root(comm, operation, root)?;
    check_buffer(comm, operation, root, whole.is_some())?;
    check_len(operation, total, whole.unwrap_or(total))
}

/// The same with counts, and displacements that matter on the root only. `check`: of how the blocks lie in its buffer.
pub(crate) fn check_given_blocks(
    comm: &impl Ranks,
    operation: Operation,
    root: usize,
    (own, whole): (usize, Option<usize>),
    (counts, displs): (&[usize], &[usize]),
    check: BlockCheck,
) -> Result<(), Error> {
    check_root(comm, operation, root)?;
    check_buffer(comm, operation, root, whole.is_some())?;
    counts::check_tables(operation, comm.size(), [counts])?;
    check_len(operation, counts[comm.rank()], own)?;
    let Some(whole) = whole else { return Ok(()) };
    counts::check_tables(operation, comm.size(), [displs])?;
    check(operation, whole, counts, displs)
}
