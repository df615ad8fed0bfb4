//! A rank for `benches/race/faults.py`, which kills and stops ranks of this library and of MPI libraries.
//!
//! | arguments | meaning |
//! | --- | --- |
//! | `loop [RANK MIB]` | barriers and small reductions until an error; rank RANK holds MIB MiB of memory |
//! | `operations` | rank 0 calls a barrier, the others a reduction |
//! | `lengths` | a reduction, of fewer values on rank 0 |
//! | `roots` | a broadcast: from root 0 on rank 0, from root 1 on the others |
//!
//! Prints `ready RANK PID CLOCK`, then `error RANK CLOCK TEXT` or `returned RANK CLOCK right|wrong`, and lives on.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Result, bail};
use intranode::{Communicator, Error, ReduceOp};
use nix::time::{ClockId, clock_gettime};

fn main() -> Result<()> {
    let comm = Communicator::from_env()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let _memory = match arguments[..] {
        [_, rank, mebibytes] if rank.parse::<usize>()? == comm.rank() => {
            vec![1u8; mebibytes.parse::<usize>()? << 20]
        }
        _ => Vec::new(),
    };
    comm.barrier()?;
    println!("ready {} {} {}", comm.rank(), std::process::id(), clock()?);

    let first = comm.rank() == 0;
    let result = match arguments.first().copied().unwrap_or("loop") {
        "operations" if first => comm.barrier().map(|()| true),
        "operations" => reduce(&comm, 1000),
        "lengths" => reduce(&comm, if first { 1000 } else { 2000 }),
        "roots" => broadcast(&comm, usize::from(!first), 1000),
        "loop" => until_an_error(&comm).map(|never| match never {}),
        other => bail!("unknown argument {other}"),
    };
    let when = format!("{} {}", comm.rank(), clock()?);
    match result {
        Ok(right) => println!("returned {when} {}", if right { "right" } else { "wrong" }),
        Err(error) => println!("error {when} {error}"),
    }
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// Seconds on the monotonic clock, which the test reads too.
fn clock() -> Result<String> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(format!("{}.{:09}", now.tv_sec(), now.tv_nsec()))
}

fn until_an_error(comm: &Communicator) -> Result<Infallible, Error> {
    loop {
        comm.barrier()?;
        reduce(comm, 4)?;
    }
}

/// Whether the sums are right.
fn reduce(comm: &Communicator, count: usize) -> Result<bool, Error> {
    let send: Vec<f64> = (0..count).map(|i| i as f64).collect();
    let mut recv = vec![-1.0; count];
    comm.allreduce(&send, &mut recv, ReduceOp::Sum)?;
    Ok(recv.iter().zip(send).all(|(sum, own)| *sum == own * comm.size() as f64))
}

/// Whether the received values are the root's.
fn broadcast(comm: &Communicator, root: usize, count: usize) -> Result<bool, Error> {
    let sent: Vec<usize> = (root..root + count).collect();
    let mut buffer = if comm.rank() == root { sent.clone() } else { vec![usize::MAX; count] };
    comm.broadcast(&mut buffer, root)?;
    Ok(buffer == sent)
}
