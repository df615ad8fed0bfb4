//! How a rank makes the calls of a script, and what a sequential model expects to come out.

use std::num::NonZeroU64;
use std::ops::Range;

use intranode::copy::{self, Sink, Source, Term};
use intranode::protocol::allreduce::{Reduction, Shape};
use intranode::protocol::block_transfer::{Address, BlockTransfer, Lend, OFFER};
use intranode::protocol::{Barrier, Call, Failure, Member, Payload};

use crate::harness::cell::Cell;
use crate::harness::script::{ELEMENT, Operation, Script};
use crate::harness::segment::SegmentMemory;
use crate::harness::simulation::Simulation;

/// Makes a call. `Ok` if what came out is what had to come out.
///
/// # Errors
/// Where the communicator has ended, or this rank.
///
/// # Panics
/// Where anything else came out.
pub fn perform(
    script: &Script,
    index: usize,
    rank: usize,
    member: &mut Member<'_, Simulation>,
    memory: &SegmentMemory,
) -> Result<(), Failure> {
    let call = script.call(index, rank);
    let SegmentMemory { barriers, blocks, .. } = memory;
    let caller = Caller { script, index, rank, call: &call, barrier: &barriers[rank], blocks };
    let outcome = if call.refused {
        member.refuse(&call)
    } else {
        match script.operation(index, rank) {
            Operation::Barrier => caller.barrier.enter(member, &call),
            Operation::Allreduce(elements) => caller.reduction(Shape::All, elements, member),
            Operation::Reduction(shape, elements) => caller.reduction(shape, elements, member),
            Operation::ReduceScatter(lengths) => caller.reduce_scatter(&lengths, member),
            Operation::Transfer(lengths) => caller.transfer(lengths, None, member),
            Operation::Gather(root, lengths) => caller.transfer(lengths, Some(root), member),
            Operation::Epochs => caller.epochs(member),
            Operation::Started(_) => unreachable!("`Calls` starts it"),
        }
    };
    settle(script, index, rank, outcome)
}

