//! What is short: a message, and what a cell has room for.

use crate::protocol::message::channel::INLINE;

/// The longest message, in bytes.
pub(crate) const LONGEST: usize = 4096;

/// The bytes of a short message, aligned so that they are copied word by word: at odd places each copy of what was just stored would be
/// a store-forwarding stall.
#[repr(align(8))]
pub(crate) struct Short(pub(super) [u8; INLINE]);

impl Short {
    /// What fits into a cell.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut short = [0; INLINE];
        short[..bytes.len()].copy_from_slice(bytes);
        Short(short)
    }
}
