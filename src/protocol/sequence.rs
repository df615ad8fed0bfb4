//! How ranks notice that they called different things.
//!
//! In the first round of a call every rank publishes a description of it, in the line that the others read anyway.
//! After the round all ranks hold the same R descriptions, so all reach the same verdict: continue, or report the
//! difference. Either way every rank has consumed one round, and the next call can follow.
//!
//! A rank that cannot take part, because its own arguments are wrong, arrives with a refusal. It must not leave the
//! others waiting, nor leave the round early: what is published for a round may be read until the next.

use super::call::{HEAD, OPERATION, different};
use super::{Call, Failure, Member, Payload, Platform};
use crate::copy::{Sink, Source};

impl<P: Platform> Member<'_, P> {
    /// The first round of a call: publishes `call` and what `inline` adds, waits for all ranks, and compares.
    /// Returns the round's parity.
    ///
    /// # Errors
    /// As [`Member::round`]; [`Failure::Refused`] and [`Failure::Mismatch`], on every rank alike.
    #[inline]
    pub fn begin_call(&mut self, call: &Call, inline: impl FnOnce(Sink<'_>)) -> Result<usize, Failure> {
        self.begin_call_while(call, inline, || ())
    }

    /// The same with something to do meanwhile: see [`Member::round_while`].
    #[inline]
    pub(super) fn begin_call_while(
        &mut self,
        call: &Call,
        inline: impl FnOnce(Sink<'_>),
        work: impl FnOnce(),
    ) -> Result<usize, Failure> {
        self.write_header(call, inline);
        let parity = self.round_while(work)?;
        self.check_calls(call, parity)?;
        Ok(parity)
    }

    /// Compares the calls of all ranks after a round.
    #[inline]
    pub(super) fn check_calls(&self, call: &Call, parity: usize) -> Result<(), Failure> {
        if self.all_calls_match(call, parity) { Ok(()) } else { Err(self.verdict(parity)) }
    }

    /// Writes the header of this rank's next round: its call, and what `inline` adds.
    #[inline]
    pub(super) fn write_header(&self, call: &Call, inline: impl FnOnce(Sink<'_>)) {
        self.header(self.rank, self.next_parity()).write(|mut header| {
            call.write_to(&mut header);
            inline(header.after(HEAD));
        });
    }

    /// Whether all ranks call the same, after a round, and none refuses.
    #[inline]
    fn all_calls_match(&self, call: &Call, parity: usize) -> bool {
        let mine = call.words();
        let differs = |rank| self.header(rank, parity).read(|header| different(Call::words_of(&header), mine));
        self.others().fold(u64::from(call.refused), |all, rank| all | differs(rank)) == 0
    }

    /// A further round of the call, which compares nothing. `work` as in [`Member::round_while`].
    ///
    /// # Errors
    /// As [`Member::round`].
    pub(super) fn continue_call(&mut self, call: &Call, work: impl FnOnce()) -> Result<usize, Failure> {
        self.name_operation(call);
        self.round_while(work)
    }

    /// Writes the operation into the header of this rank's next round, for reports, where no call is compared.
    pub(super) fn name_operation(&self, call: &Call) {
        self.header(self.rank, self.next_parity())
            .write(|mut header| header.store_relaxed(OPERATION, call.operation));
    }

    /// Arrives at the round of a call with a refusal.
    ///
    /// # Errors
    /// As [`Member::round`].
    pub fn refuse(&mut self, call: &Call) -> Result<(), Failure> {
        let refused = Call { refused: true, ..*call };
        match self.begin_call(&refused, |_| ()) {
            Err(Failure::Refused(_)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Reads what `rank` has published behind its call.
    #[inline]
    pub(super) fn inline<R>(&self, rank: usize, parity: usize, read: impl FnOnce(Source<'_>) -> R) -> R {
        self.header(rank, parity).read(|header| read(header.after(HEAD)))
    }

    fn call_of(&self, rank: usize, parity: usize) -> Call {
        self.header(rank, parity).read(|header| Call::of(&header))
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
