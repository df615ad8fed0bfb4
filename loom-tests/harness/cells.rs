//! Payload cells whose every access loom checks against all others.

use intranode::copy::{Sink, Source};
use intranode::protocol::{Payload, Staging};
use loom::cell::UnsafeCell;

use crate::harness::trace::{self, Action, Label};

/// Bytes in one loom cell. One cell for the whole payload: finer ones would not find more, and cost more.
pub(crate) struct Bytes<const N: usize> {
    cell: UnsafeCell<[u8; N]>,
    pub(crate) label: Label,
}

/// Room for a call's description and one number for each of three ranks.
pub(crate) type Header = Bytes<56>;

/// Staging in which a chunk holds more than fits into a real header, so that the chunked path is taken, and chunks
/// rotate through four places, with two ranks through two of either buffer.
pub(crate) const STAGING: Staging = Staging {
    capacity: 512,
    chunk: 120,
    short: 104,
    chunk_of_one: 120,
    folded: 120,
    rotation_from: 0,
    rotation: 512,
    rotation_of_one: 512,
    oversubscribed: false,
    swaps: true,
};

/// A rank's staging buffer of one parity.
pub(crate) type Buffer = Bytes<{ STAGING.capacity }>;

/// Numbers that fill a chunk.
pub(crate) const FULL: usize = STAGING.chunk / size_of::<u64>();

/// Numbers that are short, and do not fit into a real header.
pub(crate) const SHORT: usize = STAGING.short / size_of::<u64>();

impl<const N: usize> Bytes<N> {
    pub(crate) fn new(label: Label) -> Self {
        Bytes { cell: UnsafeCell::new([0; N]), label }
    }
}

// SAFETY: the view is that of the array for as long as loom counts the access.
unsafe impl<const N: usize> Payload for Bytes<N> {
    fn write<R>(&self, fill: impl FnOnce(Sink<'_>) -> R) -> R {
        trace::record_access(Action::Write(self.label));
        self.cell.with_mut(|bytes| {
            // SAFETY: the array is N bytes; loom has checked that no other thread accesses it.
            fill(unsafe { Sink::new(bytes.cast(), N) })
        })
    }

    fn read<R>(&self, read: impl FnOnce(Source<'_>) -> R) -> R {
        trace::record_access(Action::Read(self.label));
        self.cell.with(|bytes| {
            // SAFETY: the array is N bytes; loom has checked that no other thread writes it.
            read(unsafe { Source::new(bytes.cast(), N) })
        })
    }
}
