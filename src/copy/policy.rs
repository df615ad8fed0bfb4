//! Which stores a call uses.

use super::lines;
use super::view::Source;
use crate::tuning::RECEIVE_NON_TEMPORAL_FROM_BYTES;

/// How bytes are stored in the caller's receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stores {
    /// Through the cache: what reads the buffer next finds it there.
    Cached,
    /// Non-temporal: a buffer larger than the cache would push itself out of it, and each of its lines would be read from
    /// memory before it is written (RFO).
    NonTemporal,
}

/// The stores of one call, chosen when it begins.
///
/// How staging is stored does not depend on the call: [`Sink::publish`](super::Sink::publish) measures what a line costs
/// that other cores have read, and follows that.
#[derive(Debug)]
pub(crate) struct StorePolicy {
    receive: Stores,
}

impl StorePolicy {
    /// For a call that receives `bytes` in all. Those copied by the system (CMA) are stored as the system likes.
    pub(crate) fn of_call(bytes: usize) -> Self {
        let large = bytes >= RECEIVE_NON_TEMPORAL_FROM_BYTES;
        StorePolicy { receive: if large { Stores::NonTemporal } else { Stores::Cached } }
    }

    /// How the receive buffer is stored.
    pub(crate) fn receive(&self) -> Stores {
        self.receive
    }

    /// Copies from staging into the receive buffer.
    #[inline]
    pub(crate) fn fetch(&self, staging: &Source<'_>, target: &mut [u8]) {
        match self.receive {
            Stores::Cached => staging.fetch(target),
            Stores::NonTemporal => staging.fetch_nontemporal(target),
        }
    }

    /// Copies from the caller's send buffer into its receive buffer.
    #[inline]
    pub(crate) fn copy(&self, source: &[u8], target: &mut [u8]) {
        match self.receive {
            Stores::Cached => lines::copy_slice(source, target),
            Stores::NonTemporal => lines::copy_slice_nontemporal(source, target),
        }
    }
}

impl Drop for StorePolicy {
    /// Non-temporal stores are weakly ordered: a thread that learns of the call's end must see the data too.
    #[inline]
    fn drop(&mut self) {
        if self.receive == Stores::NonTemporal {
            lines::fence();
        }
    }
}
