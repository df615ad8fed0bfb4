//! The rank's side of a test: helpers for the programs that ranks run.

use std::io::{BufRead, Write};

use anyhow::{Result, ensure};
use intranode::{Communicator, Config, Error, ReduceOp};

use super::report::Report;

/// Sends a line to the test.
pub(crate) fn send(line: &str) -> Result<()> {
    let mut output = std::io::stdout();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}

/// Receives a line from the test; `None` when the test has closed this rank's input.
pub(crate) fn receive() -> Result<Option<String>> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line)?;
    Ok((read > 0).then(|| line.trim_end().to_owned()))
}

/// Joins, and sends "joined".
pub(crate) fn join() -> Result<Communicator> {
    let comm = Config::from_env()?.join()?;
    send("joined")?;
    Ok(comm)
}

/// Sends the error, and lives on until the test closes this rank's input.
pub(crate) fn report(error: &Error) -> Result<()> {
    send(&Report::of(error).line())?;
    while receive()?.is_some() {}
    Ok(())
}

/// Repeats a collective until it fails, and reports the failure.
pub(crate) fn repeat(
    comm: &Communicator,
    mut call: impl FnMut(&Communicator) -> Result<(), Error>,
) -> Result<()> {
    loop {
        if let Err(error) = call(comm) {
            return report(&error);
        }
    }
}

/// A value of `rank`'s contribution in a round: pseudorandom, and known to all ranks.
fn value(rank: usize, round: u64, index: usize) -> u8 {
    let mixed = (rank as u64 + 1) ^ round << 8 ^ (index as u64) << 40;
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// A collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Barrier,
    Allreduce,
    Allgatherv,
    Broadcast,
    Reduce,
    Scan,
    ReduceScatter,
    Gather,
    Scatter,
    Alltoall,
    StartAllreduce,
    StartAllgatherv,
    StartReduceScatter,
    StartAlltoall,
}

pub(crate) const KINDS: [Kind; 14] = [
    Kind::Barrier,
    Kind::Allreduce,
    Kind::Allgatherv,
    Kind::Broadcast,
    Kind::Reduce,
    Kind::Scan,
    Kind::ReduceScatter,
    Kind::Gather,
    Kind::Scatter,
    Kind::Alltoall,
    Kind::StartAllreduce,
    Kind::StartAllgatherv,
    Kind::StartReduceScatter,
    Kind::StartAlltoall,
];

/// The buffers of [`collective`], kept from call to call.
#[derive(Default)]
pub(crate) struct Buffers {
    pub(crate) send: Vec<u8>,
    pub(crate) recv: Vec<u8>,
}

/// One collective over `len` bytes a rank, with a check of its result.
///
/// # Panics
/// When the data is wrong.
pub(crate) fn collective(
    comm: &Communicator,
    kind: Kind,
    len: usize,
    round: u64,
    buffers: &mut Buffers,
) -> Result<(), Error> {
    let (rank, size) = (comm.rank(), comm.size());
    let Buffers { send, recv } = buffers;
    // Each value fills many bytes, so that a large buffer is filled and checked quickly.
    let step = (len / 64).max(1);
    let fill = |buffer: &mut Vec<u8>, len| {
        buffer.resize(len, 0);
        buffer.chunks_mut(step).enumerate().for_each(|(index, part)| part.fill(value(rank, round, index)));
    };
    match kind {
        Kind::Barrier => comm.barrier(),
        Kind::Allreduce => {
            fill(send, len);
            recv.resize(len, 0);
            comm.allreduce(send, recv, ReduceOp::BitXor)?;
            let expected = |index| (0..size).fold(0, |xor, rank| xor ^ value(rank, round, index / step));
            check(recv, step, expected);
            Ok(())
        }
        Kind::Allgatherv => {
            let counts: Vec<usize> = (0..size).map(|rank| len - rank.min(len)).collect();
            let displs: Vec<usize> = (0..size).map(|rank| rank * len).collect();
            fill(send, counts[rank]);
            recv.resize(len * size, 0);
            comm.allgatherv(send, recv, &counts, &displs)?;
            for rank in 0..size {
                check(&recv[displs[rank]..][..counts[rank]], step, |index| value(rank, round, index / step));
            }
            Ok(())
        }
        Kind::Broadcast => {
            let root = round as usize % size;
            fill(recv, len);
            comm.broadcast(recv, root)?;
            check(recv, step, |index| value(root, round, index / step));
            Ok(())
        }
        _ => other_collective(comm, kind, len, round, buffers),
    }
}

