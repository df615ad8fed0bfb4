//! Collectives and shared memory between the processes of one machine: what MPI provides inside a node, without an MPI
//! runtime, a daemon, or a launcher that must be installed.
//!
//! N processes join one shared-memory segment, by a common name and a rank each:
//!
//! ```no_run
//! use intranode::{Communicator, ReduceOp};
//!
//! let comm = Communicator::from_env()?; // of `intranode run`, mpiexec, srun or torchrun
//! let mut greatest = [comm.rank() as f64];
//! comm.allreduce_in_place(&mut greatest, ReduceOp::Max)?;
//! comm.barrier()?;
//! # Ok::<(), intranode::Error>(())
//! ```
//!
//! | to … | there is |
//! | --- | --- |
//! | join | [`Communicator::from_env`] under any [`Launcher`], [`Config`]; [`threads()`] for ranks that are threads |
//! | synchronise | [`barrier`](Communicator::barrier) |
//! | combine | [`allreduce`](Communicator::allreduce), [`reduce`](Communicator::reduce), [`scan`](Communicator::scan), [`exscan`](Communicator::exscan), [`reduce_scatter`](Communicator::reduce_scatter) with a [`ReduceOp`]; [`allreduce_with`](Communicator::allreduce_with) with an operation of your own |
//! | collect | [`allgather`](Communicator::allgather), [`allgatherv`](Communicator::allgatherv), [`gather`](Communicator::gather), [`gatherv`](Communicator::gatherv) |
//! | distribute | [`broadcast`](Communicator::broadcast), [`scatter`](Communicator::scatter), [`scatterv`](Communicator::scatterv), and [`Blocks`] for the items of each rank |
//! | exchange | [`alltoall`](Communicator::alltoall), [`alltoallv`](Communicator::alltoallv) |
//! | send what only the sender knows the length of | [`broadcast_vec`](Communicator::broadcast_vec), [`allgather_vec`](Communicator::allgather_vec), [`gather_vec`](Communicator::gather_vec); with the feature `serde` values of any type: `broadcast_value`, `allgather_values`, `gather_values` |
//! | do something else meanwhile | [`start_barrier`](Communicator::start_barrier), [`start_allreduce`](Communicator::start_allreduce), [`start_broadcast`](Communicator::start_broadcast), [`start_allgatherv`](Communicator::start_allgatherv): [`Pending`] |
//! | share one copy of data | [`region`](Communicator::region): [`Region`] and [`Shared`] |
//! | send from memory that the others read in place | [`buffer`](Communicator::buffer): [`Buffer`]; all large allocations by one line: [`SharedHeap`] |
//! | collect and distribute without copies | [`exchange`](Communicator::exchange): [`Exchange`] |
//! | send and receive | [`messages`](Communicator::messages): [`Messages`] |
//! | send and receive between processes that are no ranks | `Endpoint` (Linux); with the feature `tokio` `AsyncEndpoint` |
//! | access each other's memory | [`symmetric`](Communicator::symmetric): [`Symmetric`], [`Remote`], [`Signal`], [`Until`]; [`fence`](Communicator::fence), [`quiet`](Communicator::quiet); [`lock`](Communicator::lock): [`Lock`] |
//! | work in groups | [`split`](Communicator::split), [`split_local`](Communicator::split_local) |
//! | run on several nodes | [`Hierarchical`], [`NodeMap`], [`Leaders`]; simulated on one machine by [`LocalLeaders`] |
//! | end | [`leave`](Communicator::leave) or drop, [`abort`](Communicator::abort) |
//!
//! # Guarantees
//!
//! * **The same bits** on every rank and in every run: reductions combine in rank order.
//! * **The right result on every surviving rank, or the same error on every one**, whatever fails. Errors name the
//!   rank; [`Error::is_fatal`] says whether the communicator can be used further.
//! * **Mismatched calls are detected.** If ranks make different calls, all get [`Error::Mismatch`], with the call of each
//!   rank.
//! * **Waiting costs little.** A rank polls for four milliseconds at most if there is a processor for every rank, otherwise
//!   it calls `sched_yield`; then it sleeps.
//! * **No leftovers.** The segment has a name only until all ranks have joined.
//!
//! # Limits
//!
//! A job has up to [`Config::MAX_RANKS`] ranks on one machine. Its segment takes two [chunks](Config::chunk_bytes) and
//! 460 bytes a rank, and 9 KiB; docs/limits.md in the repository has the formula, and all other limits. Data of any
//! length streams through the chunks.
//!
//! Elements are plain old data ([`bytemuck::Pod`]), those of a reduction [`Reducible`]. An element has less than 64 MiB; a
//! larger type does not compile:
//!
//! ```compile_fail,E0080
//! type Large = [[[u8; 4096]; 4096]; 4];
//! let _ = intranode::threads(2, |comm| comm.region::<Large>(2).map(drop));
//! ```
//!
//! A quarter of that size compiles:
//!
//! ```
//! type Large = [[u8; 4096]; 4096];
//! let made = intranode::threads(2, |comm| comm.region::<Large>(0).is_ok())?;
//! assert_eq!(made, [true, true]);
//! # Ok::<(), intranode::Error>(())
//! ```
//!
//! # When not to use it
//!
//! For several machines without an MPI, since the only [`Leaders`] over a network are those of the crate intranode-mpi; between processes
//! that do not trust each other, since every rank can write the whole segment; for a changing set of ranks; or where the threads of one
//! process are enough. The README has more.
//!
//! # Verification
//!
//! The protocols are safe code over an abstract machine. The model checkers loom and shuttle explore the same source:
//! `cargo test --features loom`. SAFETY.md in the repository says what that shows, and what it does not.

