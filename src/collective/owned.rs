//! The buffers of calls that were started, which belong to the calls.

use std::any::Any;
use std::ops::Range;

use bytemuck::Pod;

use super::block_table::BlockTable;
use super::parts;
use super::pending::Finish;
use super::reduction::{Builtin, ReduceBuffers};
use crate::copy::policy::StorePolicy;
use crate::copy::{Sink, Source, Term};
use crate::element::{ReduceOp, Reducible};
use crate::protocol::Platform;
use crate::protocol::allreduce::Reduction;
use crate::protocol::block_transfer::BlockTransfer;
use crate::protocol::contributions::HeaderTerms;
use crate::protocol::started::{ReduceScatterSteps, ReductionSteps, TransferSteps};

/// The buffer of a transfer in which this rank's block has its place, or of a gather, of which only the root has all.
pub(super) struct OwnedBlocks<T> {
    pub(super) data: Vec<T>,
    /// By rank, in bytes: where its block has its place, if this rank gets it.
    pub(super) blocks: Box<[Range<usize>]>,
    /// The only rank that gets blocks. `None`: every rank does.
    pub(super) receiver: Option<usize>,
    pub(super) rank: usize,
}

/// By rank, where its block begins and ends.
pub(super) fn ranges(table: &BlockTable<'_>, size: usize) -> Box<[Range<usize>]> {
    (0..size).map(|rank| table.range(rank)).collect()
}

impl<T: Pod> OwnedBlocks<T> {
    /// A chunk of a rank's block.
    fn chunk(&mut self, rank: usize, chunk: Range<usize>) -> &mut [u8] {
        let start = self.blocks[rank].start;
        &mut bytemuck::cast_slice_mut(&mut self.data)[start + chunk.start..start + chunk.end]
    }
}

impl<T: Pod> BlockTransfer for OwnedBlocks<T> {
    fn length(&self, rank: usize) -> usize {
        // The block of the only receiver goes to no other rank.
        if self.receiver == Some(rank) { 0 } else { self.blocks[rank].len() }
    }

    fn put(&mut self, chunk: Range<usize>, mut staging: Sink<'_>) {
        staging.publish(self.chunk(self.rank, chunk));
    }

    fn copy_own_block(&mut self, _: Range<usize>) {}

    fn get(&mut self, rank: usize, chunk: Range<usize>, staging: Source<'_>) {
        if self.receiver.is_none_or(|receiver| receiver == self.rank) {
            staging.fetch(self.chunk(rank, chunk));
        }
    }
}

impl<T: Pod> Finish<Vec<T>> for TransferSteps<OwnedBlocks<T>> {
    fn result(&mut self) -> Vec<T> {
        std::mem::take(&mut self.blocks.data)
    }
}

/// On the receiver.
impl<T: Pod> Finish<Option<Vec<T>>> for TransferSteps<OwnedBlocks<T>> {
    fn result(&mut self) -> Option<Vec<T>> {
        let OwnedBlocks { data, receiver, rank, .. } = &mut self.blocks;
        (*receiver == Some(*rank)).then(|| std::mem::take(data))
    }
}

/// The buffers of a transfer in which each rank gets a part of a sender's block: the parts follow one another as in
/// [`parts`](super::parts).
pub(super) struct OwnedParts<T> {
    /// What this rank sends, if it sends.
    pub(super) send: Vec<T>,
    /// By receiver, in bytes.
    pub(super) sent: Box<[Range<usize>]>,
    pub(super) recv: Vec<T>,
    /// By sender, in bytes: where its part for this rank has its place.
    pub(super) received: Box<[Range<usize>]>,
    /// By sender, in bytes: its block, and where in it the part for this rank begins.
    pub(super) blocks: Box<[SentBlock]>,
    pub(super) rank: usize,
}

/// The block of a sender, in bytes. Of a rank that sends nothing it is 0 bytes long.
#[derive(Clone, Copy, Default)]
pub(super) struct SentBlock {
    pub(super) len: usize,
    /// Where the part for this rank begins.
    pub(super) part: usize,
}

impl<T: Pod> OwnedParts<T> {
    /// This rank's own part goes through no staging.
    pub(super) fn copy_own_part(&mut self) {
        let (from, to) = (self.sent[self.rank].clone(), self.received[self.rank].clone());
        let send: &[u8] = bytemuck::cast_slice(&self.send);
        let own = &mut bytemuck::cast_slice_mut::<T, u8>(&mut self.recv)[to];
        StorePolicy::of_call(own.len()).copy(&send[from], own);
    }
}

impl<T: Pod> BlockTransfer for OwnedParts<T> {
    fn length(&self, rank: usize) -> usize {
        self.blocks[rank].len
    }

    fn put(&mut self, chunk: Range<usize>, staging: Sink<'_>) {
        let send: &[u8] = bytemuck::cast_slice(&self.send);
        let receivers = parts::receivers(self.rank, self.sent.len());
        parts::put(receivers.map(|rank| &send[self.sent[rank].clone()]), chunk, staging);
    }

