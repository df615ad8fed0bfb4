//! The shared-memory backend of the [Cobre](https://docs.cobre-rs.dev) optimiser's communicator.
//!
//! [`ShmBackend`] implements [`cobre_comm::Communicator`] over [`intranode`]: the processes of one machine
//! work together without an MPI runtime, and every result is the same, bit for bit, as that of a single
//! process.
//!
//! ```no_run
//! use cobre_comm::{Communicator, ReduceOp};
//! use intranode_cobre::ShmBackend;
//!
//! // COBRE_SHM_NAME, COBRE_SHM_RANK and COBRE_SHM_SIZE, as a launcher sets them.
//! let comm = ShmBackend::from_env()?;
//! let mut sum = [0.0];
//! comm.allreduce(&[1.5], &mut sum, ReduceOp::Sum)?;
//! println!("rank {} of {}: {}", comm.rank(), comm.size(), sum[0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The program `cobre-shm`, behind the default feature `driver`, trains and simulates cases with it.

mod backend;
mod coded;
#[cfg(feature = "driver")]
#[doc(hidden)]
pub mod driver;
mod error;
#[cfg(feature = "shared-memory")]
mod shared;

pub use backend::ShmBackend;
#[cfg(feature = "shared-memory")]
pub use shared::ShmRegion;
