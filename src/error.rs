//! The error of all calls, and what it refers to.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::codes::{Codes, codes};
use crate::element::{ReduceOp, describe};
use crate::protocol::Call;

codes! {
    /// A collective operation, or a step in a communicator's life.
    ///
    /// ```
    /// use intranode::Operation;
    ///
    /// assert_eq!(Operation::Allgatherv.as_str(), "allgatherv");
    /// assert!(Operation::Barrier == "barrier");
    /// assert_eq!(Operation::SetOwnership.to_string(), "set_ownership");
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum Operation: u8 {
        /// Joining: the step that makes a communicator.
        Init = 1,
        /// `barrier`
        Barrier = 2,
        /// `allreduce`, `allreduce_in_place` and `allreduce_with`
        Allreduce = 3,
        /// `allgatherv`
        Allgatherv = 4,
        /// `allgather`
        Allgather = 5,
        /// `broadcast`
        Broadcast = 6,
        /// `region`
        Region = 7,
        /// `distribute` and `set_ownership` of a region
        SetOwnership = 8,
        /// `publish` of a region
        Publish = 9,
        /// `reclaim` of a region
        Reclaim = 10,
        /// `split` and `split_local`
        Split = 11,
        /// `exchange`
        Exchange = 12,
        /// `share` of an exchange
        Share = 13,
        /// `symmetric`
        Symmetric = 32,
        /// `free` of a symmetric object
        FreeSymmetric = 33,
        /// `resize` of a symmetric object
        ResizeSymmetric = 34,
        /// `into_own` of a symmetric object
        OwnPhase = 35,
        /// `into_read` of a symmetric object
        ReadPhase = 36,
        /// `open` of a symmetric object
        OpenPhase = 37,
        /// `lock`
        LockNew = 38,
        /// `quiet`
        Quiet = 39,
        /// `wait_until` of a symmetric object, and its other waits
        Wait = 40,
        /// `lock` and `try_lock` of a lock
        LockAcquire = 41,
        /// `at` of a symmetric object, and `notify`
        Remote = 42,
        /// `put_signal` of a symmetric object
        PutSignal = 43,
        /// `reduce`, `reduce_in_place` and `reduce_with`
        Reduce = 64,
        /// `gather`
        Gather = 65,
        /// `gatherv`
        Gatherv = 66,
        /// `scatter`
        Scatter = 67,
        /// `scatterv`
        Scatterv = 68,
        /// `alltoall`
        Alltoall = 69,
        /// `alltoallv`
        Alltoallv = 70,
        /// `scan`, `scan_in_place` and `scan_with`
        Scan = 71,
        /// `exscan` and `exscan_in_place`
        Exscan = 72,
        /// `reduce_scatter`
        ReduceScatter = 73,
        /// `reduce_scatter_block`
        ReduceScatterBlock = 74,
        /// `broadcast_vec`
        BroadcastVec = 75,
        /// `allgather_vec`
        AllgatherVec = 76,
        /// `gather_vec`
        GatherVec = 77,
        /// `broadcast_value`
        BroadcastValue = 78,
        /// `allgather_values`
        AllgatherValues = 79,
        /// `gather_values`
        GatherValues = 80,
    }
}

