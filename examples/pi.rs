//! π as the area under 4 / (1 + x²), with the steps distributed over the ranks. The same function runs with ranks that are
//! processes and with ranks that are threads, and returns the same bits.
//!
//! ```text
//! cargo run --release --example pi                              four threads
//! intranode run -n 4 -- target/release/examples/pi              four processes
//! ```

use intranode::{Blocks, Communicator, Error, ReduceOp};

const STEPS: usize = 100_000_000;

fn pi(comm: &Communicator) -> Result<f64, Error> {
    let width = 1.0 / STEPS as f64;
    let steps = Blocks::new(STEPS, comm.size()).range(comm.rank());
    let heights = steps.map(|step| {
        let x = (step as f64 + 0.5) * width;
        4.0 / (1.0 + x * x)
    });
    let mut area = [heights.sum::<f64>() * width];
    comm.allreduce_in_place(&mut area, ReduceOp::Sum)?;
    Ok(area[0])
}

fn main() -> Result<(), Error> {
    // The launcher sets this variable.
    if std::env::var_os("INTRANODE_NAME").is_some() {
        let comm = Communicator::from_env()?;
        let pi = pi(&comm)?;
        if comm.rank() == 0 {
            println!("{pi:.15} on {} processes", comm.size());
        }
        return comm.leave();
    }
    for pi in intranode::threads(4, |comm| pi(&comm))? {
        println!("{:.15} on a thread", pi?);
    }
    Ok(())
}
