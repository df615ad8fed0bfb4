//! Heat that spreads along a rod, as in `halo.rs`, by messages: in each step a rank starts to receive from both neighbours and
//! to send to them, computes what needs neither, and then waits for all four requests.
//!
//! ```text
//! cargo build --release --example halo_messages
//! intranode run -n 4 -- target/release/examples/halo_messages
//! ```

use intranode::{Blocks, Communicator, Error, Messages, Request};

const CELLS: usize = 10_000;
const STEPS: u64 = 500;

/// Tags: which way a temperature goes.
const TO_THE_LEFT: u64 = 1;
const TO_THE_RIGHT: u64 = 2;

/// The temperature at the beginning, which at the two ends of the rod stays.
fn initial(cell: usize) -> f64 {
    if cell < CELLS / 3 { 1.0 } else { (cell % 7) as f64 / 100.0 }
}

fn next(left: f64, own: f64, right: f64) -> f64 {
    own + 0.25 * (left - 2.0 * own + right)
}

/// The next temperatures of the cells of this rank, of which there are at least two.
fn step(
    messages: &mut Messages,
    cells: &[f64],
    (left, right): (Option<usize>, Option<usize>),
) -> Result<Vec<f64>, Error> {
    let last = cells.len() - 1;
    // What stays where there is no neighbour.
    let (mut from_left, mut from_right) = ([initial(0)], [initial(CELLS - 1)]);
    let (mut receiving, mut sending) = (Vec::new(), Vec::new());
    if let Some(left) = left {
        receiving.push(messages.start_recv(&mut from_left, left, TO_THE_RIGHT)?);
        sending.push(messages.start_send(&cells[..1], left, TO_THE_LEFT)?);
    }
    if let Some(right) = right {
        receiving.push(messages.start_recv(&mut from_right, right, TO_THE_LEFT)?);
        sending.push(messages.start_send(&cells[last..], right, TO_THE_RIGHT)?);
    }

    // Meanwhile, all but the cells at the two ends.
    let mut after = vec![0.0; cells.len()];
    for cell in 1..last {
        after[cell] = next(cells[cell - 1], cells[cell], cells[cell + 1]);
    }

    let mut requests: Vec<&mut dyn Request> = Vec::new();
    requests.extend(receiving.iter_mut().map(|request| request as &mut dyn Request));
    requests.extend(sending.iter_mut().map(|request| request as &mut dyn Request));
    messages.wait_all(&mut requests)?;
    // They have lent out what comes and what goes.
    drop((receiving, sending));
    after[0] = next(from_left[0], cells[0], cells[1]);
    after[last] = next(cells[last - 1], cells[last], from_right[0]);
    Ok(after)
}

fn main() -> Result<(), Error> {
    let comm = Communicator::from_env()?;
    let mut messages = comm.messages()?;
    let (rank, size) = (comm.rank(), comm.size());
    let range = Blocks::new(CELLS, size).range(rank);
    let neighbours = (rank.checked_sub(1), Some(rank + 1).filter(|right| *right < size));
    let mut cells: Vec<f64> = range.clone().map(initial).collect();
    for _ in 0..STEPS {
        cells = step(&mut messages, &cells, neighbours)?;
    }

    // The same in one process, for comparison.
    let mut all: Vec<f64> = (0..CELLS).map(initial).collect();
    for _ in 0..STEPS {
        let at = |cell: usize| all[cell];
        let left = |cell: usize| if cell == 0 { initial(0) } else { all[cell - 1] };
        let right = |cell: usize| if cell + 1 == CELLS { initial(cell) } else { all[cell + 1] };
        all = (0..CELLS).map(|cell| next(left(cell), at(cell), right(cell))).collect();
    }
    assert!(cells == all[range], "rank {rank} has other values than one process");
    // All have compared when rank 0 says so.
    comm.barrier()?;
    if rank == 0 {
        println!("{STEPS} steps on {size} ranks: the same values as in one process, to the last bit");
    }
    comm.leave()
}
