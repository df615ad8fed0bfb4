//! Hydra: `mpiexec` of MPICH and of Intel MPI.

use super::placement::{Half, Launcher, Placement, Surroundings};
use crate::error::Error;
use crate::job::settings::invalid;

const LAUNCHER: Launcher = Launcher::Hydra;
pub(super) const LOCAL_RANK: &str = "MPI_LOCALRANKID";

/// What a rank has besides what it is known by, and no other process.
pub(super) const HALF: Half = (LAUNCHER, LOCAL_RANK, &["PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"]);

/// Not `PMI_RANK`, which `srun --mpi=pmi2` sets too, without a local rank.
pub(super) fn is_present(surroundings: &dyn Surroundings) -> bool {
    surroundings.variable(LOCAL_RANK).is_some()
}

pub(super) fn placement(surroundings: &dyn Surroundings) -> Result<Placement, Error> {
    let number = |name| surroundings.number(name, LAUNCHER);
    // No variable of MPICH names the job. But all ranks of a node have a socket to the same proxy, a process of this job.
    // With Intel MPI there is a UUID, the same on all nodes, in addition.
    let uuid = surroundings.variable("I_MPI_HYDRA_UUID");
    let descriptor = surroundings.variable("PMI_FD");
    let proxy = descriptor.as_deref().and_then(|text| text.parse().ok()).and_then(|fd| surroundings.peer(fd));
    if proxy.is_none() && uuid.is_none() {
        let open = "the number of the socket to the launcher's proxy, and that open: a program between mpiexec and this one \
                    may have closed it; set INTRANODE_NAME, INTRANODE_RANK and INTRANODE_SIZE instead";
        return Err(invalid("PMI_FD", descriptor, open));
    }
    Ok(Placement {
        rank: number("PMI_RANK")?,
        size: number("PMI_SIZE")?,
        local_rank: number(LOCAL_RANK)?,
        local_size: number("MPI_LOCALNRANKS")?,
        identity: format!("{} {}", proxy.unwrap_or_default(), uuid.unwrap_or_default()),
    })
}