#![deny(unsafe_code)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "intranode is for targets with 64-bit pointers: ranges of addresses and offsets have more than 32 bits"
);

mod codes;
#[doc(hidden)]
pub mod collective;
mod communicator;
#[doc(hidden)]
#[expect(unsafe_code, reason = "raw views of shared memory, and vector instructions")]
pub mod copy;
mod element;
#[cfg(target_os = "linux")]
mod endpoint;
mod error;
#[doc(hidden)]
pub mod job;
#[expect(unsafe_code, reason = "words that other processes write, and handlers of signals")]
mod liveness;
mod message;
mod nodes;
#[doc(hidden)]
pub mod protocol;
mod rank;
mod region;
#[doc(hidden)]
#[expect(unsafe_code, reason = "the mapping seen as words, cells and slices")]
pub mod segment;
mod symmetric;
#[expect(unsafe_code, reason = "system calls")]
mod sys;
#[doc(hidden)]
pub mod tuning;

pub use bytemuck;

pub use collective::blocks::Blocks;
pub use collective::pending::Pending;
pub use communicator::Communicator;
pub use copy::raw::{RawSource, RawTarget};
pub use element::{Number, ReduceOp, Reducible};
#[cfg(target_os = "linux")]
pub use endpoint::address::Address;
#[cfg(target_os = "linux")]
pub use endpoint::api::Endpoint;
#[cfg(all(target_os = "linux", feature = "tokio"))]
pub use endpoint::asynchronous::api::AsyncEndpoint;
#[cfg(all(target_os = "linux", feature = "tokio"))]
pub use endpoint::asynchronous::connection::{Connection, RemoteTransport};
#[cfg(target_os = "linux")]
pub use endpoint::builder::EndpointBuilder;
#[cfg(target_os = "linux")]
pub use endpoint::completing::EndpointRequest;
#[cfg(target_os = "linux")]
pub use endpoint::ended::{Ended, Refusal};
#[cfg(target_os = "linux")]
pub use endpoint::error::EndpointError;
#[cfg(target_os = "linux")]
pub use endpoint::handle::{Access, Handle, Registration};
#[cfg(target_os = "linux")]
pub use endpoint::peer::{Armed, Event, Incoming, Peer};
#[cfg(target_os = "linux")]
pub use endpoint::receiving::RecvRequest;
#[cfg(target_os = "linux")]
pub use endpoint::routes::Route;
#[cfg(target_os = "linux")]
pub use endpoint::started::{GetRequest, PutRequest};
pub use error::{CallSummary, CountPair, Error, InitFailure, InvalidSetting};
pub use error::{NodeTimeout, Operation, TimeoutInfo, WaitTimeout};
pub use job::config::{Config, WaitKind};
pub use job::launchers::placement::Launcher;
pub use job::threads::{threads, threads_with};
pub use message::completing::Cancelled;
pub use message::envelope::{Envelope, Source, Tag};
pub use message::messages::Messages;
pub use message::notifier::Notifier;
pub use message::probing::Message;
pub use message::request::{Receiving, Request, Sending};
pub use nodes::connector::Connector;
pub use nodes::hierarchical::Hierarchical;
pub use nodes::leaders::Leaders;
pub use nodes::local::LocalLeaders;
pub use nodes::map::NodeMap;
pub use nodes::roll_call::{Awaited, RollCall};
pub use nodes::waiting::{LeadersError, Waiting};
pub use rank::job_state::{JobState, RankStatus};
pub use region::buffer::Buffer;
pub use region::exchange::Exchange;
pub use region::options::{Placement, RegionOptions};
pub use region::{Region, Shared};
pub use segment::atom::{Atom, AtomInt};
pub use segment::region_memory::{ReadOnly, Writable};
pub use segment::symmetric_memory::{Open, Own, Read};
pub use symmetric::handle::Symmetric;
pub use symmetric::lock::{Guard, Lock};
pub use symmetric::options::SymmetricOptions;
pub use symmetric::remote::Remote;
pub use symmetric::wait::{Signal, Until};
pub use sys::cast;
pub use sys::shared_heap::SharedHeap;

/// Compiles and runs the examples of the README, and of the documents whose examples are whole programs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/buffers.md")]
#[doc = include_str!("../docs/heap.md")]
#[doc = include_str!("../docs/nodes.md")]
struct Documents;
