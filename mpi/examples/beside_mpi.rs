//! Times collectives over several nodes beside the same calls of MPI alone, in blocks that alternate in one run. Started by an MPI's
//! launcher: `mpiexec -launcher fork -hosts a:2,b:2 -n 4 ./beside_mpi`. Rank 0 prints medians of the blocks' means, in
//! microseconds, with the lowest and the highest. A block's time is that of its slowest rank.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ferrompi::{Communicator, Mpi, ReduceOp as MpiOp, ThreadLevel};
use intranode::{Hierarchical, ReduceOp};
use intranode_mpi::MpiLeaders;

type Failure = Box<dyn std::error::Error>;

const BLOCKS: usize = 15;
const BLOCK: Duration = Duration::from_millis(30);

/// Both, and the buffers.
struct Both {
    comm: Hierarchical<MpiLeaders>,
    world: Communicator,
    send: Vec<f64>,
    recv: Vec<f64>,
}

type Call = fn(&mut Both) -> Result<(), Failure>;

fn main() -> Result<(), Failure> {
    let mpi = Mpi::init_thread(ThreadLevel::Funneled)?;
    let comm = intranode_mpi::world(&mpi)?;
    let (rank, size, nodes) = (comm.rank(), comm.size(), comm.map().nodes());
    let mut both = Both { comm, world: mpi.world(), send: Vec::new(), recv: Vec::new() };
    if rank == 0 {
        println!("{size} ranks on {nodes} nodes; microseconds: median (lowest to highest) of {BLOCKS} blocks");
        println!("{:<10} {:>9}  {:>26}  {:>26}  MPI / intranode", "", "bytes", "intranode", "MPI");
    }
    barrier_and_data(
        &mut both,
        "barrier",
        &[0],
        |both| Ok(both.comm.barrier()?),
        |both| Ok(both.world.barrier()?),
    )?;
    barrier_and_data(
        &mut both,
        "allreduce",
        &[32, 8 << 10, 1 << 20],
        |both| Ok(both.comm.allreduce(black_box(&both.send), &mut both.recv, ReduceOp::Sum)?),
        |both| Ok(both.world.allreduce(black_box(&both.send), &mut both.recv, MpiOp::Sum)?),
    )?;
    barrier_and_data(
        &mut both,
        "broadcast",
        &[32, 8 << 10, 1 << 20],
        |both| Ok(both.comm.broadcast(black_box(&mut both.recv), 0)?),
        |both| Ok(both.world.broadcast(black_box(&mut both.recv), 0)?),
    )
}

fn barrier_and_data(
    both: &mut Both,
    name: &str,
    sizes: &[usize],
    ours: Call,
    theirs: Call,
) -> Result<(), Failure> {
    for bytes in sizes {
        both.send = vec![1.0; bytes / 8];
        both.recv = vec![0.0; bytes / 8];
        let mut times = [Vec::new(), Vec::new()];
        for block in 0..2 * BLOCKS {
            times[block % 2].push(block_of(both, [ours, theirs][block % 2])?);
        }
        if both.comm.rank() == 0 {
            let [ours, theirs] = times.map(|mut times| {
                times.sort_by(f64::total_cmp);
                (
                    times[BLOCKS / 2],
                    format!("{:.1} ({:.1} to {:.1})", times[BLOCKS / 2], times[0], times[BLOCKS - 1]),
                )
            });
            println!("{name:<10} {bytes:>9}  {:>26}  {:>26}  {:.2}", ours.1, theirs.1, theirs.0 / ours.0);
        }
    }
    Ok(())
}

/// The time of a call of the slowest rank, in a block of some.
fn block_of(both: &mut Both, call: Call) -> Result<f64, Failure> {
    both.comm.barrier()?;
    let begun = Instant::now();
    call(both)?;
    let mut calls = [(BLOCK.as_secs_f64() / begun.elapsed().as_secs_f64()).clamp(3.0, 1000.0)];
    both.comm.broadcast(&mut calls, 0)?;
    let calls = calls[0] as u32;
    let begun = Instant::now();
    for _ in 0..calls {
        call(both)?;
    }
    let mut time = [begun.elapsed().as_secs_f64() * 1e6 / f64::from(calls)];
    both.comm.allreduce_in_place(&mut time, ReduceOp::Max)?;
    Ok(time[0])
}