/// Those that came later. Each value fills a block, so that what is right does not depend on where in it.
fn other_collective(
    comm: &Communicator,
    kind: Kind,
    len: usize,
    round: u64,
    buffers: &mut Buffers,
) -> Result<(), Error> {
    let (rank, size, root) = (comm.rank(), comm.size(), round as usize % comm.size());
    let Buffers { send, recv } = buffers;
    // Together not much longer than `len`.
    let block = len.div_ceil(size);
    let (sent, xor) = (
        |from: usize, to: usize| value(from, round, to),
        |ranks: usize, to: usize| (0..ranks).fold(0, |xor, from| xor ^ value(from, round, to)),
    );
    let blocks = |buffer: &mut Vec<u8>| {
        buffer.resize(block * size, 0);
        buffer.chunks_mut(block.max(1)).enumerate().for_each(|(to, part)| part.fill(sent(rank, to)));
    };
    let from_all = |recv: &[u8], to: usize| {
        recv.chunks(block.max(1))
            .enumerate()
            .for_each(|(from, part)| check(part, 1 + block / 64, |_| sent(from, to)));
    };
    match kind {
        Kind::Reduce | Kind::Scan => {
            send.clear();
            send.resize(len, sent(rank, 0));
            recv.resize(len, 0);
            let ranks = if kind == Kind::Scan {
                comm.scan(send, recv, ReduceOp::BitXor)?;
                rank + 1
            } else {
                comm.reduce(send, (rank == root).then_some(&mut recv[..]), ReduceOp::BitXor, root)?;
                size
            };
            if kind == Kind::Scan || rank == root {
                check(recv, 1 + len / 64, |_| xor(ranks, 0));
            }
        }
        Kind::ReduceScatter => {
            blocks(send);
            recv.resize(block, 0);
            comm.reduce_scatter_block(send, recv, ReduceOp::BitXor)?;
            check(recv, 1 + block / 64, |_| xor(size, rank));
        }
        Kind::Gather => {
            recv.resize(block * size, 0);
            send.clear();
            send.resize(block, sent(rank, 0));
            comm.gather(send, (rank == root).then_some(&mut recv[..]), root)?;
            if rank == root {
                from_all(recv, 0);
            }
        }
        Kind::Scatter => {
            blocks(send);
            recv.resize(block, 0);
            comm.scatter((rank == root).then_some(&send[..]), recv, root)?;
            check(recv, 1 + block / 64, |_| sent(root, rank));
        }
        Kind::Alltoall => {
            blocks(send);
            recv.resize(block * size, 0);
            comm.alltoall(send, recv)?;
            from_all(recv, rank);
        }
        Kind::StartAllreduce => {
            // Kept from call to call, as the others' buffers: the call gives it back.
            let mut data = std::mem::take(send);
            data.clear();
            data.resize(len, sent(rank, 0));
            let mut pending = comm.start_allreduce(data, ReduceOp::BitXor)?;
            // Some ranks poll, and some wait.
            while rank % 2 == 1 && !pending.test() {}
            *send = pending.wait()?;
            check(send, 1 + len / 64, |_| xor(size, 0));
        }
        Kind::StartAllgatherv => {
            let displs: Vec<usize> = (0..size).map(|rank| rank * block).collect();
            send.clear();
            send.resize(block, sent(rank, 0));
            recv.resize(block * size, 0);
            let all = std::mem::take(recv);
            let mut pending = comm.start_allgatherv(send, all, &vec![block; size], &displs)?;
            while rank % 2 == 0 && !pending.test() {}
            *recv = pending.wait()?;
            from_all(recv, 0);
        }
        Kind::StartReduceScatter => {
            let mut data = std::mem::take(send);
            blocks(&mut data);
            let mut pending = comm.start_reduce_scatter_block(data, ReduceOp::BitXor)?;
            while rank % 2 == 1 && !pending.test() {}
            *send = pending.wait()?;
            check(send, 1 + block / 64, |_| xor(size, rank));
        }
        Kind::StartAlltoall => {
            let mut data = std::mem::take(send);
            blocks(&mut data);
            recv.resize(block * size, 0);
            let mut pending = comm.start_alltoall(data, std::mem::take(recv))?;
            while rank % 2 == 0 && !pending.test() {}
            *recv = pending.wait()?;
            from_all(recv, rank);
        }
        Kind::Barrier | Kind::Allreduce | Kind::Allgatherv | Kind::Broadcast => {
            unreachable!("{kind:?} is done elsewhere")
        }
    }
    Ok(())
}

/// Begins every message about wrong data.
pub(crate) const WRONG_DATA: &str = "wrong data";

#[track_caller]
fn check(data: &[u8], step: usize, expected: impl Fn(usize) -> u8) {
    for index in (0..data.len()).step_by(step) {
        assert_eq!(data[index], expected(index), "{WRONG_DATA} at {index} of {}", data.len());
    }
}

/// Fails unless collectives work, with the right results.
pub(crate) fn ensure_works(comm: &Communicator, times: u64) -> Result<()> {
    let mut buffers = Buffers::default();
    for round in 0..times {
        let kind = KINDS[round as usize % KINDS.len()];
        collective(comm, kind, 10, round, &mut buffers)?;
    }
    ensure!(times > 0, "nothing was checked");
    Ok(())
}
