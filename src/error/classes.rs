//! What an error means for what follows, and which operation it is of.

use crate::error::{Error, Operation};

impl Error {
    /// Two ranks requested the same element.
    pub(crate) fn overlap(operation: Operation, (first, second): (usize, usize)) -> Self {
        Error::OverlappingBlocks { operation, first, second }
    }

    /// The same with the numbers that its ranks have in another communicator: rank `r` is `numbers[r]` there.
    pub(crate) fn numbered(mut self, numbers: &[usize]) -> Self {
        let number = |rank: &mut usize| *rank = numbers.get(*rank).copied().unwrap_or(*rank);
        match &mut self {
            Error::RankDied { rank, .. }
            | Error::RankLeft { rank, .. }
            | Error::Aborted { rank, .. }
            | Error::Interrupted { rank, .. }
            | Error::Poisoned { rank, .. }
            | Error::Refused { rank, .. } => number(rank),
            Error::TimedOut { late, .. } => late.iter_mut().for_each(number),
            _ => {}
        }
        self
    }

    /// Whether the communicator has ended, or was never made. If not, further calls are possible; of a collective call, all ranks
    /// have consumed it. Example: [`Error`].
    pub fn is_fatal(&self) -> bool {
        !matches!(
            self,
            Error::InvalidBufferSize { .. }
                | Error::InvalidRange { .. }
                | Error::InvalidRoot { .. }
                | Error::ForeignHandle { .. }
                | Error::WouldDeadlock { .. }
                | Error::WaitTimedOut(_)
                | Error::Truncated { .. }
                | Error::NotWhole { .. }
                | Error::Withdrawn { .. }
                | Error::NoRoom { .. }
                | Error::TooManyUnreceived { .. }
                | Error::RootBuffer { .. }
                | Error::CountsDisagree { .. }
                | Error::OperationsDiffer { .. }
                | Error::InvalidReduction { .. }
                | Error::InvalidValue { .. }
                | Error::OverlappingBlocks { .. }
                | Error::AllocationFailed { .. }
                | Error::InvalidAlignment { .. }
                | Error::InvalidRank { .. }
                | Error::ProtectionFailed { .. }
                | Error::NotifierRefused { .. }
                | Error::InvalidLayout { .. }
                | Error::Refused { .. }
                | Error::Mismatch { .. }
        ) && !matches!(
            self,
            Error::TimedOut { operation, .. } | Error::RankLeft { operation, .. } if operation.is_of_messages()
        )
    }

    /// The operation that failed. Example: [`Error`].
    pub fn operation(&self) -> Operation {
        match self {
            Error::InvalidBufferSize { operation, .. }
            | Error::InvalidRange { operation, .. }
            | Error::ForeignHandle { operation }
            | Error::WouldDeadlock { operation }
            | Error::Truncated { operation, .. }
            | Error::NotWhole { operation, .. }
            | Error::Withdrawn { operation, .. }
            | Error::NoRoom { operation, .. }
            | Error::TooManyUnreceived { operation, .. }
            | Error::InvalidRoot { operation, .. }
            | Error::RootBuffer { operation, .. }
            | Error::CountsDisagree { operation, .. }
            | Error::OperationsDiffer { operation, .. }
            | Error::InvalidReduction { operation, .. }
            | Error::InvalidValue { operation, .. }
            | Error::OverlappingBlocks { operation, .. }
            | Error::Refused { operation, .. }
            | Error::Mismatch { operation, .. }
            | Error::TimedOut { operation, .. }
            | Error::RankDied { operation, .. }
            | Error::RankLeft { operation, .. }
            | Error::Aborted { operation, .. }
            | Error::Interrupted { operation, .. }
            | Error::Poisoned { operation, .. }
            | Error::AllocationFailed { operation, .. }
            | Error::InvalidAlignment { operation, .. }
            | Error::InvalidRank { operation, .. }
            | Error::ProtectionFailed { operation, .. }
            | Error::ThreadNotStarted { operation, .. }
            | Error::NotifierRefused { operation, .. }
            | Error::InvalidLayout { operation, .. }
            | Error::LeadersFailed { operation, .. }
            | Error::ConcurrentUse { operation }
            | Error::Forked { operation } => *operation,
            Error::NodeLate(late) => late.operation,
            Error::WaitTimedOut(_) => Operation::Wait,
            Error::InitializationFailed(_) | Error::InvalidConfiguration(_) | Error::SeveralNodes { .. } => {
                Operation::Init
            }
        }
    }
}
