//! Splitting a communicator.

use std::sync::Arc;

use crate::collective::allgatherv::gather_words;
use crate::communicator::Communicator;
use crate::error::{Error, Operation};
use crate::liveness::fatal::FatalSignals;
use crate::protocol::{Call, membership};
use crate::rank::arrivals::Arrivals;
use crate::rank::job_state::StateSampler;
use crate::rank::rank_state::RankState;
use crate::region::allocation::{AllocRequest, allocate};
use crate::segment::layout::Layout;
use crate::segment::mapped::{MappedSegment, START};
use crate::segment::platform::{ShmPlatform, Wait};
use crate::segment::settings::SegmentSettings;
use crate::sys::memory::backing::Pages;

const OPERATION: Operation = Operation::Split;

impl Communicator {
    /// Makes a communicator of all ranks that pass the same `color`. Its ranks are ordered by `key`, ranks with equal keys by
    /// their rank in this communicator. Collective over all ranks; each gets the communicator of its color. It corresponds to
    /// `MPI_Comm_split`.
    ///
    /// The new communicator has a segment of its own, with chunks of the same length. So calls on the two communicators are
    /// independent, and they can be dropped in any order. The time-out and the wait are inherited. The death of a rank ends
    /// every communicator that the rank belongs to.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let results = intranode::threads(5, |comm| {
    ///     // The even ranks and the odd ranks, each in descending order.
    ///     let part = comm.split(comm.rank() % 2, comm.size() - comm.rank())?;
    ///     let mut sum = [comm.rank()];
    ///     part.allreduce_in_place(&mut sum, ReduceOp::Sum)?;
    ///     Ok::<_, intranode::Error>((part.rank(), part.size(), sum[0]))
    /// })?;
    /// let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(results, [(2, 3, 6), (1, 2, 4), (1, 3, 6), (0, 2, 4), (0, 3, 6)]);
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::AllocationFailed`] on every rank, if there is not enough memory; otherwise as [`barrier`](Communicator::barrier).
    pub fn split(&self, color: usize, key: usize) -> Result<Communicator, Error> {
        let rank_state = &self.rank_state;
        let call = Call { operation: OPERATION as u8, ..Call::default() };
        let mut open = rank_state.begin(OPERATION)?;
        let all = gather_words(&mut open, &call, [color as u64, key as u64])?;
        let mut group: Vec<usize> = (0..all.len()).filter(|rank| all[*rank][0] == color as u64).collect();
        // The sort is stable: ranks with equal keys stay in order.
        group.sort_by_key(|rank| all[*rank][1]);
        let rank = group.iter().position(|rank| *rank == rank_state.rank).unwrap_or_default();

        let (ranks, chunk_bytes) = (group.len(), rank_state.mapped.layout().chunk());
        let Ok(layout) = Layout::new(ranks, chunk_bytes) else {
            // The parent's larger layout is valid. So the group is empty: another program has overwritten the colors.
            let error = Error::InvalidLayout { operation: OPERATION, ranks, chunk_bytes };
            return Err(open.refuse(&call, error));
        };
        let part = if rank == 0 { 0..layout.len() } else { 0..0 };
        let len = Some(layout.len());
        let request = AllocRequest { call: &call, leader: group[0], len, part, pages: Pages::huge(false) };
        let shape = rank_state.mapped.barrier_shape().of_part(group.len());
        let pthread = sleeps_by_pthread(rank_state.platform.wait);
        let settings = SegmentSettings { pthread, shape, single_copy: rank_state.mapped.single_copy() };
        let fill = |mapping: &_| MappedSegment::initialise(mapping, &layout, std::process::id(), settings);
        let (mapping, _) = allocate(&mut open, &request, |_| (), fill)?;
        let mapped = Arc::new(MappedSegment::new(mapping, layout));

        let platform = ShmPlatform { wait: mapped.wait(), recorder: None, ..rank_state.platform };
        for (rank, parent_rank) in group.iter().enumerate() {
            // Every rank claims for all, with equal values. The first claim takes effect.
            let _ = membership::claim(&platform, mapped.segment(), rank, rank_state.pid(*parent_rank));
        }
        let joined: Arc<[usize]> = group.iter().map(|rank| self.joined_as[*rank]).collect();
        let register = || FatalSignals::register(&mapped, platform, rank).ok();
        let fatal_signals = self.tree.fatal_signals.then(register).flatten();
        let mut child = RankState::new(
            Arc::clone(&mapped),
            platform,
            rank,
            Arc::clone(&rank_state.job),
            rank_state.settings,
            START,
        );
        child.staging.oversubscribed = rank_state.staging.oversubscribed;
        if let Some(groups) = &rank_state.groups {
            let caches: Vec<u64> = group.iter().map(|rank| groups.number(*rank)).collect();
            // The shape is read from the new segment, so that all ranks have the same: another process may have overwritten
            // the parent's.
            child.set_groups(mapped.barrier_shape().groups(&caches, false));
        }
        child.co_located = group.iter().map(|rank| rank_state.co_located[*rank]).collect();
        child.cma_peers = rank_state.cma_peers.as_ref().and_then(|cma_peers| cma_peers.subset(&group));
        if rank_state.sampler.is_some() {
            let ranks: Vec<String> = joined.iter().map(usize::to_string).collect();
            let name = format!("ranks {} of {}", ranks.join(", "), rank_state.job);
            child.sampler = Some(Arc::new(StateSampler::new(&mapped, &name, rank)));
        }
        let arrivals = || Box::new(Arrivals::new(&mapped, rank, &joined)) as Box<_>;
        child.record(rank_state.recording_of_child(arrivals));
        let child = self.child(child, joined, fatal_signals);
        child.rank_state.debug_transport();
        // After this round every rank is registered, so no death is missed. The call was counted above.
        let state = &child.rank_state;
        let open = state.enter_uncounted(OPERATION);
        let met = open.and_then(|mut open| open.run(|member| state.barrier.enter(member, &call)));
        // The caller does not know the child's ranks yet.
        met.map_err(|error| error.numbered(&group))?;
        Ok(child)
    }

    /// Makes a communicator of the ranks of this machine: of all ranks, in the same order. Collective.
    ///
    /// ```
    /// let same = intranode::threads(2, |comm| {
    ///     let local = comm.split_local()?;
    ///     Ok::<_, intranode::Error>((local.rank(), local.size()) == (comm.rank(), comm.size()))
    /// })?;
    /// for same in same {
    ///     assert!(same?);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`split`](Communicator::split).
    pub fn split_local(&self) -> Result<Communicator, Error> {
        self.split(0, self.rank())
    }
}

/// Whether the ranks of a child sleep by pthread, given the wait of its parent. `Wait::Threads` needs one mapping that all
/// ranks share, and the ranks of a child have a mapping each.
fn sleeps_by_pthread(wait: Wait) -> bool {
    match wait {
        #[cfg(target_os = "linux")]
        Wait::Futex | Wait::Socket(_) => false,
        Wait::Pthread(_) => true,
        Wait::Threads => cfg!(not(target_os = "linux")),
    }
}
