//! The calls of a random world that are started: each rank tests them, waits for them, drops them or forgets them as it likes,
//! and all ranks have the same results.

use anyhow::{Context, bail, ensure};
use intranode::{Communicator, Error, Pending, ReduceOp};
use serde::{Deserialize, Serialize};

use super::Call;
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

/// The calls of one communicator that a rank has started and keeps, the oldest first.
pub(super) struct Held<'c> {
    calls: Vec<Box<dyn Later + 'c>>,
    /// Whether a rank that waits must not be left alone, as the others may go on with another communicator.
    meets: bool,
}

impl<'c> Held<'c> {
    pub(super) fn new(meets: bool) -> Self {
        Held { calls: Vec::new(), meets }
    }

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
        let refused_by_all = matches!(call, Call::Allreduce { op, .. } if !T::REDUCTIONS.contains(op));
        let fault = fault.filter(|_| comm.size() > 1 && !refused_by_all);
        match fault {
            Some((rank, fault)) if rank == comm.rank() => self.err::<T>(comm, call, fault, seed)?,
            _ if refused_by_all => {
                let Call::Allreduce { len, op, .. } = call else { unreachable!("it is a reduction") };
                let started = comm.start_allreduce(values::<T>(seed, comm.rank(), *len), *op);
                ensure_matches!(started, Err(Error::InvalidReduction { .. }));
            }
            _ => {
                let fault = fault.map(|(rank, fault)| if refuses(call, fault) { Some(rank) } else { None });
                self.correct::<T>(comm, call, fault, seed)?;
            }
        }
        for _ in 0..tests {
            self.calls.last_mut().map(|last| last.test());
        }
        self.meet(comm, matches!(fault, Some((_, Fault::Blocking))))
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
            Call::Broadcast { len, root } => {
                let (len, root) = (*len, *root);
                let pending = comm.start_broadcast(values::<T>(seed, rank, len), root)?;
                self.hold(pending, fault, move || values(seed, root, len), same);
            }
            Call::Allgatherv { counts, gaps, order } => {
                let (displs, len) = places(rank, counts, gaps, order);
                let recv = values::<T>(!seed, rank, len);
                let mut expected = recv.clone();
                for (rank, (displ, count)) in displs.iter().zip(counts).enumerate() {
                    expected[*displ..displ + count].copy_from_slice(&values(seed, rank, *count));
                }
                let send = values(seed, rank, counts[rank]);
                let pending = comm.start_allgatherv(&send, recv, counts, &displs)?;
                self.hold(pending, fault, || expected, same);
            }
            other => unreachable!("{other:?} is not started"),
        }
        Ok(())
    }

    /// Makes a mistake.
    fn err<T: Value>(&mut self, comm: &'c Communicator, call: &Call, fault: Fault, seed: u64) -> Outcome {
        match (call, fault) {
            (_, Fault::Blocking) => ensure_matches!(comm.barrier(), Err(Error::Mismatch { .. })),
            (Call::Broadcast { len, .. }, Fault::Refused) => {
                let started = comm.start_broadcast(values::<T>(seed, comm.rank(), *len), comm.size());
                ensure_matches!(started, Err(Error::InvalidRoot { .. }));
            }
            (Call::Allgatherv { counts, gaps, order }, Fault::Refused) => {
                let (displs, len) = places(comm.rank(), counts, gaps, order);
                let send = values::<T>(seed, comm.rank(), counts[comm.rank()] + 1);
                let started = comm.start_allgatherv(&send, values(seed, 0, len), counts, &displs);
                ensure_matches!(started, Err(Error::InvalidBufferSize { .. }));
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
    pub(super) fn settle(&mut self, comm: &Communicator, settling: Settling) -> Outcome {
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
        self.meet(comm, true)
    }

    /// A barrier, where ranks that wait in this communicator would wait for ranks that wait for them in another.
    fn meet(&mut self, comm: &Communicator, waits: bool) -> Outcome {
        if !(waits && self.meets) {
            return Ok(());
        }
        comm.barrier()?;
        self.ensure_complete()
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
    fault == Fault::Refused && matches!(call, Call::Broadcast { .. } | Call::Allgatherv { .. })
}

fn same<T: Value>(got: Vec<T>, expected: Vec<T>) -> Outcome {
    ensure_same(&got, &expected)
}
