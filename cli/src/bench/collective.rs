//! The measured operations, with payloads whose result is known.
//!
//! Every value encodes its call, rank and index, so that a stale, missing, doubled or displaced block is a wrong result. All
//! values and their sums are integers that an f64 holds exactly.
//!
//! `benches/race/mpi_bench.c` in the repository does the same over MPI, and must be changed together with this file.

use std::hint::black_box;
use std::time::Duration;

use intranode::{Blocks, Communicator, Error, ReduceOp};

use super::payload::{Memory, Payload};

pub(crate) trait Collective {
    /// Writes this rank's contribution to call `number`: every value whose index is a multiple of `step`.
    fn prepare(&mut self, number: u64, step: usize);

    /// The operation, which is timed.
    fn call(&mut self, comm: &Communicator) -> Result<(), Error>;

    /// Whether the first value of each page is the result of the last call, and every other value that of the first. Asked when
    /// the calls of all ranks have ended.
    fn is_right(&self, calls: Calls) -> bool;

    /// Whether each call is measured for itself, from a common start.
    fn has_common_start(&self) -> bool {
        false
    }

    /// How long the last call took on this rank, of an operation that measures by itself. Such a call is a repetition of its
    /// own.
    fn took(&self) -> Option<Duration> {
        None
    }
}

/// The numbers of the calls of one repetition. All values are new for the first call only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Calls {
    pub(super) fn map(self, value: impl Fn(u64) -> f64) -> (f64, f64) {
        (value(self.first), value(self.last))
    }
}

/// Values per page. The first value of each page changes between the calls of a repetition.
pub(crate) const PAGE: usize = 4096 / size_of::<f64>();

/// Above any index within a payload up to 512 MiB.
const INDICES: u64 = 1 << 26;

/// The value at index 0 that `rank` of `ranks` contributes to call `number`.
pub(super) fn first_value(number: u64, rank: usize, ranks: usize) -> f64 {
    let ranks = ranks as u64;
    // It repeats after many calls, so that the values stay exact. Signed numbers are converted by a single instruction, which is in the time
    // of a short call.
    (((number % 1024) * ranks + rank as u64) * INDICES) as i64 as f64
}

// Without an iterator that divides by `step`, which is in the time of a short call, and signed, as above.
pub(super) fn fill(buffer: &mut [f64], first: f64, step: usize) {
    let mut index = 0;
    while let Some(value) = buffer.get_mut(index) {
        *value = first + index as i64 as f64;
        index += step;
    }
}

/// Whether `values` is the sum of `ranks` times [`fill`], with the start `starts.1` in the first value of each page, and
/// `starts.0` in the others.
pub(super) fn is_filled(values: &[f64], starts: (f64, f64), ranks: f64) -> bool {
    values.chunks(PAGE).enumerate().all(|(page, values)| {
        let offset = (page * PAGE) as f64;
        let is_right = |index: usize, start: f64| values[index] == start + ranks * (offset + index as f64);
        // Without an early exit, so that the compiler can vectorise it.
        (1..values.len()).fold(is_right(0, starts.1), |right, index| right & is_right(index, starts.0))
    })
}

pub(crate) struct Barrier;

impl Collective for Barrier {
    fn prepare(&mut self, _number: u64, _step: usize) {}

    fn call(&mut self, comm: &Communicator) -> Result<(), Error> {
        comm.barrier()
    }

    fn is_right(&self, _calls: Calls) -> bool {
        true
    }
}

/// A sum: the library's, or the program's own operation.
#[derive(Clone, Copy)]
pub(crate) enum Op {
    Library,
    Own,
}

pub(crate) struct Allreduce {
    op: Op,
    send: Payload,
    recv: Vec<f64>,
    rank: usize,
    ranks: usize,
}

impl Allreduce {
    pub(crate) fn new(op: Op, elements: usize, memory: Memory, comm: &Communicator) -> Result<Self, Error> {
        let send = Payload::new(memory, elements, elements, comm)?;
        Ok(Self { op, send, recv: vec![0.0; elements], rank: comm.rank(), ranks: comm.size() })
    }
}

impl Collective for Allreduce {
    fn prepare(&mut self, number: u64, step: usize) {
        fill(&mut self.send, first_value(number, self.rank, self.ranks), step);
    }

