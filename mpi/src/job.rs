//! A job on one node, or on several: what the launcher says decides.

use std::fmt;
use std::ops::Deref;

use ferrompi::{Mpi, ThreadLevel};
use intranode::{Communicator, Hierarchical, Leaders};

use crate::world::{Error, world};

/// The ranks of a job: a [`Hierarchical`] communicator of one type, on one node and on several, and MPI where it is used.
/// [`from_env`] makes it.
pub struct Job {
    // Before MPI, which ends when it is dropped.
    comm: Hierarchical<Box<dyn Leaders>>,
    mpi: Option<Mpi>,
}

impl Job {
    /// MPI, if there are several nodes, and the communicator. Drop the communicator first. Not collective.
    pub fn into_parts(self) -> (Option<Mpi>, Hierarchical<Box<dyn Leaders>>) {
        (self.mpi, self.comm)
    }
}

impl Deref for Job {
    type Target = Hierarchical<Box<dyn Leaders>>;

    fn deref(&self) -> &Self::Target {
        &self.comm
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("comm", &self.comm).field("uses_mpi", &self.mpi.is_some()).finish()
    }
}

/// Joins the job that the environment names. Where the launcher has started all ranks on this node, they join one segment, and MPI is
/// not initialised; `INTRANODE_NODES` simulates nodes there, as for [`Hierarchical::from_env`]. Where it has started ranks on several
/// nodes, MPI is initialised as `MPI_THREAD_FUNNELED`, and [`world`] joins them; `INTRANODE_SCOPE=node` makes a job of the ranks of each
/// node instead, without MPI. Collective over all ranks.
///
/// ```no_run
/// use intranode::ReduceOp;
///
/// // By `intranode run -n 4`, `mpiexec -n 4`, or `mpiexec -n 8 --hostfile nodes`.
/// let job = intranode_mpi::from_env()?;
/// let mut sum = [job.rank()];
/// job.allreduce_in_place(&mut sum, ReduceOp::Sum)?;
/// println!("rank {} of {}, node {} of {}", job.rank(), job.size(), job.node(), job.map().nodes());
/// # Ok::<(), intranode_mpi::Error>(())
/// ```
///
/// On several nodes the ranks are numbered node by node, which may be other numbers than the launcher's.
///
/// # Errors
/// [`Error::Join`] as from [`Communicator::from_env`] and [`Hierarchical::from_env`]; [`Error::NotConnected`] if MPI's world has other
/// ranks than the launcher has started; otherwise as [`world`].
pub fn from_env() -> Result<Job, Error> {
    match Communicator::from_env() {
        Ok(comm) => Ok(Job { comm: Hierarchical::simulated_by_env(comm)?.boxed(), mpi: None }),
        Err(intranode::Error::SeveralNodes { ranks, .. }) => {
            let mpi = Mpi::init_thread(ThreadLevel::Funneled)?;
            let connected = mpi.world().size() as usize;
            if connected != ranks {
                return Err(Error::NotConnected { ranks, connected });
            }
            Ok(Job { comm: world(&mpi)?.boxed(), mpi: Some(mpi) })
        }
        Err(other) => Err(other.into()),
    }
}
