//! broadcast_vec, allgather_vec and gather_vec: blocks whose lengths only their senders know.
//!
//! The first transfer brings the lengths, and the data, if they end there: a [`FirstPart`] of the root, or a [`FirstBlock`] of each
//! sender, which fits into a header. If some data do not end there, they all follow in a second one.

use bytemuck::Pod;

use super::allgatherv::{gather, gather_words};
use super::block_table::BlockTable;
use super::broadcast::BroadcastBuffer;
use super::first_part::FirstPart;
use super::gather::gather_to;
use super::rooted::check_root;
use crate::communicator::{Communicator, call};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::call::INLINE;
use crate::rank::rank_state::OpenCall;

/// Blocks with their counts, in rank order.
pub(crate) type Gathered<T> = (Vec<T>, Vec<usize>);

impl Communicator {
    /// Copies the vector of rank `root` to all ranks, whatever its length: on the other ranks `data` may have any length before.
    /// Collective.
    ///
    /// Up to 4,088 bytes take one round (88 with [chunks](crate::Config::chunk_bytes) of less than 6 KiB). For longer data that
    /// round brings the length, and they follow as in a [`broadcast`](Communicator::broadcast).
    ///
    /// ```
    /// let names = intranode::threads(3, |comm| {
    ///     let mut name = if comm.rank() == 0 { b"input.bin".to_vec() } else { Vec::new() };
    ///     comm.broadcast_vec(&mut name, 0)?;
    ///     Ok::<_, intranode::Error>(name)
    /// })?;
    /// for name in names {
    ///     assert_eq!(name?, b"input.bin");
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::AllocationFailed`] on a rank that has no memory for the data; otherwise as
    /// [`barrier`](Communicator::barrier). `data` has not changed then, or, after a [fatal](Error::is_fatal) error, has any
    /// contents.
    pub fn broadcast_vec<T: Pod>(&self, data: &mut Vec<T>, root: usize) -> Result<(), Error> {
        let operation = Operation::BroadcastVec;
        let call = Call { extra: root as u64, ..call::<T>(operation) };
        if let Err(error) = check_root(self, operation, root) {
            return Err(self.rank_state.refuse(&call, error));
        }
        broadcast_vec(&mut self.rank_state.begin(operation)?, &call, data, root)
    }

    /// Gathers the block `send` of every rank on every rank, whatever their lengths: returns all blocks, in rank order, and
    /// the length of each, in elements. Collective.
    ///
    /// If every block has up to 88 bytes, it takes one round. For longer blocks that round brings the lengths, and the blocks
    /// follow as in an [`allgatherv`](Communicator::allgatherv).
    ///
    /// ```
    /// let all = intranode::threads(3, |comm| comm.allgather_vec(&vec![comm.rank(); comm.rank()]))?;
    /// for gathered in all {
    ///     let (items, counts) = gathered?;
    ///     assert_eq!((items, counts), (vec![1, 2, 2], vec![0, 1, 2]));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::AllocationFailed`] on a rank that has no memory for the blocks; otherwise as
    /// [`barrier`](Communicator::barrier).
    pub fn allgather_vec<T: Pod>(&self, send: &[T]) -> Result<(Vec<T>, Vec<usize>), Error> {
        let call = call::<T>(Operation::AllgatherVec);
        allgather_vec(&mut self.rank_state.begin(Operation::AllgatherVec)?, &call, send)
    }