impl Operation {
    /// The name: `"barrier"`, `"allgatherv"`, … Example: [`Operation`].
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Init => "init",
            Operation::Barrier => "barrier",
            Operation::Allreduce => "allreduce",
            Operation::Allgatherv => "allgatherv",
            Operation::Allgather => "allgather",
            Operation::Broadcast => "broadcast",
            Operation::Region => "region",
            Operation::SetOwnership => "set_ownership",
            Operation::Publish => "publish",
            Operation::Reclaim => "reclaim",
            Operation::Split => "split",
            Operation::Exchange => "exchange",
            Operation::Share => "share",
            Operation::Symmetric => "symmetric",
            Operation::FreeSymmetric => "free",
            Operation::ResizeSymmetric => "resize",
            Operation::OwnPhase => "into_own",
            Operation::ReadPhase => "into_read",
            Operation::OpenPhase => "open",
            Operation::LockNew | Operation::LockAcquire => "lock",
            Operation::Quiet => "quiet",
            Operation::Wait => "wait",
            Operation::Remote => "remote",
            Operation::PutSignal => "put_signal",
            Operation::Reduce => "reduce",
            Operation::Gather => "gather",
            Operation::Gatherv => "gatherv",
            Operation::Scatter => "scatter",
            Operation::Scatterv => "scatterv",
            Operation::Alltoall => "alltoall",
            Operation::Alltoallv => "alltoallv",
            Operation::Scan => "scan",
            Operation::Exscan => "exscan",
            Operation::ReduceScatter => "reduce_scatter",
            Operation::ReduceScatterBlock => "reduce_scatter_block",
            Operation::BroadcastVec => "broadcast_vec",
            Operation::AllgatherVec => "allgather_vec",
            Operation::GatherVec => "gather_vec",
            Operation::BroadcastValue => "broadcast_value",
            Operation::AllgatherValues => "allgather_values",
            Operation::GatherValues => "gather_values",
        }
    }

    /// Whether it is a collective method of a symmetric object.
    fn is_of_an_object(self) -> bool {
        matches!(
            self,
            Operation::FreeSymmetric
                | Operation::ResizeSymmetric
                | Operation::OwnPhase
                | Operation::ReadPhase
                | Operation::OpenPhase
        )
    }

    /// Whether it is a method of a region or of an exchange.
    fn is_of_a_region(self) -> bool {
        matches!(self, Operation::SetOwnership | Operation::Publish | Operation::Reclaim | Operation::Share)
    }

    /// Whether its length is not the same on all ranks, and so not in [`Call`].
    fn has_no_length(self) -> bool {
        self == Operation::Alltoallv || self >= Operation::BroadcastVec
    }

    /// Whether [`Call::extra`] is its root.
    fn has_root(self) -> bool {
        matches!(
            self,
            Operation::Broadcast
                | Operation::Reduce
                | Operation::Gather
                | Operation::Scatter
                | Operation::BroadcastVec
                | Operation::GatherVec
                | Operation::BroadcastValue
                | Operation::GatherValues
        )
    }

    /// Whether [`Call::extra`] is a digest of its counts.
    fn has_counts(self) -> bool {
        matches!(self, Operation::Allgatherv | Operation::Exchange | Operation::ReduceScatter)
    }

    /// Whether [`Call::extra`] is [both](root_and_digest).
    fn has_root_and_counts(self) -> bool {
        matches!(self, Operation::Gatherv | Operation::Scatterv)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq<str> for Operation {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Operation {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

/// A rank's call, as the other ranks read it: in [`Error::Mismatch`]. Its text is not meant to be parsed.
///
/// ```
/// use intranode::Error;
///
/// let results = intranode::threads(2, |comm| match comm.rank() {
///     0 => comm.barrier(),
///     _ => comm.broadcast(&mut [0.5; 7], 1),
/// })?;
/// for result in results {
///     let Err(Error::Mismatch { calls, .. }) = result else { panic!("{result:?}") };
///     assert_eq!(calls[0].to_string(), "rank 0 called barrier");
///     assert_eq!(calls[1].to_string(), "rank 1 called broadcast(7 × f64, root 1)");
///     assert_eq!((calls[1].length, calls[1].root), (7, Some(1)));
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallSummary {
    /// The rank.
    pub rank: usize,
    /// The operation; `None` if its code is unknown.
    pub operation: Option<Operation>,
    /// The reduction, of a call that has one.
    pub reduction: Option<ReduceOp>,
    /// The element type: `"f64"`, or its size and alignment in words.
    pub element: String,
    /// The length in elements, of the buffer or of all blocks; 0 if it may differ between ranks, as in an alltoallv.
    pub length: u64,
    /// The operation of a call such as [`allreduce_with`](crate::Communicator::allreduce_with): the first rank whose
    /// operation has the same name.
    pub own_reduction: Option<usize>,
    /// The root, of a call that has one.
    pub root: Option<usize>,
    /// The counts, of a call that has them equal on all ranks, as an allgatherv or an exchange: the first rank with the same table. Different tables can have the same
    /// total.
    pub counts: Option<usize>,
    /// The transfer, if the call consists of several; 0 is the first.
    pub phase: u8,
    /// The region or exchange that the method belongs to: its sequence number among those that its leader has created.
    pub region: Option<u64>,
    /// The symmetric object that the method belongs to: its sequence number in its communicator.
    pub object: Option<u64>,
    /// The alignment that a symmetric object was requested with, in bytes.
    pub alignment: Option<usize>,
}

impl fmt::Display for CallSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(operation) = self.operation else {
            return write!(f, "rank {} called an unknown operation", self.rank);
        };
        write!(f, "rank {} called {operation}", self.rank)?;
        if !matches!(operation, Operation::Init | Operation::Barrier | Operation::Split) {
            self.write_arguments(f)?;
        }
        if self.phase > 0 { write!(f, ", and was at its transfer {}", self.phase) } else { Ok(()) }
    }
}

impl CallSummary {
    fn write_arguments(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(")?;
        if let Some(reduction) = self.reduction {
            write!(f, "{reduction}, ")?;
        }
        if let Some(rank) = self.own_reduction {
            write!(f, "the operation named as on rank {rank}, ")?;
        }
        match self.operation {
            // Only the senders know the length.
            Some(operation) if operation.has_no_length() => write!(f, "{}", self.element)?,
            _ => write!(f, "{} × {}", self.length, self.element)?,
        }
        if let Some(root) = self.root {
            write!(f, ", root {root}")?;
        }
        if let Some(region) = self.region {
            write!(f, ", region {region}")?;
        }
        if let Some(object) = self.object {
            write!(f, ", object {object}")?;
        }
        if let Some(alignment) = self.alignment {
            write!(f, ", aligned to {alignment}")?;
        }
        if let Some(counts) = self.counts {
            write!(f, ", counts as on rank {counts}")?;
        }
        write!(f, ")")
    }

    /// The calls of all ranks, by rank.
    pub(crate) fn all(calls: &[Call]) -> Box<[Self]> {
        // Without the root, if both are in it: the counts are compared.
        let key = |call: &Call| {
            let has_both = Operation::from_code(call.operation).is_some_and(Operation::has_root_and_counts);
            let extra = if has_both || is_own(call) { call.extra & DIGEST_MASK } else { call.extra };
            (call.operation, is_own(call), extra)
        };
        let same = |one: &Call, other: &Call| key(one) == key(other);
        let first = |call: &Call| calls.iter().position(|other| same(call, other));
        calls.iter().enumerate().map(|(rank, call)| CallSummary::new(rank, call, first(call))).collect()
    }

    /// `first`: the first rank whose call has the same [`Call::extra`].
    fn new(rank: usize, call: &Call, first: Option<usize>) -> Self {
        let operation = Operation::from_code(call.operation);
        let is = |kind: fn(Operation) -> bool| operation.is_some_and(kind);
        let (has_both, extra) = (is(Operation::has_root_and_counts), call.extra);
        let root = if has_both || is_own(call) { extra >> DIGEST_BITS } else { extra };
        CallSummary {
            rank,
            operation,
            reduction: ReduceOp::from_code(call.reduction),
            own_reduction: first.filter(|_| is_own(call)),
            element: describe(call.element, call.shape),
            length: call.length,
            // Saturates if another process has overwritten the header.
            root: (has_both || is(Operation::has_root)).then(|| usize::try_from(root).unwrap_or(usize::MAX)),
            counts: first.filter(|_| has_both || is(Operation::has_counts)),
            phase: call.phase,
            object: is(Operation::is_of_an_object).then_some(extra),
            alignment: (operation == Some(Operation::Symmetric)).then(|| alignment_in(extra)),
            region: is(Operation::is_of_a_region).then_some(extra),
        }
    }
}

/// The bits of [`Call::extra`] below the alignment of a symmetric object's request: a code for its other options.
const OPTION_BITS: u32 = 8;

/// What the ranks compare of a request for a symmetric object: its alignment, a power of two, and a code for its other
/// options.
pub(crate) fn alignment_and_options(alignment: usize, options: u64) -> u64 {
    debug_assert!(options >> OPTION_BITS == 0, "they share a word with the alignment");
    u64::from(alignment.trailing_zeros()) << OPTION_BITS | options
}

/// The alignment in it. Saturates if another process has overwritten the header.
fn alignment_in(extra: u64) -> usize {
    u32::try_from(extra >> OPTION_BITS).ok().and_then(|bits| 1usize.checked_shl(bits)).unwrap_or(usize::MAX)
}

/// The reduction of a call whose operation is the program's own. Its [`Call::extra`] is a root, if there is one, and a digest of
/// the operation's name.
pub(crate) const OWN_REDUCTION: u8 = u8::MAX;

fn is_own(call: &Call) -> bool {
    call.reduction == OWN_REDUCTION
}

/// The bits of a digest that shares [`Call::extra`] with a root: of up to 65,536 ranks.
const DIGEST_BITS: u32 = 48;

const DIGEST_MASK: u64 = (1 << DIGEST_BITS) - 1;

/// A root and a digest in one number. A root that does not exist may appear as another one: its rank refuses.
pub(crate) fn root_and_digest(root: usize, digest: u64) -> u64 {
    (root as u64) << DIGEST_BITS | digest & DIGEST_MASK
}

/// What two ranks of an alltoallv say about the same data: in [`Error::CountsDisagree`].
///
/// ```
/// use intranode::Error;
///
/// let results = intranode::threads(2, |comm| {
///     // Rank 0 sends two elements to each rank; rank 1 expects three from it.
///     let (counts, mut recv) = ([2, 2], [0; 6]);
///     let expected = if comm.rank() == 1 { [3, 2] } else { [2, 2] };
///     comm.alltoallv(&[7; 4], &counts, &[0, 2], &mut recv, &expected, &[0, 3])
/// })?;
/// for result in results {
///     let Err(Error::CountsDisagree { pair, .. }) = result else { panic!("{result:?}") };
///     assert_eq!((pair.from, pair.to, pair.sent, pair.expected), (0, 1, 2, 3));
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CountPair {
    /// The rank that sends.
    pub from: usize,
    /// The rank that receives.
    pub to: usize,
    /// The count that the sender passed, in elements.
    pub sent: usize,
    /// The count that the receiver passed, in elements.
    pub expected: usize,
}

/// A missing or invalid setting: in [`Error::InvalidConfiguration`].
///
/// ```
/// use intranode::{Config, Error};
///
/// let error = Config::new("/job", 4, 4).join().expect_err("the ranks are 0 to 3");
/// let Error::InvalidConfiguration(bad) = error else { panic!("{error}") };
/// assert_eq!((bad.setting.as_str(), bad.value.as_deref()), ("rank", Some("4")));
/// assert_eq!(bad.allowed, "0 to 3, since size is 4");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidSetting {
    /// The environment variable, or the argument or the method of [`Config`](crate::Config).
    pub setting: String,
    /// Its value; `None` if it is not set.
    pub value: Option<String>,
    /// The values that are allowed.
    pub allowed: String,
}

/// The failure of a rank to join: in [`Error::InitializationFailed`].
///
/// ```
/// use std::time::Duration;
/// use intranode::{Config, Error};
///
/// let name = format!("/example-missing-{}", std::process::id());
/// // Rank 0 is never started.
/// let result = Config::new(name, 1, 2).join_timeout(Duration::from_millis(1)).join();
/// let Err(Error::InitializationFailed(failure)) = result else { panic!("{result:?}") };
/// assert_eq!((failure.rank, failure.missing.as_slice()), (1, &[0][..]));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct InitFailure {
    /// The name of the job.
    pub name: String,
    /// The rank that could not join.
    pub rank: usize,
    /// The reason, and the remedy.
    pub reason: String,
    /// The ranks that never joined, if that is the reason.
    pub missing: Vec<usize>,
    /// The operating system's error, if there is one.
    pub source: Option<io::Error>,
}

