//! The descriptor for event loops: nothing that happens is missed, and nothing else makes it readable.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use anyhow::{Context, ensure};
use intranode::{Communicator, Error, Messages, Notifier, Source, Tag};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, raise};

use super::{EAGER, bytes, pair};
use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};

pub(super) fn rows() -> Vec<Scenario> {
    vec![
        row!(notifier_misses_no_message).ranks(&[2, 4]),
        row!(notifier_finds_a_message_behind_many).ranks(&[2, 4]),
        row!(notifier_is_quiet_where_nothing_happens).ranks(&[1, 2]),
        row!(notifier_tells_of_a_long_message_that_was_received).ranks(&[2]),
        row!(notifier_tells_of_room).ranks(&[2]),
        row!(notifier_tells_of_a_rank_that_leaves).ranks(&[2, 4]),
        row!(notifier_tells_of_a_death).ranks(&[2, 4]).last_is_killed(),
        row!(notifier_tells_of_a_message_that_another_thread_drops).ranks(&[1, 2]),
        row!(notifier_is_dropped_while_it_is_armed).ranks(&[2]),
    ]
}

/// Whether the descriptor becomes readable within this time.
fn is_readable(notifier: &Notifier, within: Duration) -> anyhow::Result<bool> {
    let timeout = PollTimeout::try_from(within)?;
    Ok(poll(&mut [PollFd::new(notifier.as_fd(), PollFlags::POLLIN)], timeout)? == 1)
}

/// An event loop: waits by the descriptor only, until there is a result.
fn drive<R>(
    messages: &mut Messages,
    notifier: &Notifier,
    mut look: impl FnMut(&mut Messages) -> Result<Option<R>, Error>,
) -> anyhow::Result<Result<R, Error>> {
    loop {
        notifier.arm()?;
        if let Some(done) = look(messages).transpose() {
            return Ok(done);
        }
        ensure!(is_readable(notifier, Duration::from_secs(30))?, "nothing woke the event loop");
    }
}

fn take_number(messages: &mut Messages) -> Result<Option<(usize, u64)>, Error> {
    let Some(message) = messages.take(Source::Any, 1)? else { return Ok(None) };
    let (source, mut number) = (message.envelope().source, [0]);
    messages.recv_taken(message, &mut number)?;
    Ok(Some((source, number[0])))
}

/// What is looked for comes behind more than are taken in at once: no event is left that would tell to look again. Nor does a probe miss it.
fn notifier_finds_a_message_behind_many(comm: Communicator) -> Outcome {
    const MANY: u64 = 40;
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    let notifier = messages.notifier()?;
    for turn in 0..2 {
        if rank > 0 {
            (0..MANY).try_for_each(|number| messages.send(&[number], 0, 1))?;
            messages.send(&[turn], 0, 2)?;
        }
        comm.barrier()?;
        for source in (1..comm.size()).filter(|_| rank == 0) {
            if turn == 0 {
                ensure!(messages.try_probe(source, 2)?.is_some(), "a probe has not found it");
            }
            let mut received = [u64::MAX];
            let mut receiving = messages.start_recv(&mut received, source, 2)?;
            drive(&mut messages, &notifier, |messages| messages.test(&mut receiving))??;
            drop(receiving);
            ensure!(received == [turn]);
        }
        for _ in (0..MANY * (comm.size() as u64 - 1)).filter(|_| rank == 0) {
            take_number(&mut messages)?.context("one was lost")?;
        }
        comm.barrier()?;
    }
    Ok(())
}

/// Each of the others sends a number, when it has got the answer to the last one: so it comes at any moment of the loop.
fn notifier_misses_no_message(comm: Communicator) -> Outcome {
    const TURNS: u64 = 2000;
    let (mut messages, rank, size) = (comm.messages()?, comm.rank(), comm.size());
    let notifier = messages.notifier()?;
    if rank == 0 {
        let mut turns = vec![0; size];
        for _ in 0..TURNS * (size as u64 - 1) {
            let (source, number) = drive(&mut messages, &notifier, take_number)??;
            ensure!(number == turns[source], "{number} from rank {source} after {}", turns[source]);
            turns[source] += 1;
            messages.send(&[number], source, 1)?;
        }
    } else {
        for turn in 0..TURNS {
            for _ in 0..fastrand::u32(0..3000) {
                std::hint::spin_loop();
            }
            messages.send(&[turn], 0, 1)?;
            // By both ways of waiting.
            let answer = if turn % 2 == 0 {
                let mut answer = [0];
                messages.recv(&mut answer, 0, 1)?;
                answer[0]
            } else {
                drive(&mut messages, &notifier, take_number)??.1
            };
            ensure!(answer == turn);
        }
    }
    still_works(&comm)
}

