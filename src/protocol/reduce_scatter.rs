//! Reduction in rank order of which each rank gets one block.
//!
//! Every rank contributes to all blocks, and folds its own straight from everybody's staging. So that all ranks fold at the
//! same time, what goes through staging in one round has a piece of every block: a *window*.
//!
//! ```text
//! contributions   | block 0         | block 1         | block 2         |     of each rank
//! window 0          a                 b                 c                     staging  | a | b | c |
//! window 1              d                 e                 f                 staging  | d | e | f |
//! ```
//!
//! A rank writes a window into its buffer of the next turn, and folds its piece of the one before, as chunks of a
//! [transfer](super::transfer). Its own contribution to its own block is read by no other rank, and stays where it is. So two
//! ranks exchange pieces: each stages that of the other's block, at the beginning of the window.
//!
//! If staging is too short for an element of each block, a window has the pieces of some ranks, which are not all.

use core::ops::Range;

use super::allreduce::Reduction;
use super::call::INLINE;
use super::contributions::StagedSource;
use super::prefetch::Then;
use super::staging::{STEP, Senders, TurnBuffers};
use super::{Call, Failure, Member, Payload, Platform};
use crate::copy::TERMS;

/// How the blocks go through staging, the same on every rank. In elements, unless it says bytes.
pub(super) struct Windows {
    /// The length of a piece of a block.
    piece: usize,
    /// How many ranks have a piece in one window.
    ranks: usize,
    /// How many of these have room in staging: of two ranks each stages the other's piece only.
    staged: usize,
    /// The length of the longest block.
    longest: usize,
    /// The length of a window, in bytes.
    bytes: usize,
    /// How many ranks write to staging.
    senders: Senders,
}

/// What goes through staging in a round.
pub(super) struct Window {
    /// Where the pieces begin in their blocks.
    start: usize,
    /// Whose blocks.
    ranks: Range<usize>,
    /// Where the window begins in everybody's staging, in bytes.
    offset: usize,
}