/// What a rank has waited for in vain: in [`Error::WaitTimedOut`].
///
/// ```
/// use intranode::{Error, Until};
/// use std::time::Duration;
///
/// let config = intranode::Config::new("/example-wait", 0, 1).timeout(Duration::from_millis(10));
/// let results = intranode::threads_with(&config, |comm| comm.symmetric::<u32>(8)?.wait_until(5, Until::Ge(3)))?;
/// let Err(Error::WaitTimedOut(late)) = &results[0] else { panic!("{results:?}") };
/// assert_eq!((late.index, late.condition.as_str(), late.last.as_str()), (5, "Ge(3)", "0"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitTimeout {
    /// The rank that waited.
    pub rank: usize,
    /// The element.
    pub index: usize,
    /// What was to hold.
    pub condition: String,
    /// What the element held when the time was over.
    pub last: String,
    /// The communicator's time-out.
    pub timeout: Duration,
}

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
    /// This rank is the root and passed no buffer, or is not and passed one.
    #[error(
        "{operation}: {}", if *given { format!("this rank passed a buffer that only root {root} has; it passes None") }
        else { format!("this rank is root {root} and passed no buffer; it passes Some") }
    )]
    RootBuffer {
        /// The operation.
        operation: Operation,
        /// The root that was passed.
        root: usize,
        /// Whether this rank passed a buffer.
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

    /// There was no progress during the time-out.
    #[error(
        "{operation}, round {}: {} did not arrive within {:?}; they are frozen, dead, or busy for longer than the \
         time-out",
        .info.round, ranks(late), .info.timeout.unwrap_or_default()
    )]
    TimedOut {
        /// The operation that this rank called.
        operation: Operation,
        /// The ranks that did not arrive.
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

    /// A rank has left in order, and this rank made a further call.
    #[error(
        "{operation}, round {round}: rank {rank} has left after {rounds} rounds; it made fewer calls than this rank"
    )]
    RankLeft {
        /// The operation that this rank called.
        operation: Operation,
        /// The round that failed (modulo 2²⁸): the same on every rank.
        round: u32,
        /// The rank that left.
        rank: usize,
        /// The number of rounds that it had completed (modulo 2²⁸).
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

    /// Two threads of this rank made calls at the same time. The order of this rank's calls is undefined then, so the
    /// communicator has ended on all ranks.
    #[error("{operation}: another thread of this rank is inside a collective; calls must not overlap")]
    ConcurrentUse {
        /// The operation of the second thread.
        operation: Operation,
    },

    /// The caller is a forked child of the rank. Only the process that joined can make calls.
    #[error("{operation}: this process was forked from a rank; only the process that joined can call")]
    Forked {
        /// The operation.
        operation: Operation,
    },
}

