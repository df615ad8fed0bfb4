//! A queue of tasks that take different times: a rank that has finished one takes the next number by `fetch_add`. Nobody
//! distributes the work, and no rank is idle while there is any.
//!
//! The tasks search for the number below a million from which the Collatz sequence takes the most steps until it is 1.
//!
//! ```text
//! cargo build --release --example work_queue
//! intranode run -n 4 -- target/release/examples/work_queue
//! ```

use intranode::{Communicator, Error};

const END: u64 = 1_000_000;
const PER_TASK: u64 = 1_000;
const TASKS: u64 = END / PER_TASK;

/// How many steps it takes from `number`: half of an even one, three times an odd one plus one.
fn steps(mut number: u64) -> u64 {
    let mut steps = 0;
    while number > 1 {
        number = if number.is_multiple_of(2) { number / 2 } else { 3 * number + 1 };
        steps += 1;
    }
    steps
}

/// The number with the most steps in a task, and those steps.
fn search(task: u64) -> [u64; 2] {
    let numbers = task * PER_TASK..(task + 1) * PER_TASK;
    let most = numbers.map(|number| [steps(number), number]).max().unwrap_or_default();
    [most[1], most[0]]
}

fn main() -> Result<(), Error> {
    let comm = Communicator::from_env()?;
    // Both on rank 0: the number of the next task, and the results of all.
    let next = comm.symmetric::<u64>(1)?;
    let results = comm.symmetric::<[u64; 2]>(TASKS as usize)?;
    let (queue, finished) = (next.at(0)?, results.at(0)?);

    let mut own = 0;
    loop {
        let task = queue.fetch_add(0, 1);
        if task >= TASKS {
            break;
        }
        finished.store(task as usize, search(task));
        own += 1;
    }
    // All results are there.
    comm.barrier()?;

    let mut done = vec![0; comm.size()];
    comm.allgather(&[own], &mut done)?;
    if comm.rank() == 0 {
        assert_eq!(done.iter().sum::<u64>(), TASKS, "each task was done once");
        let mut all = vec![[0; 2]; TASKS as usize];
        finished.get(0, &mut all);
        let [number, steps] = all.into_iter().max_by_key(|[_, steps]| *steps).unwrap_or_default();
        println!("tasks of each rank: {done:?}");
        println!("{number} takes the most steps below {END}: {steps}");
    }
    comm.leave()
}
