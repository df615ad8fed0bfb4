//! All operations, in an order and with lengths that follow from a common seed.

use fastrand::Rng;
use intranode::{Communicator, Error, ReduceOp};

/// Numbers of elements: none, inline in the header, through staging in one round, and in several rounds.
const LENGTHS: [usize; 5] = [0, 3, 700, 9_000, 120_000];

/// The length of a block from which three ranks receive with non-temporal stores.
const STREAMED: usize = 6 << 20;

/// Runs the operation of this number, without checking its result.
///
/// # Errors
/// Those of the library.
pub(crate) fn operation(comm: &Communicator, number: u64) -> Result<(), Error> {
    // A new generator for each operation, so that all ranks make the same choices after an error too.
    let random = &mut Rng::with_seed(number);
    let len = LENGTHS[random.usize(0..LENGTHS.len())];
    match random.u8(0..17) {
        0 | 1 => comm.barrier(),
        2 => allreduce(comm, len, random.bool()),
        3 => allgatherv(comm, len, random),
        4 => allgatherv(comm, if random.u8(0..4) == 0 { STREAMED } else { len }, random),
        5 => comm.allgather(&vec![7u16; len], &mut vec![0; len * comm.size()]),
        6 => comm.broadcast(&mut vec![1.5f64; len], random.usize(0..comm.size())),
        7 => region(comm, len),
        8 => assigned(comm, len, random),
        9 => exchange(comm, len, random),
        10 => split(comm, len, random),
        11 => blocks(comm, len, random),
        12 => folds(comm, len, random),
        13 | 14 => started(comm, len, random),
        15 => buffers(comm, random),
        _ => state(comm),
    }
}

fn allreduce(comm: &Communicator, len: usize, in_place: bool) -> Result<(), Error> {
    let mut values = vec![comm.rank() as f64; len];
    if in_place {
        return comm.allreduce_in_place(&mut values, ReduceOp::Sum);
    }
    comm.allreduce(&values.clone(), &mut values, ReduceOp::Max)
}

/// A block for, or from, each rank.
fn blocks(comm: &Communicator, len: usize, random: &mut Rng) -> Result<(), Error> {
    let (size, root) = (comm.size(), random.usize(0..comm.size()));
    let (own, mut all) = (vec![1u8; len], vec![2u8; len * size]);
    let is_root = comm.rank() == root;
    match random.u8(0..6) {
        0 => comm.gather(&own, is_root.then_some(&mut all[..]), root),
        1 => comm.gather_in_place(&mut all[..if is_root { len * size } else { len }], root),
        2 => comm.scatter(is_root.then_some(&all[..]), &mut own.clone(), root),
        3 => comm.allgather_in_place(&mut all),
        4 => comm.alltoall(&all.clone(), &mut all),
        _ => {
            let (counts, displs) = (vec![len; size], (0..size).map(|rank| rank * len).collect::<Vec<_>>());
            comm.alltoallv(&all.clone(), &counts, &displs, &mut all, &counts, &displs)
        }
    }
}

/// Reductions of which ranks get different things.
fn folds(comm: &Communicator, len: usize, random: &mut Rng) -> Result<(), Error> {
    let root = random.usize(0..comm.size());
    let (mut data, mut all) = (vec![1.5f64; len], vec![1u32; len * comm.size()]);
    match random.u8(0..5) {
        0 => comm.reduce_in_place(&mut data, ReduceOp::Sum, root),
        1 => comm.scan_in_place(&mut data, ReduceOp::Sum),
        2 => comm.exscan_in_place(&mut data, ReduceOp::Max),
        3 => comm.reduce_scatter_block_in_place(&mut all, ReduceOp::BitXor),
        _ => comm.allreduce_with(&data.clone(), &mut data, "sum", |sum, x| *sum += x),
    }
}

