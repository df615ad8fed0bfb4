//! A number goes around all ranks, and each adds its own.
//!
//! ```text
//! cargo build --release --example ring
//! intranode run -n 4 -- target/release/examples/ring
//! ```

use intranode::Communicator;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let comm = Communicator::from_env()?;
    let mut messages = comm.messages()?;
    let (rank, size) = (comm.rank(), comm.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);

    let mut sum = [0usize];
    if rank == 0 {
        messages.send(&sum, next, 0)?;
        messages.recv(&mut sum, previous, 0)?;
        println!("the ranks add up to {}", sum[0]);
        assert_eq!(sum[0], size * (size - 1) / 2);
    } else {
        messages.recv(&mut sum, previous, 0)?;
        messages.send(&[sum[0] + rank], next, 0)?;
    }
    Ok(())
}
