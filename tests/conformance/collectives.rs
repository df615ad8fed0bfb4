//! allgatherv, allgather, broadcast and barrier.

use anyhow::ensure;
use intranode::protocol::Staging;
use intranode::protocol::call::INLINE;
use intranode::{Blocks, Communicator, bytemuck};

use crate::board::Board;
use crate::model::{element, elements, ensure_same};
use crate::scenario::{Outcome, Scenario, row, staging};

/// The value of elements that a call must not write.
const UNTOUCHED: f64 = -7.25;

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(rank_and_size_are_consistent),
        row!(allgatherv_counts_one_to_r),
        row!(allgatherv_of_one_rank_is_its_own_data).ranks(&[1]),
        row!(allgatherv_one_rank_sends_nothing),
        row!(allgatherv_all_ranks_send_nothing),
        row!(allgatherv_one_element_each),
        row!(allgatherv_100_000_f64_each),
        row!(allgatherv_30_million_f64_each).ranks(&[2]),
        row!(allgatherv_with_gaps),
        row!(allgatherv_in_descending_order_with_gaps),
        row!(allgatherv_around_the_inline_size),
        row!(allgatherv_around_the_chunk_size).ranks(&[1, 2, 4, 8]),
        row!(allgatherv_through_tiny_staging).staging(64),
        row!(allgatherv_of_structures),
        row!(allgather_in_rank_order),
        row!(allgather_through_tiny_staging).staging(64),
        row!(allgather_between_barriers),
        row!(broadcast_from_every_root),
        row!(broadcast_10_000_elements),
        row!(broadcast_0_elements),
        row!(broadcast_64_mb).ranks(&[1, 2, 4]),
        row!(broadcast_around_the_inline_and_the_chunk_size),
        row!(broadcast_through_tiny_staging).staging(64),
        row!(barrier_written_before_is_read_after),
        row!(barrier_three_in_a_row),
        row!(barrier_100_000_in_a_row_and_no_rank_ahead_by_two).ranks(&[1, 2, 4]),
        row!(blocks_of_work_meet_in_their_places),
    ]
}

/// The first element of each block, one after the other.
fn packed(counts: &[usize]) -> Vec<usize> {
    counts
        .iter()
        .scan(0, |next, count| {
            *next += count;
            Some(*next - count)
        })
        .collect()
}

/// Gathers blocks of `counts` elements to `displs`, and checks every element of the result.
fn gather(comm: &Communicator, counts: &[usize], displs: &[usize], len: usize) -> Outcome {
    let mut recv = vec![UNTOUCHED; len];
    comm.allgatherv(&elements(comm.rank(), counts[comm.rank()]), &mut recv, counts, displs)?;
    let mut expected = vec![UNTOUCHED; len];
    for (rank, (count, displ)) in counts.iter().zip(displs).enumerate() {
        for (index, place) in expected[*displ..displ + count].iter_mut().enumerate() {
            *place = element(rank, index);
        }
    }
    ensure_same(&recv, &expected)
}

fn gather_packed(comm: &Communicator, counts: &[usize]) -> Outcome {
    gather(comm, counts, &packed(counts), counts.iter().sum())
}

fn rank_and_size_are_consistent(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    ensure!(rank < size);
    let mut all = vec![[0; 2]; size];
    comm.allgather(&[[rank, size]], &mut all)?;
    let expected: Vec<[usize; 2]> = (0..size).map(|rank| [rank, size]).collect();
    ensure_same(&all, &expected)
}

fn allgatherv_counts_one_to_r(comm: Communicator) -> Outcome {
    let counts: Vec<usize> = (1..=comm.size()).collect();
    let displs = packed(&counts);
    gather(&comm, &counts, &displs, counts.iter().sum())?;

    // The same bytes on every rank.
    let mut block = vec![0u8; 8 * counts.iter().sum::<usize>()];
    let own = elements(comm.rank(), counts[comm.rank()]);
    comm.allgatherv(&own, bytemuck::cast_slice_mut(&mut block), &counts, &displs)?;
    let mut blocks = vec![0; block.len() * comm.size()];
    comm.allgather(&block, &mut blocks)?;
    for other in blocks.chunks(block.len()) {
        ensure_same(other, &block)?;
    }
    Ok(())
}

fn allgatherv_of_one_rank_is_its_own_data(comm: Communicator) -> Outcome {
    gather_packed(&comm, &[1000])
}

fn allgatherv_one_rank_sends_nothing(comm: Communicator) -> Outcome {
    for length in [1, 3, 1000, 100_000] {
        for silent in 0..comm.size() {
            let counts: Vec<usize> =
                (0..comm.size()).map(|rank| if rank == silent { 0 } else { length }).collect();
            gather_packed(&comm, &counts)?;
        }
    }
    Ok(())
}

fn allgatherv_all_ranks_send_nothing(comm: Communicator) -> Outcome {
    let nothing = vec![0; comm.size()];
    gather(&comm, &nothing, &nothing, 0)?;
    gather(&comm, &nothing, &nothing, 10)?;
    gather(&comm, &nothing, &vec![10; comm.size()], 10)
}

