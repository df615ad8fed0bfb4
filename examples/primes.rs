//! The primes below a million, on every rank: each rank looks for those of its own block, and finds as many as there
//! are, so the blocks that are gathered differ in length.
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
    let found: Vec<u64> = numbers.filter(|number| is_prime(*number)).map(|number| number as u64).collect();

    // How many has each rank found? Every rank has to know where the others' primes go.
    let mut counts = vec![0; comm.size()];
    comm.allgather(&[found.len()], &mut counts)?;
    let displs: Vec<usize> = (0..comm.size()).map(|rank| counts[..rank].iter().sum()).collect();

    let mut primes = vec![0; counts.iter().sum()];
    comm.allgatherv(&found, &mut primes, &counts, &displs)?;

    if comm.rank() == 0 {
        println!("{counts:?}: {} primes below {END}, the last is {}", primes.len(), primes[primes.len() - 1]);
    }
    comm.leave()
}
