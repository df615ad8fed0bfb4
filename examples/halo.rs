//! Heat that spreads along a rod. Each rank has a part of it, and in each step sends the temperatures at its two ends to its
//! neighbours: a halo exchange, by `put_signal` and `wait_until`. There is no barrier in the loop.
//!
//! ```text
//! cargo build --release --example halo
//! intranode run -n 4 -- target/release/examples/halo
//! ```

use intranode::{Blocks, Communicator, Error, Signal, Until};

const CELLS: usize = 10_000;
const STEPS: u64 = 500;

/// The temperature at the beginning, which at the two ends of the rod stays.
fn initial(cell: usize) -> f64 {
    if cell < CELLS / 3 { 1.0 } else { (cell % 7) as f64 / 100.0 }
}

/// The next temperatures of cells whose neighbours at the two ends are given.
fn step(cells: &mut [f64], left: f64, right: f64) {
    let mut before = left;
    for cell in 0..cells.len() {
        let behind = cells.get(cell + 1).copied().unwrap_or(right);
        let own = cells[cell];
        cells[cell] = own + 0.25 * (before - 2.0 * own + behind);
        before = own;
    }
}

const LEFT: usize = 0;
const RIGHT: usize = 1;

fn main() -> Result<(), Error> {
    let comm = Communicator::from_env()?;
    let (rank, size) = (comm.rank(), comm.size());
    let range = Blocks::new(CELLS, size).range(rank);
    let mut cells: Vec<f64> = range.clone().map(initial).collect();

    // What comes from each neighbour, in even and in odd steps. A neighbour may be one step ahead, and no more: for its next
    // one it needs what this rank sends only when it has read what is here.
    let halo = comm.symmetric::<f64>(4)?;
    // The last step for which it has come.
    let arrived = comm.symmetric::<u64>(2)?;
    let from = |side: usize, now: u64| -> Result<f64, Error> {
        arrived.wait_until(side, Until::Ge(now))?;
        Ok(halo.at(rank)?.load(2 * (now as usize % 2) + side))
    };
    for now in 1..=STEPS {
        let (first, last) = (cells[0], cells[cells.len() - 1]);
        let place = 2 * (now as usize % 2);
        if rank > 0 {
            halo.put_signal(rank - 1, place + RIGHT, &[first], &arrived, RIGHT, Signal::Set(now))?;
        }
        if rank + 1 < size {
            halo.put_signal(rank + 1, place + LEFT, &[last], &arrived, LEFT, Signal::Set(now))?;
        }
        let left = if rank > 0 { from(LEFT, now)? } else { initial(0) };
        let right = if rank + 1 < size { from(RIGHT, now)? } else { initial(CELLS - 1) };
        step(&mut cells, left, right);
    }

    // The same in one process, for comparison.
    let mut all: Vec<f64> = (0..CELLS).map(initial).collect();
    for _ in 0..STEPS {
        step(&mut all, initial(0), initial(CELLS - 1));
    }
    assert!(cells == all[range], "rank {rank} has other values than one process");
    // A rank that left earlier would end the waits of the others. And all have compared when rank 0 says so.
    comm.barrier()?;
    if rank == 0 {
        println!("{STEPS} steps on {size} ranks: the same values as in one process, to the last bit");
    }
    comm.leave()
}
