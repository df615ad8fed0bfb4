//! The collectives of which ranks get different things: reduce, scan, exscan, reduce_scatter, gather to a root, alltoall.
//!
//! They are transfers and reductions in which some ranks only arrive. The first half of the page is what a rank does.

use std::ops::Range;

use intranode::copy::{Sink, Source};
use intranode::protocol::Failure;
use intranode::protocol::allreduce::Shape;
use intranode::protocol::block_transfer::BlockTransfer;

use super::collectives::gather;
use super::faults::deaths_in_rounds;
use crate::harness::cells::{FULL, SHORT};
use crate::harness::data::{Blocks, Fold, folded, numbers};
use crate::harness::model::Model;
use crate::harness::rank::{Operation, Rank, Step};
use crate::harness::waiting::Waiting::{self, Blocking, Dozing, Parking, Spinning};

/// Every rank sends `N` numbers, and `ROOT` must get their fold in the order of the ranks.
fn reduce<const ROOT: usize, const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    reduction(rank, N, Shape::Root(ROOT), usize::MAX)
}

/// The same where each rank folds a slice for the root.
fn reduce_slices<const ROOT: usize, const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    reduction(rank, N, Shape::Root(ROOT), 0)
}

/// Every rank must get the fold of the ranks up to itself.
fn scan<const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    reduction(rank, N, Shape::Inclusive, 0)
}

/// Every rank must get the fold of the ranks before itself, and rank 0 nothing.
fn exscan<const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    reduction(rank, N, Shape::Exclusive, 0)
}

fn reduction(rank: &mut Rank<'_>, count: usize, shape: Shape, slices_from: usize) -> Result<(), Failure> {
    let sent = numbers(rank.nth(), &vec![count; rank.size()]);
    let mut fold = Fold::of(&sent[rank.number]);
    let (operation, extra) = match shape {
        Shape::Root(root) => (Operation::Reduce, root),
        Shape::Exclusive => (Operation::Scan, 1),
        _ => (Operation::Scan, 0),
    };
    rank.call(operation.call(count, extra), |member, call| {
        member.reduction(call, shape, slices_from, &mut fold)
    })?;
    let expected = match shape {
        Shape::Root(root) if root != rank.number => return Ok(()),
        Shape::Exclusive if rank.number == 0 => vec![0; count],
        Shape::Exclusive => folded(&sent[..rank.number]),
        Shape::Inclusive => folded(&sent[..=rank.number]),
        _ => folded(&sent),
    };
    assert!(fold.result == expected, "wrong data: rank {} got {:?}", rank.number, fold.result);
    Ok(())
}

/// Every rank sends `N` numbers for each rank, and must get the fold of those for it.
fn reduce_scatter<const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    blocks_reduced(rank, |rank| rank * N..(rank + 1) * N)
}

/// Every rank sends `N` numbers for rank 0, and none for the others.
fn reduce_scatter_to_0<const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    blocks_reduced(rank, |rank| if rank == 0 { 0..N } else { N..N })
}

fn blocks_reduced(rank: &mut Rank<'_>, blocks: impl Fn(usize) -> Range<usize>) -> Result<(), Failure> {
    let total = blocks(rank.size() - 1).end;
    let sent = numbers(rank.nth(), &vec![total; rank.size()]);
    let mut fold = Fold::of(&sent[rank.number]);
    let call = Operation::ReduceScatter.call(total, 0);
    rank.call(call, |member, call| member.reduce_scatter(call, &blocks, &mut fold))?;
    let mut expected = vec![0; total];
    let own = blocks(rank.number);
    expected[own.clone()].copy_from_slice(&folded(&sent)[own]);
    assert!(fold.result == expected, "wrong data: rank {} got {:?}", rank.number, fold.result);
    Ok(())
}

/// Every rank sends `N` numbers, of which `ROOT` must get those of the others; it sends none.
fn gather_at<const ROOT: usize, const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let mut counts = vec![N; rank.size()];
    counts[ROOT] = 0;
    let sent = numbers(rank.nth(), &counts);
    let is_root = rank.number == ROOT;
    let mut parts = Parts { blocks: Blocks::of(rank.number, &sent), wants: |_| is_root.then_some(0..8 * N) };
    rank.call(Operation::Gather.call(N, ROOT), |member, call| member.transfer(call, &mut parts))?;
    let all = &parts.blocks.all;
    assert!(!is_root || *all == sent, "wrong data: rank {} got {all:?}", rank.number);
    Ok(())
}

/// Every rank sends `N` numbers to each other rank.
fn alltoall<const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let (own, size) = (rank.number, rank.size());
    let sent = numbers(rank.nth(), &vec![N * (size - 1); size]);
    let part = |from: usize| {
        let position = (own + size - from - 1) % size;
        position * N..(position + 1) * N
    };
    let wants = |from| Some(8 * part(from).start..8 * part(from).end);
    let mut parts = Parts { blocks: Blocks::of(own, &sent), wants };
    rank.call(Operation::Alltoall.call(N, 0), |member, call| member.transfer(call, &mut parts))?;
    for from in (0..size).filter(|from| *from != own) {
        let got = &parts.blocks.all[from][part(from)];
        assert!(*got == sent[from][part(from)], "wrong data: rank {own} got {got:?} from {from}");
    }
    Ok(())
}

