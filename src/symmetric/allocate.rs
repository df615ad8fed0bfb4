//! How memory is given out, and taken back: the calls that change the heap.
//!
//! 1. All ranks compare their requests, and tell which objects they have dropped: one round, and another one if a rank has
//!    dropped many.
//! 2. If no segment has room, all ranks map a further one: the rounds of an [allocation](crate::region::allocation).
//! 3. Each rank clears its instance, unless it is fresh: one more round.
//!
//! After the first round all ranks do the same with the same tables, so they have the same result: the same offset, or the
//! same error and tables that have not changed.

use std::sync::Arc;

use bytemuck::Pod;

use crate::collective::allgatherv::{AllgathervBuffers, gather_lists, gather_words};
use crate::collective::block_table::BlockTable;
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::call::INLINE;
use crate::protocol::symmetric::phase::AllOwn;
use crate::rank::heap::{Growth, Placed, Request};
use crate::rank::rank_state::{OpenCall, RankState};
use crate::region::allocation::{AllocRequest, allocate};
use crate::region::options::Placement;
use crate::segment::symmetric_memory::{Instances, Open, Own, SymmetricMemory, Transition};
use crate::symmetric::handle::{Object, Symmetric};
use crate::symmetric::options::SymmetricOptions;
use crate::sys::memory::backing::Pages;

/// The rank that creates the memory.
const LEADER: usize = 0;

/// The words of the first round: the number of objects that the rank has dropped, and the first of them.
const WORDS: usize = INLINE / size_of::<u64>();

/// Makes an object of `len` zeros in every instance. Collective.
pub(crate) fn make<T: Pod>(
    rank_state: &Arc<RankState>,
    call: &Call,
    operation: Operation,
    len: usize,
    options: &SymmetricOptions,
) -> Result<Symmetric<T>, Error> {
    let alignment = match options.alignment_of::<T>(operation) {
        Ok(alignment) => alignment,
        Err(error) => return Err(rank_state.refuse(call, error)),
    };
    let call = Call { length: len as u64, extra: options.code(alignment), ..*call };
    let mut open = rank_state.begin(operation)?;
    let all_own = agree(&mut open, &call)?;
    agree_on_fences(&mut open, &call)?;
    let (object, mut memory) = place::<T>(&mut open, &call, &all_own, rank_state, len, alignment, options)?;
    let used = memory.used;
    // Not `fill`, which would have an element on the stack.
    bytemuck::fill_zeroes(&mut memory.own.values_mut()[..used]);
    Ok(Symmetric::new(object, publish(&mut open, &call, memory.own)?))
}

/// Makes an object of another length with the values of `old`, and frees that one. Collective.
pub(crate) fn resize<T: Pod>(
    old: Object,
    memory: SymmetricMemory<T, Open>,
    call: &Call,
    len: usize,
) -> Result<Symmetric<T>, Error> {
    let rank_state = Arc::clone(&old.rank_state);
    let mut open = rank_state.begin(Operation::ResizeSymmetric)?;
    let all_own = agree(&mut open, call)?;
    // Every rank has passed on its handle, so each has its own instance to itself.
    let memory = memory.leave().own(&all_own);
    let (alignment, options) = (old.alignment, &old.options);
    let (object, mut new) = place::<T>(&mut open, call, &all_own, &rank_state, len, alignment, options)?;
    let kept = memory.len().min(len);
    let (prefix, rest) = new.own.values_mut().split_at_mut(kept);
    prefix.copy_from_slice(&memory.values()[..kept]);
    bytemuck::fill_zeroes(&mut rest[..new.used.saturating_sub(kept)]);
    let opened = publish(&mut open, call, new.own)?;
    old.free(&open);
    Ok(Symmetric::new(object, opened))
}

/// Frees an object on all ranks. Collective.
pub(crate) fn free(object: Object, call: &Call) -> Result<(), Error> {
    let rank_state = Arc::clone(&object.rank_state);
    let mut open = rank_state.begin(Operation::FreeSymmetric)?;
    agree(&mut open, call)?;
    object.free(&open);
    Ok(())
}

