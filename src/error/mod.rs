//! The error of all calls, and what it refers to.

mod call_summary;
mod classes;
mod details;
mod operation;
mod texts;

use std::io;

use crate::element::ReduceOp;

pub use call_summary::CallSummary;
pub(crate) use call_summary::{OWN_REDUCTION, alignment_and_options, root_and_digest};
pub use details::{CountPair, InitFailure, InvalidSetting, NodeTimeout, TimeoutInfo, WaitTimeout};
pub use operation::Operation;
use texts::{left, list, ranks, setting, timed_out};

/// The error of every call.
///
/// After an error the contents of receive buffers are unspecified, unless the call's documentation says otherwise.
/// [`is_fatal`](Error::is_fatal) says whether the communicator can still be used. The text of an error names the operation,
/// and the ranks to blame.
///
/// ```
/// use intranode::{Error, Operation, ReduceOp};
///
/// let results = intranode::threads(2, |comm| {
///     // The ranks disagree about the length.
///     let mut data = vec![0.0; 10 + comm.rank()];
///     let error = comm.allreduce_in_place(&mut data, ReduceOp::Sum).expect_err("10 and 11 elements");
///     assert!(matches!(&error, Error::Mismatch { calls, .. } if calls[1].length == 11));
///     // All ranks know, so the next call can follow.
///     (error.operation(), error.is_fatal(), comm.barrier().is_ok())
/// })?;
/// assert_eq!(results, [(Operation::Allreduce, false, true); 2]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This rank's buffer, or its table of counts or displacements, has the wrong length.
    #[error("{operation}: a buffer of this rank has {actual} elements and needs {expected}")]
    InvalidBufferSize {
        /// The operation.
        operation: Operation,
        /// The length that is needed, in elements; `usize::MAX` if it does not fit into a `usize`.
        expected: usize,
        /// The length that was given, in elements.
        actual: usize,
    },

    /// This rank requested a range that ends before it begins.
    #[error("{operation}: the range {start}..{end} ends before it begins")]
    InvalidRange {
        /// The operation.
        operation: Operation,
        /// Where the range begins, in elements.
        start: usize,
        /// Where it ends, in elements.
        end: usize,
    },

    /// This rank passed a root that does not exist.
    #[error("{operation}: root {root} is not one of {size} ranks, which count from 0")]
    InvalidRoot {
        /// The operation.
        operation: Operation,
        /// The root that was passed.
        root: usize,
        /// The number of ranks.
        size: usize,
    },

    /// Objects of different communicators were used together.
    #[error("{operation}: an object belongs to another communicator; both must come from the same one")]
    ForeignHandle {
        /// The operation.
        operation: Operation,
    },

    /// A thread of this rank has the lock, or waits for it: a rank has one place in the queue.
    #[error("{operation}: this rank has the lock already, or waits for it; release it before asking again")]
    WouldDeadlock {
        /// The operation.
        operation: Operation,
    },

    /// An element of this rank's symmetric memory did not become what the rank waits for. The communicator can be used
    /// further.
    #[error(
        "{}: on rank {} element {} did not become {} within {:?}: it is {}",
        Operation::Wait, .0.rank, .0.index, .0.condition, .0.timeout, .0.last
    )]
    WaitTimedOut(Box<WaitTimeout>),
    /// This rank is the root and passed buffers as the others do, or is not and passed those of the root.
    #[error(
        "{operation}: {}", if *given { format!("this rank is not root {root}, and passed buffers as the root does; what only the root has is None") }
        else { format!("this rank is root {root}, and passed buffers as the others do; what only the root has is Some") }
    )]
    RootBuffer {
        /// The operation.
        operation: Operation,
        /// The root that was passed.
        root: usize,
        /// Whether this rank passed those of the root.
        given: bool,
    },

    /// A sender and a receiver have different counts for the same data. Nothing was written, on any rank.
    #[error(
        "{operation}: rank {} sends {} elements to rank {}, which expects {}",
        .pair.from, .pair.sent, .pair.to, .pair.expected
    )]
    CountsDisagree {
        /// The operation.
        operation: Operation,
        /// The first such pair: the same on every rank.
        pair: Box<CountPair>,
    },

    /// With `INTRANODE_CHECK=1`: operations of one name, as of [`allreduce_with`](crate::Communicator::allreduce_with), do not do
    /// the same on all ranks. Nothing was written, on any rank.
    #[error(
        "{operation}: from the same data the operation of {} makes another result than that of rank 0; the closures, and what \
         they capture, must be the same on all ranks",
        self::ranks(ranks)
    )]
    OperationsDiffer {
        /// The operation.
        operation: Operation,
        /// The ranks whose result differs from that of rank 0: the same on every rank.
        ranks: Box<[usize]>,
    },

    /// A value could not be encoded on this rank, or not be decoded: with the feature `serde`.
    #[error("{operation}: the value of rank {from} could not be encoded or decoded: {reason}")]
    InvalidValue {
        /// The operation.
        operation: Operation,
        /// The rank that sends the value.
        from: usize,
        /// The reason.
        reason: Box<str>,
    },

    /// A message is longer than the buffer for it. It is kept, and can be received into a longer one; nothing of it was written.
    #[error(
        "{operation}: a message of {bytes} bytes from rank {rank} does not fit into a buffer of {capacity}; it is kept: receive \
         it with a longer one, or by `recv_vec`"
    )]
    Truncated {
        /// The operation.
        operation: Operation,
        /// The rank that sent it.
        rank: usize,
        /// The length of the message, in bytes.
        bytes: usize,
        /// The length of the buffer, in bytes.
        capacity: usize,
    },

    /// A message is no whole number of elements. It is kept, and can be received as one of other elements, such as `u8`.
    #[error(
        "{operation}: a message of {bytes} bytes from rank {rank} is no whole number of elements of {element} bytes; it is \
         kept: receive it as what was sent, or as `u8`"
    )]
    NotWhole {
        /// The operation.
        operation: Operation,
        /// The rank that sent it.
        rank: usize,
        /// The length of the message, in bytes.
        bytes: usize,
        /// The length of an element, in bytes.
        element: usize,
    },

    /// A message that was taken by [`take`](crate::Messages::take) was taken back by its sender before it was received.
    #[error("{operation}: rank {rank} has taken back the message that was taken; look for another one")]
    Withdrawn {
        /// The operation.
        operation: Operation,
        /// The rank that had sent it.
        rank: usize,
    },

    /// A message that is sent without waiting for its receiver, or to the own rank, is too long to be kept until then.
    #[error(
        "{operation}: no room for a message of {bytes} bytes to be kept for rank {rank}, where one of up to {most} fits into \
         an empty channel; use `start_send`, which waits until it is received"
    )]
    NoRoom {
        /// The operation.
        operation: Operation,
        /// The rank that it was meant for.
        rank: usize,
        /// The length of the message, in bytes.
        bytes: usize,
        /// The length of the longest that can be kept, in bytes.
        most: usize,
    },

    /// The messages that this rank has not received take so much private memory that no further ones are taken in. They are
    /// kept. The communicator can be used further.
    #[error(
        "{operation}: messages that nobody has received take {bytes} bytes on this rank, which is the most; receive them first"
    )]
    TooManyUnreceived {
        /// The operation.
        operation: Operation,
        /// The memory that they take, in bytes.
        bytes: usize,
    },

    /// This rank requested a reduction that its element type does not have.
    #[error("{operation}: {reduction} is not defined for {element}; it is for {}", reduction.types())]
    InvalidReduction {
        /// The operation.
        operation: Operation,
        /// The reduction.
        reduction: ReduceOp,
        /// The element type.
        element: &'static str,
    },

    /// Two blocks overlap: in this rank's receive buffer, in a region's ownership, or in an exchange.
    #[error("{operation}: the blocks of rank {first} and rank {second} overlap")]
    OverlappingBlocks {
        /// The operation.
        operation: Operation,
        /// The rank whose block begins first.
        first: usize,
        /// The rank whose block begins inside the first.
        second: usize,
    },

    /// Another rank's arguments were invalid. The communicator can be used further.
    #[error("{operation}, round {round}: rank {rank} refused its own arguments; its own error says why")]
    Refused {
        /// The operation that this rank called.
        operation: Operation,
        /// The round in which that rank refused (modulo 2²⁸): the same on every rank.
        round: u32,
        /// The lowest rank that refused.
        rank: usize,
    },

    /// The ranks made different calls. The communicator can be used further.
    #[error("round {round}: the ranks called different things: {}", list(calls))]
    Mismatch {
        /// The operation that this rank called.
        operation: Operation,
        /// The round of these calls (modulo 2²⁸): the same on every rank.
        round: u32,
        /// The ranks' calls, by rank.
        calls: Box<[CallSummary]>,
    },

    /// There was no progress during the time-out. Of an operation on messages: what was waited for did not come from the rank,
    /// or was not received by it, and the communicator can be used further.
    #[error("{}", timed_out(*operation, late, info))]
    TimedOut {
        /// The operation that this rank called.
        operation: Operation,
        /// The ranks that did not arrive. Of messages: those that this rank has waited for.
        late: Box<[usize]>,
        /// Details.
        info: Box<TimeoutInfo>,
    },

    /// A rank's process has ended, or called exec, without leaving.
    #[error(
        "{operation}, round {round}: rank {rank} (process {pid}) has died; its own output, or the log of the system, may say why"
    )]
    RankDied {
        /// The operation that this rank called.
        operation: Operation,
        /// The round that failed (modulo 2²⁸): the same on every rank.
        round: u32,
        /// The rank that died.
        rank: usize,
        /// The id of its process.
        pid: u32,
    },

    /// A rank has left in order, and this rank made a further call. Of an operation on messages: it has dropped its messages, and
    /// the communicator can be used further if the rank has not left that.
    #[error("{}", left(*operation, *round, *rank, *rounds))]
    RankLeft {
        /// The operation that this rank called.
        operation: Operation,
        /// The round that failed (modulo 2²⁸): the same on every rank.
        round: u32,
        /// The rank that left.
        rank: usize,
        /// The number of rounds that it had completed (modulo 2²⁸). 0 for an operation on messages.
        rounds: u32,
    },

    /// A rank called [`abort`](crate::Communicator::abort).
    #[error("{operation}, round {round}: rank {rank} aborted the job with code {code}")]
    Aborted {
        /// The operation that this rank called.
        operation: Operation,
        /// The round that failed (modulo 2²⁸): the same on every rank.
        round: u32,
        /// The rank that called it.
        rank: usize,
        /// The exit code.
        code: i32,
    },

    /// A rank did not want to wait any longer, as its [`interrupt`](crate::Config::interrupt) said: perhaps this one.
    #[error("{operation}, round {round}: rank {rank} was interrupted while it waited")]
    Interrupted {
        /// The operation that this rank called.
        operation: Operation,
        /// The round that failed (modulo 2²⁸): the same on every rank.
        round: u32,
        /// The rank that was interrupted.
        rank: usize,
    },

    /// The communicator has ended because of an error of one rank.
    #[error("{operation}, round {round}: rank {rank} has made the communicator unusable: {reason}")]
    Poisoned {
        /// The operation that this rank called.
        operation: Operation,
        /// The round that failed (modulo 2²⁸): the same on every rank.
        round: u32,
        /// The rank.
        rank: usize,
        /// The rank's error.
        reason: &'static str,
    },

    /// There is not enough memory, or the system refused it. Nothing was allocated.
    #[error("{operation}: {requested_bytes} bytes could not be allocated: {reason}")]
    AllocationFailed {
        /// The operation; [`Operation::Init`] while joining.
        operation: Operation,
        /// The number of bytes that were requested; `usize::MAX` if it does not fit into a `usize`.
        requested_bytes: usize,
        /// The reason, and the remedy.
        reason: Box<str>,
    },

    /// This rank requested an alignment that is no power of two, or that is larger than
    /// [`SymmetricOptions::MAX_ALIGNMENT`](crate::SymmetricOptions::MAX_ALIGNMENT).
    #[error(
        "{operation}: an alignment of {alignment} bytes is not possible; it is a power of two of at most {most}"
    )]
    InvalidAlignment {
        /// The operation.
        operation: Operation,
        /// The alignment that was requested, in bytes.
        alignment: usize,
        /// The largest that is possible, in bytes.
        most: usize,
    },

    /// This rank named a rank that does not exist, in an operation that is not collective. No other rank takes notice.
    #[error("{operation}: rank {rank} is not one of {size} ranks, which count from 0")]
    InvalidRank {
        /// The operation.
        operation: Operation,
        /// The rank that was named.
        rank: usize,
        /// The number of ranks.
        size: usize,
    },

    /// The system refused to change the protection of shared memory.
    #[error(
        "{operation}: rank {rank} could not change the protection of {bytes} bytes of shared memory: {source}"
    )]
    ProtectionFailed {
        /// The operation.
        operation: Operation,
        /// The rank on which it refused.
        rank: usize,
        /// The length of the memory, in bytes.
        bytes: usize,
        /// The operating system's error.
        source: io::Error,
    },

    /// The system refused to start a thread for [`threads`](crate::threads()).
    #[error("{operation}: the thread {thread:?} could not be started: {source}")]
    ThreadNotStarted {
        /// The operation: [`Operation::Init`].
        operation: Operation,
        /// The thread's name: that of a rank, such as `"rank 3"`, or of one of the library's own threads.
        thread: Box<str>,
        /// The operating system's error.
        source: io::Error,
    },

    /// The system refused what a [`Notifier`](crate::Notifier) needs: two descriptors and a thread. Messages go on without it.
    #[error("{operation}: the system refuses {what} of a notifier: {source}")]
    NotifierRefused {
        /// The operation: [`Operation::Messages`].
        operation: Operation,
        /// What it refused.
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },

    /// A segment for this number of ranks, with chunks of this length, does not fit into the address space of a process.
    /// With 64-bit addresses all values that [`Config`](crate::Config) allows fit.
    #[error(
        "{operation}: a segment cannot have {ranks} ranks with chunks of {chunk_bytes} bytes: it needs a rank, and a process \
         must be able to map it"
    )]
    InvalidLayout {
        /// The operation; [`Operation::Init`] while joining.
        operation: Operation,
        /// The number of ranks.
        ranks: usize,
        /// The length of a chunk, in bytes.
        chunk_bytes: usize,
    },

    /// This rank could not join.
    #[error("rank {} could not join {}: {}", .0.rank, .0.name, .0.reason)]
    InitializationFailed(#[source] Box<InitFailure>),

    /// A setting is missing, or has a value that is not allowed.
    #[error("{}", setting(.0))]
    InvalidConfiguration(Box<InvalidSetting>),

    /// A launcher has started ranks on several nodes, and [`Config::from_env`](crate::Config::from_env) was not told to make a
    /// job of those of each node.
    #[error(
        "the launcher has started {ranks} ranks, of which {local} are on this node, and a job has the ranks of one machine: set \
         INTRANODE_SCOPE=node to make a job of the ranks of each node, start all ranks on one, or join them over MPI by \
         intranode_mpi::from_env of the crate intranode-mpi"
    )]
    SeveralNodes {
        /// The number of all ranks.
        ranks: usize,
        /// The number of ranks on this node.
        local: usize,
    },

    /// A whole node did not come within the time-out: the ranks of a [`Hierarchical`](crate::Hierarchical) communicator see of
    /// another node only whether its leader comes.
    #[error(
        "{}: node {} (ranks {} to {}) did not come within {:?}; it is unreachable, or a rank there is frozen, or busy for longer \
         than the time-out",
        .0.operation, .0.node, .0.ranks.start, .0.ranks.end.saturating_sub(1), .0.timeout
    )]
    NodeLate(Box<NodeTimeout>),

    /// What connects the nodes of a [`Hierarchical`](crate::Hierarchical) communicator has failed, or a rank in the middle of a call.
    #[error("{operation}: the nodes cannot go on: {reason}")]
    LeadersFailed {
        /// The operation that this rank called.
        operation: Operation,
        /// The reason. Of one that another rank has told, its beginning.
        reason: Box<str>,
    },

    /// Two threads of this rank made calls at the same time, or the operation of a reduction made a call. The order of this
    /// rank's calls is undefined then, so the communicator has ended on all ranks.
    #[error(
        "{operation}: this rank is inside a collective, on another thread or in the operation of a reduction; calls must not \
         overlap"
    )]
    ConcurrentUse {
        /// The operation of the second call.
        operation: Operation,
    },

    /// The caller is a forked child of the rank. Only the process that joined can make calls.
    #[error("{operation}: this process was forked from a rank; only the process that joined can call")]
    Forked {
        /// The operation.
        operation: Operation,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_small_and_cross_threads() {
        fn crosses<T: Send + Sync + 'static>() {}
        crosses::<Error>();
        assert!(size_of::<Result<(), Error>>() <= 32);
    }

    #[test]
    fn a_mismatch_names_the_call_of_each_rank() {
        let call = |rank, operation, length| CallSummary {
            rank,
            operation: Some(operation),
            reduction: None,
            own_reduction: None,
            element: "f64".to_owned(),
            length,
            root: None,
            counts: None,
            phase: 0,
            region: None,
            object: None,
            alignment: None,
        };
        let calls = [call(0, Operation::Barrier, 0), call(1, Operation::Allgather, 7)];
        let error = Error::Mismatch { operation: Operation::Barrier, round: 7, calls: Box::new(calls) };
        let text = error.to_string();
        assert!(text.starts_with("round 7: ") && text.contains("rank 0 called barrier"), "{text}");
        assert!(text.contains("rank 1 called allgather(7 × f64)"), "{text}");
        assert!(!error.is_fatal());
    }
}