    /// Gathers the block `send` of every rank on rank `root`, whatever their lengths: returns all blocks, in rank order, and
    /// the length of each, in elements, on the root, and `None` elsewhere. Collective. The rounds are those of
    /// [`allgather_vec`](Communicator::allgather_vec).
    ///
    /// ```
    /// let gathered = intranode::threads(3, |comm| comm.gather_vec(&vec![comm.rank(); comm.rank()], 1))?;
    /// for (rank, gathered) in gathered.into_iter().enumerate() {
    ///     assert_eq!(gathered?, (rank == 1).then_some((vec![1, 2, 2], vec![0, 1, 2])));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::AllocationFailed`] on the root, and on every rank if no vector has room for the blocks; otherwise as
    /// [`barrier`](Communicator::barrier).
    #[expect(clippy::type_complexity, reason = "the blocks and their counts, on the root")]
    pub fn gather_vec<T: Pod>(&self, send: &[T], root: usize) -> Result<Option<(Vec<T>, Vec<usize>)>, Error> {
        let operation = Operation::GatherVec;
        let call = Call { extra: root as u64, ..call::<T>(operation) };
        if let Err(error) = check_root(self, operation, root) {
            return Err(self.rank_state.refuse(&call, error));
        }
        gather_vec(&mut self.rank_state.begin(operation)?, &call, send, root)
    }
}

/// What a header has of a block: all of it, or its length. In words, so that it is aligned.
#[derive(Clone, Copy)]
struct FirstBlock([u64; WORDS]);

const WORDS: usize = INLINE / size_of::<u64>();

/// The longest data that end in a first block, in bytes.
const DATA: usize = INLINE - size_of::<u64>();

impl FirstBlock {
    fn of<T: Pod>(block: &[T]) -> Self {
        let mut first = FirstBlock([0; WORDS]);
        first.0[0] = block.len() as u64;
        let bytes: &[u8] = bytemuck::cast_slice(block);
        if bytes.len() <= DATA {
            bytemuck::cast_slice_mut(&mut first.0[1..])[..bytes.len()].copy_from_slice(bytes);
        }
        first
    }

    /// The number of elements of the block. `usize::MAX` is too many for any memory.
    fn count(&self) -> usize {
        usize::try_from(self.0[0]).unwrap_or(usize::MAX)
    }

    /// The data, if they end here. An element has `width` bytes.
    fn data(&self, width: usize) -> Option<&[u8]> {
        bytemuck::cast_slice(&self.0[1..]).get(..self.count().saturating_mul(width))
    }
}

/// As [`Communicator::broadcast_vec`], as transfers of a call.
pub(super) fn broadcast_vec<T: Pod>(
    open: &mut OpenCall<'_>,
    call: &Call,
    data: &mut Vec<T>,
    root: usize,
) -> Result<(), Error> {
    let (is_root, width) = (open.rank_state().rank == root, size_of::<T>());
    let chunk = open.rank_state().staging.chunk_of_one;
    let own = is_root.then_some((bytemuck::cast_slice(data.as_slice()), data.len()));
    let mut first = FirstPart::new(root, width, chunk, own);
    open.transfer(call, &mut first)?;
    let (is_whole, count, beginning) = (first.is_whole(), first.count(), first.into_received());
    if is_root {
        if !is_whole {
            open.transfer(call, &mut BroadcastBuffer::new(bytemuck::cast_slice_mut(data), root))?;
        }
    } else if is_whole && width > 0 {
        // Bytes are there already.
        *data = bytemuck::allocation::try_cast_vec(beginning)
            .unwrap_or_else(|(_, bytes)| bytemuck::allocation::pod_collect_to_vec(&bytes));
    } else {
        let mut received = allocate(open, call, Some(count), is_whole)?;
        if !is_whole {
            open.transfer(call, &mut BroadcastBuffer::new(bytemuck::cast_slice_mut(&mut received), root))?;
        }
        *data = received;
    }
    open.moves(size_of_val(&**data));
    Ok(())
}

/// As [`Communicator::allgather_vec`], as transfers of a call.
pub(super) fn allgather_vec<T: Pod>(
    open: &mut OpenCall<'_>,
    call: &Call,
    send: &[T],
) -> Result<Gathered<T>, Error> {
    let (firsts, width) = (first_blocks(open, call, send)?, size_of::<T>());
    let is_whole = firsts.iter().all(|first| first.data(width).is_some());
    let mut recv = allocate::<T>(open, call, total(&firsts), is_whole)?;
    let (counts, displs) = places(&firsts);
    open.moves(size_of_val(&*recv));
    let bytes = bytemuck::cast_slice_mut(&mut recv);
    if is_whole {
        copy(&firsts, width, bytes);
    } else {
        let table = BlockTable::Given { counts: &counts, displs: &displs, width };
        gather(open, call, bytemuck::cast_slice(send), bytes, table)?;
    }
    Ok((recv, counts))
}