/// Checks the verdict on a call.
///
/// # Errors
/// As [`perform`].
pub fn settle(script: &Script, index: usize, rank: usize, outcome: Result<(), Failure>) -> Result<(), Failure> {
    let call = script.call(index, rank);
    let calls = || (0..script.ranks).map(|rank| script.call(index, rank)).collect::<Vec<_>>();
    let expected = match script.steps[index].refusers.first() {
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

/// Checks the result of a reduction over the first `terms` ranks.
pub fn check_sums(index: usize, rank: usize, terms: usize, sums: &[u64]) {
    for (element, sum) in sums.iter().enumerate() {
        let model = (0..terms).map(|rank| contribution(index, rank, element)).reduce(combine).unwrap_or(0);
        assert_eq!(*sum, model, "wrong result: call {index}, rank {rank}, element {element}");
    }
}

/// Checks the result of a reduction of this shape.
pub fn check_reduction(script: &Script, index: usize, rank: usize, shape: Shape, sums: &Sums<'_>) {
    let terms = match shape {
        Shape::All => script.ranks,
        Shape::Root(root) if root == rank => script.ranks,
        // It may have folded a slice for the root.
        Shape::Root(_) => return,
        Shape::Inclusive => rank + 1,
        Shape::Exclusive => rank,
    };
    check_sums(index, rank, terms, &sums.recv);
}

/// Where a rank's block of these begins and ends.
pub fn block(lengths: &[usize], rank: usize) -> Range<usize> {
    let start = lengths[..rank].iter().sum();
    start..start + lengths[rank]
}

/// Checks that a rank has the result of its own block, of these lengths, and nothing else.
pub fn check_own_block(script: &Script, index: usize, rank: usize, lengths: &[usize], sums: &Sums<'_>) {
    for (element, sum) in sums.recv.iter().enumerate() {
        let all = (0..script.ranks).map(|rank| contribution(index, rank, element));
        let model = all.reduce(combine).filter(|_| block(lengths, rank).contains(&element)).unwrap_or(0);
        assert_eq!(*sum, model, "wrong result: call {index}, rank {rank}, element {element}");
    }
}

/// Checks the blocks of all ranks.
pub fn check_blocks(index: usize, rank: usize, received: &[Vec<u8>]) {
    for (from, block) in received.iter().enumerate() {
        let model = contributed(index, from, block.len());
        assert_eq!(*block, model, "wrong result: call {index}, rank {rank}, block {from}");
    }
}

/// What a rank sends in a transfer.
pub fn contributed(index: usize, rank: usize, len: usize) -> Vec<u8> {
    (0..len).map(|byte| contribution(index, rank, byte) as u8).collect()
}

/// A rank in one of its calls.
struct Caller<'c> {
    script: &'c Script,
    index: usize,
    rank: usize,
    call: &'c Call,
    /// How the rank meets the others.
    barrier: &'c Barrier,
    /// By rank: what others see in place.
    blocks: &'c [Cell],
}

impl Caller<'_> {
    fn reduction(
        &self,
        shape: Shape,
        elements: usize,
        member: &mut Member<'_, Simulation>,
    ) -> Result<(), Failure> {
        let Caller { script, index, rank, blocks, .. } = *self;
        let lent = self.lent();
        let in_place = lent.place.is_some();
        let mut sums = Sums { lent, ..self.sums(elements) };
        // The result may take the place of what is sent, which is then where others would find it.
        let gets_result = matches!(shape, Shape::All | Shape::Inclusive) || shape == Shape::Root(rank);
        if gets_result && script.steps[index].over.contains(&rank) {
            sums.recv.clone_from(&sums.send);
            sums.keeps = false;
        }
        if in_place {
            blocks[rank].write(|mut view| view.put(0, bytemuck::cast_slice(&sums.send)));
        }
        member.reduction(self.call, shape, script.slices_from, &mut sums)?;
        check_reduction(script, index, rank, shape, &sums);
        Ok(())
    }

    fn reduce_scatter(&self, lengths: &[usize], member: &mut Member<'_, Simulation>) -> Result<(), Failure> {
        let Caller { script, index, rank, .. } = *self;
        let mut sums = self.sums(lengths.iter().sum());
        member.reduce_scatter(self.call, &|rank| block(lengths, rank), &mut sums)?;
        check_own_block(script, index, rank, lengths, &sums);
        Ok(())
    }

    /// A reduction of this number of elements.
    fn sums(&self, elements: usize) -> Sums<'_> {
        Sums { blocks: self.blocks, ..Sums::new(self.index, self.rank, elements) }
    }

    /// What this rank lends at a place.
    fn lent(&self) -> Lent {
        let Some(placed) = &self.script.steps[self.index].placed else { return Lent::default() };
        let offer = if placed.lacking.is_some() { OFFER } else { 0 };
        let place = place_of(self.rank).filter(|_| placed.lenders.contains(&self.rank));
        let lacks = placed.lacking.as_ref().is_some_and(|all| all.contains(&self.rank));
        Lent { place: place.map(|place| place | offer), lacks, ..Lent::default() }
    }

    /// `root`: the only rank that reads; `None`: all do.
    fn transfer(
        &self,
        lengths: Vec<usize>,
        root: Option<usize>,
        member: &mut Member<'_, Simulation>,
    ) -> Result<(), Failure> {
        let Caller { script, index, rank, blocks, .. } = *self;
        let received = lengths.iter().map(|len| vec![0; *len]).collect();
        let own = contributed(index, rank, lengths[rank]);
        let reads = root.is_none_or(|root| root == rank);
        let fetched = script.steps[index].fetched.as_ref();
        let address = fetched.filter(|fetched| fetched.senders.contains(&rank)).and_then(|_| address_of(rank));
        let is_barred = fetched.is_some_and(|fetched| fetched.barred.contains(&rank));
        let lent = Lent { address, ..self.lent() };
        if address.or(lent.place).is_some() {
            blocks[rank].write(|mut view| view.put(0, &own));
        }
        let mut transfer = Transfer { rank, own, received, blocks, is_barred, lent, reads };
        member.transfer(self.call, &mut transfer)?;
        if reads {
            check_blocks(index, rank, &transfer.received);
        }
        Ok(())
    }

    /// Writes this rank's block, reads all, and reclaims: no rank writes before all have.
    fn epochs(&self, member: &mut Member<'_, Simulation>) -> Result<(), Failure> {
        let Caller { index, rank, call, barrier, blocks, .. } = *self;
        blocks[rank].write(|mut view| view.put(0, &contribution(index, rank, 0).to_ne_bytes()));
        let _published = member.publish(barrier, call, true)?;
        for (owner, block) in blocks.iter().enumerate() {
            let got = block.read(|view| u64::from_ne_bytes(view.array(0)));
            assert_eq!(
                got,
                contribution(index, owner, 0),
                "wrong result: call {index}, rank {rank}, block {owner}"
            );
        }
        member.reclaim(barrier, call, true).map(drop)
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

/// A reduction's data.
pub struct Sums<'b> {
    send: Vec<u64>,
    pub recv: Vec<u64>,
    /// Whether what is sent stays as it is; if not, it is where the result comes.
    keeps: bool,
    /// By rank: its memory.
    blocks: &'b [Cell],
    lent: Lent,
}

impl Sums<'_> {
    /// Of this number of elements.
    pub fn new(index: usize, rank: usize, elements: usize) -> Self {
        let send = (0..elements).map(|element| contribution(index, rank, element)).collect();
        Sums { send, recv: vec![0; elements], keeps: true, blocks: &[], lent: Lent::default() }
    }
}

