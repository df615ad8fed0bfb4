//! What can be called.

use std::fmt;

use crate::codes::codes;

codes! {
    /// A collective operation, or a step in a communicator's life.
    ///
    /// ```
    /// use intranode::Operation;
    ///
    /// assert_eq!(Operation::Allgatherv.as_str(), "allgatherv");
    /// assert!(Operation::Barrier == "barrier");
    /// assert!(Operation::Put.is_access() && !Operation::Send.is_access());
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
        /// `buffer`
        Buffer = 14,
        /// `leave`
        Leave = 15,
        /// `state`
        State = 16,
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
        /// `put`, `put_strided`, `store` and `set` of a symmetric object's instance
        Put = 44,
        /// `get`, `get_strided` and `load` of a symmetric object's instance
        Get = 45,
        /// `swap`, `compare_swap`, `fetch_add` and the like of a symmetric object's instance
        Atomic = 46,
        /// `messages`
        Messages = 48,
        /// `send` of messages, and its other forms
        Send = 49,
        /// `recv` of messages, and its other forms
        Recv = 50,
        /// `probe` of messages, and its other forms
        Probe = 51,
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
        /// `start_barrier`
        StartBarrier = 96,
        /// `start_allreduce`
        StartAllreduce = 97,
        /// `start_broadcast`
        StartBroadcast = 98,
        /// `start_allgatherv`
        StartAllgatherv = 99,
        /// `start_reduce`
        StartReduce = 100,
        /// `start_scan`
        StartScan = 101,
        /// `start_exscan`
        StartExscan = 102,
        /// `start_reduce_scatter`
        StartReduceScatter = 103,
        /// `start_reduce_scatter_block`
        StartReduceScatterBlock = 104,
        /// `start_allgather`
        StartAllgather = 105,
        /// `start_gather`
        StartGather = 106,
        /// `start_gatherv`
        StartGatherv = 107,
        /// `start_scatter`
        StartScatter = 108,
        /// `start_scatterv`
        StartScatterv = 109,
        /// `start_alltoall`
        StartAlltoall = 110,
        /// `start_alltoallv`
        StartAlltoallv = 111,
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
            Operation::Buffer => "buffer",
            Operation::Leave => "leave",
            Operation::State => "state",
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
            Operation::Put => "put",
            Operation::Get => "get",
            Operation::Atomic => "atomic",
            Operation::Messages => "messages",
            Operation::Send => "send",
            Operation::Recv => "recv",
            Operation::Probe => "probe",
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
            Operation::StartBarrier => "start_barrier",
            Operation::StartAllreduce => "start_allreduce",
            Operation::StartBroadcast => "start_broadcast",
            Operation::StartAllgatherv => "start_allgatherv",
            Operation::StartReduce => "start_reduce",
            Operation::StartScan => "start_scan",
            Operation::StartExscan => "start_exscan",
            Operation::StartReduceScatter => "start_reduce_scatter",
            Operation::StartReduceScatterBlock => "start_reduce_scatter_block",
            Operation::StartAllgather => "start_allgather",
            Operation::StartGather => "start_gather",
            Operation::StartGatherv => "start_gatherv",
            Operation::StartScatter => "start_scatter",
            Operation::StartScatterv => "start_scatterv",
            Operation::StartAlltoall => "start_alltoall",
            Operation::StartAlltoallv => "start_alltoallv",
        }
    }

    /// Whether it is a collective method of a symmetric object.
    pub(super) fn is_of_an_object(self) -> bool {
        matches!(
            self,
            Operation::FreeSymmetric
                | Operation::ResizeSymmetric
                | Operation::OwnPhase
                | Operation::ReadPhase
                | Operation::OpenPhase
        )
    }

    /// Whether it is an operation on messages, which is not collective.
    pub(super) fn is_of_messages(self) -> bool {
        matches!(self, Operation::Send | Operation::Recv | Operation::Probe)
    }

    /// Whether it is a method of a region or of an exchange.
    pub(super) fn is_of_a_region(self) -> bool {
        matches!(self, Operation::SetOwnership | Operation::Publish | Operation::Reclaim | Operation::Share)
    }

    /// Whether its call has no arguments.
    pub(super) fn has_no_arguments(self) -> bool {
        matches!(
            self,
            Operation::Init
                | Operation::Barrier
                | Operation::Split
                | Operation::StartBarrier
                | Operation::Messages
                | Operation::LockNew
        )
    }

    /// Whether it is an access to symmetric memory that never waits. Most take less time than reading a clock. Example:
    /// [`Operation`].
    pub fn is_access(self) -> bool {
        matches!(self, Operation::Put | Operation::Get | Operation::Atomic | Operation::PutSignal)
    }

    /// Whether it consists of rounds that bring no data, and of nothing else that takes time.
    #[inline]
    pub(crate) fn has_only_rounds(self) -> bool {
        matches!(self, Operation::Barrier | Operation::Publish | Operation::Reclaim)
    }

    /// Whether its length is not the same on all ranks, and so not in `Call`.
    pub(super) fn has_no_length(self) -> bool {
        matches!(self, Operation::Alltoallv | Operation::StartAlltoallv)
            || (Operation::BroadcastVec..=Operation::GatherValues).contains(&self)
    }

    /// Whether `Call::extra` is its root.
    pub(super) fn has_root(self) -> bool {
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
                | Operation::StartBroadcast
                | Operation::StartReduce
                | Operation::StartGather
                | Operation::StartScatter
        )
    }

    /// Whether `Call::extra` is a digest of its counts.
    pub(super) fn has_counts(self) -> bool {
        matches!(
            self,
            Operation::Allgatherv
                | Operation::Exchange
                | Operation::ReduceScatter
                | Operation::StartAllgatherv
                | Operation::StartReduceScatter
        )
    }

    /// Whether `Call::extra` is both.
    pub(super) fn has_root_and_counts(self) -> bool {
        matches!(
            self,
            Operation::Gatherv | Operation::Scatterv | Operation::StartGatherv | Operation::StartScatterv
        )
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
