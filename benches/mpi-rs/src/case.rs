//! The collectives, with payloads whose result is known: as in `benches/race/mpi_bench.c`.

use mpi::Count;
use mpi::collective::SystemOperation;
use mpi::datatype::PartitionMut;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

/// Values per page.
pub const PAGE: usize = 512;
const PLACES: f64 = (1 << 26) as f64;

const NAMES: [&str; 9] =
    ["barrier", "allreduce", "allgatherv", "broadcast", "reduce", "gather", "scatter", "alltoall", "exscan"];

/// One collective, with its buffers.
pub struct Case {
    name: &'static str,
    rank: usize,
    ranks: usize,
    /// The values of a block, of a buffer, or of all blocks together.
    elements: usize,
    send: Vec<f64>,
    recv: Vec<f64>,
    counts: Vec<Count>,
    displs: Vec<Count>,
}

impl Case {
    /// # Panics
    /// If there is no collective of this name.
    pub fn new(name: &str, elements: usize, world: &SimpleCommunicator) -> Self {
        let name = NAMES.into_iter().find(|other| *other == name).expect("a collective's name");
        let (rank, ranks) = (world.rank() as usize, world.size() as usize);
        let count = |of: usize| elements / ranks + usize::from(of < elements % ranks);
        let counts: Vec<Count> = (0..ranks).map(|of| count(of) as Count).collect();
        let displs = (0..ranks).map(|of| counts[..of].iter().sum()).collect();
        let (sent, received) = match name {
            "barrier" => (0, 0),
            "allgatherv" => (count(rank), elements),
            "broadcast" => (0, elements),
            "scatter" | "alltoall" => (ranks * elements, ranks * elements),
            "gather" => (elements, ranks * elements),
            _ => (elements, elements),
        };
        Case { name, rank, ranks, elements, send: vec![0.0; sent], recv: vec![0.0; received], counts, displs }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether each call is timed for itself.
    pub fn has_common_start(&self) -> bool {
        !matches!(self.name, "barrier" | "allreduce" | "allgatherv" | "broadcast")
    }

    fn first_value(&self, turn: i64, of: usize) -> f64 {
        ((turn % 1024) as usize * self.ranks + of) as f64 * PLACES
    }

    /// Writes every value whose index in its block is a multiple of `step`.
    pub fn prepare(&mut self, turn: i64, step: usize) {
        let (rank, elements) = (self.rank, self.elements);
        if self.name == "broadcast" {
            if rank == 0 {
                let first = self.first_value(turn, 0);
                fill(&mut self.recv, first, step);
            }
            return;
        }
        let first = self.first_value(turn, rank);
        let is_by_blocks = matches!(self.name, "scatter" | "alltoall");
        let block = if is_by_blocks { elements } else { self.send.len() };
        for (to, values) in self.send.chunks_mut(block.max(1)).enumerate() {
            fill(values, first + (to * elements) as f64, step);
        }
    }

    pub fn call(&mut self, world: &SimpleCommunicator) {
        let root = world.process_at_rank(0);
        let (is_root, elements) = (self.rank == 0, self.elements);
        let Case { send, recv, counts, displs, .. } = self;
        let sum = SystemOperation::sum();
        match self.name {
            "barrier" => world.barrier(),
            "allreduce" => world.all_reduce_into(&send[..], &mut recv[..], sum),
            "allgatherv" => {
                let mut parts = PartitionMut::new(&mut recv[..], counts.clone(), displs.clone());
                world.all_gather_varcount_into(&send[..], &mut parts);
            }
            "broadcast" => root.broadcast_into(&mut recv[..]),
            "reduce" if is_root => root.reduce_into_root(&send[..], &mut recv[..], sum),
            "reduce" => root.reduce_into(&send[..], sum),
            "gather" if is_root => root.gather_into_root(&send[..], &mut recv[..]),
            "gather" => root.gather_into(&send[..]),
            "scatter" if is_root => root.scatter_into_root(&send[..], &mut recv[..elements]),
            "scatter" => root.scatter_into(&mut recv[..elements]),
            "alltoall" => world.all_to_all_into(&send[..], &mut recv[..]),
            _ => world.exclusive_scan_into(&send[..], &mut recv[..], sum),
        }
    }

    /// Whether the first value of each page is the result of call `last`, and every other value that of call `first`.
    pub fn is_right(&self, first: i64, last: i64) -> bool {
        let (rank, ranks, elements) = (self.rank, self.ranks, self.elements);
        let value = |of| (self.first_value(first, of), self.first_value(last, of));
        let is_sum = |count: usize| {
            let add = |sum: (f64, f64), each: (f64, f64)| (sum.0 + each.0, sum.1 + each.1);
            is_filled(&self.recv, (0..count).map(value).fold((0.0, 0.0), add), count as f64)
        };
        let are_blocks = |count: usize, offset: usize| {
            (0..count).all(|block| {
                let from = value(block);
                let starts = (from.0 + offset as f64, from.1 + offset as f64);
                is_filled(&self.recv[block * elements..][..elements], starts, 1.0)
            })
        };
        match self.name {
            "barrier" => true,
            "allreduce" => is_sum(ranks),
            "allgatherv" => (0..ranks).all(|of| {
                let block = &self.recv[self.displs[of] as usize..][..self.counts[of] as usize];
                is_filled(block, value(of), 1.0)
            }),
            "broadcast" => is_filled(&self.recv, value(0), 1.0),
            "reduce" => rank != 0 || is_sum(ranks),
            "gather" => rank != 0 || are_blocks(ranks, 0),
            "scatter" => are_blocks(1, rank * elements),
            "alltoall" => are_blocks(ranks, rank * elements),
            _ => rank == 0 || is_sum(rank),
        }
    }
}

fn fill(values: &mut [f64], first: f64, step: usize) {
    for (index, value) in values.iter_mut().enumerate().step_by(step) {
        *value = first + index as f64;
    }
}

/// Whether each value is `scale` times its index, plus `starts.1` in the first value of each page and `starts.0` elsewhere.
fn is_filled(values: &[f64], starts: (f64, f64), scale: f64) -> bool {
    values.chunks(PAGE).enumerate().all(|(page, values)| {
        let offset = (page * PAGE) as f64;
        let is = |index: usize, start: f64| values[index] == start + scale * (offset + index as f64);
        (1..values.len()).fold(is(0, starts.1), |right, index| right & is(index, starts.0))
    })
}
