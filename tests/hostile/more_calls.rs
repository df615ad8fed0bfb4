//! Collectives of which ranks get different things, and those that are started.

use intranode::{Error, ReduceOp};

use crate::journal::Outcome;
use crate::program::{Blocks, Folded, Started};
use crate::stamp::{Stamp, fill, runs};
use crate::worker::{Comm, Worker};

/// The result of a step; None: the slot was empty.
type Done = Option<Result<(), Error>>;

impl Worker<'_> {
    /// A block of `len` values for some or all ranks.
    pub(crate) fn blocks(&self, slot: usize, len: usize, root: usize, call: Blocks, in_place: bool) -> Done {
        let comm = self.comm(slot)?;
        let (rank, size) = (comm.comm.rank(), comm.comm.size());
        // What the ranks compare.
        let success = || {
            Outcome::Ok(match call {
                Blocks::Gather | Blocks::Scatter => format!("{call:?} of {len} at {root}"),
                Blocks::Alltoall => format!("{call:?} of {len}"),
                // The blocking form with two buffers is the same operation.
                Blocks::Allgather => format!("allgather of {len}"),
            })
        };
        Some(self.call(&comm.name, success, |by| {
            let mut own = vec![0; len];
            fill(&mut own, 0, by);
            // This rank's block for each rank, and room for a block of each.
            let (all, mut recv) = (own.repeat(size), vec![0; len * size]);
            match call {
                Blocks::Gather if in_place => {
                    let mut data = if rank == root { all } else { own };
                    comm.comm.gather_in_place(&mut data, root)?;
                    recv = data;
                }
                Blocks::Gather => comm.comm.gather(&own, (rank == root).then_some(&mut recv[..]), root)?,
                Blocks::Scatter if in_place => {
                    let mut data = if rank == root { all } else { own };
                    comm.comm.scatter_in_place(&mut data, root)?;
                    recv = data[..len].to_vec();
                }
                Blocks::Scatter => {
                    recv.truncate(len);
                    comm.comm.scatter((rank == root).then_some(&all[..]), &mut recv, root)?;
                }
                Blocks::Alltoall if in_place => {
                    recv = all;
                    comm.comm.alltoall_in_place(&mut recv)?;
                }
                Blocks::Alltoall => comm.comm.alltoall(&all, &mut recv)?,
                Blocks::Allgather => {
                    recv = all;
                    comm.comm.allgather_in_place(&mut recv)?;
                }
            }
            match call {
                Blocks::Gather if rank != root => {}
                Blocks::Scatter => self.check_from(&comm, by, &recv, root),
                _ => {
                    let blocks = recv.chunks(len.max(1)).map(|block| runs(block, 0));
                    self.check_blocks(&comm, by, blocks, |_| len);
                }
            }
            Ok(())
        }))
    }

    /// Sums of what some or all ranks contribute.
    pub(crate) fn folded(&self, slot: usize, len: usize, root: usize, call: Folded) -> Done {
        let comm = self.comm(slot)?;
        let (rank, size) = (comm.comm.rank(), comm.comm.size());
        let success = || {
            Outcome::Ok(match call {
                Folded::Reduce => format!("{call:?} of {len} at {root}"),
                Folded::Scan | Folded::ReduceScatter => format!("{call:?} of {len}"),
            })
        };
        Some(self.call(&comm.name, success, |by| {
            let (send, mut recv) = (vec![by.to_sum_bits(); len * size], vec![0; len]);
            match call {
                Folded::Reduce => {
                    let to = (rank == root).then_some(&mut recv[..]);
                    comm.comm.reduce(&send[..len], to, ReduceOp::Sum, root)?;
                }
                Folded::Scan => comm.comm.scan(&send[..len], &mut recv, ReduceOp::Sum)?,
                Folded::ReduceScatter => comm.comm.reduce_scatter_block(&send, &mut recv, ReduceOp::Sum)?,
            }
            match call {
                Folded::Reduce if rank != root => {}
                Folded::Scan => self.check_sums(&comm, by, &recv, rank + 1),
                _ => self.check_sums(&comm, by, &recv, size),
            }
            Ok(())
        }))
    }

    /// A call that is started, tested some times, and then waited for.
    pub(crate) fn started(&self, slot: usize, len: usize, root: usize, call: Started, tests: u8) -> Done {
        let comm = self.comm(slot)?;
        let size = comm.comm.size();
        let success = || {
            Outcome::Ok(match call {
                Started::Barrier => format!("Start{call:?}"),
                Started::Broadcast => format!("Start{call:?} of {len} at {root}"),
                Started::Allreduce | Started::Allgatherv => format!("Start{call:?} of {len}"),
            })
        };
        Some(self.call(&comm.name, success, |by| {
            let mut own = vec![0; len];
            fill(&mut own, 0, by);
            match call {
                Started::Barrier => {
                    let mut pending = comm.comm.start_barrier()?;
                    (0..tests).for_each(|_| _ = pending.test());
                    pending.wait()?;
                }
                Started::Allreduce => {
                    let mut pending = comm.comm.start_allreduce(vec![by.to_sum_bits(); len], ReduceOp::Sum)?;
                    (0..tests).for_each(|_| _ = pending.test());
                    self.check_sums(&comm, by, &pending.wait()?, size);
                }
                Started::Broadcast => {
                    let mut pending = comm.comm.start_broadcast(own, root)?;
                    (0..tests).for_each(|_| _ = pending.test());
                    self.check_from(&comm, by, &pending.wait()?, root);
                }
                Started::Allgatherv => {
                    let displs: Vec<usize> = (0..size).map(|rank| rank * len).collect();
                    let recv = vec![0; len * size];
                    let mut pending = comm.comm.start_allgatherv(&own, recv, &vec![len; size], &displs)?;
                    (0..tests).for_each(|_| _ = pending.test());
                    let recv = pending.wait()?;
                    let blocks = recv.chunks(len.max(1)).map(|block| runs(block, 0));
                    self.check_blocks(&comm, by, blocks, |_| len);
                }
            }
            Ok(())
        }))
    }

    /// A block that one rank has sent.
    pub(crate) fn check_from(&self, comm: &Comm, by: Stamp, block: &[u64], root: usize) {
        match runs(block, 0).as_deref() {
            Ok([]) => {}
            Ok([run]) if comm.joined.get(root) == Some(&run.stamp.rank()) => self.met(by, vec![run.stamp]),
            other => self.violation(|| format!("from {root} of {} came {other:?}", comm.name)),
        }
    }

    /// Sums of the first `ranks` ranks.
    fn check_sums(&self, comm: &Comm, by: Stamp, sums: &[u64], ranks: usize) {
        let Some(result) = sums.first() else { return };
        self.ensure(sums.iter().all(|value| value == result), || "the elements of a sum differ".to_owned());
        let joined = &comm.joined[..ranks];
        self.met(by, joined.iter().map(|rank| Stamp::from_sum_bits(*result, *rank)).collect());
        let all = joined.iter().fold(0, |all, rank| all | 0xFFF << (12 * rank));
        self.ensure(result & !all == 0, || format!("a sum is {result:#x}"));
    }
}
