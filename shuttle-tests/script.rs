//! A sequence of calls, how a rank makes them, and what a sequential model says must come out.

use std::num::NonZeroU64;
use std::ops::Range;

use intranode::copy::{self, Sink, Source, Term};
use intranode::protocol::allreduce::Reduction;
use intranode::protocol::block_transfer::Address;
use intranode::protocol::block_transfer::BlockTransfer;
use intranode::protocol::{Barrier, Call, Failure, Member, Payload, Staging};

use crate::dice;
use crate::machine::Cell;
use crate::stage::Stage;

/// What one call does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Barrier,
    /// A reduction of so many elements.
    Allreduce(usize),
    /// By rank, the length of its block; a broadcast has one that is not 0.
    Transfer(Vec<usize>),
    /// A write epoch and a read epoch of a region of which each rank owns one part.
    Epochs,
}

/// One call of every rank.
#[derive(Clone, Debug)]
pub struct Step {
    operation: Operation,
    /// These ranks call something else.
    odd: Vec<usize>,
    /// These ranks refuse.
    refusers: Vec<usize>,
    /// Blocks are fetched from where they lie, but not by these ranks.
    barred: Option<Vec<usize>>,
}

/// All calls of an execution.
#[derive(Clone, Debug)]
pub struct Script {
    pub ranks: usize,
    pub staging: Staging,
    pub slices_from: usize,
    /// By rank: the leader of its group. Empty: ranks do not meet in groups.
    pub leaders: Vec<usize>,
    pub steps: Vec<Step>,
}

/// The element's size, which the chunk must be a multiple of.
const ELEMENT: usize = size_of::<u64>();

impl Script {
    /// A random sequence. `mishaps`: one step of how many is a mismatch, and one a refusal; 0 is none.
    pub fn random(ranks: usize, steps: usize, mishaps: usize) -> Self {
        // Small enough that what is long for a header takes several chunks, and a slice may be empty.
        let chunk = dice::one_of(&[3, 8, 21]) * ELEMENT;
        let staging = Staging {
            capacity: 4 * chunk.next_power_of_two(),
            chunk,
            folded: chunk,
            rotation_from: 2 * ELEMENT,
            rotation: 4 * chunk.next_power_of_two(),
        };
        let slices_from = dice::one_of(&[0, chunk, usize::MAX]);
        let some = || match mishaps > 0 && dice::once_in(mishaps) {
            true => (0..ranks).filter(|_| dice::once_in(ranks)).collect(),
            false => Vec::new(),
        };
        let barred = || dice::once_in(2).then(some);
        let step =
            |_| Step { operation: Operation::random(ranks), odd: some(), refusers: some(), barred: barred() };
        let leaders = if dice::once_in(2) { Vec::new() } else { random_groups(ranks) };
        Script { ranks, staging, slices_from, leaders, steps: (0..steps).map(step).collect() }
    }

    /// The number of calls.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// What a rank calls in a step.
    fn call(&self, index: usize, rank: usize) -> Call {
        let operation = self.operation(index, rank);
        let (number, length) = match &operation {
            Operation::Barrier => (1, 0),
            Operation::Allreduce(elements) => (2, *elements),
            Operation::Transfer(lengths) => (3, lengths.iter().sum()),
            Operation::Epochs => (4, 1),
        };
        let refused = self.steps[index].refusers.contains(&rank);
        let (length, extra, phase) = (length as u64, index as u64, (index % 3) as u8);
        Call { operation: number, reduction: 1, element: 2, refused, phase, shape: 8, length, extra }
    }

    fn operation(&self, index: usize, rank: usize) -> Operation {
        let step = &self.steps[index];
        match &step.operation {
            operation if !step.odd.contains(&rank) => operation.clone(),
            Operation::Barrier => Operation::Allreduce(40),
            _ => Operation::Barrier,
        }
    }

