//! Collectives whose ranks send, or receive, a block for each rank or for one: with payloads whose result is known. Those with
//! counts and displacements have blocks of the same length, too.
//!
//! They are measured call by call from a common start, as the OSU benchmarks do: MPI lets senders of a rooted call run ahead.
//! `benches/race/mpi_bench.c` in the repository does the same over MPI, and must be changed together with this file.

use std::hint::black_box;

use intranode::{Communicator, Error, ReduceOp};

use super::collective::{Calls, Collective, fill, first_value, is_filled};
use super::payload::{Memory, Payload};

const ROOT: usize = 0;

/// Which of them.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Reduce,
    Gather,
    Scatter,
    Alltoall,
    Gatherv,
    Scatterv,
    Alltoallv,
    ReduceScatter,
    Exscan,
}

/// A call with blocks of the same length.
pub(crate) struct Blockwise {
    kind: Kind,
    rank: usize,
    ranks: usize,
    /// The elements of a block.
    len: usize,
    counts: Vec<usize>,
    displs: Vec<usize>,
    send: Payload,
    recv: Vec<f64>,
}

impl Blockwise {
    pub(crate) fn new(kind: Kind, len: usize, memory: Memory, comm: &Communicator) -> Result<Self, Error> {
        let (rank, ranks) = (comm.rank(), comm.size());
        let is_root = rank == ROOT;
        let (sent, received) = match kind {
            Kind::Reduce => (1, usize::from(is_root)),
            Kind::Gather | Kind::Gatherv => (1, if is_root { ranks } else { 0 }),
            Kind::Scatter | Kind::Scatterv => (if is_root { ranks } else { 0 }, 1),
            Kind::Alltoall | Kind::Alltoallv => (ranks, ranks),
            Kind::ReduceScatter => (ranks, 1),
            Kind::Exscan => (1, 1),
        };
        let longest = match kind {
            Kind::Reduce | Kind::Gather | Kind::Gatherv | Kind::Exscan => 1,
            Kind::Scatter | Kind::Scatterv | Kind::Alltoall | Kind::Alltoallv | Kind::ReduceScatter => ranks,
        };
        let send = Payload::new(memory, sent * len, longest * len, comm)?;
        let (counts, displs) = (vec![len; ranks], (0..ranks).map(|block| block * len).collect());
        Ok(Self { kind, rank, ranks, len, counts, displs, send, recv: vec![0.0; received * len] })
    }

    /// Whether each block that was received has the right values: `from(block)` is the rank that sent it, and its number among
    /// that rank's blocks.
    fn are_blocks(&self, calls: Calls, from: impl Fn(usize) -> (usize, usize)) -> bool {
        self.recv.chunks(self.len.max(1)).enumerate().all(|(block, values)| {
            let (rank, number) = from(block);
            let offset = (number * self.len) as f64;
            is_filled(values, calls.map(|call| first_value(call, rank, self.ranks) + offset), 1.0)
        })
    }

    /// Whether what was received is the sum of this block of the first ranks.
    fn is_sum(&self, calls: Calls, ranks: usize, block: usize) -> bool {
        let offset = (block * self.len) as f64;
        let sum = |call| (0..ranks).map(|rank| first_value(call, rank, self.ranks) + offset).sum();
        is_filled(&self.recv, calls.map(sum), ranks as f64)
    }
}

impl Collective for Blockwise {
    fn prepare(&mut self, number: u64, step: usize) {
        let first = first_value(number, self.rank, self.ranks);
        // Block by block, so that the first value of each page of a block changes.
        for (block, values) in self.send.chunks_mut(self.len.max(1)).enumerate() {
            fill(values, first + (block * self.len) as f64, step);
        }
    }

    fn call(&mut self, comm: &Communicator) -> Result<(), Error> {
        let Self { send, recv, counts, displs, .. } = self;
        let (send, recv) = (black_box(&send[..]), black_box(&mut recv[..]));
        let is_root = comm.rank() == ROOT;
        match self.kind {
            Kind::Reduce => comm.reduce(send, is_root.then_some(recv), ReduceOp::Sum, ROOT),
            Kind::Gather => comm.gather(send, is_root.then_some(recv), ROOT),
            Kind::Scatter => comm.scatter(is_root.then_some(send), recv, ROOT),
            Kind::Alltoall => comm.alltoall(send, recv),
            Kind::Gatherv => comm.gatherv(send, is_root.then_some(recv), counts, displs, ROOT),
            Kind::Scatterv => comm.scatterv(is_root.then_some(send), counts, displs, recv, ROOT),
            Kind::Alltoallv => comm.alltoallv(send, counts, displs, recv, counts, displs),
            Kind::ReduceScatter => comm.reduce_scatter_block(send, recv, ReduceOp::Sum),
            Kind::Exscan => comm.exscan(send, recv, ReduceOp::Sum),
        }
    }

    fn is_right(&self, calls: Calls) -> bool {
        match self.kind {
            Kind::Reduce => self.rank != ROOT || self.is_sum(calls, self.ranks, 0),
            Kind::Gather | Kind::Gatherv => self.are_blocks(calls, |block| (block, 0)),
            Kind::Scatter | Kind::Scatterv => self.are_blocks(calls, |_| (ROOT, self.rank)),
            Kind::Alltoall | Kind::Alltoallv => self.are_blocks(calls, |block| (block, self.rank)),
            Kind::ReduceScatter => self.is_sum(calls, self.ranks, self.rank),
            // Rank 0 has nothing to receive.
            Kind::Exscan => self.rank == 0 || self.is_sum(calls, self.rank, 0),
        }
    }

    fn has_common_start(&self) -> bool {
        true
    }
}