fn notifier_is_quiet_where_nothing_happens(comm: Communicator) -> Outcome {
    let mut messages = comm.messages()?;
    let notifier = messages.notifier()?;
    ensure!(notifier.as_raw_fd() == notifier.as_fd().as_raw_fd());
    comm.barrier()?;
    let brief = Duration::from_millis(100);
    ensure!(!is_readable(&notifier, brief)?, "before it was armed");
    notifier.arm()?;
    // Behind a fence that may not have reached all ranks it asks to be looked at once more.
    let again = is_readable(&notifier, brief)?;
    notifier.arm()?;
    ensure!(!is_readable(&notifier, brief)?, "nothing has happened");
    for _ in 0..3 {
        notifier.arm()?;
        ensure!(!is_readable(&notifier, brief / 4)?, "nothing has happened since");
    }
    let fences = if again { "Membarrier" } else { "Symmetric" };
    println!("the notifier was told by fences that are {fences}");
    // All have looked.
    comm.barrier()?;
    if comm.rank() == 0 {
        messages.send(&[5u64], comm.size() - 1, 1)?;
    }
    if comm.rank() == comm.size() - 1 {
        ensure!(is_readable(&notifier, Duration::from_secs(30))?, "a message has come");
        ensure!(is_readable(&notifier, Duration::ZERO)?, "it stays readable");
        notifier.arm()?;
        ensure!(is_readable(&notifier, brief)? == again, "once more, or not: as before");
        notifier.arm()?;
        ensure!(!is_readable(&notifier, brief)?, "it came before");
        ensure!(take_number(&mut messages)? == Some((0, 5)));
    }
    comm.barrier()?;
    still_works(&comm)
}

fn notifier_tells_of_a_long_message_that_was_received(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let notifier = messages.notifier()?;
    for turn in 0..50 {
        let data = bytes(turn, EAGER + 1);
        if rank == 0 {
            let mut sending = messages.start_send(&data, other, 1)?;
            drive(&mut messages, &notifier, |messages| messages.test(&mut sending))??;
        } else {
            let mut received = vec![0; data.len()];
            let mut receiving = messages.start_recv(&mut received, other, 1)?;
            drive(&mut messages, &notifier, |messages| messages.test(&mut receiving))??;
            ensure!(received == data);
        }
    }
    still_works(&comm)
}

fn notifier_tells_of_room(comm: Communicator) -> Outcome {
    const COUNT: u64 = 5000;
    let (mut messages, rank, other) = pair(&comm)?;
    let notifier = messages.notifier()?;
    for turn in 0..COUNT {
        if rank == 0 {
            let send = |messages: &mut Messages| Ok(messages.try_send(&[turn], other, 1)?.then_some(()));
            drive(&mut messages, &notifier, send)??;
        } else {
            let mut number = [0];
            messages.recv(&mut number, other, 1)?;
            ensure!(number == [turn]);
        }
    }
    still_works(&comm)
}

fn notifier_tells_of_a_rank_that_leaves(comm: Communicator) -> Outcome {
    let (mut messages, rank, last) = (comm.messages()?, comm.rank(), comm.size() - 1);
    if rank == last {
        messages.send(&[1u64], 0, 1)?;
        drop(messages);
        return Ok(comm.leave()?);
    }
    let notifier = messages.notifier()?;
    if rank == 0 {
        ensure!(drive(&mut messages, &notifier, take_number)?? == (last, 1));
    }
    let found = drive(&mut messages, &notifier, |messages| messages.try_probe(last, Tag::Any))?;
    ensure_matches!(found, Err(Error::RankLeft { rank, .. }) if *rank == last);
    Ok(())
}

fn notifier_tells_of_a_death(comm: Communicator) -> Outcome {
    let (mut messages, rank, last) = (comm.messages()?, comm.rank(), comm.size() - 1);
    let notifier = messages.notifier()?;
    if rank == last {
        // Not before the others wait.
        for from in 0..last {
            messages.recv(&mut [0u64], from, 1)?;
        }
        raise(Signal::SIGKILL)?;
    }
    messages.send(&[1u64], last, 1)?;
    let found = drive(&mut messages, &notifier, |messages| messages.try_probe(last, Tag::Any))?;
    ensure_matches!(found, Err(Error::RankDied { rank, .. }) if *rank == last);
    Ok(())
}

fn notifier_tells_of_a_message_that_another_thread_drops(comm: Communicator) -> Outcome {
    let (mut messages, rank, size) = (comm.messages()?, comm.rank(), comm.size());
    let notifier = messages.notifier()?;
    messages.send(&[5u64], (rank + 1) % size, 1)?;
    let message = drive(&mut messages, &notifier, |messages| messages.take(Source::Any, 1))??;
    // Nothing else rings.
    comm.barrier()?;
    notifier.arm()?;
    ensure!(take_number(&mut messages)?.is_none(), "it was taken");
    std::thread::spawn(move || drop(message)).join().expect("no panic");
    ensure!(is_readable(&notifier, Duration::from_secs(30))?, "it is there again");
    ensure!(take_number(&mut messages)?.is_some_and(|(_, number)| number == 5));
    comm.barrier()?;
    still_works(&comm)
}

fn notifier_is_dropped_while_it_is_armed(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    for turn in 0..100u64 {
        let (first, second) = (messages.notifier()?, messages.notifier()?);
        first.arm()?;
        second.arm()?;
        drop(first);
        // Both sleep on one bell, so the end of the first may wake the second.
        messages.send(&[turn], other, 1)?;
        let (source, number) = drive(&mut messages, &second, take_number)??;
        ensure!((source, number) == (other, turn));
    }
    let notifier = messages.notifier()?;
    notifier.arm()?;
    drop(messages);
    if rank == 0 {
        ensure!(is_readable(&notifier, Duration::from_secs(30))?, "the other's messages are dropped");
    }
    notifier.arm().context("without its messages")?;
    drop(notifier);
    still_works(&comm)
}