    /// Makes the call. `Ok` if what came out is what had to come out.
    ///
    /// # Errors
    /// Where the communicator has ended, or this rank.
    ///
    /// # Panics
    /// Where anything else came out.
    pub fn perform(
        &self,
        index: usize,
        rank: usize,
        member: &mut Member<'_, Stage>,
        barrier: &Barrier,
        parts: &[Cell],
    ) -> Result<(), Failure> {
        let call = self.call(index, rank);
        let step = &self.steps[index];
        let outcome = if call.refused {
            member.refuse(&call)
        } else {
            match self.operation(index, rank) {
                Operation::Barrier => barrier.enter(member, &call),
                Operation::Allreduce(elements) => self.allreduce(index, rank, elements, &call, member),
                Operation::Transfer(lengths) => self.transfer(index, rank, lengths, &call, member, parts),
                Operation::Epochs => epochs(index, rank, &call, member, barrier, parts),
            }
        };
        let calls = || (0..self.ranks).map(|rank| self.call(index, rank)).collect::<Vec<_>>();
        let expected = match step.refusers.first() {
            Some(_) if call.refused => Ok(()),
            Some(first) => Err(Failure::Refused(*first)),
            None if calls().iter().any(|other| *other != call) => Err(Failure::Mismatch(calls())),
            None => Ok(()),
        };
        match outcome {
            Err(ended @ (Failure::Dead(_) | Failure::Killed)) => Err(ended),
            outcome => {
                assert_eq!(outcome, expected, "wrong verdict: call {index}, rank {rank}");
                Ok(())
            }
        }
    }

    fn allreduce(
        &self,
        index: usize,
        rank: usize,
        elements: usize,
        call: &Call,
        member: &mut Member<'_, Stage>,
    ) -> Result<(), Failure> {
        let send = (0..elements).map(|element| contribution(index, rank, element)).collect();
        let mut sums = Sums { send, recv: vec![0; elements] };
        member.allreduce(call, self.slices_from, &mut sums)?;
        for (element, sum) in sums.recv.into_iter().enumerate() {
            let all = (0..self.ranks).map(|rank| contribution(index, rank, element));
            let model = all.reduce(combine).expect("there is a rank");
            assert_eq!(sum, model, "wrong result: call {index}, rank {rank}, element {element}");
        }
        Ok(())
    }

    fn transfer(
        &self,
        index: usize,
        rank: usize,
        lengths: Vec<usize>,
        call: &Call,
        member: &mut Member<'_, Stage>,
        parts: &[Cell],
    ) -> Result<(), Failure> {
        let model = |from: usize| -> Vec<u8> {
            (0..lengths[from]).map(|byte| contribution(index, from, byte) as u8).collect()
        };
        let received = lengths.iter().map(|len| vec![0; *len]).collect();
        let own = model(rank);
        let barred = &self.steps[index].barred;
        let fetches = barred.as_ref().map(|barred| !barred.contains(&rank));
        if fetches.is_some() {
            parts[rank].write(|mut view| view.put(0, &own));
        }
        let mut blocks = Blocks { rank, own, received, parts, fetches };
        member.transfer(call, &mut blocks)?;
        for (from, block) in blocks.received.into_iter().enumerate() {
            assert_eq!(block, model(from), "wrong result: call {index}, rank {rank}, block {from}");
        }
        Ok(())
    }
}

/// Writes this rank's part, reads everything, and gives it back: nobody writes before all have.
fn epochs(
    index: usize,
    rank: usize,
    call: &Call,
    member: &mut Member<'_, Stage>,
    barrier: &Barrier,
    parts: &[Cell],
) -> Result<(), Failure> {
    parts[rank].write(|mut view| view.put(0, &contribution(index, rank, 0).to_ne_bytes()));
    let _published = member.publish(barrier, call, true)?;
    for (of, part) in parts.iter().enumerate() {
        let got = part.read(|view| u64::from_ne_bytes(view.array(0)));
        assert_eq!(got, contribution(index, of, 0), "wrong result: call {index}, rank {rank}, part {of}");
    }
    member.reclaim(barrier, call, true).map(drop)
}

