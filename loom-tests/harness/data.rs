//! The numbers that ranks send, which show where they come from, and the callers' sides of collectives over them.

use std::ops::Range;

use intranode::copy::{self, Sink, Source, Term};
use intranode::protocol::allreduce::Reduction;
use intranode::protocol::block_transfer::BlockTransfer;

/// What each rank sends in its `nth` call. `counts`: by rank, the number of its numbers.
pub(crate) fn numbers(nth: usize, counts: &[usize]) -> Vec<Vec<u64>> {
    let of = |(rank, count): (usize, &usize)| (0..*count).map(|i| number(nth, rank, i)).collect();
    counts.iter().enumerate().map(of).collect()
}

/// One of them.
pub(crate) fn number(nth: usize, rank: usize, index: usize) -> u64 {
    (1000 * nth + 100 * rank + index + 1) as u64
}

/// What comes out of an allreduce of what all ranks send.
pub(crate) fn folded(sent: &[Vec<u64>]) -> Vec<u64> {
    let fold =
        |sums: Vec<u64>, next: &Vec<u64>| sums.into_iter().zip(next).map(|(a, b)| combine(a, *b)).collect();
    sent[1..].iter().fold(sent[0].clone(), fold)
}

/// Neither commutative nor associative, so that only the order of the ranks gives this result.
pub(crate) fn combine(sum: u64, next: u64) -> u64 {
    sum.wrapping_mul(31).wrapping_add(next)
}

/// Blocks of numbers, one from each rank.
pub(crate) struct Blocks {
    own: usize,
    /// By rank. Those of others are zeros until they come.
    pub(crate) all: Vec<Vec<u64>>,
}

impl Blocks {
    /// Those of `sent`, of which this rank has its own.
    pub(crate) fn of(rank: usize, sent: &[Vec<u64>]) -> Self {
        let mut all: Vec<_> = sent.iter().map(|block| vec![0; block.len()]).collect();
        all[rank].clone_from(&sent[rank]);
        Blocks { own: rank, all }
    }
}

impl BlockTransfer for Blocks {
    fn length(&self, rank: usize) -> usize {
        size_of_val(&*self.all[rank])
    }

    fn put(&mut self, chunk: Range<usize>, mut staging: Sink<'_>) {
        staging.put(0, &bytemuck::cast_slice(&self.all[self.own])[chunk]);
    }

    fn copy_own_block(&mut self, _: Range<usize>) {}

    fn get(&mut self, rank: usize, chunk: Range<usize>, staging: Source<'_>) {
        staging.get(0, &mut bytemuck::cast_slice_mut(&mut self.all[rank])[chunk]);
    }
}

/// A reduction of numbers.
pub(crate) struct Fold<'n> {
    pub(crate) own: &'n [u64],
    pub(crate) result: Vec<u64>,
}

impl<'n> Fold<'n> {
    pub(crate) fn of(own: &'n [u64]) -> Self {
        Fold { own, result: vec![0; own.len()] }
    }
}

impl Reduction for Fold<'_> {
    fn elements(&self) -> usize {
        self.own.len()
    }

    fn element_size(&self) -> usize {
        size_of::<u64>()
    }

    fn contribute(&mut self, chunk: Range<usize>, mut staging: Sink<'_>) {
        staging.put(0, bytemuck::cast_slice(&self.own[chunk]));
    }

    fn keeps_contribution(&self) -> bool {
        true
    }

    fn fold(&mut self, chunk: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>) {
        let own = &self.own[chunk.clone()];
        copy::fold(&mut self.result[chunk], Some(own), begin, terms, staging, combine);
    }

    fn collect(&mut self, chunk: Range<usize>, staging: Source<'_>) {
        staging.get(0, bytemuck::cast_slice_mut(&mut self.result[chunk]));
    }
}
