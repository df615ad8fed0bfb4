//! What a protocol needs from the machine.

pub use core::sync::atomic::Ordering;

use crate::copy::{Sink, Source};

/// The deadline of a wait has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired;

/// A test has ended this rank at a named point. Never seen in production.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed;

/// A machine: words that can be waited on, and the operations on them.
///
/// Every operation takes the name of its site, by which SAFETY.md, the models and the mutants refer to it.
/// Production ignores it. Orderings are literals at the call sites in this module's siblings; a platform
/// forwards them.
///
/// # Safety
/// The protocols guard payload by these words alone, so an implementation promises that the atomic operations
/// have the semantics of Rust's atomics, with at least the ordering given, among all ranks.
pub unsafe trait Platform {
    /// A 32-bit word that can be waited on.
    type Word;
    /// A 64-bit word.
    type Word64;
    /// A rank's header.
    type Header: Payload;
    /// A rank's staging buffer.
    type Buffer: Payload;
    /// A moment after which a wait gives up.
    type Deadline;

    /// Reads a word.
    #[track_caller]
    fn load(&self, site: &'static str, word: &Self::Word, order: Ordering) -> u32;

    /// Writes a word that nobody else writes meanwhile.
    #[track_caller]
    fn store(&self, site: &'static str, word: &Self::Word, value: u32, order: Ordering);

    /// Replaces `current` by `new`, or returns what was there instead. Never fails spuriously.
    #[track_caller]
    fn compare_exchange(
        &self,
        site: &'static str,
        word: &Self::Word,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32>;

    /// Sets bits, and returns what was there before.
    #[track_caller]
    fn fetch_or(&self, site: &'static str, word: &Self::Word, bits: u32, order: Ordering) -> u32;

    /// Reads a 64-bit word.
    #[track_caller]
    fn load64(&self, site: &'static str, word: &Self::Word64, order: Ordering) -> u64;

    /// Replaces `current` by `new`, or returns what was there instead. Never fails spuriously.
    #[track_caller]
    fn compare_exchange64(
        &self,
        site: &'static str,
        word: &Self::Word64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;

    /// Reads a word again and again until `until` holds for what was read (`Ok`), or until it is time to sleep
    /// (`Err`, with what was read last). Both results were read with `order`. `co_located`: the rank that will change the
    /// word shares this rank's processor.
    #[track_caller]
    fn spin(
        &self,
        site: &'static str,
        word: &Self::Word,
        order: Ordering,
        co_located: bool,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32>;

    /// The processor that this rank is on, modulo 256, if ranks share processors.
    #[inline(always)]
    fn processor(&self) -> Option<u8> {
        None
    }

    /// The processor that the owner of this header has published, now or at an earlier round. Only a hint, and no access
    /// to the cell as far as the protocols are concerned.
    #[inline(always)]
    fn peek(&self, header: &Self::Header) -> u8 {
        let _ = header;
        0
    }

    /// The moment at which a wait that begins now has lasted too long, and the rank that is waited for is given up.
    fn deadline(&self) -> Self::Deadline;

    /// The moment at which it is better to wait for something else: soon, and no later than the [`deadline`](Self::deadline).
    fn brief_deadline(&self) -> Self::Deadline;

    /// Sleeps while the word holds `expected`, at most until the deadline.
    ///
    /// May return at any time, and gives no happens-before: the caller reads the word again. What must hold is
    /// that no wake-up is lost: a `wake_all` that follows a change of the word ends every wait for the old value.
    #[track_caller]
    fn wait(
        &self,
        site: &'static str,
        word: &Self::Word,
        expected: u32,
        deadline: &Self::Deadline,
    ) -> Result<(), Expired>;

    /// Whether the program wants this rank to wait no longer. Asked when a sleep has ended, in time or not.
    fn is_interrupted(&self) -> bool {
        false
    }

    /// Ends every wait on the word.
    #[track_caller]
    fn wake_all(&self, site: &'static str, word: &Self::Word);

    /// Prefetches for write the slot that this word begins. A hint.
    #[inline(always)]
    fn prefetch_for_write(&self, word: &Self::Word) {
        let _ = word;
    }

    /// A named place at which a test may stop or stall this rank.
    #[inline(always)]
    fn fail_point(&self, name: &'static str) -> Result<(), Killed> {
        let _ = name;
        Ok(())
    }
}

/// Bytes that one rank writes and others read, never at the same time.
///
/// A protocol decides who may touch a cell and when; what is copied is the caller's business, in a closure over
/// a raw view. No reference to the bytes ever exists.
///
/// # Safety
/// The view given to the closure is valid for the length that it states for as long as the closure runs. That
/// no other rank writes meanwhile is the calling protocol's promise: see SAFETY.md, "The trusted base".
pub unsafe trait Payload {
    /// Lets the owner fill the cell.
    fn write<R>(&self, fill: impl FnOnce(Sink<'_>) -> R) -> R;

    /// Prefetches `len` bytes from `start` on for their owner's write. A hint.
    fn prefetch_for_write(&self, start: usize, len: usize) {
        let _ = (start, len);
    }

    /// Lets a rank read the cell.
    fn read<R>(&self, read: impl FnOnce(Source<'_>) -> R) -> R;
}