/// Calls that are started, one or two, and tested, waited for, or left to the next call.
fn started(comm: &Communicator, len: usize, random: &mut Rng) -> Result<(), Error> {
    let (size, root) = (comm.size(), random.usize(0..comm.size()));
    let displs: Vec<usize> = (0..size).map(|rank| rank * len).collect();
    let mut first = comm.start_broadcast(vec![1.5f64; len], root)?;
    if random.bool() {
        drop(comm.start_allreduce(vec![1u64; len], ReduceOp::Sum)?);
    }
    let second = comm.start_allgatherv(&vec![1u8; len], vec![0; len * size], &vec![len; size], &displs)?;
    // Each rank draws the same numbers, whatever its tests find.
    let tests = random.usize(0..4);
    let _ = (0..tests).any(|_| first.test());
    if random.bool() {
        second.wait()?;
        return first.wait().map(drop);
    }
    comm.barrier()
}

/// Blocks that the others read in place, in memory that is written and given to another buffer as soon as a call has failed.
fn buffers(comm: &Communicator, random: &mut Rng) -> Result<(), Error> {
    const LEN: usize = (4 << 20) / 8 + 1;
    let (root, mut recv) = (random.usize(0..comm.size()), vec![0.0; LEN * comm.size()]);
    for _ in 0..2 {
        let mut own = comm.buffer::<f64>(LEN)?;
        own.fill(1.5);
        let result = match random.u8(0..3) {
            0 => comm.allgather(&own, &mut recv),
            1 => comm.broadcast(&mut own, root),
            _ => comm.allreduce(&own, &mut recv[..LEN], ReduceOp::Sum),
        };
        own.fill(f64::NAN);
        result?;
    }
    Ok(())
}

/// Blocks of different lengths, with gaps between them.
fn allgatherv(comm: &Communicator, len: usize, random: &mut Rng) -> Result<(), Error> {
    let counts: Vec<usize> = (0..comm.size()).map(|_| len - random.usize(0..len / 8 + 1)).collect();
    let displs: Vec<usize> = (0..comm.size()).map(|rank| rank * (len + 1)).collect();
    comm.allgatherv(&vec![1u8; counts[comm.rank()]], &mut vec![0; (len + 1) * comm.size()], &counts, &displs)
}

fn region(comm: &Communicator, len: usize) -> Result<(), Error> {
    let mut region = comm.region::<u64>(len)?;
    region.as_mut_slice().fill(1);
    let mut region = region.publish()?.reclaim()?;
    region.distribute()?;
    region.as_mut_slice().fill(2);
    region.publish().map(drop)
}

/// Each rank claims ranges that alternate with those of the others.
fn assigned(comm: &Communicator, len: usize, random: &mut Rng) -> Result<(), Error> {
    let mut region = comm.region::<u32>(len)?;
    let ranges = random.usize(0..40);
    let step = len / (ranges * comm.size() + 1);
    let own = (0..ranges).map(|index| (index * comm.size() + comm.rank()) * step);
    region.set_ownership(own.map(|start| start..start + step))?;
    region.parts_mut().for_each(|part| part.fill(3));
    region.publish()?.reclaim().map(drop)
}

fn exchange(comm: &Communicator, len: usize, random: &mut Rng) -> Result<(), Error> {
    let counts: Vec<usize> = (0..comm.size()).map(|_| random.usize(0..=len)).collect();
    let mut exchange = comm.exchange::<f32>(&counts)?;
    for turn in 0..4 {
        exchange.own().fill(turn as f32);
        exchange.share()?;
    }
    Ok(())
}

/// Collectives in a split communicator.
fn split(comm: &Communicator, len: usize, random: &mut Rng) -> Result<(), Error> {
    let colors = random.usize(1..=comm.size());
    let split = comm.split(comm.rank() % colors, random.usize(0..2) * (comm.size() - comm.rank()))?;
    split.barrier()?;
    allreduce(&split, len, true)?;
    split.allgather(&vec![1u8; len], &mut vec![0; len * split.size()])?;
    region(&split, len)
}

/// The state of all ranks.
fn state(comm: &Communicator) -> Result<(), Error> {
    assert!(!comm.state()?.to_string().is_empty());
    comm.barrier()
}
