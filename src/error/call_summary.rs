//! A rank's call, as its header describes it to the others.

use std::fmt;

use super::operation::Operation;
use crate::codes::Codes;
use crate::element::{ReduceOp, describe};
use crate::protocol::Call;

/// A rank's call, as the other ranks read it: in [`Error::Mismatch`](crate::Error::Mismatch). Its text is not meant to be parsed.
///
/// ```
/// use intranode::Error;
///
/// let results = intranode::threads(2, |comm| match comm.rank() {
///     0 => comm.barrier(),
///     _ => comm.broadcast(&mut [0.5; 7], 1),
/// })?;
/// for result in results {
///     let Err(Error::Mismatch { calls, .. }) = result else { panic!("{result:?}") };
///     assert_eq!(calls[0].to_string(), "rank 0 called barrier");
///     assert_eq!(calls[1].to_string(), "rank 1 called broadcast(7 × f64, root 1)");
///     assert_eq!((calls[1].length, calls[1].root), (7, Some(1)));
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallSummary {
    /// The rank.
    pub rank: usize,
    /// The operation; `None` if its code is unknown.
    pub operation: Option<Operation>,
    /// The reduction, of a call that has one.
    pub reduction: Option<ReduceOp>,
    /// The element type: `"f64"`, or its size and alignment in words.
    pub element: String,
    /// The length in elements, of the buffer or of all blocks; 0 if it may differ between ranks, as in an alltoallv.
    pub length: u64,
    /// The operation of a call such as [`allreduce_with`](crate::Communicator::allreduce_with): the first rank whose
    /// operation has the same name.
    pub own_reduction: Option<usize>,
    /// The root, of a call that has one.
    pub root: Option<usize>,
    /// The counts, of a call that has them equal on all ranks, as an allgatherv or an exchange: the first rank with the same table. Different tables can have the same
    /// total.
    pub counts: Option<usize>,
    /// The transfer, if the call consists of several; 0 is the first.
    pub phase: u8,
    /// The region or exchange that the method belongs to: its sequence number among those that its leader has created.
    pub region: Option<u64>,
    /// The symmetric object that the method belongs to: its sequence number in its communicator.
    pub object: Option<u64>,
    /// The alignment that a symmetric object was requested with, in bytes.
    pub alignment: Option<usize>,
}

impl fmt::Display for CallSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(operation) = self.operation else {
            return write!(f, "rank {} called an unknown operation", self.rank);
        };
        write!(f, "rank {} called {operation}", self.rank)?;
        if !operation.has_no_arguments() {
            self.write_arguments(f)?;
        }
        if self.phase > 0 { write!(f, ", and was at its transfer {}", self.phase) } else { Ok(()) }
    }
}

