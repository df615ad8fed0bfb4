//! alltoall and alltoallv.

use anyhow::{Context, ensure};
use intranode::protocol::Staging;
use intranode::protocol::call::INLINE;
use intranode::{Communicator, Error};

use crate::model::ensure_same;
use crate::scenario::{Outcome, Scenario, ensure_matches, row, staging, still_works};

/// Staging of this number of bytes has room for a chunk that is longer than a header.
const TINY: usize = 192;

const UNTOUCHED: u64 = 0xEEEE_EEEE_EEEE_EEEE;

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(alltoall_of_every_length),
        row!(alltoall_100_000_each),
        row!(alltoall_around_the_inline_and_the_chunk_size),
        row!(alltoall_through_tiny_staging).staging(64),
        row!(alltoall_many_times),
        row!(alltoallv_of_every_length),
        row!(alltoallv_one_rank_sends_all),
        row!(alltoallv_nothing_at_all),
        row!(alltoallv_around_what_fits_beside_the_counts),
        row!(alltoallv_around_what_is_staged_with_the_counts),
        row!(alltoallv_around_what_tiny_staging_takes_with_the_counts).staging(TINY),
        row!(alltoallv_counts_that_fit_into_no_header),
        row!(alltoallv_through_tiny_staging).staging(64),
        row!(alltoallv_counts_of_any_pair_that_disagree),
        row!(alltoallv_counts_of_several_pairs_that_disagree).ranks(&[2, 3, 4, 8]),
    ]
}

/// Element `index` of what `from` sends to `to`.
fn element(from: usize, to: usize, index: usize) -> u64 {
    (from as u64) << 48 | (to as u64) << 32 | index as u64
}

fn block(from: usize, to: usize, len: usize) -> impl Iterator<Item = u64> {
    (0..len).map(move |index| element(from, to, index))
}

fn alltoall(comm: &Communicator, len: usize) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let send: Vec<u64> = (0..size).flat_map(|to| block(rank, to, len)).collect();
    let mut recv = vec![UNTOUCHED; len * size];
    comm.alltoall(&send, &mut recv)?;
    let expected: Vec<u64> = (0..size).flat_map(|from| block(from, rank, len)).collect();
    ensure_same(&recv, &expected).with_context(|| format!("{len} elements each"))
}

fn alltoall_of_every_length(comm: Communicator) -> Outcome {
    [0, 1, 2, 3, 12, 13, 100, 1000, 5000].into_iter().try_for_each(|len| alltoall(&comm, len))
}

fn alltoall_100_000_each(comm: Communicator) -> Outcome {
    alltoall(&comm, 100_000)
}

fn alltoall_around_the_inline_and_the_chunk_size(comm: Communicator) -> Outcome {
    let (rank, size, others) = (comm.rank(), comm.size(), comm.size().max(2) - 1);
    let byte = |from: usize, to: usize, index: usize| (from * 31 + to * 57 + index * 7 + index / 256) as u8;
    let Staging { short, chunk, .. } = staging(&comm);
    for length in [INLINE, short, chunk, 512 << 10].map(|total| total / others) {
        for len in length - 1..=length + 1 {
            let send: Vec<u8> = (0..size * len).map(|at| byte(rank, at / len, at % len)).collect();
            let mut recv = vec![0; size * len];
            comm.alltoall(&send, &mut recv)?;
            let expected: Vec<u8> = (0..size * len).map(|at| byte(at / len, rank, at % len)).collect();
            ensure_same(&recv, &expected)?;
        }
    }
    Ok(())
}

fn alltoall_through_tiny_staging(comm: Communicator) -> Outcome {
    [1, 3, 8, 9, 333].into_iter().try_for_each(|len| alltoall(&comm, len))
}

fn alltoall_many_times(comm: Communicator) -> Outcome {
    (0..500).try_for_each(|turn| alltoall(&comm, [1, 30, 2, 700][turn % 4]))
}

/// `count(from, to)` elements for each pair, with gaps between the blocks of both buffers.
fn alltoallv(comm: &Communicator, count: impl Fn(usize, usize) -> usize) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let send_counts: Vec<usize> = (0..size).map(|to| count(rank, to)).collect();
    let recv_counts: Vec<usize> = (0..size).map(|from| count(from, rank)).collect();
    let places = |counts: &[usize], gap: usize| {
        let mut end = 0;
        let displs: Vec<usize> = counts
            .iter()
            .map(|count| {
                end += gap + count;
                end - count
            })
            .collect();
        (displs, end + gap)
    };
    let ((send_displs, send_len), (recv_displs, recv_len)) = (places(&send_counts, 3), places(&recv_counts, 2));
    let mut send = vec![UNTOUCHED; send_len];
    let mut expected = vec![UNTOUCHED; recv_len];
    for other in 0..size {
        let own = block(rank, other, send_counts[other]);
        send[send_displs[other]..].iter_mut().zip(own).for_each(|(place, value)| *place = value);
        let theirs = block(other, rank, recv_counts[other]);
        expected[recv_displs[other]..].iter_mut().zip(theirs).for_each(|(place, value)| *place = value);
    }
    let mut recv = vec![UNTOUCHED; recv_len];
    comm.alltoallv(&send, &send_counts, &send_displs, &mut recv, &recv_counts, &recv_displs)?;
    ensure_same(&recv, &expected)
}

