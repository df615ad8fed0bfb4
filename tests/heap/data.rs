//! The ranks' data, and plain memory whose accesses only rounds order.

use std::cell::UnsafeCell;
use std::ops::Range;

use intranode::copy::{self, Sink, Source, Term};
use intranode::protocol::allreduce::Reduction;
use intranode::protocol::block_transfer::BlockTransfer;

/// A block of each rank.
pub(crate) struct Blocks {
    pub(crate) rank: usize,
    pub(crate) own: Vec<u8>,
    /// By rank, with their final lengths.
    pub(crate) all: Vec<Vec<u8>>,
}

impl BlockTransfer for Blocks {
    fn length(&self, rank: usize) -> usize {
        self.all[rank].len()
    }

    fn put(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        staging.put(0, &self.own[part]);
    }

    fn copy_own_block(&mut self, part: Range<usize>) {
        self.all[self.rank][part.clone()].copy_from_slice(&self.own[part]);
    }

    fn get(&mut self, rank: usize, part: Range<usize>, staging: Source<'_>) {
        staging.get(0, &mut self.all[rank][part]);
    }
}

/// Numbers with a combination that depends on the order of ranks.
pub(crate) struct Numbers {
    /// `None`: `result` holds the contribution.
    pub(crate) own: Option<Vec<u64>>,
    pub(crate) result: Vec<u64>,
}

pub(crate) fn combine(one: u64, next: u64) -> u64 {
    one.wrapping_mul(31).wrapping_add(next)
}

impl Reduction for Numbers {
    fn elements(&self) -> usize {
        self.result.len()
    }

    fn element_size(&self) -> usize {
        size_of::<u64>()
    }

    fn contribute(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        let own = self.own.as_ref().unwrap_or(&self.result);
        staging.put(0, intranode::bytemuck::cast_slice(&own[part]));
    }

    fn keeps_contribution(&self) -> bool {
        self.own.is_some()
    }

    fn fold(&mut self, part: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>) {
        let own = self.own.as_ref().map(|own| &own[part.clone()]);
        copy::fold(&mut self.result[part], own, begin, terms, staging, combine);
    }

    fn collect(&mut self, part: Range<usize>, staging: Source<'_>) {
        staging.get(0, intranode::bytemuck::cast_slice_mut(&mut self.result[part]));
    }
}

/// A number of each rank. Only the operations between a write and a read order them.
pub(crate) struct Slots(Vec<UnsafeCell<u64>>);

// SAFETY: the tested protocols order all writes and reads of a number.
unsafe impl Sync for Slots {}

impl Slots {
    pub(crate) fn new(ranks: usize) -> Self {
        Slots((0..ranks).map(|_| UnsafeCell::new(0)).collect())
    }

    pub(crate) fn write(&self, rank: usize, value: u64) {
        // SAFETY: no rank reads it concurrently, if the tested protocol is right.
        unsafe { self.0[rank].get().write(value) };
    }

    /// Whether each rank has written this value.
    pub(crate) fn all(&self, value: u64) -> bool {
        // SAFETY: no rank writes it concurrently, if the tested protocol is right.
        self.0.iter().all(|slot| unsafe { slot.get().read() } == value)
    }
}
