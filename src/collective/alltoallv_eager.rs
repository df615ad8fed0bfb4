//! The first round of an alltoallv: the counts, and short blocks with them.

use std::ops::Range;

use super::count_header::{Data, Header};
use super::memory::{RecvBytes, SendBytes};
use super::pair_counts::{Agreed, AllCounts, OwnCounts};
use super::parts;
use super::vector_buffers::VectorBuffers;
use crate::copy::{Sink, Source};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::eager::EagerBlocks;
use crate::rank::choices::{Choice, Path};
use crate::rank::rank_state::OpenCall;

/// The headers of this number of ranks need no allocation.
const FEW: usize = 4;

/// What the headers of all ranks say, the same on every rank.
pub(super) enum Verdict {
    /// All blocks have come.
    Complete,
    /// They come later.
    Agreed(Agreed),
    /// Those of some rank have no room for its counts.
    NoRoom,
}

/// Exchanges the counts, and the blocks with them if those of every rank are short enough.
///
/// # Errors
/// If the counts of some pair differ. Nothing has been written to the receive buffer then.
#[inline]
pub(super) fn first_round<S: SendBytes, R: RecvBytes<S>>(
    open: &mut OpenCall<'_>,
    call: &Call,
    own: &OwnCounts<'_>,
    blocks: &mut VectorBuffers<'_, S, R>,
) -> Result<Verdict, Error> {
    let (rank_state, size) = (open.rank_state(), blocks.size);
    if !Header::has_room(size) {
        return Ok(Verdict::NoRoom);
    }
    let (mut few, mut many);
    let (headers, counts) = if size <= FEW {
        few = ([Header::EMPTY; FEW], [0; AllCounts::numbers(FEW)]);
        (&mut few.0[..size], &mut few.1[..AllCounts::numbers(size)])
    } else {
        many = (vec![Header::EMPTY; size], vec![0; AllCounts::numbers(size)]);
        (&mut many.0[..], &mut many.1[..])
    };
    let short = rank_state.staging.short;
    let most = if rank_state.eager.stage() { short } else { 0 };
    let staged = blocks.write_header(&mut headers[blocks.rank], own, most);
    let mut round = FirstRound { blocks, headers, counts, staged, short, verdict: None };
    open.transfer_eagerly(call, &mut round)?;
    let verdict = round.verdict.take().unwrap_or(Ok(Verdict::NoRoom))?;
    match verdict {
        Verdict::Complete => rank_state.eager.had(false),
        Verdict::Agreed(_) => rank_state.eager.had(round.longest() > short),
        Verdict::NoRoom => {}
    }
    if let (Verdict::Complete, Some(choices)) = (&verdict, &rank_state.choices) {
        choices.record(round.longest(), round.choice());
    }
    Ok(verdict)
}

impl<S: SendBytes, R: RecvBytes<S>> VectorBuffers<'_, S, R> {
    /// Writes this rank's header, with its blocks for the others if there is room. Returns how many bytes go through staging: all
    /// blocks, if they have up to `most` bytes, or none.
    #[inline]
    fn write_header(&self, header: &mut Header, own: &OwnCounts<'_>, most: usize) -> usize {
        if !header.write([own.send, own.recv], own.sends_displs) {
            return 0;
        }
        let len = self.send_table.len_of_parts(self.rank, self.size, self.size - 1);
        if let Some(mut room) = header.room(len) {
            for part in self.parts() {
                let (first, rest) = room.split_at_mut(part.bytes());
                part.copy_to(first);
                room = rest;
            }
        } else if len <= most {
            header.set_staged();
            return len;
        }
        0
    }
}

struct FirstRound<'a, 'b, S, R> {
    blocks: &'a mut VectorBuffers<'b, S, R>,
    /// By rank.
    headers: &'a mut [Header],
    /// What these say: see [`AllCounts`].
    counts: &'a mut [u64],
    /// How many bytes this rank stages, and how many a rank may.
    staged: usize,
    short: usize,
    verdict: Option<Result<Verdict, Error>>,
}