fn allgatherv_one_element_each(comm: Communicator) -> Outcome {
    gather_packed(&comm, &vec![1; comm.size()])
}

fn allgatherv_100_000_f64_each(comm: Communicator) -> Outcome {
    gather_packed(&comm, &vec![100_000; comm.size()])
}

fn allgatherv_30_million_f64_each(comm: Communicator) -> Outcome {
    const LENGTH: usize = 30_000_000;
    let counts = vec![LENGTH; comm.size()];
    let mut recv = vec![UNTOUCHED; LENGTH * comm.size()];
    comm.allgatherv(&elements(comm.rank(), LENGTH), &mut recv, &counts, &packed(&counts))?;
    for (rank, block) in recv.chunks(LENGTH).enumerate() {
        let wrong = (0..LENGTH).find(|index| block[*index] != element(rank, *index));
        ensure!(wrong.is_none(), "element {wrong:?} of rank {rank} is wrong");
    }
    Ok(())
}

fn allgatherv_with_gaps(comm: Communicator) -> Outcome {
    for length in [1, 10, 5000, 70_000] {
        let counts: Vec<usize> = (0..comm.size()).map(|rank| length + rank).collect();
        let displs: Vec<usize> = (0..comm.size()).map(|rank| 3 + rank * (length + comm.size() + 5)).collect();
        let end = displs[comm.size() - 1] + counts[comm.size() - 1];
        gather(&comm, &counts, &displs, end + 4)?;
    }
    Ok(())
}

fn allgatherv_in_descending_order_with_gaps(comm: Communicator) -> Outcome {
    for length in [1, 10, 5000, 70_000] {
        let counts: Vec<usize> = (0..comm.size()).map(|rank| length - rank % 2).collect();
        let place = |rank| 2 + (comm.size() - 1 - rank) * (length + 3);
        let displs: Vec<usize> = (0..comm.size()).map(place).collect();
        gather(&comm, &counts, &displs, displs[0] + length + 1)?;
        // The displacements may differ between ranks.
        let own = if comm.rank() == 0 { displs } else { packed(&counts) };
        gather(&comm, &counts, &own, 2 + comm.size() * (length + 3))?;
    }
    Ok(())
}

/// Gathers blocks of bytes, some shorter than `size` and some longer.
fn gather_bytes_around(comm: &Communicator, size: usize) -> Outcome {
    for base in size - 2..=size {
        let counts: Vec<usize> = (0..comm.size()).map(|rank| base + rank % 3).collect();
        let byte = |rank: usize, index: usize| (rank * 31 + index * 7 + index / 256) as u8;
        let send: Vec<u8> = (0..counts[comm.rank()]).map(|index| byte(comm.rank(), index)).collect();
        let mut expected = Vec::with_capacity(counts.iter().sum());
        for (rank, count) in counts.iter().enumerate() {
            expected.extend((0..*count).map(|index| byte(rank, index)));
        }
        let mut recv = vec![0; expected.len()];
        comm.allgatherv(&send, &mut recv, &counts, &packed(&counts))?;
        ensure_same(&recv, &expected)?;
    }
    Ok(())
}

fn allgatherv_around_the_inline_size(comm: Communicator) -> Outcome {
    gather_bytes_around(&comm, INLINE)
}

fn allgatherv_around_the_chunk_size(comm: Communicator) -> Outcome {
    let Staging { short, chunk, .. } = staging(&comm);
    gather_bytes_around(&comm, short)?;
    gather_bytes_around(&comm, chunk)?;
    gather_bytes_around(&comm, 2 * chunk)
}

fn allgatherv_through_tiny_staging(comm: Communicator) -> Outcome {
    for size in [64, 128, 640, 6400] {
        gather_bytes_around(&comm, size)?;
    }
    // Blocks of very different lengths.
    let counts: Vec<usize> = (0..comm.size()).map(|rank| if rank % 2 == 0 { 1 } else { 2000 }).collect();
    gather_packed(&comm, &counts)
}