/// A new object, before other ranks have access to it.
struct New<T> {
    own: SymmetricMemory<T, Own>,
    /// How many of its first elements may not be zero.
    used: usize,
}

/// The last round: every rank has cleared its instance.
fn publish<T: Pod>(
    open: &mut OpenCall<'_>,
    call: &Call,
    own: SymmetricMemory<T, Own>,
) -> Result<SymmetricMemory<T, Open>, Error> {
    let memory = own.leave();
    // The release store of the round does not order non-temporal stores.
    crate::copy::lines::fence();
    let all_open = open.round(call, |member, barrier, call| member.open(barrier, call))?;
    Ok(memory.open(all_open))
}

/// The first round: compares the calls, and frees what all ranks have dropped.
fn agree(open: &mut OpenCall<'_>, call: &Call) -> Result<AllOwn, Error> {
    let rank_state = open.rank_state();
    let size = rank_state.size();
    // The release store of the round does not order non-temporal stores into an object that was dropped.
    crate::copy::lines::fence();
    let own = rank_state.heap.dropped();
    let mut words = [0u64; WORDS];
    words[0] = own.len() as u64;
    words[1..].iter_mut().zip(&own).for_each(|(word, number)| *word = *number);
    let mut all = vec![[0u64; WORDS]; size];
    let table = BlockTable::Equal { bytes: size_of_val(&words) };
    let recv = bytemuck::cast_slice_mut(all.as_flattened_mut());
    let mut blocks = AllgathervBuffers::new(Some(bytemuck::cast_slice(&words)), recv, rank_state.rank, table);
    let all_own = open.round(call, |member, _, call| member.own_with(call, &mut blocks))?;
    // No rank can have dropped more than there are. What another process has overwritten may say so.
    let objects = rank_state.heap.table().objects();
    let counts: Vec<usize> =
        all.iter().map(|words| usize::try_from(words[0]).unwrap_or(usize::MAX).min(objects)).collect();
    let rest = exchange_rest(open, call, &own, &counts)?;
    rank_state.heap.told(own.len());
    let mut table = rank_state.heap.table();
    for (rank, words) in all.iter().enumerate() {
        let first = words[1..].iter().take(counts[rank]);
        // This rank's own words were not read from shared memory.
        let is_own = rank == rank_state.rank;
        first.chain(&rest[rank]).for_each(|number| table.dropped(*number, is_own, size));
    }
    table.give_back();
    Ok(all_own)
}

/// With the first object: fences by membarrier, if the system lets every rank have them, and every rank has a processor.
fn agree_on_fences(open: &mut OpenCall<'_>, call: &Call) -> Result<(), Error> {
    let rank_state = open.rank_state();
    if rank_state.one_sided.get().is_some() {
        return Ok(());
    }
    let able = gather_words(open, call, [u64::from(rank_state.platform.registers_fences())])?;
    let platform = rank_state.platform.with_fences(able.iter().all(|[able]| *able == 1));
    rank_state.settings.debug(&format!("fences of symmetric memory: {:?}", platform.fences));
    // All threads of a rank that get here have agreed on the same.
    let _ = rank_state.one_sided.set(platform);
    Ok(())
}

/// Gathers the dropped objects that the words of the first round had no room for, by rank.
fn exchange_rest(
    open: &mut OpenCall<'_>,
    call: &Call,
    own: &[u64],
    counts: &[usize],
) -> Result<Vec<Vec<u64>>, Error> {
    let inline = WORDS - 1;
    let counts: Vec<usize> = counts.iter().map(|count| count.saturating_sub(inline)).collect();
    if counts.iter().all(|count| *count == 0) {
        return Ok(vec![Vec::new(); counts.len()]);
    }
    gather_lists(open, call, own.get(inline..).unwrap_or_default(), &counts, "dropped objects")
}

