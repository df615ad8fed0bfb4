//! The log of transports and stores that calls use, for `INTRANODE_DEBUG`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::copy::policy::Stores;
use crate::error::Operation;
use crate::protocol::block_transfer::{BlockTransfer, whereabouts};
use crate::sys::file_size::write_stderr;

/// How a call's data gets from rank to rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Path {
    /// Inline in the headers: one round.
    Inline,
    /// Through the staging buffers, chunk by chunk.
    Staging,
    /// Through the staging buffers; each rank folds its slice of a chunk.
    Slices,
    /// From the other ranks' memory (CMA).
    SingleCopy,
    /// From this rank's symmetric memory, or a region.
    InPlace,
}

impl Path {
    /// Of this rank's block.
    pub(crate) fn of_block(fits_into_header: bool, block: &mut impl BlockTransfer) -> Self {
        match whereabouts(block.lending()) {
            _ if fits_into_header => Path::Inline,
            (Some(_), _) => Path::InPlace,
            (None, Some(_)) => Path::SingleCopy,
            (None, None) => Path::Staging,
        }
    }
}

/// The choices for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Choice {
    pub(crate) operation: Operation,
    pub(crate) path: Path,
    pub(crate) receive: Stores,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match self.path {
            Path::Inline => "in the headers",
            Path::Staging => "through staging",
            Path::Slices => "through staging, folded in slices",
            Path::SingleCopy => "by single copy (CMA)",
            Path::InPlace => "from shared memory, in place",
        };
        let receive = match self.receive {
            Stores::Cached => "cached",
            Stores::NonTemporal => "non-temporal",
        };
        write!(f, "{} goes {path}, with {receive} stores to the receive buffer", self.operation)
    }
}

/// Writes each choice to stderr when it is made for the first time.
pub(crate) struct ChoiceLog {
    rank: usize,
    seen: Mutex<BTreeSet<Choice>>,
}

impl ChoiceLog {
    pub(crate) fn new(rank: usize) -> Self {
        ChoiceLog { rank, seen: Mutex::default() }
    }

    #[cold]
    pub(crate) fn record(&self, bytes: usize, choice: Choice) {
        if self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(choice) {
            write_stderr(&format!("intranode: rank {}: {choice} (first at {bytes} bytes)\n", self.rank));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_reads_as_a_sentence() {
        let choice =
            Choice { operation: Operation::Allgatherv, path: Path::SingleCopy, receive: Stores::Cached };
        let text = "allgatherv goes by single copy (CMA), with cached stores to the receive buffer";
        assert_eq!(choice.to_string(), text);
    }
}
