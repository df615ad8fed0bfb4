//! The calls of a random world that are started: each rank tests them, waits for them, drops them or forgets them as it likes,
//! and all ranks have the same results.

use anyhow::{Context, bail, ensure};
use intranode::{Communicator, Error, Pending, ReduceOp};
use serde::{Deserialize, Serialize};

use super::Call;
use super::moves::block;
use super::places;
use crate::model::{Value, ensure_same, reduced, values};
use crate::scenario::{Outcome, ensure_matches};

/// A mistake of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Fault {
    /// Its arguments are wrong.
    Refused,
    /// It starts another call.
    Other,
    /// It makes a call that blocks.
    Blocking,
}

/// What a rank does with the calls that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Settling {
    Kept,
    /// Each once; it keeps those that are not complete.
    Tested,
    Waited,
    WaitedLastFirst,
    Dropped,
    Forgotten,
}

/// What a call has to be on every rank that waits for it.
enum Expected<R> {
    Result(Box<dyn FnOnce() -> R>),
    RefusedBy(usize),
    Mismatch,
}

/// A call that was started, and its result.
trait Later {
    fn test(&mut self) -> bool;
    fn wait(self: Box<Self>) -> Outcome;
    fn forget(self: Box<Self>);
}

struct Expecting<'c, R> {
    pending: Pending<'c, R>,
    expected: Expected<R>,
    check: fn(R, R) -> Outcome,
}

impl<R> Later for Expecting<'_, R> {
    fn test(&mut self) -> bool {
        self.pending.test()
    }

    fn wait(self: Box<Self>) -> Outcome {
        let result = self.pending.wait();
        match (self.expected, result) {
            (Expected::Result(expected), result) => (self.check)(result?, expected()),
            (Expected::RefusedBy(by), Err(Error::Refused { rank, .. })) if rank == by => Ok(()),
            (Expected::Mismatch, Err(Error::Mismatch { .. })) => Ok(()),
            (Expected::RefusedBy(by), result) => bail!("not refused by rank {by}: {:?}", result.err()),
            (Expected::Mismatch, result) => bail!("no mismatch: {:?}", result.err()),
        }
    }

    fn forget(self: Box<Self>) {
        std::mem::forget(self.pending);
    }
}

/// The calls of one communicator that a rank has started and keeps, the oldest first. A rank that waits for them may be alone with that:
/// others go on with them while they wait in another communicator.
#[derive(Default)]
pub(super) struct Held<'c> {
    calls: Vec<Box<dyn Later + 'c>>,
}

impl<'c> Held<'c> {
    /// Starts a call, and tests it.
    pub(super) fn start<T: Value>(
        &mut self,
        comm: &'c Communicator,
        call: &Call,
        fault: Option<(usize, Fault)>,
        tests: u8,
        seed: u64,
    ) -> Outcome {
        // Nobody makes a mistake in a call that all ranks refuse, and alone there is nothing to mismatch.
        let refused_by_all = call.reduction().is_some_and(|op| !T::REDUCTIONS.contains(&op));
        let fault = fault.filter(|_| comm.size() > 1 && !refused_by_all);
        match fault {
            Some((rank, fault)) if rank == comm.rank() => self.err::<T>(comm, call, fault, seed)?,
            _ if refused_by_all => {
                let started = self.correct::<T>(comm, call, None, seed);
                let error = started.err().and_then(|error| error.downcast().ok());
                ensure_matches!(error, Some(Error::InvalidReduction { .. }));
            }
            _ => {
                let fault = fault.map(|(rank, fault)| if refuses(call, fault) { Some(rank) } else { None });
                self.correct::<T>(comm, call, fault, seed)?;
            }
        }
        for _ in 0..tests {
            self.calls.last_mut().map(|last| last.test());
        }
        Ok(())
    }