/// Takes a block, from a further segment if need be.
fn place<T: Pod>(
    open: &mut OpenCall<'_>,
    call: &Call,
    all_own: &AllOwn,
    rank_state: &Arc<RankState>,
    len: usize,
    alignment: usize,
    options: &SymmetricOptions,
) -> Result<(Object, New<T>), Error> {
    let bytes = len.checked_mul(size_of::<T>());
    let request = Request { bytes, alignment, kind: options.kind() };
    // Not in the condition, which would keep the lock.
    let mut placed = rank_state.heap.table().take(&request);
    if placed.is_none() {
        grow(open, call, &request, options)?;
        placed = rank_state.heap.table().take(&request);
    }
    let Placed { number, block, used } = placed.expect("the segment was made for it");
    let object = Object::new(rank_state, number, alignment, options.clone());
    let memory = SymmetricMemory::<T, Transition>::new(block, len, rank_state.rank);
    let used = if size_of::<T>() == 0 { 0 } else { used.div_ceil(size_of::<T>()).min(len) };
    Ok((object, New { own: memory.own(all_own), used }))
}

/// Adds a segment: with room to spare, or else as the request needs it.
fn grow(
    open: &mut OpenCall<'_>,
    call: &Call,
    request: &Request,
    options: &SymmetricOptions,
) -> Result<(), Error> {
    let rank_state = open.rank_state();
    let Growth { alignment, strides: [spare, alone] } =
        rank_state.heap.table().growth(request, rank_state.size());
    if spare != alone && spare.is_some() {
        match add_segment(open, call, request, options, alignment, spare) {
            Err(Error::AllocationFailed { .. }) => {}
            other => return other,
        }
    }
    add_segment(open, call, request, options, alignment, alone)
}

fn add_segment(
    open: &mut OpenCall<'_>,
    call: &Call,
    request: &Request,
    options: &SymmetricOptions,
    alignment: usize,
    stride: Option<usize>,
) -> Result<(), Error> {
    let rank_state = open.rank_state();
    let (rank, size, memory) = (rank_state.rank, rank_state.size(), options.memory());
    let (huge, placement) = (memory.huge_pages, memory.placement);
    let len = stride.map(|stride| stride * size);
    // A page is allocated on the node of the rank that allocates it.
    let part = match (placement, stride) {
        (Placement::Leader, _) if rank == LEADER => 0..len.unwrap_or(0),
        (Placement::Leader, _) | (_, None) => 0..0,
        (_, Some(stride)) => rank * stride..(rank + 1) * stride,
    };
    let pages = Pages { huge, align: alignment };
    let alloc = AllocRequest { call, leader: LEADER, len, part, pages };
    let set_policy = |mapping: &_| {
        // Where each rank allocates its own instance there is nothing to set.
        if placement != Placement::Distributed {
            memory.set_policy(mapping, &rank_state.settings);
        }
    };
    let (mapping, handle) = allocate(open, &alloc, set_policy, |_| Ok(())).map_err(|error| match error {
        Error::AllocationFailed { operation, reason, .. } => {
            let bytes = request.bytes.unwrap_or(usize::MAX);
            let requested_bytes = bytes.saturating_mul(size);
            let reason = format!("{bytes} for each of {size} ranks: {reason}").into_boxed_str();
            Error::AllocationFailed { operation, requested_bytes, reason }
        }
        other => other,
    })?;
    let stride = stride.expect("what has no length is not allocated");
    let instances = Instances::share(&handle, mapping, size, stride);
    if huge && rank == LEADER {
        // Only now: a collapse needs pages that are allocated.
        let text = match instances.collapse() {
            Ok(bytes) => format!("{bytes} of {} bytes of symmetric memory are in huge pages", stride * size),
            Err(error) => format!("symmetric memory has no huge pages: {error}"),
        };
        rank_state.settings.debug(&text);
    }
    rank_state.heap.add(instances, request.kind, alignment, stride);
    Ok(())
}