impl Reduction for Sums<'_> {
    fn elements(&self) -> usize {
        self.send.len()
    }

    fn element_size(&self) -> usize {
        ELEMENT
    }

    fn contribute(&mut self, chunk: Range<usize>, mut staging: Sink<'_>) {
        let from = if self.keeps { &self.send } else { &self.recv };
        staging.put(0, bytemuck::cast_slice(&from[chunk]));
    }

    fn keeps_contribution(&self) -> bool {
        self.keeps
    }

    fn lending(&mut self) -> Option<&mut dyn Lend> {
        Some(&mut self.lent)
    }

    fn fold(&mut self, chunk: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>) {
        let own = self.keeps.then_some(&self.send[chunk.clone()]);
        copy::fold(&mut self.recv[chunk], own, begin, terms, staging, combine);
    }

    fn fold_in_place(
        &mut self,
        chunk: Range<usize>,
        begin: bool,
        (terms, places): (&[Term<'_>], &[Address]),
        staging: Option<Sink<'_>>,
    ) {
        let read = |place: &Address| {
            let Some(rank) = place.map(rank_at) else { return Vec::new() };
            assert!(!self.lent.lacks, "what rank {rank} has in place is read by a rank that does not have it");
            let mut bytes = vec![0; chunk.len() * ELEMENT];
            self.blocks[rank].read(|view| view.after(chunk.start * ELEMENT).get(0, &mut bytes));
            bytes
        };
        let found: Vec<Vec<u8>> = places.iter().map(read).collect();
        let terms: Vec<Term<'_>> = (0..terms.len())
            .map(|index| places[index].map_or(terms[index], |_| Term::Staged(Source::of(&found[index]))))
            .collect();
        self.fold(chunk, begin, &terms, staging);
    }

    fn collect(&mut self, chunk: Range<usize>, staging: Source<'_>) {
        staging.get(0, bytemuck::cast_slice_mut(&mut self.recv[chunk]));
    }
}

/// A transfer's data.
pub struct Transfer<'b> {
    pub rank: usize,
    pub own: Vec<u8>,
    pub received: Vec<Vec<u8>>,
    /// By rank: its memory.
    pub blocks: &'b [Cell],
    /// Whether this rank cannot fetch.
    pub is_barred: bool,
    pub lent: Lent,
    /// Whether this rank gets the others' blocks at all.
    pub reads: bool,
}

/// What a rank lends.
#[derive(Default)]
pub struct Lent {
    /// Where others fetch it.
    address: Address,
    /// Where others have it mapped.
    place: Address,
    /// Whether this rank does not have what others offer.
    lacks: bool,
}

/// A number that stands for the address of a rank's block.
fn address_of(rank: usize) -> Address {
    NonZeroU64::new(1 + rank as u64)
}

/// A number that stands for the place of a rank's block.
fn place_of(rank: usize) -> Address {
    NonZeroU64::new(1000 + rank as u64)
}

fn rank_at(place: NonZeroU64) -> usize {
    usize::try_from(place.get() - 1000).expect("the number of a rank")
}

/// What is left of a place that was offered.
fn settled(place: Address, found: bool) -> Address {
    NonZeroU64::new(place?.get() & !OFFER).filter(|_| found)
}

impl BlockTransfer for Transfer<'_> {
    fn length(&self, rank: usize) -> usize {
        self.received[rank].len()
    }

    fn put(&mut self, chunk: Range<usize>, mut staging: Sink<'_>) {
        staging.put(0, &self.own[chunk]);
    }

    fn copy_own_block(&mut self, chunk: Range<usize>) {
        self.received[self.rank][chunk.clone()].copy_from_slice(&self.own[chunk]);
    }

    fn get(&mut self, rank: usize, chunk: Range<usize>, staging: Source<'_>) {
        if self.reads {
            staging.get(0, &mut self.received[rank][chunk]);
        }
    }

    fn lending(&mut self) -> Option<&mut dyn Lend> {
        Some(&mut self.lent)
    }

    fn fetch(&mut self, rank: usize, chunk: Range<usize>, from: NonZeroU64) -> bool {
        assert!(Some(from) == address_of(rank), "wrong address of rank {rank}: {from}");
        if self.reads && !self.is_barred {
            self.blocks[rank].read(|view| view.after(chunk.start).get(0, &mut self.received[rank][chunk]));
        }
        !self.is_barred
    }

    fn read_in_place(&mut self, rank: usize, place: NonZeroU64) {
        assert!(Some(place) == place_of(rank) && !self.lent.lacks, "wrong place of rank {rank}: {place}");
        if self.reads {
            self.blocks[rank].read(|view| view.get(0, &mut self.received[rank]));
        }
    }
}

impl Lend for Lent {
    fn address(&self) -> Address {
        self.address
    }

    fn place(&self) -> Address {
        self.place
    }

    fn find(&mut self, _: NonZeroU64) -> bool {
        !self.lacks
    }

    fn settle(&mut self, found: bool) {
        self.place = settled(self.place, found);
    }
}
