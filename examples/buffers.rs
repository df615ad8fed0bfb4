//! The greatest eigenvalue of a matrix, by power iteration: each rank has some rows, and in each step sends its part of the vector
//! to all others. It lies in a buffer, so where it is long they read it in place.
//!
//! ```text
//! cargo build --release --example buffers
//! intranode run -n 4 -- target/release/examples/buffers
//! ```

use intranode::{Blocks, Communicator, Error, ReduceOp};

/// A banded matrix: 2 on its diagonal, and −1 beside it. Its greatest eigenvalue is just below 4.
const ROWS: usize = 600_000;
const STEPS: usize = 50;

fn main() -> Result<(), Error> {
    let comm = Communicator::from_env()?;
    let blocks = Blocks::new(ROWS, comm.size());
    let rows = blocks.range(comm.rank());
    let (counts, displs) = (blocks.counts(), blocks.displs());

    let mut own = comm.buffer::<f64>(rows.len())?;
    own.iter_mut().zip(rows.clone()).for_each(|(value, row)| *value = if row % 2 == 0 { 1.0 } else { -1.0 });
    let mut vector = vec![0.0; ROWS];
    let mut eigenvalue = 0.0;
    for _ in 0..STEPS {
        comm.allgatherv(&own, &mut vector, &counts, &displs)?;
        // It may be written again at once: all have read it.
        let mut sums = [0.0; 2];
        for (value, row) in own.iter_mut().zip(rows.clone()) {
            let before = if row == 0 { 0.0 } else { vector[row - 1] };
            let behind = vector.get(row + 1).copied().unwrap_or(0.0);
            *value = 2.0 * vector[row] - before - behind;
            sums[0] += *value * vector[row];
            sums[1] += vector[row] * vector[row];
        }
        comm.allreduce_in_place(&mut sums, ReduceOp::Sum)?;
        eigenvalue = sums[0] / sums[1];
        own.iter_mut().for_each(|value| *value /= eigenvalue);
    }
    if comm.rank() == 0 {
        println!("the greatest eigenvalue is {eigenvalue:.4}");
    }
    Ok(())
}
