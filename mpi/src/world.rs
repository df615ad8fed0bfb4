//! How the ranks of an MPI job find each other: nodes, leaders, and the segment of each node.

use std::hash::{BuildHasher, RandomState};

use ferrompi::{Communicator, Mpi};
use intranode::{Config, Hierarchical, NodeMap};

use crate::connector::MpiRanks;
use crate::leaders::MpiLeaders;

/// Why the ranks of an MPI job have not joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// MPI has failed.
    #[error("MPI: {0}")]
    Mpi(#[from] ferrompi::Error),
    /// The ranks of a node, or the nodes, have not joined.
    #[error(transparent)]
    Join(#[from] intranode::Error),
    /// MPI connects other ranks than the launcher has started: each of its worlds would be a job of its own.
    #[error(
        "the launcher has started {ranks} ranks, and MPI connects {connected}: start the program by the mpiexec of the MPI that it was \
         built with, or set INTRANODE_SCOPE=node to make a job of the ranks of each node"
    )]
    NotConnected {
        /// The ranks that the launcher has started.
        ranks: usize,
        /// The ranks of MPI's world.
        connected: usize,
    },
}

/// A communicator of all ranks of MPI's world, which are numbered node by node. Collective over all of them.
///
/// ```no_run
/// use ferrompi::{Mpi, ThreadLevel};
///
/// let mpi = Mpi::init_thread(ThreadLevel::Funneled)?;
/// let comm = intranode_mpi::world(&mpi)?;
/// comm.barrier()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Mpi`] as from MPI, which by default ends the job instead; [`Error::Join`] as from
/// [`Config::join`](intranode::Config::join) and [`Hierarchical::new`](intranode::Hierarchical::new).
pub fn world(mpi: &Mpi) -> Result<Hierarchical<MpiLeaders>, Error> {
    over(&mpi.world(), |config| config)
}

/// The same for the ranks of any MPI communicator, with a configuration: `configure` gets that of this rank in its node, with the
/// settings of the environment such as `INTRANODE_TIMEOUT`, and may change all but name, rank and size. It must come out the same on all ranks. Collective over `comm`.
///
/// ```no_run
/// use std::time::Duration;
/// use ferrompi::{Mpi, ThreadLevel};
///
/// let mpi = Mpi::init_thread(ThreadLevel::Funneled)?;
/// let comm = intranode_mpi::over(&mpi.world(), |config| config.timeout(Duration::from_secs(5)))?;
/// comm.barrier()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`world`].
pub fn over(
    comm: &Communicator,
    configure: impl FnOnce(Config) -> Config,
) -> Result<Hierarchical<MpiLeaders>, Error> {
    let node = comm.split_shared()?;
    let (rank, size) = (node.rank(), node.size());
    // By rank in the parent: a node's leader is its lowest rank, and nodes come in the order of these.
    let color = if rank == 0 { 0 } else { Communicator::UNDEFINED };
    let leaders = comm.split(color, comm.rank())?;

    // What the leader knows: the segment's name, and how many ranks each node has.
    let mut key = [RandomState::new().hash_one((std::process::id(), comm.rank()))];
    let mut nodes = [leaders.as_ref().map_or(0, Communicator::size)];
    node.broadcast(&mut key, 0)?;
    node.broadcast(&mut nodes, 0)?;
    let mut counts = vec![0; nodes[0] as usize];
    if let Some(leaders) = &leaders {
        leaders.allgather(&[size], &mut counts)?;
    }
    node.broadcast(&mut counts, 0)?;
    let counts: Vec<usize> = counts.iter().map(|count| *count as usize).collect();

    let name = format!("/intranode-mpi-{:016x}", key[0]);
    // The settings besides these hold as under each launcher.
    let config = Config::from_lookup("INTRANODE", |variable| match variable {
        "INTRANODE_NAME" => Some(name.clone()),
        "INTRANODE_RANK" => Some(rank.to_string()),
        "INTRANODE_SIZE" => Some(size.to_string()),
        other => std::env::var(other).ok(),
    })?;
    let local = configure(config).join()?;
    let leaders = leaders.filter(|leaders| leaders.size() > 1).map(MpiLeaders::new);
    let all = Hierarchical::new(local, leaders, NodeMap::new(&counts)?)?;
    // Only then the number of this rank is known.
    let ranks = MpiRanks::new(comm, all.rank())?;
    Ok(all.with_connector(Box::new(ranks)))
}
