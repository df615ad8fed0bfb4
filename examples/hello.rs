//! A first program: every rank says hello, and all know the sum of their numbers.
//!
//! ```text
//! cargo build --release --example hello
//! intranode run -n 4 -- target/release/examples/hello
//! ```
//!
//! The launcher only sets three variables for each process. By hand:
//!
//! ```text
//! for rank in 0 1 2 3; do
//!     INTRANODE_NAME=/hello INTRANODE_RANK=$rank INTRANODE_SIZE=4 target/release/examples/hello &
//! done; wait
//! ```

use intranode::{Communicator, Error, ReduceOp};

fn main() -> Result<(), Error> {
    let comm = Communicator::from_env()?;
    println!("rank {} of {} is process {}", comm.rank(), comm.size(), std::process::id());

    let mut sum = [0];
    comm.allreduce(&[comm.rank() as u64], &mut sum, ReduceOp::Sum)?;

    // All ranks have printed their line before rank 0 prints the sum.
    comm.barrier()?;
    if comm.rank() == 0 {
        println!("the ranks' numbers add up to {}", sum[0]);
    }
    comm.leave()
}