fn alltoallv_of_every_length(comm: Communicator) -> Outcome {
    for len in [0, 1, 3, 100, 2000, 70_000 / comm.size()] {
        alltoallv(&comm, |from, to| len + from + 2 * to)?;
        alltoallv(&comm, |from, to| if (from + to) % 3 == 0 { 0 } else { len + to })?;
    }
    Ok(())
}

fn alltoallv_one_rank_sends_all(comm: Communicator) -> Outcome {
    for sender in 0..comm.size() {
        alltoallv(&comm, |from, _| if from == sender { 1000 } else { 0 })?;
        alltoallv(&comm, |_, to| if to == sender { 1000 } else { 0 })?;
    }
    Ok(())
}

fn alltoallv_nothing_at_all(comm: Communicator) -> Outcome {
    alltoallv(&comm, |_, _| 0)
}

/// `len(from, to)` bytes for each pair, which follow one another in both buffers, and are others in each turn.
fn alltoallv_of_bytes(comm: &Communicator, turn: usize, len: impl Fn(usize, usize) -> usize) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let bytes = |from: usize, to: usize| {
        let byte = |index: usize| (from * 31 + to * 57 + index * 7 + index / 256 + turn * 11) as u8;
        (0..len(from, to)).map(byte).collect::<Vec<_>>()
    };
    let blocks = |own: &dyn Fn(usize) -> Vec<u8>| (0..size).map(own).collect::<Vec<_>>();
    let (send, expected) = (blocks(&|to| bytes(rank, to)), blocks(&|from| bytes(from, rank)));
    let counts = |blocks: &[Vec<u8>]| blocks.iter().map(Vec::len).collect::<Vec<_>>();
    let displs = |counts: &[usize]| (0..size).map(|rank| counts[..rank].iter().sum()).collect::<Vec<_>>();
    let (send_counts, recv_counts) = (counts(&send), counts(&expected));
    let mut recv = vec![0xEE; recv_counts.iter().sum()];
    let (send_displs, recv_displs) = (displs(&send_counts), displs(&recv_counts));
    comm.alltoallv(&send.concat(), &send_counts, &send_displs, &mut recv, &recv_counts, &recv_displs)?;
    ensure_same(&recv, &expected.concat()).with_context(|| format!("turn {turn}"))
}

/// Around the 94 bytes for all counts of a rank and its blocks, on one rank or on all, and where a count takes two bytes.
fn alltoallv_around_what_fits_beside_the_counts(comm: Communicator) -> Outcome {
    let size = comm.size();
    for last in 94usize.saturating_sub(2 * size + 3)..96 {
        for all in [false, true] {
            // One block of `last` bytes; the others are short.
            alltoallv_of_bytes(&comm, last, |from, to| match to == (from + 1) % size && (all || from == 0) {
                true => last,
                false => usize::from((from + to).is_multiple_of(5)),
            })?;
        }
    }
    still_works(&comm)
}

fn alltoallv_around_what_is_staged_with_the_counts(comm: Communicator) -> Outcome {
    around_what_is_staged(&comm, staging(&comm))
}

fn alltoallv_around_what_tiny_staging_takes_with_the_counts(comm: Communicator) -> Outcome {
    around_what_is_staged(&comm, Staging::of(TINY, comm.size()))
}

/// Around the bytes that a rank stages with its counts: on all ranks, on some beside others that stage nothing, and in vain, since one
/// rank has more. Before and behind calls whose data go through staging.
fn around_what_is_staged(comm: &Communicator, Staging { short, .. }: Staging) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let round = || comm.state().map(|state| state.ranks[rank].round);
    let mut turn = 0;
    for most in [short - 1, short, short + 1] {
        for few in [0, 1, 26, 27, 28, 100, short] {
            // One rank, or none.
            for odd in 0..=size {
                // All of a rank's bytes are for its successor, which with one rank is itself.
                let total = |from: usize| if odd == from { most } else { few.min(short - from) };
                let len = |from: usize, to: usize| if to == (from + 1) % size { total(from) } else { 0 };
                let mut rounds = 0;
                // Behind calls in which a rank has more nothing is staged the first time.
                for _ in 0..2 {
                    let before = round()?;
                    alltoallv_of_bytes(comm, turn, len)?;
                    rounds = round()?.wrapping_sub(before);
                    turn += 1;
                }
                let has_come = size == 1 || (0..size).all(|from| total(from) <= short);
                ensure!((rounds == 1) == has_come, "turn {turn}: {rounds} rounds");
                if turn.is_multiple_of(4) {
                    alltoall(comm, 30)?;
                }
                if turn.is_multiple_of(6) {
                    staged_in_vain(comm, short)?;
                }
            }
        }
    }
    Ok(())
}

