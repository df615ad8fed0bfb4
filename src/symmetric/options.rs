//! The options of a symmetric object: alignment, huge pages, placement on NUMA nodes.

use crate::error::{Error, Operation, alignment_and_options};
use crate::rank::heap::MemoryKind;
use crate::region::options::{Placement, RegionOptions};

/// The options of a symmetric object: [`Communicator::symmetric_with`](crate::Communicator::symmetric_with). They are the same
/// on all ranks.
///
/// ```
/// use intranode::SymmetricOptions;
///
/// let options = SymmetricOptions::new().alignment(4096).huge_pages(true);
/// let results = intranode::threads(2, |comm| {
///     let object = comm.symmetric_with::<u8>(100, &options)?.into_read()?;
///     Ok::<_, intranode::Error>((0..2).all(|rank| object.of(rank).as_ptr().addr() % 4096 == 0))
/// })?;
/// for aligned in results {
///     assert!(aligned?);
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct SymmetricOptions {
    alignment: usize,
    memory: RegionOptions,
}

impl Default for SymmetricOptions {
    fn default() -> Self {
        SymmetricOptions { alignment: 1, memory: RegionOptions::new().placement(Placement::Distributed) }
    }
}

impl SymmetricOptions {
    /// The largest alignment, in bytes: 8 MiB.
    ///
    /// ```
    /// assert_eq!(intranode::SymmetricOptions::MAX_ALIGNMENT, 8 << 20);
    /// ```
    pub const MAX_ALIGNMENT: usize = 8 << 20;

    /// The options of [`Communicator::symmetric`](crate::Communicator::symmetric). Example: [`SymmetricOptions`].
    pub fn new() -> Self {
        SymmetricOptions::default()
    }

    /// Sets the alignment of every instance, in bytes: a power of two up to
    /// [`MAX_ALIGNMENT`](SymmetricOptions::MAX_ALIGNMENT). Less than the alignment of an element has no effect. Memory with an
    /// alignment of more than a page takes up to that much for each rank. Example: [`SymmetricOptions`].
    pub fn alignment(mut self, bytes: usize) -> Self {
        self.alignment = bytes;
        self
    }

    /// Whether to request huge pages from the system, as
    /// [`RegionOptions::huge_pages`](crate::RegionOptions::huge_pages). Each rank's part of the memory is then a multiple of
    /// their size. Example: [`SymmetricOptions`].
    pub fn huge_pages(mut self, huge_pages: bool) -> Self {
        self.memory = self.memory.huge_pages(huge_pages);
        self
    }

    /// Sets the placement on NUMA nodes. By default, which is [`Placement::Distributed`], each instance is on the node of its
    /// rank; with [`Placement::Leader`] all are on that of rank 0.
    ///
    /// ```
    /// use intranode::{Placement, SymmetricOptions};
    ///
    /// let options = SymmetricOptions::new().placement(Placement::Interleaved);
    /// let made = intranode::threads(2, |comm| comm.symmetric_with::<u64>(1000, &options).is_ok())?;
    /// assert_eq!(made, [true, true]);
    /// # Ok::<(), intranode::Error>(())
    /// ```
    pub fn placement(mut self, placement: Placement) -> Self {
        self.memory = self.memory.placement(placement);
        self
    }

    /// Placement and huge pages.
    pub(crate) fn memory(&self) -> &RegionOptions {
        &self.memory
    }

    /// The alignment for elements of `T`.
    ///
    /// # Errors
    /// One that is not possible.
    pub(crate) fn alignment_of<T>(&self, operation: Operation) -> Result<usize, Error> {
        let (alignment, most) = (self.alignment, Self::MAX_ALIGNMENT);
        if alignment.is_power_of_two() && alignment <= most {
            Ok(alignment.max(align_of::<T>()))
        } else {
            Err(Error::InvalidAlignment { operation, alignment, most })
        }
    }

    /// The kind of memory.
    pub(crate) fn kind(&self) -> MemoryKind {
        let huge = self.memory.huge_pages;
        MemoryKind { placement: self.memory.clone().huge_pages(false).code(), huge }
    }

    /// What the ranks compare.
    pub(crate) fn code(&self, alignment: usize) -> u64 {
        alignment_and_options(alignment, self.memory.code())
    }
}