/// The details of a time-out: in [`Error::TimedOut`].
///
/// ```
/// use std::sync::Barrier;
/// use std::time::Duration;
/// use intranode::{Config, Error};
///
/// let timeout = Duration::from_millis(10);
/// let given_up = Barrier::new(2);
/// let results = intranode::threads_with(&Config::new("/example", 0, 2).timeout(timeout), |comm| {
///     // Rank 1 does not take part until rank 0 has given up.
///     let result = if comm.rank() == 0 { comm.barrier() } else { Ok(()) };
///     given_up.wait();
///     result
/// })?;
/// let Err(Error::TimedOut { late, info, .. }) = &results[0] else { panic!("{results:?}") };
/// assert_eq!((&**late, info.timeout), (&[1][..], Some(timeout)));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeoutInfo {
    /// The time-out of this rank.
    pub timeout: Option<Duration>,
    /// The processes of the late ranks, in the order of the ranks.
    pub pids: Vec<u32>,
    /// The round at which they did not arrive (modulo 2²⁸).
    pub round: u32,
}

impl std::error::Error for InitFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|error| error as _)
    }
}

impl fmt::Display for InitFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Error {
    /// Two ranks requested the same element.
    pub(crate) fn overlap(operation: Operation, (first, second): (usize, usize)) -> Self {
        Error::OverlappingBlocks { operation, first, second }
    }

