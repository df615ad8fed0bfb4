//! The calls of programs whose threads allocate at random: collectives and messages of their blocks.

use anyhow::{Context, Result, ensure};
use intranode::{Communicator, Messages, ReduceOp};

use super::blocks::MIB;
use super::patterns::{Block, Shared, allocate, layout, length};

/// One call, the same on all ranks.
pub(super) fn call(
    comm: &Communicator,
    messages: &mut Messages,
    shared: &Shared,
    (common, own): (&mut fastrand::Rng, &mut fastrand::Rng),
    kept: &mut Vec<Block>,
) -> Result<()> {
    let (rank, size, pattern) = (comm.rank(), comm.size(), &shared.pattern);
    let (seed, root) = (common.usize(..1 << 30), common.usize(..size));
    let len = length(common).min(4 * MIB);
    let of = |rank: usize| seed + 31 * rank;
    match common.u32(..6) {
        0 => {
            let zeros = Block::zeros(layout(own, len)?)?;
            let mut block = zeros;
            if rank == root {
                pattern.fill(block.bytes(), of(root));
            }
            for turn in 0..common.usize(1..5) {
                comm.broadcast(block.bytes(), root)?;
                pattern.ensure_in(block.bytes(), of(root + turn))?;
                pattern.fill(block.bytes(), of(root + turn + 1));
            }
        }
        1 => {
            let mut send = Block::new(pattern, layout(own, len)?, of(rank), own.bool())?;
            let mut recv = Block::zeros(layout(own, len * size)?)?;
            comm.allgather(send.bytes(), recv.bytes())?;
            send.bytes().fill(0xCC);
            drop(send);
            for (rank, part) in recv.bytes().chunks(len).enumerate() {
                pattern.ensure_in(part, of(rank)).with_context(|| format!("allgather from {rank}"))?;
            }
        }
        2 => {
            // The same block again, which is found unchanged, and then changes in one place.
            let mut send = Block::new(pattern, layout(own, len)?, of(rank), own.bool())?;
            let mut recv = Block::zeros(layout(own, len * size)?)?;
            for turn in 0..5 {
                comm.allgather(send.bytes(), recv.bytes())?;
                for (rank, part) in recv.bytes().chunks(len).enumerate() {
                    let mut expected = vec![0; len];
                    pattern.fill(&mut expected, of(rank));
                    if turn < 4 {
                        change(&mut expected, seed, rank, turn);
                    }
                    ensure!(part == expected, "an old value of rank {rank} in turn {turn}");
                }
                if turn < 3 {
                    change(send.bytes(), seed, rank, turn + 1);
                } else {
                    // At another place, or at the same one again.
                    pattern.fill(send.bytes(), of(rank));
                    send.resize(pattern, len / 2 + 1, of(rank))?;
                    send.resize(pattern, len, of(rank))?;
                }
            }
        }
        3 => {
            // Of one rank, and zeros of the others.
            let mut sum = Block::zeros(layout(own, len)?)?;
            let mut send = Block::zeros(layout(own, len)?)?;
            if rank == root {
                pattern.fill(send.bytes(), of(root));
            }
            comm.allreduce(send.bytes(), sum.bytes(), ReduceOp::Max)?;
            pattern.ensure_in(sum.bytes(), of(root)).context("allreduce")?;
            comm.allreduce_in_place(send.bytes(), ReduceOp::Max)?;
            pattern.ensure_in(send.bytes(), of(root)).context("allreduce in place")?;
            send.seed = of(root);
            shared.handed_on.lock().expect("no panic").push(send);
        }
        4 => {
            let mut send = Block::new(pattern, layout(own, len)?, of(rank), own.bool())?;
            let mut recv = Block::zeros(layout(own, len)?)?;
            let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
            messages.sendrecv(send.bytes(), next, recv.bytes(), before, 3)?;
            drop(send);
            pattern.ensure_in(recv.bytes(), of(before)).context("a message")?;
        }
        _ => {
            // One that is taken back, and freed, while its receiver may read it: every other rank receives first.
            let mut first = Block::new(pattern, layout(own, len)?, of(rank), own.bool())?;
            let mut second = Block::new(pattern, layout(own, len)?, of(rank + 1), own.bool())?;
            let mut recv = Block::zeros(layout(own, len)?)?;
            let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
            let mut receive = |messages: &mut Messages| loop {
                let envelope = messages.recv(recv.bytes(), before, intranode::Tag::Any)?;
                let expected = of(before + envelope.tag as usize - 1);
                pattern.ensure_in(recv.bytes(), expected).with_context(|| format!("a message {envelope:?}"))?;
                if envelope.tag == 2 {
                    return anyhow::Ok(());
                }
            };
            if rank % 2 == 1 {
                receive(messages)?;
            }
            let mut sending = messages.start_send(first.bytes(), next, 1)?;
            for _ in 0..own.u32(..50) {
                messages.test(&mut sending)?;
                std::thread::yield_now();
            }
            drop(sending);
            first.bytes().fill(0xBB);
            drop(first);
            let mut sending = messages.start_send(second.bytes(), next, 2)?;
            if rank % 2 == 0 {
                receive(messages)?;
            }
            messages.wait(&mut sending)?;
        }
    }
    allocate(shared, own, kept)
}

/// Changes a block at one place in each turn.
fn change(block: &mut [u8], seed: usize, rank: usize, turns: usize) {
    for turn in 1..=turns {
        let at = (seed + 977 * rank + 13 * turn) % block.len();
        block[at] = (seed + turn) as u8;
    }
}
