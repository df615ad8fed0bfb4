//! Rank 0 gives tasks to the rank that is free: it receives results from any rank, and answers with the next task.
//!
//! ```text
//! cargo build --release --example task_farm
//! intranode run -n 4 -- target/release/examples/task_farm
//! ```

use intranode::{Communicator, Error, Messages, Source};

const TASKS: u64 = 200;

/// Tags: a task, the request for the first one, a result, and that there are no more.
const TASK: u64 = 1;
const READY: u64 = 2;
const RESULT: u64 = 3;
const DONE: u64 = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let comm = Communicator::from_env()?;
    let mut messages = comm.messages()?;
    if comm.rank() > 0 {
        return Ok(work(&mut messages)?);
    }
    let total = if comm.size() == 1 { (0..TASKS).map(steps).sum() } else { farm(&mut messages, comm.size())? };
    println!("{total} steps in all");
    assert_eq!(total, (0..TASKS).map(steps).sum::<u64>());
    Ok(())
}

fn farm(messages: &mut Messages, size: usize) -> Result<u64, Error> {
    let (mut next, mut total, mut working) = (0, 0, size - 1);
    while working > 0 {
        let mut result = [0];
        let worker = messages.recv(&mut result, Source::Any, intranode::Tag::Any)?;
        if worker.tag == RESULT {
            total += result[0];
        }
        if next < TASKS {
            messages.send(&[next], worker.source, TASK)?;
            next += 1;
        } else {
            messages.send(&[0u64; 0], worker.source, DONE)?;
            working -= 1;
        }
    }
    Ok(total)
}

fn work(messages: &mut Messages) -> Result<(), Error> {
    messages.send(&[0u64; 0], 0, READY)?;
    loop {
        let mut task = [0];
        if messages.recv(&mut task, 0, intranode::Tag::Any)?.tag == DONE {
            return Ok(());
        }
        messages.send(&[steps(task[0])], 0, RESULT)?;
    }
}

/// How many steps it takes from here to 1, by halving even numbers, and taking odd ones times three plus one.
fn steps(task: u64) -> u64 {
    let (mut number, mut steps) = (task + 1, 0);
    while number != 1 {
        number = if number % 2 == 0 { number / 2 } else { 3 * number + 1 };
        steps += 1;
    }
    steps
}
