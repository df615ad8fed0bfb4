//! `cobre-shm run` on several nodes: each process is a rank that an MPI's launcher has started. On one node it is `cobre-shm` without
//! MPI.
//!
//! `mpiexec -n 8 --hostfile nodes cobre-shm-mpi run CASE`

use std::process::ExitCode;

use intranode_cobre::{ShmBackend, driver};

fn main() -> ExitCode {
    // MPI ends after all that uses it.
    let mut used = None;
    driver::program_of_rank(|| {
        let (mpi, comm) = intranode_mpi::from_env()?.into_parts();
        used = mpi;
        Ok(ShmBackend::over(comm)?)
    })
}
