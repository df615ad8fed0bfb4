//! Failures: one line for the user, and the exit codes of `cobre run`.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use cobre_comm::{BackendError, CommError, Communicator, ReduceOp};
use cobre_io::{LoadError, OutputError};
use cobre_sddp::policy::full_fcf_load::FullFcfLoadError;
use cobre_sddp::{ErrorClass, SddpError, SimulationError};
use cobre_solver::SolverError;

/// The kinds of failure, by exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The command line, the case, its configuration or a stored policy is refused.
    Input = 1,
    /// A file cannot be read or written.
    Io = 2,
    /// A linear program cannot be solved.
    Solver = 3,
    /// Communication, or a state that should not be possible.
    Internal = 4,
}

/// A failure of the program: a kind and one line for the user.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    /// Empty when another rank has the message.
    message: String,
    /// Every rank has this failure.
    agreed: bool,
}

/// The result of all functions of the program.
pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A failure of `kind` with `message`, which is folded into one line.
    pub(crate) fn new(kind: Kind, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        let lines: Vec<&str> = message.lines().map(str::trim).collect();
        Self { code: kind as u8, message: lines.join(" "), agreed: false }
    }

    /// A failure to read or write `path`.
    pub(crate) fn io(path: &Path, error: impl fmt::Display) -> Self {
        Self::new(Kind::Io, format_args!("{}: {error}", path.display()))
    }

    /// Another rank failed with `code` and prints the reason.
    fn of_a_peer(code: u8) -> Self {
        Self { code, message: String::new(), agreed: true }
    }

    /// The same failure, which every rank has: no rank waits for this one.
    pub(crate) fn agreed(mut self) -> Self {
        self.agreed = true;
        self
    }

    pub(crate) fn is_agreed(&self) -> bool {
        self.agreed
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }

    /// Prints the message, unless another rank does.
    pub(crate) fn print(&self) {
        if !self.message.is_empty() {
            tell!("cobre-shm: {}", self.message);
        }
    }

    /// Puts the rank in front of the message.
    pub(crate) fn on_rank(mut self, rank: usize) -> Self {
        if !self.message.is_empty() {
            self.message = format!("rank {rank}: {}", self.message);
        }
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Makes the outcome of a step the same on every rank: if any rank failed, all ranks fail.
///
/// Only the lowest failed rank keeps its message, since several ranks often fail for the same reason.
pub(crate) fn agree<T, C: Communicator>(comm: &C, local: Outcome<T>) -> Outcome<T> {
    let size = comm.size() as u64;
    let rank = comm.rank() as u64;
    let vote = match &local {
        Ok(_) => [0, 0],
        Err(failure) => [size - rank, u64::from(failure.code)],
    };
    let mut agreed = [0_u64; 2];
    comm.allreduce(&vote, &mut agreed, ReduceOp::Max)?;
    if agreed[0] == 0 || size - agreed[0] == rank {
        return local.map_err(Failure::agreed);
    }
    Err(Failure::of_a_peer(u8::try_from(agreed[1]).unwrap_or(Kind::Internal as u8)))
}

impl From<ErrorClass> for Kind {
    fn from(class: ErrorClass) -> Self {
        match class {
            ErrorClass::InvalidInput | ErrorClass::IncompatiblePolicy => Self::Input,
            ErrorClass::Io => Self::Io,
            ErrorClass::Solver => Self::Solver,
            ErrorClass::Internal => Self::Internal,
        }
    }
}

impl From<SddpError> for Failure {
    fn from(error: SddpError) -> Self {
        Self::new(error.class().into(), error)
    }
}

impl From<FullFcfLoadError> for Failure {
    fn from(error: FullFcfLoadError) -> Self {
        Self::new(error.class().into(), error)
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let kind = match error {
            LoadError::IoError { .. } => Kind::Io,
            _ => Kind::Input,
        };
        Self::new(kind, error)
    }
}

impl From<OutputError> for Failure {
    fn from(error: OutputError) -> Self {
        let kind = match error {
            OutputError::IoError { .. } => Kind::Io,
            OutputError::ForeignEntry { .. } => Kind::Input,
            _ => Kind::Internal,
        };
        Self::new(kind, error)
    }
}

impl From<SimulationError> for Failure {
    fn from(error: SimulationError) -> Self {
        let kind = match error {
            SimulationError::LpInfeasible { .. } | SimulationError::SolverError { .. } => Kind::Solver,
            _ => Kind::Internal,
        };
        Self::new(kind, error)
    }
}

impl From<SolverError> for Failure {
    fn from(error: SolverError) -> Self {
        Self::new(Kind::Solver, error)
    }
}

impl From<CommError> for Failure {
    fn from(error: CommError) -> Self {
        Self::new(Kind::Internal, error)
    }
}

impl From<intranode::Error> for Failure {
    fn from(error: intranode::Error) -> Self {
        Self::new(Kind::Internal, error)
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Self::new(Kind::Internal, error)
    }
}
