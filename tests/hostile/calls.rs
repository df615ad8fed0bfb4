//! Collectives with valid and invalid arguments, and splits.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use intranode::{Error, Operation, ReduceOp};

use crate::journal::{Event, Outcome};
use crate::program::{MAX_RANKS, Op, Wrong};
use crate::stamp::{Run, Stamp, fill, runs};
use crate::worker::{Comm, Worker};

/// The result of a step; None: the slot was empty.
type Done = Option<Result<(), Error>>;

impl Worker<'_> {
    pub(crate) fn barrier(&self, slot: usize) -> Done {
        let comm = self.comm(slot)?;
        Some(self.call(&comm.name, || Outcome::Ok("barrier".to_owned()), |_| comm.comm.barrier()))
    }

    pub(crate) fn allreduce(&self, slot: usize, len: usize, op: Op, in_place: bool) -> Done {
        let comm = self.comm(slot)?;
        let operation = match op {
            Op::Sum => ReduceOp::Sum,
            Op::BitOr => ReduceOp::BitOr,
            Op::BitXor => ReduceOp::BitXor,
            Op::Max => ReduceOp::Max,
        };
        let success = || Outcome::Ok(format!("{operation} of {len}"));
        Some(self.call(&comm.name, success, |by| {
            // A maximum identifies the last rank only.
            let own = if matches!(op, Op::Max) { by.rank() as u64 } else { by.to_sum_bits() };
            let (send, mut recv) = (vec![own; len], vec![own; len]);
            if in_place {
                comm.comm.allreduce_in_place(&mut recv, operation)?;
            } else {
                comm.comm.allreduce(&send, &mut recv, operation)?;
            }
            let Some(result) = recv.first() else { return Ok(()) };
            self.ensure(recv.iter().all(|value| value == result), || {
                format!("{operation}: the elements of the result differ")
            });
            if matches!(op, Op::Max) {
                let greatest = comm.joined.iter().max().map(|rank| *rank as u64);
                self.ensure(greatest == Some(*result), || format!("the greatest rank is {result}"));
            } else {
                let with = comm.joined.iter().map(|rank| Stamp::from_sum_bits(*result, *rank));
                self.met(by, with.collect());
                let all = comm.joined.iter().fold(0, |all, rank| all | 0xFFF << (12 * rank));
                self.ensure(result & !all == 0, || format!("{operation} gives {result:#x}"));
            }
            Ok(())
        }))
    }

    pub(crate) fn allgather(&self, slot: usize, len: usize) -> Done {
        let comm = self.comm(slot)?;
        let success = || Outcome::Ok(format!("allgather of {len}"));
        Some(self.call(&comm.name, success, |by| {
            let (mut send, mut recv) = (vec![0; len], vec![0; len * comm.comm.size()]);
            fill(&mut send, 0, by);
            comm.comm.allgather(&send, &mut recv)?;
            let blocks = recv.chunks(len.max(1)).map(|block| runs(block, 0));
            self.check_blocks(&comm, by, blocks, |_| len);
            Ok(())
        }))
    }

    pub(crate) fn allgatherv(&self, slot: usize, counts: &[usize; MAX_RANKS], gap: usize) -> Done {
        let comm = self.comm(slot)?;
        let (size, rank) = (comm.comm.size(), comm.comm.rank());
        let counts = &counts[..size];
        let success = || Outcome::Ok(format!("allgatherv of {counts:?}"));
        Some(self.call(&comm.name, success, |by| {
            let mut send = vec![0; counts[rank]];
            fill(&mut send, 0, by);
            let mut end = 0;
            let mut displ = |count: &usize| {
                end += count + gap;
                end - count
            };
            let displs: Vec<usize> = counts.iter().map(&mut displ).collect();
            let mut recv = vec![0; end];
            comm.comm.allgatherv(&send, &mut recv, counts, &displs)?;
            let blocks = displs.iter().zip(counts).map(|(displ, count)| runs(&recv[*displ..displ + count], 0));
            self.check_blocks(&comm, by, blocks, |rank| counts[rank]);
            Ok(())
        }))
    }

    pub(crate) fn broadcast(&self, slot: usize, len: usize, root: usize) -> Done {
        let comm = self.comm(slot)?;
        let success = || Outcome::Ok(format!("broadcast of {len} from {root}"));
        Some(self.call(&comm.name, success, |by| {
            let mut buffer = vec![0; len];
            fill(&mut buffer, 0, by);
            comm.comm.broadcast(&mut buffer, root)?;
            match runs(&buffer, 0).as_deref() {
                Ok([]) => {}
                Ok([run]) if run.stamp.rank() == comm.joined[root] => self.met(by, vec![run.stamp]),
                other => self.violation(|| format!("a broadcast from {root} of {} gives {other:?}", comm.name)),
            }
            Ok(())
        }))
    }

    /// Each block consists of one call's values, of the right rank.
    pub(crate) fn check_blocks(
        &self,
        comm: &Comm,
        by: Stamp,
        blocks: impl Iterator<Item = Result<Vec<Run>, String>>,
        len: impl Fn(usize) -> usize,
    ) {
        let mut with = Vec::new();
        for (rank, block) in blocks.enumerate() {
            match block.as_deref() {
                Ok([]) if len(rank) == 0 => {}
                Ok([run]) if run.stamp.rank() == comm.joined[rank] && run.range.len() == len(rank) => {
                    with.push(run.stamp);
                }
                other => self.violation(|| format!("rank {rank} of {} has sent {other:?}", comm.name)),
            }
        }
        self.met(by, with);
    }

    pub(crate) fn refuse_call(&self, slot: usize, operation: Operation) -> Done {
        let comm = self.comm(slot)?;
        Some(self.call(&comm.name, || Outcome::Refused, |_| comm.comm.refuse_call(operation)))
    }

    pub(crate) fn state(&self, slot: usize) -> Done {
        let comm = self.comm(slot)?;
        let (rank, size) = (comm.comm.rank(), comm.comm.size());
        match comm.comm.state() {
            Ok(state) => self.ensure(state.ranks.len() == size && state.seen_by == rank, || state.to_string()),
            Err(error) => self.violation(|| error.to_string()),
        }
        None
    }

    /// Waits until all ranks have arrived at a later round, for at most 3 ms. Another thread of this rank is then leaving that
    /// round.
    pub(crate) fn await_rounds(&self, slot: usize, rounds: u32, spins: u32) -> Done {
        let comm = self.comm(slot)?;
        let round = || comm.comm.state().ok()?.ranks.iter().map(|rank| rank.round).min();
        let (first, began) = (round()?, Instant::now());
        while round()?.wrapping_sub(first) < rounds && began.elapsed() < Duration::from_millis(3) {
            std::hint::spin_loop();
        }
        (0..spins).for_each(|_| std::hint::spin_loop());
        None
    }

    /// Calls that fail on every rank, but for the last two kinds.
    pub(crate) fn wrong(&self, slot: usize, wrong: Wrong) -> Done {
        let comm = self.comm(slot)?;
        let comm = &comm;
        let size = comm.comm.size();
        let success = || match wrong {
            Wrong::WideRegion | Wrong::RegionOfNothing => Outcome::Ok(format!("{wrong:?}")),
            // A single block does not overlap.
            Wrong::Overlap if size == 1 => Outcome::Ok(format!("{wrong:?}")),
            _ => Outcome::Ok(format!("{wrong:?}, which is no success on any rank")),
        };
        let counts = vec![2; size];
        let apart: Vec<usize> = (0..size).map(|rank| 2 * rank).collect();
        let far: Vec<usize> = (0..size).map(|rank| usize::MAX - rank).collect();
        let (send, mut recv) = ([7u64; 2], vec![0; 2 * size]);
        let result = self.call(&comm.name, success, |_| match wrong {
            Wrong::Root => comm.comm.broadcast(&mut recv, size),
            Wrong::Receive => comm.comm.allgather(&send, &mut recv[1..]),
            Wrong::Counts => comm.comm.allgatherv(&send, &mut recv, &counts[1..], &apart),
            Wrong::Overlap => comm.comm.allgatherv(&send, &mut recv, &counts, &vec![0; size]),
            Wrong::Far => comm.comm.allgatherv(&send, &mut recv, &counts, &far),
            Wrong::Bitwise => comm.comm.allreduce_in_place(&mut [1.5f64], ReduceOp::BitXor),
            Wrong::ExchangeCounts => comm.comm.exchange::<u64>(&counts[1..]).map(drop),
            Wrong::HugeRegion => comm.comm.region::<u64>(usize::MAX / 16).map(drop),
            Wrong::HugeExchange => comm.comm.exchange::<u64>(&vec![usize::MAX / 8; size]).map(drop),
            Wrong::WideRegion => comm.comm.region::<[u64; 2]>(10).map(drop),
            Wrong::RegionOfNothing => {
                let mut region = comm.comm.region::<[u64; 0]>(usize::MAX)?;
                let own = if region.is_leader() { usize::MAX } else { 0 };
                self.ensure(region.as_mut_slice().len() == own, || "not all of nothing".to_owned());
                Ok(())
            }
        });
        Some(result)
    }

    /// Splits a communicator. The members gather their stamps, of which the first is the new communicator's name.
    pub(crate) fn split(
        &self,
        slot: usize,
        to: usize,
        tables: Option<(&[usize; MAX_RANKS], &[usize; MAX_RANKS])>,
    ) -> Done {
        let parent = self.comm(slot)?;
        let rank = parent.comm.rank();
        let (color, key) = tables.map_or((0, rank), |(colors, keys)| (colors[rank], keys[rank]));
        let outcome = |error: Option<&Error>| match error.map(Outcome::of) {
            None => Outcome::Split,
            Some(Outcome::Fatal(_)) => Outcome::NoSplit,
            Some(other) => other,
        };
        let serialized = self.lock_calls();
        let created = self.record(&parent.name, outcome, |by| {
            let child = match tables {
                Some(_) => parent.comm.split(color, key)?,
                None => parent.comm.split_local()?,
            };
            Ok((child, by))
        });
        drop(serialized);
        let (child, by) = match created {
            Ok(created) => created,
            Err(error) => return Some(Err(error)),
        };
        let own = [by.at(0), color as u64, key as u64, rank as u64];
        let mut all = vec![[0; 4]; child.size()];
        if let Err(error) = child.allgather(&[own], &mut all) {
            // No other thread has it yet, so there can be no other call.
            self.ensure(error.is_fatal(), || format!("the first call on a split communicator: {error}"));
            return None;
        }
        let members: Vec<Stamp> = all.iter().map(|[by, ..]| Stamp::of(*by)).collect();
        let together = all.iter().all(|[_, of, ..]| *of == color as u64) && all[child.rank()] == own;
        let ordered = all.is_sorted_by_key(|[_, _, key, rank]| (*key, *rank));
        self.ensure(together && ordered, || format!("{own:?} is in {all:?}"));
        let joined: Vec<usize> = members.iter().map(|by| by.rank()).collect();
        let expected = all.iter().map(|[.., rank]| parent.joined.get(*rank as usize).copied());
        self.ensure(expected.eq(joined.iter().copied().map(Some)), || format!("{all:?} in {}", parent.name));
        let name = format!("{}/{:x}", parent.name, members[0].at(0) >> 32);
        self.met(by, members);
        self.rank.journal.record(Event::Joined { comm: name.clone(), ranks: joined.clone() });
        self.rank.comms[to].put(Arc::new(Comm { comm: child, name, joined, created: Mutex::default() }));
        Some(Ok(()))
    }
}
