//! Further communicators of some of the ranks.

use std::sync::Arc;

use crate::collective::allgatherv::gather_words;
use crate::communicator::Communicator;
use crate::error::{Error, Operation};
use crate::liveness::fatal::FatalSignals;
use crate::protocol::{Call, membership};
use crate::rank::job_state::Observer;
use crate::rank::rank_state::RankState;
use crate::region::allocation::{AllocRequest, allocate};
use crate::segment::layout::Layout;
use crate::segment::mapped::{MappedSegment, START};
use crate::segment::platform::{ShmPlatform, Wait};
use crate::segment::settings::SegmentSettings;

const OPERATION: Operation = Operation::Split;

impl Communicator {
    /// Makes a communicator of all ranks that name the same `color`. Its ranks are ordered by `key`, those with the same
    /// key as they are here. Collective over all ranks, each of which gets the communicator of its color, as MPI's
    /// `MPI_Comm_split`.
    ///
    /// The new communicator has a segment of its own, with chunks as long as this one's. So calls on it and on this one can
    /// follow each other in any order, and both can be dropped in any order. Its time-out and its way to wait are those of
    /// this one. A rank that dies ends every communicator that it belongs to.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let results = intranode::threads(5, |comm| {
    ///     // The even ranks, and the odd ones; each in descending order.
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
    /// [`Error::AllocationFailed`] on every rank, without memory; otherwise as [`barrier`](Communicator::barrier).
    pub fn split(&self, color: usize, key: usize) -> Result<Communicator, Error> {
        let seat = &self.seat;
        let call = Call { operation: OPERATION as u8, ..Call::default() };
        let mut open = seat.begin(OPERATION)?;
        let all = gather_words(&mut open, &call, [color as u64, key as u64])?;
        let mut group: Vec<usize> = (0..all.len()).filter(|rank| all[*rank][0] == color as u64).collect();
        // Stable: ranks with the same key stay in order.
        group.sort_by_key(|rank| all[*rank][1]);
        let rank = group.iter().position(|rank| *rank == seat.rank).unwrap_or_default();

        let (ranks, chunk_bytes) = (group.len(), seat.mapped.layout().chunk());
        let Ok(layout) = Layout::new(ranks, chunk_bytes) else {
            // It is not larger than this communicator's own, which exists: then it has no rank, since another program has
            // written over the colors.
            let error = Error::InvalidLayout { operation: OPERATION, ranks, chunk_bytes };
            return Err(open.refuse(&call, error));
        };
        let part = if rank == 0 { 0..layout.len() } else { 0..0 };
        let len = Some(layout.len());
        let wanted = AllocRequest { call: &call, leader: group[0], len, part, huge: false };
        let shape = seat.mapped.barrier_shape().of_part(group.len());
        let pthread = sleeps_by_pthread(seat.platform.wait);
        let settings = SegmentSettings { pthread, shape, ..SegmentSettings::default() };
        let fill = |mapping: &_| MappedSegment::initialise(mapping, &layout, std::process::id(), settings);
        let (mapping, _) = allocate(&mut open, &wanted, |_| (), fill)?;
        let world = Arc::new(MappedSegment::new(mapping, layout));

        let machine = ShmPlatform { wait: world.wait(), ..seat.platform };
        for (rank, of_parent) in group.iter().enumerate() {
            // The first to come claims each rank for its process: all know the same.
            let _ = membership::claim(&machine, world.segment(), rank, seat.pid(*of_parent));
        }
        let joined: Arc<[usize]> = group.iter().map(|rank| self.joined_as[*rank]).collect();
        let register = || FatalSignals::register(&world, machine, rank).ok();
        let fatal_signals = self.tree.fatal_signals.then(register).flatten();
        let mut child =
            RankState::new(Arc::clone(&world), machine, rank, Arc::clone(&seat.job), seat.settings, START);
        if let Some(groups) = &seat.groups {
            let near: Vec<u64> = group.iter().map(|rank| groups.number(*rank)).collect();
            // As it is written there: the leader may have found another word in the segment of the whole.
            child.set_groups(world.barrier_shape().groups(&near, false));
        }
        child.cma_peers = seat.cma_peers.as_ref().and_then(|cma_peers| cma_peers.subset(&group));
        if seat.observer.is_some() {
            let ranks: Vec<String> = joined.iter().map(usize::to_string).collect();
            let name = format!("ranks {} of {}", ranks.join(", "), seat.job);
            child.observer = Some(Arc::new(Observer::new(&world, &name, rank)));
        }
        let child = self.child(child, joined, fatal_signals);
        child.seat.debug_transport();
        // After this everybody is told of deaths.
        child.seat.collective(OPERATION, |member| child.seat.barrier.enter(member, &call))?;
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

/// How the ranks of a new segment sleep where those of the old one sleep like this. What suits threads that share a
/// mapping does not work across several mappings of it.
fn sleeps_by_pthread(wait: Wait) -> bool {
    match wait {
        #[cfg(target_os = "linux")]
        Wait::Futex => false,
        Wait::Pthread(_) => true,
        Wait::Threads => cfg!(not(target_os = "linux")),
    }
}
