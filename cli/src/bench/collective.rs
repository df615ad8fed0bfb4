//! The operations under measurement, with payloads whose result is known.
//!
//! Every value tells which call, which rank and which place it comes from, so that a stale, missing, doubled or
//! displaced block is a wrong result. All values and their sums are whole numbers that an f64 holds exactly.
//!
//! `benches/race/mpi_bench.c` does the same over MPI: what changes here changes there.

use std::hint::black_box;

use intranode::{Blocks, Communicator, Error, ReduceOp};

pub(crate) trait Collective {
    /// Writes what this rank contributes to call `turn`: every value whose place is a multiple of `step`.
    fn prepare(&mut self, turn: u64, step: usize);

    /// The operation itself, and nothing else: this is what is timed.
    fn call(&mut self, comm: &Communicator) -> Result<(), Error>;

    /// Whether the result is that of call `turns.1`, for which the first value of each page was written, and elsewhere
    /// what was written for `turns.0`.
    fn is_right(&self, turns: (u64, u64)) -> bool;
}

/// The first of so many values is changed between two calls of a repetition.
pub(crate) const PAGE: usize = 4096 / size_of::<f64>();

/// Above any index within a payload up to 512 MiB.
const PLACES: u64 = 1 << 26;

/// The value at place 0 that `rank` of `ranks` contributes to call `turn`.
fn first_value(turn: u64, rank: usize, ranks: usize) -> f64 {
    let ranks = ranks as u64;
    // Repeats after many turns, so that the values stay exact.
    (((turn % 1024) * ranks + rank as u64) * PLACES) as f64
}

fn fill(buffer: &mut [f64], first: f64, step: usize) {
    for (place, value) in buffer.iter_mut().enumerate().step_by(step) {
        *value = first + place as f64;
    }
}

/// Whether `values` is what `ranks` times [`fill`] adds up to, from `firsts.1` on in the first value of each page and
/// from `firsts.0` on elsewhere.
fn is_filled(values: &[f64], firsts: (f64, f64), ranks: f64) -> bool {
    values.chunks(PAGE).enumerate().all(|(page, values)| {
        let start = (page * PAGE) as f64;
        let is_right = |place: usize, first: f64| values[place] == first + ranks * (start + place as f64);
        // Without a way out in between, so that the processor can compare several at a time.
        (1..values.len()).fold(is_right(0, firsts.1), |right, place| right & is_right(place, firsts.0))
    })
}

fn both(turns: (u64, u64), value: impl Fn(u64) -> f64) -> (f64, f64) {
    (value(turns.0), value(turns.1))
}

pub(crate) struct Barrier;

impl Collective for Barrier {
    fn prepare(&mut self, _turn: u64, _step: usize) {}

    fn call(&mut self, comm: &Communicator) -> Result<(), Error> {
        comm.barrier()
    }

    fn is_right(&self, _turns: (u64, u64)) -> bool {
        true
    }
}

pub(crate) struct Allreduce {
    send: Vec<f64>,
    recv: Vec<f64>,
    rank: usize,
    ranks: usize,
}

impl Allreduce {
    pub(crate) fn new(elements: usize, comm: &Communicator) -> Self {
        Self { send: vec![0.0; elements], recv: vec![0.0; elements], rank: comm.rank(), ranks: comm.size() }
    }
}

impl Collective for Allreduce {
    fn prepare(&mut self, turn: u64, step: usize) {
        fill(&mut self.send, first_value(turn, self.rank, self.ranks), step);
    }

    fn call(&mut self, comm: &Communicator) -> Result<(), Error> {
        comm.allreduce(black_box(&self.send), black_box(&mut self.recv), ReduceOp::Sum)
    }

    fn is_right(&self, turns: (u64, u64)) -> bool {
        let sum = |turn| (0..self.ranks).map(|rank| first_value(turn, rank, self.ranks)).sum();
        is_filled(&self.recv, both(turns, sum), self.ranks as f64)
    }
}

pub(crate) struct Allgatherv {
    send: Vec<f64>,
    recv: Vec<f64>,
    counts: Vec<usize>,
    displs: Vec<usize>,
    rank: usize,
}

impl Allgatherv {
    pub(crate) fn new(elements: usize, comm: &Communicator) -> Self {
        let blocks = Blocks::new(elements, comm.size());
        let rank = comm.rank();
        Self {
            send: vec![0.0; blocks.range(rank).len()],
            recv: vec![0.0; elements],
            counts: blocks.counts(),
            displs: blocks.displs(),
            rank,
        }
    }
}

impl Collective for Allgatherv {
    fn prepare(&mut self, turn: u64, step: usize) {
        fill(&mut self.send, first_value(turn, self.rank, self.counts.len()), step);
    }

    fn call(&mut self, comm: &Communicator) -> Result<(), Error> {
        comm.allgatherv(black_box(&self.send), black_box(&mut self.recv), &self.counts, &self.displs)
    }

    fn is_right(&self, turns: (u64, u64)) -> bool {
        let ranks = self.counts.len();
        (0..ranks).all(|rank| {
            let block = &self.recv[self.displs[rank]..][..self.counts[rank]];
            is_filled(block, both(turns, |turn| first_value(turn, rank, ranks)), 1.0)
        })
    }
}

pub(crate) struct Broadcast {
    buffer: Vec<f64>,
    is_root: bool,
    ranks: usize,
}

impl Broadcast {
    const ROOT: usize = 0;

    pub(crate) fn new(elements: usize, comm: &Communicator) -> Self {
        Self { buffer: vec![0.0; elements], is_root: comm.rank() == Self::ROOT, ranks: comm.size() }
    }
}

impl Collective for Broadcast {
    fn prepare(&mut self, turn: u64, step: usize) {
        if self.is_root {
            fill(&mut self.buffer, first_value(turn, Self::ROOT, self.ranks), step);
        }
    }

    fn call(&mut self, comm: &Communicator) -> Result<(), Error> {
        comm.broadcast(black_box(&mut self.buffer), Self::ROOT)
    }

    fn is_right(&self, turns: (u64, u64)) -> bool {
        is_filled(&self.buffer, both(turns, |turn| first_value(turn, Self::ROOT, self.ranks)), 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_another_turn_rank_or_place_is_seen() {
        let mut buffer = vec![0.0; PAGE + 100];
        let firsts = |turns: (u64, u64), rank| both(turns, |turn| first_value(turn, rank, 4));
        fill(&mut buffer, first_value(3, 1, 4), 1);
        assert!(is_filled(&buffer, firsts((3, 3), 1), 1.0));
        for (turns, rank) in [((2, 2), 1), ((3, 2), 1), ((2, 3), 1), ((3, 3), 2)] {
            assert!(!is_filled(&buffer, firsts(turns, rank), 1.0), "{turns:?} {rank}");
        }
        fill(&mut buffer, first_value(4, 1, 4), PAGE);
        assert!(is_filled(&buffer, firsts((3, 4), 1), 1.0));
        assert!(!is_filled(&buffer, firsts((3, 3), 1), 1.0));
        buffer.swap(PAGE + 4, PAGE + 5);
        assert!(!is_filled(&buffer, firsts((3, 4), 1), 1.0));
    }

    #[test]
    fn sums_of_many_ranks_are_exact() {
        let ranks = 64;
        let largest: f64 = (0..ranks).map(|rank| first_value(1023, rank, ranks) + (PLACES - 1) as f64).sum();
        assert!(largest < (1u64 << 53) as f64);
    }
}