impl<P: Platform> Member<'_, P> {
    /// Reduces element by element, in rank order. Each rank gets the result of its block: `data` folds no other elements.
    /// `blocks`: by rank, the range of its block in every rank's contribution, the same on every rank.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    pub fn reduce_scatter(
        &mut self,
        call: &Call,
        blocks: &impl Fn(usize) -> Range<usize>,
        data: &mut impl Reduction,
    ) -> Result<(), Failure> {
        let (len, size, ranks) = (data.elements(), data.element_size(), self.size());
        if len * size <= INLINE {
            let parity = self.begin_call(call, |header| data.contribute(0..len, header))?;
            self.prefetch_next_slot();
            let own = blocks(self.rank);
            if !own.is_empty() {
                self.fold_inline(own, parity, ranks, data);
            }
            return Ok(());
        }
        let (windows, mut window) = self.first_window(blocks, data);
        self.begin_call(call, |_| ())?;
        loop {
            let buffers = self.end_turn();
            self.prefetch_next_round((windows.bytes, windows.senders), Then::Reads);
            let Some(next) = self.next_window(&windows, &window, buffers, blocks, data) else { return Ok(()) };
            window = next;
            self.continue_call(call, || ())?;
        }
    }

    /// Writes the first window, of contributions of which some block is not empty.
    pub(super) fn first_window(
        &self,
        blocks: &impl Fn(usize) -> Range<usize>,
        data: &mut impl Reduction,
    ) -> (Windows, Window) {
        let windows = self.windows(blocks, data.element_size());
        let window = self.window_after(&windows, None, blocks).expect("some block is not empty");
        self.contribute_window(&windows, &window, blocks, data);
        (windows, window)
    }

    /// Writes the window that comes with the next round, and folds this rank's piece of the one that is in these buffers after a
    /// round. `None`: that was the last.
    pub(super) fn next_window(
        &self,
        windows: &Windows,
        window: &Window,
        buffers: TurnBuffers,
        blocks: &impl Fn(usize) -> Range<usize>,
        data: &mut impl Reduction,
    ) -> Option<Window> {
        let next = self.window_after(windows, Some(window), blocks);
        if let Some(next) = &next {
            self.contribute_window(windows, next, blocks, data);
        }
        let own = windows.piece(window, self.rank, blocks);
        if window.ranks.contains(&self.rank) && !own.is_empty() {
            let offset = windows.place(window, self.rank, data.element_size());
            self.fold_all(own, StagedSource { buffers, offset, places: &[] }, self.size(), data, None);
        }
        next
    }

    /// Pieces of about the same length, in as few windows as there can be.
    fn windows(&self, blocks: &impl Fn(usize) -> Range<usize>, size: usize) -> Windows {
        let longest = (0..self.size()).map(|rank| blocks(rank).len()).max().unwrap_or(0);
        let most = self.staging.folded / size;
        let piece = (most / self.size()).clamp(1, longest.max(1));
        let even = longest.div_ceil(longest.div_ceil(piece).max(1)).max(1);
        // Pieces begin at a line, if there is room.
        let whole_lines = even.next_multiple_of((STEP / size).max(1));
        let piece = if whole_lines <= piece { whole_lines } else { even };
        let ranks = (most / piece).clamp(1, self.size());
        const { assert!(TERMS >= 2, "two ranks read their own in place") };
        let (staged, senders) = match self.size() {
            2 => (1, Senders::of(2, |rank| blocks(rank).len())),
            _ => (ranks, Senders::Several),
        };
        Windows { piece, ranks, staged, longest, bytes: staged * piece * size, senders }
    }

    /// The first window after another that is not empty; `None`: that was the last.
    fn window_after(
        &self,
        windows: &Windows,
        last: Option<&Window>,
        blocks: &impl Fn(usize) -> Range<usize>,
    ) -> Option<Window> {
        let size = self.size();
        let (mut start, mut first) = last.map_or((0, 0), |last| (last.start, last.ranks.end));
        loop {
            if first == size {
                (start, first) = (start + windows.piece, 0);
            }
            if start >= windows.longest {
                return None;
            }
            let ranks = first..(first + windows.ranks).min(size);
            let window = Window { start, ranks, offset: self.offset(windows.bytes, windows.senders) };
            if window.ranks.clone().any(|rank| !windows.piece(&window, rank, blocks).is_empty()) {
                return Some(window);
            }
            first = window.ranks.end;
        }
    }

    /// Puts this rank's contributions to a window into staging for the next round.
    fn contribute_window<D: Reduction>(
        &self,
        windows: &Windows,
        window: &Window,
        blocks: &impl Fn(usize) -> Range<usize>,
        data: &mut D,
    ) {
        let buffer = self.next_buffer();
        let stays = if self.reads_own_in_place(data) { self.rank } else { usize::MAX };
        for rank in window.ranks.clone().filter(|rank| *rank != stays) {
            let piece = windows.piece(window, rank, blocks);
            if !piece.is_empty() {
                let place = windows.place(window, rank, data.element_size());
                buffer.write(|staging| data.contribute(piece, staging.after(place)));
            }
        }
    }
}

impl Windows {
    /// The elements of a rank's piece.
    fn piece(&self, window: &Window, rank: usize, blocks: &impl Fn(usize) -> Range<usize>) -> Range<usize> {
        let block = blocks(rank);
        let at = |place: usize| block.start + place.min(block.len());
        at(window.start)..at(window.start + self.piece)
    }

    /// Where a rank's piece begins in staging, in bytes, if an element has `size` bytes.
    fn place(&self, window: &Window, rank: usize, size: usize) -> usize {
        let before = if self.staged == 1 { 0 } else { rank - window.ranks.start };
        window.offset + before * self.piece * size
    }
}