/// All ranks stage `short` bytes, but the counts of a pair differ.
fn staged_in_vain(comm: &Communicator, short: usize) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let mut counts = vec![0; size];
    counts[(rank + 1) % size] = short;
    let mut expected = vec![0; size];
    expected[(rank + size - 1) % size] = short + usize::from(rank == 0);
    let (displs, mut recv) = (vec![0; size], vec![0xEE; short + 1]);
    let result = comm.alltoallv(&vec![1u8; short], &counts, &displs, &mut recv, &expected, &displs);
    ensure_matches!(result, Err(Error::CountsDisagree { .. }));
    ensure!(recv.iter().all(|byte| *byte == 0xEE), "something was written");
    Ok(())
}

/// Counts of elements without bytes can have any length.
fn alltoallv_counts_that_fit_into_no_header(comm: Communicator) -> Outcome {
    let size = comm.size();
    let (counts, displs) = (vec![usize::MAX / size; size], vec![0; size]);
    let send = vec![(); usize::MAX];
    let recv_displs: Vec<usize> = (0..size).map(|rank| rank * counts[0]).collect();
    let mut recv = vec![(); usize::MAX];
    comm.alltoallv(&send, &counts, &displs, &mut recv, &counts, &recv_displs)?;
    let mut wrong = counts.clone();
    wrong[0] -= usize::from(comm.rank() == size - 1);
    let result = comm.alltoallv(&send, &counts, &displs, &mut recv, &wrong, &recv_displs);
    ensure_matches!(&result, Err(Error::CountsDisagree { pair, .. })
        if (pair.from, pair.to, pair.sent, pair.expected) == (0, size - 1, counts[0], counts[0] - 1));
    // More together than there can be, though the buffer has each of these blocks.
    if size > 1 {
        let most = vec![usize::MAX; size];
        let result = comm.alltoallv(&send, &most, &displs, &mut recv, &counts, &recv_displs);
        ensure_matches!(result, Err(Error::InvalidBufferSize { expected: usize::MAX, .. }));
    }
    still_works(&comm)
}

fn alltoallv_through_tiny_staging(comm: Communicator) -> Outcome {
    for len in [1, 8, 150] {
        alltoallv(&comm, |from, to| len + from + 2 * to)?;
        alltoallv(&comm, |from, to| if from < to { 0 } else { len })?;
    }
    Ok(())
}

/// Each pair of ranks sends `len` elements, but some receivers expect more.
fn disagree(comm: &Communicator, len: usize, pairs: &[(usize, usize)], first: (usize, usize)) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let expected: Vec<usize> = (0..size).map(|from| len + usize::from(pairs.contains(&(from, rank)))).collect();
    let displs = |gap: usize| (0..size).map(|other| other * (len + gap)).collect::<Vec<_>>();
    let mut recv = vec![UNTOUCHED; (len + 1) * size];
    let result =
        comm.alltoallv(&vec![5; len * size], &vec![len; size], &displs(0), &mut recv, &expected, &displs(1));
    ensure!(recv.iter().all(|value| *value == UNTOUCHED), "something was written");
    let error = result.err().context("no error")?;
    ensure!(!error.is_fatal());
    ensure_matches!(&error, Error::CountsDisagree { pair, .. }
        if (pair.from, pair.to, pair.sent, pair.expected) == (first.0, first.1, len, len + 1));
    let text = error.to_string();
    ensure!(text.contains(&format!("rank {} sends {len} elements to rank {}", first.0, first.1)), "{text}");
    still_works(comm)
}

fn alltoallv_counts_of_any_pair_that_disagree(comm: Communicator) -> Outcome {
    for from in 0..comm.size() {
        for to in 0..comm.size() {
            for len in [0, 1, 700] {
                disagree(&comm, len, &[(from, to)], (from, to))?;
            }
        }
    }
    Ok(())
}

fn alltoallv_counts_of_several_pairs_that_disagree(comm: Communicator) -> Outcome {
    let last = comm.size() - 1;
    disagree(&comm, 3, &[(last, 0), (0, last), (last, last)], (0, last))?;
    disagree(&comm, 3, &[(last, last), (last, 0)], (last, 0))
}