    fn copy_own_block(&mut self, _: Range<usize>) {}

    fn get(&mut self, rank: usize, chunk: Range<usize>, staging: Source<'_>) {
        let (start, place) = (self.blocks[rank].part, self.received[rank].clone());
        let stores = StorePolicy::of_call(place.len());
        let mut recv: &mut [u8] = bytemuck::cast_slice_mut(&mut self.recv);
        let part = start..start.saturating_add(place.len());
        parts::get::<&[u8]>((part, place), chunk, staging, &mut recv, &stores);
    }
}

impl<T: Pod> Finish<Vec<T>> for TransferSteps<OwnedParts<T>> {
    fn result(&mut self) -> Vec<T> {
        std::mem::take(&mut self.blocks.recv)
    }
}

/// The buffer of a reduction: the result takes the place of the contribution.
pub(super) struct OwnedReduction<T: Reducible> {
    data: Encoded<T>,
    op: ReduceOp,
    /// The elements of which this rank gets the result.
    wanted: Option<Range<usize>>,
}

impl<T: Reducible> OwnedReduction<T> {
    /// The operation was checked.
    pub(super) fn new(data: Vec<T>, op: ReduceOp) -> Self {
        let wanted = Some(0..data.len());
        OwnedReduction { data: Encoded::new(data), op, wanted }
    }

    /// The same, of which this rank gets the result of these elements, or none.
    pub(super) fn wanting(self, wanted: Option<Range<usize>>) -> Self {
        OwnedReduction { wanted, ..self }
    }

    fn take(&mut self) -> Option<Vec<T>> {
        let Range { start, end } = self.wanted.clone()?;
        let mut data = self.data.take();
        data.truncate(end);
        data.drain(..start);
        Some(data)
    }

    fn buffers(&mut self) -> ReduceBuffers<'_, T::Repr, Builtin<T>> {
        ReduceBuffers::in_place(&mut self.data.sent, Builtin::new(self.op))
    }
}

impl<T: Reducible> Reduction for OwnedReduction<T> {
    fn elements(&self) -> usize {
        self.data.sent.len()
    }

    fn element_size(&self) -> usize {
        size_of::<T::Repr>()
    }

    fn contribute(&mut self, chunk: Range<usize>, staging: Sink<'_>) {
        self.buffers().contribute(chunk, staging);
    }

    fn keeps_contribution(&self) -> bool {
        false
    }

    fn fold(&mut self, chunk: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>) {
        self.buffers().fold(chunk, begin, terms, staging);
    }

    fn fold_inline(&mut self, chunk: Range<usize>, terms: &HeaderTerms<'_, impl Platform>) {
        self.buffers().fold_inline(chunk, terms);
    }

    fn collect(&mut self, chunk: Range<usize>, staging: Source<'_>) {
        self.buffers().collect(chunk, staging);
    }
}

impl<T: Reducible> Finish<Vec<T>> for ReductionSteps<OwnedReduction<T>> {
    fn result(&mut self) -> Vec<T> {
        self.data.take().expect("every rank gets a result")
    }
}

/// On the root.
impl<T: Reducible> Finish<Option<Vec<T>>> for ReductionSteps<OwnedReduction<T>> {
    fn result(&mut self) -> Option<Vec<T>> {
        self.data.take()
    }
}

impl<T: Reducible> Finish<Vec<T>> for ReduceScatterSteps<OwnedReduction<T>> {
    fn result(&mut self) -> Vec<T> {
        self.data.take().expect("every rank gets a block")
    }
}

/// Values, as what is sent for them.
struct Encoded<T: Reducible> {
    sent: Vec<T::Repr>,
    /// Empty if they are sent as they are.
    values: Vec<T>,
}

impl<T: Reducible> Encoded<T> {
    fn new(values: Vec<T>) -> Self {
        match same_type(values) {
            Ok(sent) => Encoded { sent, values: Vec::new() },
            Err(values) => Encoded { sent: T::encode(&values).into_owned(), values },
        }
    }

    fn take(&mut self) -> Vec<T> {
        let (sent, mut values) = (std::mem::take(&mut self.sent), std::mem::take(&mut self.values));
        match same_type(sent) {
            Ok(values) => values,
            Err(sent) => {
                T::update(&mut values, |encoded| encoded.copy_from_slice(&sent));
                values
            }
        }
    }
}

/// A vector as one of another type, if that is the same.
fn same_type<A: 'static, B: 'static>(values: Vec<A>) -> Result<Vec<B>, Vec<A>> {
    let mut values = Some(values);
    match (&mut values as &mut dyn Any).downcast_mut::<Option<Vec<B>>>() {
        Some(same) => Ok(same.take().expect("it was put there")),
        None => Err(values.expect("nobody has taken it")),
    }
}