    /// Starts it with the right arguments. `fault`: which rank refuses it, or none if one calls something else.
    fn correct<T: Value>(
        &mut self,
        comm: &'c Communicator,
        call: &Call,
        fault: Option<Option<usize>>,
        seed: u64,
    ) -> Outcome {
        let (rank, size) = (comm.rank(), comm.size());
        match call {
            Call::Barrier => self.hold(comm.start_barrier()?, fault, || (), |(), ()| Ok(())),
            Call::Allreduce { len, op, .. } => {
                let (len, op) = (*len, *op);
                let pending = comm.start_allreduce(values::<T>(seed, rank, len), op)?;
                self.hold(pending, fault, move || reduced(op, seed, size, len), same);
            }
            Call::Reduce { len, op, root, .. } => {
                let (len, op, root) = (*len, *op, *root);
                let pending = comm.start_reduce(values::<T>(seed, rank, len), op, root)?;
                let expected = move || (rank == root).then(|| reduced(op, seed, size, len));
                self.hold(pending, fault, expected, same_on_root);
            }
            Call::Scan { len, op, exclusive, .. } => {
                let (len, op) = (*len, *op);
                let own = values::<T>(seed, rank, len);
                let pending = if *exclusive {
                    comm.start_exscan(own.clone(), op)
                } else {
                    comm.start_scan(own.clone(), op)
                };
                let terms = rank + usize::from(!exclusive);
                let expected = move || if terms > 0 { reduced(op, seed, terms, len) } else { own };
                self.hold(pending?, fault, expected, same);
            }
            Call::ReduceScatter { counts, op } => {
                let (op, len) = (*op, counts.iter().sum());
                let own = values::<T>(seed, rank, len);
                let is_block = counts.iter().all(|count| *count == counts[0]);
                let pending = match is_block {
                    true => comm.start_reduce_scatter_block(own, op),
                    false => comm.start_reduce_scatter(own, counts, op),
                };
                let start = counts[..rank].iter().sum::<usize>();
                let block = start..start + counts[rank];
                self.hold(pending?, fault, move || reduced(op, seed, size, len)[block].to_vec(), same);
            }
            Call::Broadcast { len, root } => {
                let (len, root) = (*len, *root);
                let pending = comm.start_broadcast(values::<T>(seed, rank, len), root)?;
                self.hold(pending, fault, move || values(seed, root, len), same);
            }
            Call::Allgather { len } => {
                let len = *len;
                let recv = values::<T>(!seed, rank, len * size);
                let pending = comm.start_allgather(&values(seed, rank, len), recv)?;
                let expected = move || (0..size).flat_map(|rank| values(seed, rank, len)).collect();
                self.hold(pending, fault, expected, same);
            }
            Call::Allgatherv { counts, gaps, order } => {
                let (displs, len) = places(rank, counts, gaps, order);
                let recv = values::<T>(!seed, rank, len);
                let expected = with_blocks(&recv, counts, &displs, seed);
                let send = values(seed, rank, counts[rank]);
                let pending = comm.start_allgatherv(&send, recv, counts, &displs)?;
                self.hold(pending, fault, || expected, same);
            }
            Call::Gatherv { counts, gaps, order, root } => {
                let (displs, len) = places(rank, counts, gaps, order);
                let recv = (rank == *root).then(|| values::<T>(!seed, rank, len));
                let expected = recv.as_ref().map(|recv| with_blocks(recv, counts, &displs, seed));
                let send = values(seed, rank, counts[rank]);
                let pending = comm.start_gatherv(&send, recv, counts, &displs, *root)?;
                self.hold(pending, fault, || expected, same_on_root);
            }
            Call::Scatterv { counts, gaps, order, root } => {
                let (displs, len) = places(rank, counts, gaps, order);
                let all = || with_blocks(&values::<T>(!seed, rank, len), counts, &displs, seed);
                let (send, own) = ((rank == *root).then(all), values::<T>(seed, rank, counts[rank]));
                let recv = values(!seed, rank, own.len());
                let pending = comm.start_scatterv(send, counts, &displs, recv, *root)?;
                self.hold(pending, fault, || own, same);
            }
            Call::Alltoall { len } => {
                let len = *len;
                let send = (0..size).flat_map(|to| block::<T>(seed, rank, to, len)).collect();
                let pending = comm.start_alltoall(send, values(!seed, rank, len * size))?;
                let expected = move || (0..size).flat_map(|from| block(seed, from, rank, len)).collect();
                self.hold(pending, fault, expected, same);
            }
            other => unreachable!("{other:?} is not started"),
        }
        Ok(())
    }

    /// Makes a mistake.
    fn err<T: Value>(&mut self, comm: &'c Communicator, call: &Call, fault: Fault, seed: u64) -> Outcome {
        match (call, fault) {
            (_, Fault::Blocking) => ensure_matches!(comm.barrier(), Err(Error::Mismatch { .. })),
            _ if refuses(call, fault) => {
                let refused = refused::<T>(comm, call, seed);
                ensure_matches!(refused, Err(Error::InvalidRoot { .. } | Error::InvalidBufferSize { .. }));
            }
            (Call::Barrier, _) => {
                let pending = comm.start_allreduce(vec![1.5; 20], ReduceOp::Sum)?;
                self.hold(pending, Some(None), Vec::new, same);
            }
            _ => self.hold(comm.start_barrier()?, Some(None), || (), |(), ()| Ok(())),
        }
        Ok(())
    }