/// As [`Communicator::gather_vec`], as transfers of a call.
pub(super) fn gather_vec<T: Pod>(
    open: &mut OpenCall<'_>,
    call: &Call,
    send: &[T],
    root: usize,
) -> Result<Option<Gathered<T>>, Error> {
    let (firsts, width) = (first_blocks(open, call, send)?, size_of::<T>());
    let is_whole = firsts.iter().all(|first| first.data(width).is_some());
    let is_root = open.rank_state().rank == root;
    // Where no vector has room for the blocks, that is so on every rank.
    let (all, own) = (total(&firsts), if is_root { total(&firsts) } else { Some(0) });
    let mut recv = allocate::<T>(open, call, all.and(own), is_whole)?;
    let (counts, displs) = places(&firsts);
    open.moves(all.unwrap_or(usize::MAX).saturating_mul(width));
    let bytes = bytemuck::cast_slice_mut(&mut recv);
    if !is_whole {
        let table = BlockTable::Given { counts: &counts, displs: &displs, width };
        let recv = is_root.then_some(bytes);
        gather_to(open, call, (Some(bytemuck::cast_slice(send)), None), recv, (table, root))?;
    } else if is_root {
        copy(&firsts, width, bytes);
    }
    Ok(is_root.then_some((recv, counts)))
}

/// The first block of every rank, by rank.
fn first_blocks<T: Pod>(open: &mut OpenCall<'_>, call: &Call, send: &[T]) -> Result<Vec<FirstBlock>, Error> {
    let all = gather_words(open, call, FirstBlock::of(send).0)?;
    Ok(all.into_iter().map(FirstBlock).collect())
}

/// Memory for all blocks. A rank that has none refuses the second transfer, if there is one.
fn allocate<T: Pod>(
    open: &mut OpenCall<'_>,
    call: &Call,
    len: Option<usize>,
    is_whole: bool,
) -> Result<Vec<T>, Error> {
    room(open.operation(), len).map_err(|error| if is_whole { error } else { open.refuse(call, error) })
}

/// Memory for `len` elements; `None`: for more than a vector has, also if they have no bytes.
pub(crate) fn room<T: Pod>(operation: Operation, len: Option<usize>) -> Result<Vec<T>, Error> {
    let room = len.ok_or(()).and_then(bytemuck::allocation::try_zeroed_vec);
    room.map_err(|()| Error::AllocationFailed {
        operation,
        requested_bytes: len.unwrap_or(usize::MAX).saturating_mul(size_of::<T>()),
        reason: "the process has no memory for what the other ranks send".into(),
    })
}

/// The length of all blocks together, in elements. `None`: it is more than a vector has.
fn total(blocks: &[FirstBlock]) -> Option<usize> {
    sum(blocks.iter().map(FirstBlock::count))
}

/// The sum of lengths, unless it overflows.
pub(crate) fn sum(mut lengths: impl Iterator<Item = usize>) -> Option<usize> {
    lengths.try_fold(0usize, |sum, len| sum.checked_add(len))
}

/// The counts and displacements of the blocks, in elements.
fn places(blocks: &[FirstBlock]) -> (Vec<usize>, Vec<usize>) {
    let mut end = 0usize;
    let place = |first: &FirstBlock| {
        let start = end;
        end = end.saturating_add(first.count());
        (first.count(), start)
    };
    blocks.iter().map(place).unzip()
}

/// Copies the data of blocks that are whole.
fn copy(blocks: &[FirstBlock], width: usize, mut target: &mut [u8]) {
    for bytes in blocks.iter().filter_map(|first| first.data(width)) {
        let (place, rest) = target.split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        target = rest;
    }
}