    fn call(&mut self, comm: &Communicator) -> Result<(), Error> {
        let (send, recv) = (black_box(&self.send[..]), black_box(&mut self.recv[..]));
        match self.op {
            Op::Library => comm.allreduce(send, recv, ReduceOp::Sum),
            Op::Own => comm.allreduce_with(send, recv, "sum", |sum, next| *sum += next),
        }
    }

    fn is_right(&self, calls: Calls) -> bool {
        let sum = |number| (0..self.ranks).map(|rank| first_value(number, rank, self.ranks)).sum();
        is_filled(&self.recv, calls.map(sum), self.ranks as f64)
    }
}

pub(crate) struct Allgatherv {
    send: Payload,
    recv: Vec<f64>,
    counts: Vec<usize>,
    displs: Vec<usize>,
    rank: usize,
}

impl Allgatherv {
    pub(crate) fn new(elements: usize, memory: Memory, comm: &Communicator) -> Result<Self, Error> {
        let blocks = Blocks::new(elements, comm.size());
        let rank = comm.rank();
        Ok(Self {
            send: Payload::new(memory, blocks.range(rank).len(), blocks.range(0).len(), comm)?,
            recv: vec![0.0; elements],
            counts: blocks.counts(),
            displs: blocks.displs(),
            rank,
        })
    }
}

impl Collective for Allgatherv {
    fn prepare(&mut self, number: u64, step: usize) {
        fill(&mut self.send, first_value(number, self.rank, self.counts.len()), step);
    }

    fn call(&mut self, comm: &Communicator) -> Result<(), Error> {
        comm.allgatherv(black_box(&self.send[..]), black_box(&mut self.recv), &self.counts, &self.displs)
    }

    fn is_right(&self, calls: Calls) -> bool {
        let ranks = self.counts.len();
        (0..ranks).all(|rank| {
            let block = &self.recv[self.displs[rank]..][..self.counts[rank]];
            is_filled(block, calls.map(|number| first_value(number, rank, ranks)), 1.0)
        })
    }
}

pub(crate) struct Broadcast {
    buffer: Payload,
    is_root: bool,
    ranks: usize,
}

impl Broadcast {
    const ROOT: usize = 0;

    pub(crate) fn new(elements: usize, memory: Memory, comm: &Communicator) -> Result<Self, Error> {
        let buffer = Payload::new(memory, elements, elements, comm)?;
        Ok(Self { buffer, is_root: comm.rank() == Self::ROOT, ranks: comm.size() })
    }
}

impl Collective for Broadcast {
    fn prepare(&mut self, number: u64, step: usize) {
        if self.is_root {
            fill(&mut self.buffer, first_value(number, Self::ROOT, self.ranks), step);
        }
    }

    fn call(&mut self, comm: &Communicator) -> Result<(), Error> {
        comm.broadcast(black_box(&mut self.buffer[..]), Self::ROOT)
    }

    fn is_right(&self, calls: Calls) -> bool {
        is_filled(&self.buffer, calls.map(|number| first_value(number, Self::ROOT, self.ranks)), 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_another_call_rank_or_index_is_seen() {
        let mut buffer = vec![0.0; PAGE + 100];
        let starts = |first, last, rank| Calls { first, last }.map(|number| first_value(number, rank, 4));
        fill(&mut buffer, first_value(3, 1, 4), 1);
        assert!(is_filled(&buffer, starts(3, 3, 1), 1.0));
        for (first, last, rank) in [(2, 2, 1), (3, 2, 1), (2, 3, 1), (3, 3, 2)] {
            assert!(!is_filled(&buffer, starts(first, last, rank), 1.0), "{first} {last} {rank}");
        }
        fill(&mut buffer, first_value(4, 1, 4), PAGE);
        assert!(is_filled(&buffer, starts(3, 4, 1), 1.0));
        assert!(!is_filled(&buffer, starts(3, 3, 1), 1.0));
        buffer.swap(PAGE + 4, PAGE + 5);
        assert!(!is_filled(&buffer, starts(3, 4, 1), 1.0));
    }

    #[test]
    fn sums_of_many_ranks_are_exact() {
        let ranks = 64;
        let largest: f64 = (0..ranks).map(|rank| first_value(1023, rank, ranks) + (INDICES - 1) as f64).sum();
        assert!(largest < (1u64 << 53) as f64);
    }
}