/// The leader of each rank's group: ranks that follow one another, or that do not.
fn random_groups(ranks: usize) -> Vec<usize> {
    let groups = 1 + dice::below(ranks.min(4));
    let group = |rank| if dice::once_in(2) { rank % groups } else { rank * groups / ranks };
    let numbers: Vec<usize> = (0..ranks).map(group).collect();
    let leader = |number: &usize| numbers.iter().position(|other| other == number).expect("at least its own");
    numbers.iter().map(leader).collect()
}

impl Operation {
    fn random(ranks: usize) -> Self {
        // 96 bytes fit into a header.
        let elements = || dice::one_of(&[0, 1, 12, 13, 30, 70]);
        let bytes = || dice::one_of(&[0, 0, 1, 96, 97, 168, 169, 400]);
        match dice::below(5) {
            0 => Operation::Barrier,
            1 => Operation::Allreduce(elements()),
            2 => Operation::Transfer((0..ranks).map(|_| bytes()).collect()),
            3 => Operation::Epochs,
            _ => {
                let mut lengths = vec![0; ranks];
                lengths[dice::below(ranks)] = bytes();
                Operation::Transfer(lengths)
            }
        }
    }
}

/// What a rank puts in: different in every call, on every rank, in every place.
fn contribution(index: usize, rank: usize, place: usize) -> u64 {
    let name = (index << 40 | rank << 20 | place) as u64;
    (name + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

/// Neither commutative nor associative, so that only the order of the ranks gives the model's result.
fn combine(sum: u64, next: u64) -> u64 {
    sum.wrapping_mul(31).wrapping_add(next)
}

struct Sums {
    send: Vec<u64>,
    recv: Vec<u64>,
}

impl Reduction for Sums {
    fn elements(&self) -> usize {
        self.send.len()
    }

    fn element_size(&self) -> usize {
        ELEMENT
    }

    fn contribute(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        staging.put(0, bytemuck::cast_slice(&self.send[part]));
    }

    fn keeps_contribution(&self) -> bool {
        true
    }

    fn fold(&mut self, part: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>) {
        let own = &self.send[part.clone()];
        copy::fold(&mut self.recv[part], Some(own), begin, terms, staging, combine);
    }

    fn collect(&mut self, part: Range<usize>, staging: Source<'_>) {
        staging.get(0, bytemuck::cast_slice_mut(&mut self.recv[part]));
    }
}

struct Blocks<'p> {
    rank: usize,
    own: Vec<u8>,
    received: Vec<Vec<u8>>,
    /// By rank: its memory.
    parts: &'p [Cell],
    /// Whether blocks are to be fetched from there; false: this rank can not.
    fetches: Option<bool>,
}

impl BlockTransfer for Blocks<'_> {
    fn length(&self, rank: usize) -> usize {
        self.received[rank].len()
    }

    fn put(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        staging.put(0, &self.own[part]);
    }

    fn copy_own_block(&mut self, part: Range<usize>) {
        self.received[self.rank][part.clone()].copy_from_slice(&self.own[part]);
    }

    fn get(&mut self, rank: usize, part: Range<usize>, staging: Source<'_>) {
        staging.get(0, &mut self.received[rank][part]);
    }

    fn by_single_copy(&self) -> bool {
        self.fetches.is_some()
    }

    fn address(&self) -> Address {
        NonZeroU64::new(1 + self.rank as u64)
    }

    fn fetch(&mut self, rank: usize, part: Range<usize>, from: NonZeroU64) -> bool {
        assert_eq!(from.get(), 1 + rank as u64, "wrong address of rank {rank}");
        if self.fetches == Some(true) {
            self.parts[rank].read(|view| view.after(part.start).get(0, &mut self.received[rank][part]));
        }
        self.fetches == Some(true)
    }
}
