//! Several machines: [`Hierarchical`] communicators over an existing MPI.
//!
//! Ranks of a node share a segment, as with `intranode` alone. One rank of each, its leader, exchanges the node's data with the other
//! leaders by MPI. The results have the same bits as those of a communicator over the same ranks on one machine.
//!
//! ```no_run
//! use intranode::ReduceOp;
//!
//! // By `mpiexec -n 8 --hostfile nodes ./program`; or on one node, without MPI, by `intranode run -n 4 ./program`.
//! let comm = intranode_mpi::from_env()?;
//! let mut sum = [comm.rank() as f64];
//! comm.allreduce_in_place(&mut sum, ReduceOp::Sum)?;
//! println!("rank {} of {}, node {}: {}", comm.rank(), comm.size(), comm.node(), sum[0]);
//! # Ok::<(), intranode_mpi::Error>(())
//! ```
//!
//! A program that uses MPI itself passes it: [`world`], [`over`].
//!
//! **Ranks are numbered node by node**, in the order of MPI's ranks inside a node; nodes in the order of their lowest rank. Where the
//! launcher places ranks by turns (`--map-by node`) these are other numbers than MPI's.
//!
//! **Threads.** Leaders call MPI on the thread that makes the collective call, or tests one that was started. Below [`ThreadLevel::Serialized`] that must be the
//! one that has initialised MPI.
//!
//! **`split`** of such a communicator calls `MPI_Comm_split`, on all ranks. That has no time-out.
//!
//! **Failures.** A rank that dies is named on every rank of its node within milliseconds, and on the other nodes as soon as their
//! leaders wait for that node. MPI itself cannot go on then: end the program, by `std::process::exit` and not by returning from `main`, which drops
//! `Mpi`: `MPI_Finalize` waits for all ranks, also for one that is frozen. Most launchers end the other processes of the job by
//! themselves when one is killed. MPI does not tell that a leader has left: where it is awaited it is late.
//!
//! [`Hierarchical`]: intranode::Hierarchical
//! [`ThreadLevel::Serialized`]: ferrompi::ThreadLevel::Serialized

mod connector;
mod job;
mod leaders;
mod ring;
mod started;
mod world;

pub use job::{Job, from_env};
pub use leaders::MpiLeaders;
pub use world::{Error, over, world};
