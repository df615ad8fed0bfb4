//! The primes below a million, on every rank. Each rank searches its own block of numbers. The gathered blocks differ in
//! length, so this needs allgatherv.
//!
//! ```text
//! cargo build --release --example primes
//! intranode run -n 4 -- target/release/examples/primes
//! ```

use intranode::{Blocks, Communicator, Error};

const END: usize = 1_000_000;

fn is_prime(number: usize) -> bool {
    number >= 2
        && (2..).take_while(|factor| factor * factor <= number).all(|factor| !number.is_multiple_of(factor))
}

fn main() -> Result<(), Error> {
    let comm = Communicator::from_env()?;
    let numbers = Blocks::new(END, comm.size()).range(comm.rank());
    let own: Vec<u64> = numbers.filter(|number| is_prime(*number)).map(|number| number as u64).collect();

    // The counts of all ranks give the displacements of their blocks.
    let mut counts = vec![0; comm.size()];
    comm.allgather(&[own.len()], &mut counts)?;
    let displs: Vec<usize> = (0..comm.size()).map(|rank| counts[..rank].iter().sum()).collect();

    let mut primes = vec![0; counts.iter().sum()];
    comm.allgatherv(&own, &mut primes, &counts, &displs)?;

    if comm.rank() == 0 {
        println!("{counts:?}: {} primes below {END}, the last is {}", primes.len(), primes[primes.len() - 1]);
    }
    comm.leave()
}
