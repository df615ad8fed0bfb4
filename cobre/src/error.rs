//! Conversion of this library's errors to Cobre's.

use cobre_comm::{BackendError, CommError};
use intranode::Error;

/// The name of the backend in Cobre's messages.
const BACKEND: &str = "shm";

/// An error of a collective.
///
/// Cobre has variants for a rank's own invalid arguments and for lack of memory. Every other error is a failed collective;
/// its MPI code is 0.
pub(crate) fn collective(error: Error) -> CommError {
    of(error.operation().as_str(), error)
}

/// The same for an operation that has another name in Cobre.
pub(crate) fn of(operation: &'static str, error: Error) -> CommError {
    match error {
        Error::InvalidBufferSize { expected, actual, .. } => {
            CommError::InvalidBufferSize { operation, expected, actual }
        }
        Error::InvalidRoot { root, size, .. } => CommError::InvalidRoot { root, size },
        Error::AllocationFailed { requested_bytes, reason, .. } => {
            CommError::AllocationFailed { requested_bytes, message: reason.into() }
        }
        other => failed(operation, other.to_string()),
    }
}

/// A collective that failed for the reason in `message`.
pub(crate) fn failed(operation: &'static str, message: String) -> CommError {
    CommError::CollectiveFailed { operation, mpi_error_code: 0, message }
}

/// An error of joining.
pub(crate) fn joining(error: Error) -> BackendError {
    BackendError::InitializationFailed { backend: BACKEND.to_string(), source: Box::new(error) }
}

/// Required variables that are not set.
pub(crate) fn missing(missing_vars: Vec<String>) -> BackendError {
    BackendError::MissingConfiguration { backend: BACKEND.to_string(), missing_vars }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use intranode::Operation;

    use super::*;

    fn parts(error: Error) -> (&'static str, i32, String) {
        match collective(error) {
            CommError::CollectiveFailed { operation, mpi_error_code, message } => {
                (operation, mpi_error_code, message)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn own_arguments_keep_their_variant() {
        let size = Error::InvalidBufferSize { operation: Operation::Allreduce, expected: 4, actual: 3 };
        assert!(matches!(
            collective(size),
            CommError::InvalidBufferSize { operation: "allreduce", expected: 4, actual: 3 }
        ));
        let root = collective(Error::InvalidRoot { operation: Operation::Broadcast, root: 5, size: 2 });
        assert!(matches!(root, CommError::InvalidRoot { root: 5, size: 2 }));
    }

    #[test]
    fn lack_of_memory_keeps_its_bytes() {
        let operation = Operation::Region;
        let error = Error::AllocationFailed { operation, requested_bytes: 1 << 40, reason: "no".into() };
        match collective(error) {
            CommError::AllocationFailed { requested_bytes, message } => {
                assert_eq!((requested_bytes, message.as_str()), (1 << 40, "no"));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everything_else_is_a_failed_collective_of_that_name_with_code_0() {
        let (operation, round) = (Operation::Barrier, 5);
        for error in [
            Error::Refused { operation, round, rank: 3 },
            Error::RankDied { operation, round, rank: 3, pid: 7 },
            Error::RankLeft { operation, round, rank: 3, rounds: 7 },
            Error::Aborted { operation, round, rank: 3, code: 7 },
            Error::Interrupted { operation, round, rank: 3 },
            Error::Poisoned { operation, round, rank: 3, reason: "it is a test" },
        ] {
            let (name, code, message) = parts(error);
            assert_eq!((name, code), ("barrier", 0));
            assert!(message.contains("rank 3") && message.contains("round 5"), "{message}");
        }
        for error in [
            Error::ConcurrentUse { operation },
            Error::Forked { operation },
            Error::ProtectionFailed { operation, rank: 3, bytes: 7, source: ErrorKind::OutOfMemory.into() },
            Error::InvalidLayout { operation, ranks: 3, chunk_bytes: 7 },
        ] {
            assert_eq!(parts(error).0, "barrier");
        }
    }
}
