//! `mpiexec` of Open MPI 4 and 5.

use super::placement::{Half, Launcher, Placement, Surroundings};
use crate::error::Error;

const LAUNCHER: Launcher = Launcher::OpenMpi;
pub(super) const LOCAL_RANK: &str = "OMPI_COMM_WORLD_LOCAL_RANK";

/// What a rank has besides what it is known by, and no other process.
pub(super) const HALF: Half =
    (LAUNCHER, LOCAL_RANK, &["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"]);

/// Not `PMIX_RANK`, which is also there if `srun` has started the rank.
pub(super) fn is_present(surroundings: &dyn Surroundings) -> bool {
    surroundings.variable(LOCAL_RANK).is_some()
}

pub(super) fn placement(surroundings: &dyn Surroundings) -> Result<Placement, Error> {
    let number = |name| surroundings.number(name, LAUNCHER);
    // The namespace is made of the host's name and the number of `mpiexec`, or of a hash of them. The address of the local
    // server, where there is one, tells apart two containers in which these are the same.
    let namespace = surroundings.required("PMIX_NAMESPACE", LAUNCHER)?;
    let server = surroundings.variable("PMIX_SERVER_URI2").unwrap_or_default();
    Ok(Placement {
        rank: number("OMPI_COMM_WORLD_RANK")?,
        size: number("OMPI_COMM_WORLD_SIZE")?,
        local_rank: number(LOCAL_RANK)?,
        local_size: number("OMPI_COMM_WORLD_LOCAL_SIZE")?,
        identity: format!("{namespace} {server}"),
    })
}