impl CallSummary {
    fn write_arguments(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(")?;
        if let Some(reduction) = self.reduction {
            write!(f, "{reduction}, ")?;
        }
        if let Some(rank) = self.own_reduction {
            write!(f, "the operation named as on rank {rank}, ")?;
        }
        match self.operation {
            // Only the senders know the length.
            Some(operation) if operation.has_no_length() => write!(f, "{}", self.element)?,
            _ => write!(f, "{} × {}", self.length, self.element)?,
        }
        if let Some(root) = self.root {
            write!(f, ", root {root}")?;
        }
        if let Some(region) = self.region {
            write!(f, ", region {region}")?;
        }
        if let Some(object) = self.object {
            write!(f, ", object {object}")?;
        }
        if let Some(alignment) = self.alignment {
            write!(f, ", aligned to {alignment}")?;
        }
        if let Some(counts) = self.counts {
            write!(f, ", counts as on rank {counts}")?;
        }
        write!(f, ")")
    }

    /// The calls of all ranks, by rank.
    pub(crate) fn all(calls: &[Call]) -> Box<[Self]> {
        // Without the root, if both are in it: the counts are compared.
        let key = |call: &Call| {
            let has_both = Operation::from_code(call.operation).is_some_and(Operation::has_root_and_counts);
            let extra = if has_both || is_own(call) { call.extra & DIGEST_MASK } else { call.extra };
            (call.operation, is_own(call), extra)
        };
        let same = |one: &Call, other: &Call| key(one) == key(other);
        let first = |call: &Call| calls.iter().position(|other| same(call, other));
        calls.iter().enumerate().map(|(rank, call)| CallSummary::new(rank, call, first(call))).collect()
    }

    /// `first`: the first rank whose call has the same [`Call::extra`].
    fn new(rank: usize, call: &Call, first: Option<usize>) -> Self {
        let operation = Operation::from_code(call.operation);
        let is = |kind: fn(Operation) -> bool| operation.is_some_and(kind);
        let (has_both, extra) = (is(Operation::has_root_and_counts), call.extra);
        let root = if has_both || is_own(call) { extra >> DIGEST_BITS } else { extra };
        CallSummary {
            rank,
            operation,
            reduction: ReduceOp::from_code(call.reduction),
            own_reduction: first.filter(|_| is_own(call)),
            element: describe(call.element, call.shape),
            length: call.length,
            // Saturates if another process has overwritten the header.
            root: (has_both || is(Operation::has_root)).then(|| usize::try_from(root).unwrap_or(usize::MAX)),
            counts: first.filter(|_| has_both || is(Operation::has_counts)),
            phase: call.phase,
            object: is(Operation::is_of_an_object).then_some(extra),
            alignment: (operation == Some(Operation::Symmetric)).then(|| alignment_in(extra)),
            region: is(Operation::is_of_a_region).then_some(extra),
        }
    }
}

/// The bits of [`Call::extra`] below the alignment of a symmetric object's request: a code for its other options.
const OPTION_BITS: u32 = 8;

/// What the ranks compare of a request for a symmetric object: its alignment, a power of two, and a code for its other
/// options.
pub(crate) fn alignment_and_options(alignment: usize, options: u64) -> u64 {
    debug_assert!(options >> OPTION_BITS == 0, "they share a word with the alignment");
    u64::from(alignment.trailing_zeros()) << OPTION_BITS | options
}

/// The alignment in it. Saturates if another process has overwritten the header.
fn alignment_in(extra: u64) -> usize {
    u32::try_from(extra >> OPTION_BITS).ok().and_then(|bits| 1usize.checked_shl(bits)).unwrap_or(usize::MAX)
}

/// The reduction of a call whose operation is the program's own. Its [`Call::extra`] is a root, if there is one, and a digest of
/// the operation's name.
pub(crate) const OWN_REDUCTION: u8 = u8::MAX;

fn is_own(call: &Call) -> bool {
    call.reduction == OWN_REDUCTION
}

/// The bits of a digest that shares [`Call::extra`] with a root: of up to 65,536 ranks, or what is left of a larger one.
const DIGEST_BITS: u32 = 48;

const DIGEST_MASK: u64 = (1 << DIGEST_BITS) - 1;

/// A root and a digest in one number. A root that does not exist may appear as another one: its rank refuses.
pub(crate) fn root_and_digest(root: usize, digest: u64) -> u64 {
    // Several nodes may have more ranks: where two such roots have the same place, their digests differ.
    let above = root as u64 >> (u64::BITS - DIGEST_BITS);
    (root as u64) << DIGEST_BITS | (digest ^ above) & DIGEST_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_of_more_ranks_than_one_machine_has_differ() {
        let roots = [0, 1, 1 << 16, (1 << 16) + 1, 1 << 17, 1 << 40];
        let codes: std::collections::HashSet<u64> =
            roots.iter().map(|root| root_and_digest(*root, 0xABCD)).collect();
        assert_eq!(codes.len(), roots.len());
        // Of one machine: as it is.
        assert_eq!(root_and_digest(0xFFFF, 5), 0xFFFF << DIGEST_BITS | 5);
    }

    #[test]
    fn an_alignment_is_read_from_the_call_that_it_was_written_to() {
        for bits in 0..=23 {
            assert_eq!(alignment_in(alignment_and_options(1 << bits, 0xFF)), 1 << bits);
        }
        assert_eq!(alignment_in(u64::MAX), usize::MAX);
    }
}
