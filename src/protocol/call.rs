//! The description of a call, as each rank writes it into its header.

use crate::copy::{Sink, Source};

/// What a rank calls. Only what has to be equal on all ranks is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Which operation; the numbers are the caller's.
    pub operation: u8,
    /// Which reduction; the numbers are the caller's.
    pub reduction: u8,
    /// Which element type; the numbers are the caller's.
    pub element: u8,
    /// Whether the rank refuses to take part.
    pub refused: bool,
    /// Which transfer of a call that consists of several; 0 is the first.
    pub phase: u8,
    /// Bytes per element, and how they are aligned.
    pub shape: u32,
    /// How many elements.
    pub length: u64,
    /// The root, or a digest of the counts.
    pub extra: u64,
}

/// The offset of the operation in a header: an atomic byte, which reports of the job's state peek at.
pub const OPERATION: usize = 0;

/// The length of the description.
const CALL: usize = 24;

/// The offset of the owner's processor in a header: an atomic byte, which is no part of the call.
pub const PROCESSOR: usize = CALL;

/// The offset of the contribution in a header: with the arrival word, half a line.
pub(super) const HEAD: usize = 28;

/// The longest contribution that fits into a header, in bytes. The first 32 lie in the arrival word's cache line.
pub const INLINE: usize = HEADER - HEAD;

/// The size of a header in bytes.
pub const HEADER: usize = 124;

/// The offsets of the description's fields.
pub const SHAPE: usize = 4;
/// The offset of the number of elements in a header.
pub const LENGTH: usize = 8;
const EXTRA: usize = 16;

impl Call {
    fn kind(&self) -> [u8; SHAPE] {
        [self.operation, self.reduction, self.element, u8::from(self.refused) | self.phase << 1]
    }

    /// The same call's transfer `phase`.
    #[must_use]
    pub fn phase(self, phase: u8) -> Self {
        debug_assert!(phase <= u8::MAX >> 1, "it shares a byte with a flag");
        Call { phase, ..self }
    }

    /// Whether this is the call that a header describes.
    #[inline]
    pub(super) fn is_in(&self, header: &Source<'_>) -> bool {
        Call::words_of(header) == self.words()
    }

    /// Writes the description, field by field, as it is read: a load that spans several recent stores waits until they have
    /// left the store buffer (store-forwarding stall).
    #[inline]
    pub(super) fn write_to(&self, header: &mut Sink<'_>) {
        // The last first: if there is room for it, there is for the others.
        header.put(EXTRA, &self.extra.to_ne_bytes());
        header.put(LENGTH, &self.length.to_ne_bytes());
        header.put(SHAPE, &self.shape.to_ne_bytes());
        let [operation, reduction, element, flags] = self.kind();
        header.put(OPERATION + 1, &[reduction, element, flags]);
        header.store_relaxed(OPERATION, operation);
    }

    /// The description in words. Two calls are equal if these are.
    #[inline]
    pub(crate) fn words(&self) -> [u64; 3] {
        let ([a, b, c, d], [e, f, g, h]) = (self.kind(), self.shape.to_ne_bytes());
        [u64::from_ne_bytes([a, b, c, d, e, f, g, h]), self.length, self.extra]
    }

    /// The words in a header.
    #[inline]
    pub(super) fn words_of(header: &Source<'_>) -> [u64; 3] {
        let [extra, length, kind] = [EXTRA, LENGTH, 0].map(|offset| u64::from_ne_bytes(header.array(offset)));
        [kind, length, extra]
    }

    /// The size of an element, and the number of elements, that a header states.
    pub fn size_in(header: &Source<'_>) -> (u32, u64) {
        (u32::from_ne_bytes(header.array(SHAPE)), u64::from_ne_bytes(header.array(LENGTH)))
    }

    pub(super) fn of(header: &Source<'_>) -> Self {
        Call::from_words(Call::words_of(header))
    }

    /// The call that these [words](Self::words) describe.
    pub(crate) fn from_words([kind, length, extra]: [u64; 3]) -> Self {
        let [operation, reduction, element, flags, shape @ ..] = kind.to_ne_bytes();
        Call {
            operation,
            reduction,
            element,
            refused: flags & 1 != 0,
            phase: flags >> 1,
            shape: u32::from_ne_bytes(shape),
            length,
            extra,
        }
    }
}

/// Zero if the words are the same. In one number: arrays would be compared in memory, which stalls on store forwarding.
#[inline(always)]
pub(super) fn different([a, b, c]: [u64; 3], [x, y, z]: [u64; 3]) -> u64 {
    (a ^ x) | (b ^ y) | (c ^ z)
}