impl<S: SendBytes, R: RecvBytes<S>> FirstRound<'_, '_, S, R> {
    #[inline]
    fn all(&self) -> AllCounts<'_> {
        AllCounts { rows: self.counts, size: self.headers.len() }
    }

    #[inline]
    fn judge(&mut self) -> Result<Verdict, Error> {
        let rows = self.counts.chunks_exact_mut(2 * self.headers.len());
        if !self.headers.iter_mut().zip(rows).all(|(header, row)| header.decode(row)) {
            return Ok(Verdict::NoRoom);
        }
        self.all().check()?;
        if self.headers.iter().any(|header| header.data() == Data::Later) {
            let need_displs = self.headers.iter().any(Header::sends_displs);
            return Ok(Verdict::Agreed(Agreed { places: self.all().places(self.blocks.rank), need_displs }));
        }
        Ok(Verdict::Complete)
    }

    /// Where the part of a sender for this rank lies among its parts, in bytes.
    #[inline]
    fn part(&self, sender: usize) -> Range<usize> {
        self.blocks.range_from(sender, self.all().start(sender, self.blocks.rank))
    }

    /// How many bytes a rank sends to all others, according to its header.
    #[inline]
    fn sent(&self, rank: usize) -> usize {
        self.all().total(rank).saturating_mul(self.blocks.width)
    }

    #[inline]
    fn any_staged(&self) -> bool {
        self.headers.iter().any(|header| header.data() == Data::Staged)
    }

    /// The most bytes that a rank sends.
    fn longest(&self) -> usize {
        (0..self.headers.len()).map(|rank| self.sent(rank)).max().unwrap_or(0)
    }

    #[cold]
    fn choice(&self) -> Choice {
        Choice {
            operation: Operation::Alltoallv,
            path: if self.any_staged() { Path::Staging } else { Path::Inline },
            receive: self.blocks.stores.receive(),
        }
    }

    /// Copies this rank's own block, and those that came in headers.
    #[inline]
    fn take_inline(&mut self) {
        self.blocks.copy_own_block();
        for sender in parts::receivers(self.blocks.rank, self.headers.len()) {
            if let Some(part) = self.headers[sender].part(self.part(sender)) {
                self.blocks.recv.store(self.blocks.recv_table.range(sender), part);
            }
        }
    }
}

impl<S: SendBytes, R: RecvBytes<S>> EagerBlocks for FirstRound<'_, '_, S, R> {
    #[inline]
    fn staged(&self, rank: usize) -> usize {
        if rank == self.blocks.rank {
            return self.staged;
        }
        match self.headers[rank].data() {
            // No more than can be there, whatever the header says.
            Data::Staged => self.sent(rank).min(self.short),
            Data::Inline | Data::Later => 0,
        }
    }

    fn put(&mut self, staging: Sink<'_>) {
        parts::put(self.blocks.parts(), 0..self.staged, staging);
    }

    #[inline]
    fn describe(&mut self, mut header: Sink<'_>) {
        self.headers[self.blocks.rank].publish(&mut header);
    }

    #[inline]
    fn read(&mut self, rank: usize, header: Source<'_>) {
        self.headers[rank].read(header);
    }

    #[inline]
    fn decide(&mut self) -> bool {
        let verdict = self.judge();
        let is_complete = matches!(verdict, Ok(Verdict::Complete));
        self.verdict = Some(verdict);
        if is_complete {
            self.take_inline();
        }
        is_complete && self.any_staged()
    }

    fn get(&mut self, rank: usize, staging: Source<'_>) {
        let (part, place, chunk) = (self.part(rank), self.blocks.recv_table.range(rank), 0..self.staged(rank));
        let VectorBuffers { recv, stores, .. } = &mut *self.blocks;
        parts::get((part, place), chunk, staging, recv, stores);
    }
}
