//! Compares the collectives over several nodes with a fold of one process over the same ranks, bit for bit. Started by an MPI's
//! launcher: `mpiexec -n 5 ./equal`. Each rank knows what all contribute, so nothing is compared over MPI.
//!
//! `equal die RANK`, `equal freeze RANK`: that rank ends, or stops, after some calls; the others print what they are told.

use std::time::{Duration, Instant};

use ferrompi::{Mpi, ThreadLevel};
use intranode::{Hierarchical, ReduceOp};
use intranode_mpi::MpiLeaders;

type Comm = Hierarchical<MpiLeaders>;
type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mpi = Mpi::init_thread(ThreadLevel::Funneled)?;
    let timeout = Duration::from_secs(if std::env::args().len() > 1 { 3 } else { 60 });
    let comm = intranode_mpi::over(&mpi.world(), |config| config.timeout(timeout))?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => all_equal(&comm),
        ["die", rank] => fails(&comm, rank.parse()?, || std::process::abort()),
        ["freeze", rank] => fails(&comm, rank.parse()?, || std::thread::sleep(Duration::from_secs(3600))),
        _ => Err("usage: equal [die RANK | freeze RANK]".into()),
    }
}

/// What a rank contributes: values whose sum depends on the order.
fn value(rank: usize, index: usize) -> f64 {
    let noise = ((rank * 7919 + index * 104_729) % 1_000_003) as f64 / 997.0;
    if (rank + index).is_multiple_of(3) { 1e16 - noise } else { noise - 1e3 }
}

fn values(rank: usize, len: usize) -> Vec<f64> {
    (0..len).map(|index| value(rank, index)).collect()
}

fn all_equal(comm: &Comm) -> Result<(), Failure> {
    let (rank, size) = (comm.rank(), comm.size());
    let mut compared = 0;
    for len in [1, 4, 13, 1000, 8192, 100_000, 1_000_000] {
        for (op, fold) in [
            (ReduceOp::Sum, (|a, b| a + b) as fn(f64, f64) -> f64),
            (ReduceOp::Prod, |a, b| a * b),
            (ReduceOp::Max, |a: f64, b| if b > a { b } else { a }),
        ] {
            let mut data = values(rank, len);
            comm.allreduce_in_place(&mut data, op)?;
            for (index, result) in data.iter().enumerate() {
                let expected = (1..size).fold(value(0, index), |all, other| fold(all, value(other, index)));
                same(result.to_bits(), expected.to_bits(), || format!("{op:?} of {len}, element {index}"))?;
            }
            compared += len;
        }
        let mut gathered = vec![0.0; len * size];
        comm.allgather(&values(rank, len), &mut gathered)?;
        for (place, result) in gathered.iter().enumerate() {
            same(result.to_bits(), value(place / len, place % len).to_bits(), || {
                format!("allgather of {len}")
            })?;
        }
        let root = len % size;
        let mut data = values(rank, len);
        comm.broadcast(&mut data, root)?;
        for (index, result) in data.iter().enumerate() {
            same(result.to_bits(), value(root, index).to_bits(), || format!("broadcast of {len} from {root}"))?;
        }
        let mut sum = vec![0.0; len];
        comm.reduce(&values(rank, len), (rank == root).then_some(&mut sum[..]), ReduceOp::Sum, root)?;
        let mut prefix = vec![0.0; len];
        comm.scan(&values(rank, len), &mut prefix, ReduceOp::Sum)?;
        for index in 0..len {
            let up_to = |last: usize| (1..=last).fold(value(0, index), |all, other| all + value(other, index));
            if rank == root {
                same(sum[index].to_bits(), up_to(size - 1).to_bits(), || format!("reduce of {len} to {root}"))?;
            }
            same(prefix[index].to_bits(), up_to(rank).to_bits(), || format!("scan of {len}, element {index}"))?;
        }
        compared += len * size + 2 * len;
    }
    comm.barrier()?;
    println!(
        "rank {rank} of {size} on node {} of {}: {compared} values have the same bits",
        comm.node(),
        comm.map().nodes()
    );
    Ok(())
}

fn same(result: u64, expected: u64, what: impl Fn() -> String) -> Result<(), Failure> {
    if result == expected { Ok(()) } else { Err(format!("{}: {result:x}, not {expected:x}", what()).into()) }
}

/// A rank ends in the middle of calls; what the others are told, and when.
fn fails(comm: &Comm, victim: usize, end: fn()) -> Result<(), Failure> {
    let mut data = [comm.rank() as f64];
    for call in 0.. {
        if call == 1000 && comm.rank() == victim {
            end();
        }
        let begun = Instant::now();
        if let Err(error) = comm.allreduce_in_place(&mut data, ReduceOp::Max) {
            println!("rank {} was told after {:?}: {error}", comm.rank(), begun.elapsed());
            // The launcher ends the others as soon as one has ended; and MPI_Finalize would wait for the victim.
            std::thread::sleep(Duration::from_secs(1));
            std::process::exit(0);
        }
    }
    Ok(())
}
