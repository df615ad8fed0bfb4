//! Where a launcher has put a rank, and how its variables are read.

use std::fmt;

use crate::error::Error;
use crate::job::settings::{invalid, number};
use crate::sys::process;

/// What has started this process as a rank: [`Launcher::detect`].
///
/// ```
/// use intranode::Launcher;
///
/// match Launcher::detect()? {
///     Some(launcher) => println!("a rank, started by {launcher} (INTRANODE_LAUNCHER={})", launcher.as_str()),
///     None => println!("not started as a rank"),
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launcher {
    /// `intranode run`, or any other program that sets `INTRANODE_NAME`, `INTRANODE_RANK` and `INTRANODE_SIZE`.
    Intranode,
    /// `mpiexec` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH or of Intel MPI, both of which are Hydra.
    Hydra,
    /// `torchrun` of PyTorch.
    Torchrun,
    /// `srun` of Slurm.
    Slurm,
}

impl Launcher {
    /// In the order in which they are looked for, where it is not known whose variables were set nearest. `mpiexec` starts its
    /// ranks through `srun` inside an allocation, so ranks of `mpiexec` may have the variables of Slurm too.
    pub(super) const ALL: [Launcher; 5] =
        [Launcher::Intranode, Launcher::OpenMpi, Launcher::Hydra, Launcher::Torchrun, Launcher::Slurm];

    /// Its name in `INTRANODE_LAUNCHER`: `"intranode"`, `"openmpi"`, `"hydra"`, `"torchrun"` or `"slurm"`. Example:
    /// [`Launcher`].
    pub fn as_str(self) -> &'static str {
        match self {
            Launcher::Intranode => "intranode",
            Launcher::OpenMpi => "openmpi",
            Launcher::Hydra => "hydra",
            Launcher::Torchrun => "torchrun",
            Launcher::Slurm => "slurm",
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Launcher::Intranode => "INTRANODE_NAME, INTRANODE_RANK and INTRANODE_SIZE",
            Launcher::OpenMpi => "Open MPI",
            Launcher::Hydra => "MPICH or Intel MPI",
            Launcher::Torchrun => "torchrun",
            Launcher::Slurm => "Slurm",
        })
    }
}

/// A process's place among those that a launcher has started together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::job) struct Placement {
    pub(in crate::job) rank: usize,
    pub(in crate::job) size: usize,
    /// The number among the ranks of this node, and how many these are.
    pub(in crate::job) local_rank: usize,
    pub(in crate::job) local_size: usize,
    /// The same text for all ranks of this job on this node, and another one for any other job.
    pub(in crate::job) identity: String,
}

/// Of a launcher: the variable by which its ranks are known, and others that only ranks have.
pub(super) type Half = (Launcher, &'static str, &'static [&'static str]);

/// What a launcher has left for its ranks: variables, open descriptors, itself as their ancestor. Tests have their own.
pub(in crate::job) trait Surroundings {
    fn variable(&self, name: &str) -> Option<String>;

    /// Identifies the process at the other end of a socket.
    fn peer(&self, descriptor: i32) -> Option<String>;

    /// Identifies the process that has set a variable for its descendants: the nearest ancestor without it.
    fn setter_of(&self, variable: &str) -> Option<String>;

    /// How many generations above this process that one is: 1 for the parent.
    fn generations_to_setter(&self, variable: &str) -> Option<usize>;

    /// The value of a variable that this launcher always sets.
    fn required(&self, name: &str, launcher: Launcher) -> Result<String, Error> {
        let allowed = || format!("what {launcher} has set for this rank");
        self.variable(name).ok_or_else(|| invalid(name, None::<&str>, &allowed()))
    }

    /// The same for a number.
    fn number(&self, name: &str, launcher: Launcher) -> Result<usize, Error> {
        number(name, &self.required(name, launcher)?, "a number, as the launcher has set it")
    }
}

/// Those of this process.
pub(in crate::job) struct OfProcess<V>(pub(in crate::job) V);

impl<V: Fn(&str) -> Option<String>> Surroundings for OfProcess<V> {
    fn variable(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }

    fn peer(&self, descriptor: i32) -> Option<String> {
        process::peer(descriptor).map(identity)
    }

    fn setter_of(&self, variable: &str) -> Option<String> {
        process::setter_of(variable).map(|(pid, _)| identity(pid))
    }

    fn generations_to_setter(&self, variable: &str) -> Option<usize> {
        process::setter_of(variable).map(|(_, generations)| generations)
    }
}

/// A process's number may be used again, with another time.
fn identity(pid: u32) -> String {
    format!("{pid}@{}", process::start_time(pid).unwrap_or_default())
}