/// Rounds without data, in every number, between rounds whose data go through staging.
fn allgather_between_barriers(comm: Communicator) -> Outcome {
    for call in 0..60 {
        for _ in 0..call % 4 {
            comm.barrier()?;
        }
        let len = [25, 1000, 5000][call % 3] + call;
        let sent = |rank: usize| (0..len).map(move |index| element(rank, call * 10_000 + index));
        let (send, mut recv) = (sent(comm.rank()).collect::<Vec<_>>(), vec![0.0; len * comm.size()]);
        comm.allgather(&send, &mut recv)?;
        ensure_same(&recv, &(0..comm.size()).flat_map(sent).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn allgatherv_of_structures(comm: Communicator) -> Outcome {
    // 6 bytes aligned to 2, and 0 bytes.
    let own = [[comm.rank() as u16, 2, 3]];
    let mut recv = vec![[0; 3]; comm.size()];
    comm.allgather(&own, &mut recv)?;
    let expected: Vec<[u16; 3]> = (0..comm.size()).map(|rank| [rank as u16, 2, 3]).collect();
    ensure_same(&recv, &expected)?;
    comm.allgather(&[(), ()], &mut vec![(); 2 * comm.size()])?;
    Ok(comm.broadcast(&mut [(); 5], 0)?)
}

fn allgather_of(comm: &Communicator, len: usize) -> Outcome {
    let mut recv = vec![UNTOUCHED; len * comm.size()];
    comm.allgather(&elements(comm.rank(), len), &mut recv)?;
    let expected: Vec<f64> = (0..comm.size()).flat_map(|rank| elements(rank, len)).collect();
    ensure_same(&recv, &expected)
}

fn allgather_in_rank_order(comm: Communicator) -> Outcome {
    for len in [0, 1, INLINE / 8, INLINE / 8 + 1, 1000, 100_000] {
        allgather_of(&comm, len)?;
    }
    Ok(())
}

fn allgather_through_tiny_staging(comm: Communicator) -> Outcome {
    for len in [0, 1, 8, 12, 13, 16, 17, 1001] {
        allgather_of(&comm, len)?;
    }
    Ok(())
}

fn broadcast(comm: &Communicator, root: usize, len: usize) -> Outcome {
    let mut buffer = if comm.rank() == root { elements(root, len) } else { vec![UNTOUCHED; len] };
    comm.broadcast(&mut buffer, root)?;
    ensure_same(&buffer, &elements(root, len))
}

fn broadcast_from_every_root(comm: Communicator) -> Outcome {
    for len in [1, 4, 100, 50_000] {
        for root in 0..comm.size() {
            broadcast(&comm, root, len)?;
        }
    }
    Ok(())
}

fn broadcast_10_000_elements(comm: Communicator) -> Outcome {
    broadcast(&comm, 0, 10_000)?;
    broadcast(&comm, comm.size() - 1, 10_000)
}

fn broadcast_0_elements(comm: Communicator) -> Outcome {
    broadcast(&comm, 0, 0)?;
    broadcast(&comm, comm.size() - 1, 0)
}

fn broadcast_64_mb(comm: Communicator) -> Outcome {
    broadcast(&comm, 0, (64 << 20) / 8)?;
    broadcast(&comm, comm.size() - 1, (64 << 20) / 8)
}

fn broadcast_bytes_around(comm: &Communicator, size: usize) -> Outcome {
    for len in size - 2..=size + 2 {
        let root = len % comm.size();
        let expected: Vec<u8> = (0..len).map(|index| (index * 13 + index / 256) as u8).collect();
        let mut buffer = if comm.rank() == root { expected.clone() } else { vec![0; len] };
        comm.broadcast(&mut buffer, root)?;
        ensure_same(&buffer, &expected)?;
    }
    Ok(())
}

fn broadcast_around_the_inline_and_the_chunk_size(comm: Communicator) -> Outcome {
    let Staging { short, chunk_of_one, .. } = staging(&comm);
    for size in [INLINE, short, chunk_of_one, 2 * chunk_of_one] {
        broadcast_bytes_around(&comm, size)?;
    }
    Ok(())
}

fn broadcast_through_tiny_staging(comm: Communicator) -> Outcome {
    for size in [64, 128, 640, 64 * 100] {
        broadcast_bytes_around(&comm, size)?;
    }
    Ok(())
}

fn barrier_written_before_is_read_after(comm: Communicator) -> Outcome {
    let board = Board::new(&comm)?;
    for byte in 1..=200 {
        board.post(byte)?;
        comm.barrier()?;
        ensure_same(&board.read()?, &vec![byte; comm.size()])?;
        comm.barrier()?;
    }
    Ok(())
}

fn barrier_three_in_a_row(comm: Communicator) -> Outcome {
    for _ in 0..3 {
        comm.barrier()?;
    }
    Ok(())
}

fn barrier_100_000_in_a_row_and_no_rank_ahead_by_two(comm: Communicator) -> Outcome {
    let board = Board::new(&comm)?;
    for round in 1..=100_000u32 {
        let byte = round as u8;
        board.post(byte)?;
        comm.barrier()?;
        // The others may be in the next barrier, but not in the one after that.
        for (rank, seen) in board.read()?.into_iter().enumerate() {
            let ahead = seen.wrapping_sub(byte);
            ensure!(ahead <= 1, "after barrier {round} rank {rank} is {ahead} ahead, modulo 256");
        }
    }
    Ok(())
}

fn blocks_of_work_meet_in_their_places(comm: Communicator) -> Outcome {
    for items in [0, 1, 2, 3, 7, 10, 64, 1000, 12_345] {
        let blocks = Blocks::new(items, comm.size());
        let own: Vec<u64> = blocks.range(comm.rank()).map(|item| item as u64).collect();
        let mut all = vec![u64::MAX; items];
        comm.allgatherv(&own, &mut all, &blocks.counts(), &blocks.displs())?;
        let expected: Vec<u64> = (0..items as u64).collect();
        ensure_same(&all, &expected)?;
    }
    Ok(())
}