    /// Whether the communicator has ended, or was never made. If not, all ranks have consumed the same call, and further
    /// calls are possible. Example: [`Error`].
    pub fn is_fatal(&self) -> bool {
        !matches!(
            self,
            Error::InvalidBufferSize { .. }
                | Error::InvalidRange { .. }
                | Error::InvalidRoot { .. }
                | Error::ForeignHandle { .. }
                | Error::WouldDeadlock { .. }
                | Error::WaitTimedOut(_)
                | Error::RootBuffer { .. }
                | Error::CountsDisagree { .. }
                | Error::InvalidReduction { .. }
                | Error::InvalidValue { .. }
                | Error::OverlappingBlocks { .. }
                | Error::AllocationFailed { .. }
                | Error::InvalidAlignment { .. }
                | Error::InvalidRank { .. }
                | Error::ProtectionFailed { .. }
                | Error::InvalidLayout { .. }
                | Error::Refused { .. }
                | Error::Mismatch { .. }
        )
    }

    /// The operation that failed. Example: [`Error`].
    pub fn operation(&self) -> Operation {
        match self {
            Error::InvalidBufferSize { operation, .. }
            | Error::InvalidRange { operation, .. }
            | Error::ForeignHandle { operation }
            | Error::WouldDeadlock { operation }
            | Error::InvalidRoot { operation, .. }
            | Error::RootBuffer { operation, .. }
            | Error::CountsDisagree { operation, .. }
            | Error::InvalidReduction { operation, .. }
            | Error::InvalidValue { operation, .. }
            | Error::OverlappingBlocks { operation, .. }
            | Error::Refused { operation, .. }
            | Error::Mismatch { operation, .. }
            | Error::TimedOut { operation, .. }
            | Error::RankDied { operation, .. }
            | Error::RankLeft { operation, .. }
            | Error::Aborted { operation, .. }
            | Error::Poisoned { operation, .. }
            | Error::AllocationFailed { operation, .. }
            | Error::InvalidAlignment { operation, .. }
            | Error::InvalidRank { operation, .. }
            | Error::ProtectionFailed { operation, .. }
            | Error::ThreadNotStarted { operation, .. }
            | Error::InvalidLayout { operation, .. }
            | Error::ConcurrentUse { operation }
            | Error::Forked { operation } => *operation,
            Error::WaitTimedOut(_) => Operation::Wait,
            Error::InitializationFailed(_) | Error::InvalidConfiguration(_) => Operation::Init,
        }
    }
}

fn list(calls: &[CallSummary]) -> String {
    let calls: Vec<String> = calls.iter().map(CallSummary::to_string).collect();
    calls.join("; ")
}

fn ranks(late: &[usize]) -> String {
    let names: Vec<String> = late.iter().map(usize::to_string).collect();
    match names.as_slice() {
        [one] => format!("rank {one}"),
        many => format!("ranks {}", many.join(", ")),
    }
}

fn setting(bad: &InvalidSetting) -> String {
    let InvalidSetting { setting, value, allowed } = bad;
    match value {
        Some(value) => format!("{setting} is {value:?}; allowed is {allowed}"),
        None => format!("{setting} is not set; it must be {allowed}"),
    }
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
    fn an_alignment_is_read_from_the_call_that_it_was_written_to() {
        for bits in 0..=23 {
            assert_eq!(alignment_in(alignment_and_options(1 << bits, 0xFF)), 1 << bits);
        }
        assert_eq!(alignment_in(u64::MAX), usize::MAX);
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