    fn hold<R: 'static>(
        &mut self,
        pending: Pending<'c, R>,
        fault: Option<Option<usize>>,
        expected: impl FnOnce() -> R + 'static,
        check: fn(R, R) -> Outcome,
    ) {
        let expected = match fault {
            None => Expected::Result(Box::new(expected)),
            Some(Some(rank)) => Expected::RefusedBy(rank),
            Some(None) => Expected::Mismatch,
        };
        self.calls.push(Box::new(Expecting { pending, expected, check }));
    }

    /// Does this with all that are held.
    pub(super) fn settle(&mut self, settling: Settling) -> Outcome {
        let mut calls = std::mem::take(&mut self.calls);
        match settling {
            Settling::Kept => self.calls = calls,
            Settling::Tested => {
                for mut call in calls {
                    if call.test() {
                        ensure!(call.test(), "a call that was complete is not any more");
                        call.wait()?;
                    } else {
                        self.calls.push(call);
                    }
                }
            }
            Settling::Waited => calls.into_iter().try_for_each(|call| call.wait())?,
            Settling::WaitedLastFirst => {
                if let Some(last) = calls.pop() {
                    last.wait().context("the last")?;
                }
                // All that were started before are complete now.
                self.calls = calls;
                self.ensure_complete()?;
                std::mem::take(&mut self.calls).into_iter().rev().try_for_each(|call| call.wait())?;
            }
            Settling::Dropped => drop(calls),
            Settling::Forgotten => calls.into_iter().for_each(|call| call.forget()),
        }
        Ok(())
    }

    /// After a call that blocks, all that were started before are complete.
    pub(super) fn ensure_complete(&mut self) -> Outcome {
        let incomplete = self.calls.iter_mut().position(|call| !call.test());
        ensure!(incomplete.is_none(), "call {incomplete:?} is not complete behind one that was made later");
        Ok(())
    }

    /// Waits for all, which are complete.
    pub(super) fn finish(mut self) -> Outcome {
        self.ensure_complete()?;
        self.calls.into_iter().try_for_each(|call| call.wait())
    }
}

/// Whether the call has arguments that can be wrong; otherwise the rank starts another one.
fn refuses(call: &Call, fault: Fault) -> bool {
    fault == Fault::Refused && !matches!(call, Call::Barrier | Call::Allreduce { .. } | Call::Scan { .. })
}

/// Starts it with a wrong argument.
fn refused<T: Value>(comm: &Communicator, call: &Call, seed: u64) -> Result<(), Error> {
    let (rank, size) = (comm.rank(), comm.size());
    let values = |len| values::<T>(seed, rank, len);
    match call {
        Call::Reduce { len, op, .. } => comm.start_reduce(values(*len), *op, size).map(drop),
        Call::ReduceScatter { counts, op } if counts.iter().all(|count| *count == counts[0]) => {
            comm.start_reduce_scatter_block(values(size * counts[0] + 1), *op).map(drop)
        }
        Call::ReduceScatter { counts, op } => {
            comm.start_reduce_scatter(values(counts.iter().sum::<usize>() + 1), counts, *op).map(drop)
        }
        Call::Broadcast { len, .. } => comm.start_broadcast(values(*len), size).map(drop),
        Call::Allgather { len } => comm.start_allgather(&values(*len), values(size * len + 1)).map(drop),
        Call::Allgatherv { counts, gaps, order } => {
            let (displs, len) = places(rank, counts, gaps, order);
            comm.start_allgatherv(&values(counts[rank] + 1), values(len), counts, &displs).map(drop)
        }
        Call::Gatherv { counts, gaps, order, root } => {
            let (displs, len) = places(rank, counts, gaps, order);
            let recv = (rank == *root).then(|| values(len));
            comm.start_gatherv(&values(counts[rank] + 1), recv, counts, &displs, *root).map(drop)
        }
        Call::Scatterv { counts, gaps, order, root } => {
            let (displs, len) = places(rank, counts, gaps, order);
            let send = (rank == *root).then(|| values(len));
            comm.start_scatterv(send, counts, &displs, values(counts[rank] + 1), *root).map(drop)
        }
        Call::Alltoall { len } => comm.start_alltoall(values(size * len), values(size * len + 1)).map(drop),
        other => unreachable!("{other:?} has no argument that can be wrong"),
    }
}

/// A buffer with the block of each rank at its place.
fn with_blocks<T: Value>(buffer: &[T], counts: &[usize], displs: &[usize], seed: u64) -> Vec<T> {
    let mut all = buffer.to_vec();
    for (rank, (displ, count)) in displs.iter().zip(counts).enumerate() {
        all[*displ..displ + count].copy_from_slice(&values(seed, rank, *count));
    }
    all
}

fn same<T: Value>(got: Vec<T>, expected: Vec<T>) -> Outcome {
    ensure_same(&got, &expected)
}

fn same_on_root<T: Value>(got: Option<Vec<T>>, expected: Option<Vec<T>>) -> Outcome {
    ensure!(got.is_some() == expected.is_some(), "only the root has a result");
    ensure_same(&got.unwrap_or_default(), &expected.unwrap_or_default())
}