/// Blocks of which a rank reads a part: by sender, in bytes.
struct Parts<W> {
    blocks: Blocks,
    wants: W,
}

impl<W: Fn(usize) -> Option<Range<usize>>> BlockTransfer for Parts<W> {
    fn length(&self, rank: usize) -> usize {
        self.blocks.length(rank)
    }

    fn put(&mut self, chunk: Range<usize>, staging: Sink<'_>) {
        self.blocks.put(chunk, staging);
    }

    fn copy_own_block(&mut self, _: Range<usize>) {}

    fn get(&mut self, rank: usize, chunk: Range<usize>, staging: Source<'_>) {
        let Some(part) = (self.wants)(rank) else { return };
        let common = chunk.start.max(part.start)..chunk.end.min(part.end);
        if !common.is_empty() {
            let staging = staging.after(common.start - chunk.start);
            self.blocks.get(rank, common, staging);
        }
    }
}

/// More than fits into a header, for two ranks: two windows.
const WINDOWS: usize = FULL / 2 + 1;

/// Two ranks, each call by itself.
fn alone(waiting: Waiting) -> [Model; 15] {
    let once = |name: &str, call: Step| Model::same(name, waiting, 2, &[call]);
    [
        once("reduce_at_0_inline", reduce::<0, 1>),
        once("reduce_at_1_short", reduce::<1, SHORT>),
        once("reduce_at_1_one_chunk", reduce::<1, FULL>),
        once("reduce_at_0_two_chunks", reduce::<0, { FULL + 1 }>),
        once("reduce_at_1_slices", reduce_slices::<1, FULL>),
        once("reduce_at_0_slices_of_two_chunks", reduce_slices::<0, { FULL + 1 }>).bound(3),
        once("scan_inline", scan::<1>),
        once("scan_two_chunks", scan::<{ FULL + 1 }>),
        once("exscan_short", exscan::<SHORT>),
        once("exscan_two_chunks", exscan::<{ FULL + 1 }>),
        once("reduce_scatter_inline", reduce_scatter::<1>),
        once("reduce_scatter_two_windows", reduce_scatter::<WINDOWS>),
        once("reduce_scatter_three_windows", reduce_scatter::<FULL>).bound(3),
        once("gather_at_0_two_chunks", gather_at::<0, { FULL + 1 }>),
        once("alltoall_two_chunks", alltoall::<{ FULL + 1 }>),
    ]
}

/// A call after another: buffers of both parities come round again, and a rank that only arrives must not be ahead.
fn in_a_row(waiting: Waiting) -> [Model; 6] {
    let calls = |name: &str, script: &[Step]| Model::same(name, waiting, 2, script).bound(3);
    [
        calls("reduce_at_changing_roots", &[reduce::<0, 1>, reduce::<1, 1>, reduce::<0, 1>]),
        calls("reduce_short_at_changing_roots", &[reduce::<0, SHORT>, reduce::<1, SHORT>, reduce::<0, SHORT>]),
        calls("gather_at_0_three_times", &[gather_at::<0, FULL>, gather_at::<0, FULL>, gather_at::<0, FULL>]),
        calls("exscan_three_times", &[exscan::<FULL>, exscan::<FULL>, exscan::<FULL>]),
        calls("reduce_scatter_then_gather", &[reduce_scatter::<WINDOWS>, gather::<FULL>]),
        // Rank 1 folds nothing, and only arrives.
        calls("reduce_scatter_to_0_then_gather", &[reduce_scatter_to_0::<FULL>, gather::<1>]).bound(2),
    ]
}

/// Two ranks that call for different roots, or shapes.
fn verdicts(waiting: Waiting) -> [Model; 2] {
    [
        Model::new("mismatch_of_roots_of_reduce", waiting, &[&[reduce::<0, FULL>], &[reduce::<1, FULL>]]),
        Model::new("mismatch_of_scans", waiting, &[&[scan::<FULL>], &[exscan::<FULL>]]),
    ]
}

fn three_ranks() -> [Model; 8] {
    let once = |name: &str, call: Step| Model::same(name, Blocking, 3, &[call]).bound(2);
    [
        once("reduce_at_1_inline", reduce::<1, 1>),
        once("reduce_at_2_slices", reduce_slices::<2, FULL>),
        once("scan_short", scan::<SHORT>),
        once("scan_one_chunk", scan::<FULL>),
        once("exscan_inline", exscan::<1>),
        once("reduce_scatter_windows", reduce_scatter::<6>),
        once("gather_at_1_one_chunk", gather_at::<1, FULL>),
        once("alltoall_one_chunk", alltoall::<{ FULL / 2 + 1 }>),
    ]
}

/// Rank 1 dies at a fail point of a call whose rounds are its own.
fn deaths(waiting: Waiting) -> Vec<Model> {
    let calls: [(&str, Step); 3] = [
        ("reduce_scatter", reduce_scatter::<WINDOWS>),
        ("reduce_slices", reduce_slices::<0, FULL>),
        ("scan", scan::<{ FULL + 1 }>),
    ];
    calls.into_iter().flat_map(|(name, call)| deaths_in_rounds(name, waiting, &[call])).collect()
}

/// On which machines each runs.
pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        models.extend(alone(waiting));
        models.extend(in_a_row(waiting));
        models.extend(verdicts(waiting));
    }
    models.extend(three_ranks());
    models.extend(deaths(Parking));
    models
}
