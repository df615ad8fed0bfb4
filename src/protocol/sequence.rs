//! How ranks notice that they called different things.
//!
//! In the first round of a call every rank publishes what it calls, in the line that the others look at anyway.
//! After the round all ranks hold the same R descriptions, so all reach the same verdict: go on, or report the
//! difference. Either way every rank has consumed one round, and the next call can follow.
//!
//! A rank that can not take part, because its own arguments are wrong, still arrives and says so. It must not
//! leave the others waiting, nor leave the round early: what is published for a round may be read until the next.

use super::{Failure, Member, Payload, Platform};
use crate::payload::{Sink, Source};

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

/// Where in a note the operation is: a byte that is looked at from outside, to tell what a rank is at.
pub const OPERATION: usize = 0;

/// The length of the description.
const CALL: usize = 24;

/// Where in a note the owner's processor is. It is no part of the call, and may be looked at from outside too.
pub const PROCESSOR: usize = CALL;

/// Where in a note the contribution begins: with the word, half a line.
pub(super) const HEAD: usize = 28;

/// The small contributions that fit into a note, in bytes. The first 32 lie in the word's own cache line.
pub const INLINE: usize = NOTE - HEAD;

/// The size of a note in bytes.
pub const NOTE: usize = 124;

/// Where the parts of the description begin.
const SHAPE: usize = 4;
const LENGTH: usize = 8;
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

    /// Whether this is the call that a note describes.
    #[inline]
    pub(super) fn is_in(&self, note: &Source<'_>) -> bool {
        Call::words_of(note) == self.words()
    }

    /// Writes the description. Part by part: a part can be read from where it has just been written only as a whole.
    #[inline]
    pub(super) fn show(&self, note: &mut Sink<'_>) {
        // The last first: if there is room for it, there is for the others.
        note.put(EXTRA, &self.extra.to_ne_bytes());
        note.put(LENGTH, &self.length.to_ne_bytes());
        note.put(SHAPE, &self.shape.to_ne_bytes());
        let [operation, reduction, element, flags] = self.kind();
        note.put(OPERATION + 1, &[reduction, element, flags]);
        note.show(OPERATION, operation);
    }

    /// The description in words. Two calls are equal if these are.
    #[inline]
    fn words(&self) -> [u64; 3] {
        let ([a, b, c, d], [e, f, g, h]) = (self.kind(), self.shape.to_ne_bytes());
        [u64::from_ne_bytes([a, b, c, d, e, f, g, h]), self.length, self.extra]
    }

    /// The words that stand in a note.
    #[inline]
    fn words_of(note: &Source<'_>) -> [u64; 3] {
        let [extra, length, kind] = [EXTRA, LENGTH, 0].map(|offset| u64::from_ne_bytes(note.array(offset)));
        [kind, length, extra]
    }

    fn of(note: &Source<'_>) -> Self {
        let [operation, reduction, element, flags] = note.array(0);
        Call {
            operation,
            reduction,
            element,
            refused: flags & 1 != 0,
            phase: flags >> 1,
            shape: u32::from_ne_bytes(note.array(SHAPE)),
            length: u64::from_ne_bytes(note.array(LENGTH)),
            extra: u64::from_ne_bytes(note.array(EXTRA)),
        }
    }
}

/// Zero if the words are the same: in one number, since arrays are compared where they lie in memory, and what has just
/// been written there in parts takes long to read.
#[inline(always)]
fn different([a, b, c]: [u64; 3], [x, y, z]: [u64; 3]) -> u64 {
    (a ^ x) | (b ^ y) | (c ^ z)
}

impl<P: Platform> Member<'_, P> {
    /// The first round of a call: publishes `call` and what `inline` adds, waits for all ranks, and compares.
    /// Returns the round's parity.
    ///
    /// # Errors
    /// As [`Member::round`]; [`Failure::Refused`] and [`Failure::Mismatch`], on every rank alike.
    #[inline]
    pub fn open(&mut self, call: &Call, inline: impl FnOnce(Sink<'_>)) -> Result<usize, Failure> {
        self.open_while(call, inline, || ())
    }

    /// The same with something to do meanwhile: see [`Member::round_while`].
    #[inline]
    pub(super) fn open_while(
        &mut self,
        call: &Call,
        inline: impl FnOnce(Sink<'_>),
        work: impl FnOnce(),
    ) -> Result<usize, Failure> {
        self.show_call(call, inline);
        let parity = self.round_while(work)?;
        let same = self.is_same(call, parity);
        self.open_late(call, same)?;
        self.judge(parity, same)
    }

    /// The parity of a round after which all ranks call the same.
    #[inline]
    pub(super) fn judge(&self, parity: usize, same: bool) -> Result<usize, Failure> {
        if same { Ok(parity) } else { Err(self.verdict(parity)) }
    }

    /// Writes what this rank calls in the next round.
    #[inline]
    pub(super) fn show_call(&self, call: &Call, inline: impl FnOnce(Sink<'_>)) {
        self.note(self.rank, self.next_parity()).write(|mut note| {
            call.show(&mut note);
            inline(note.after(HEAD));
        });
    }

    /// Whether all ranks call the same, after a round, and none refuses.
    #[inline]
    pub(super) fn is_same(&self, call: &Call, parity: usize) -> bool {
        let mine = call.words();
        let differs = |rank| self.note(rank, parity).read(|note| different(Call::words_of(&note), mine));
        self.others().fold(u64::from(call.refused), |all, rank| all | differs(rank)) == 0
    }

    /// A further round of the call, which compares nothing. Shows that this rank is still at it. `work` as in
    /// [`Member::round_while`].
    ///
    /// # Errors
    /// As [`Member::round`].
    pub(super) fn go_on(&mut self, call: &Call, work: impl FnOnce()) -> Result<usize, Failure> {
        self.note(self.rank, self.next_parity()).write(|mut note| note.show(OPERATION, call.operation));
        let parity = self.round_while(work)?;
        self.open_late(call, true)?;
        Ok(parity)
    }

    /// Takes part in a call only to say that this rank can not.
    ///
    /// # Errors
    /// As [`Member::round`].
    pub fn refuse(&mut self, call: &Call) -> Result<(), Failure> {
        let refused = Call { refused: true, ..*call };
        match self.open(&refused, |_| ()) {
            Err(Failure::Refused(_)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Reads what `rank` has published beside its call.
    #[inline]
    pub(super) fn inline<R>(&self, rank: usize, parity: usize, look: impl FnOnce(Source<'_>) -> R) -> R {
        self.note(rank, parity).read(|note| look(note.after(HEAD)))
    }

    fn call_of(&self, rank: usize, parity: usize) -> Call {
        self.note(rank, parity).read(|note| Call::of(&note))
    }

    #[cold]
    fn verdict(&self, parity: usize) -> Failure {
        let calls: Vec<Call> = (0..self.size()).map(|rank| self.call_of(rank, parity)).collect();
        match calls.iter().position(|call| call.refused) {
            Some(rank) => Failure::Refused(rank),
            None => Failure::Mismatch(calls),
        }
    }
}
