//! start_alltoallv: the counts of all ranks, then their blocks.

use std::ops::Range;

use bytemuck::Pod;

use super::block_table::BlockTable;
use super::counts;
use super::owned::{OwnedBlocks, OwnedParts, SentBlock, ranges};
use super::pair_counts::disagreement;
use super::parts;
use super::pending::{Finish, Pending};
use crate::communicator::{Communicator, call};
use crate::error::{Error, Operation};
use crate::protocol::started::{ChainedSteps, Link};

const OPERATION: Operation = Operation::StartAlltoallv;

impl Communicator {
    /// Starts an [`alltoallv`](Communicator::alltoallv): the `send_counts[r]` elements from `send[send_displs[r]]` on go to rank `r`, and
    /// what rank `r` sends comes to `recv[recv_displs[r]..]`. The rules are those of the blocking call, but that `send` and `recv` are
    /// moved into the call, and [`Pending::wait`] gives `recv` back. Collective, and does not wait. See [`Pending`] for how it goes on.
    ///
    /// Ranks first tell each other all counts, so it takes two rounds at least.
    ///
    /// ```
    /// // Rank r sends r + 1 elements to each rank.
    /// let all = intranode::threads(2, |comm| {
    ///     let count = comm.rank() + 1;
    ///     let send = vec![comm.rank(); 2 * count];
    ///     comm.start_alltoallv(send, &[count; 2], &[0, count], vec![9; 3], &[1, 2], &[0, 1])?.wait()
    /// })?;
    /// for recv in all {
    ///     assert_eq!(recv?, [0, 1, 1]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`alltoallv`](Communicator::alltoallv) about this rank's arguments; the other ranks get [`Error::Refused`] from
    /// [`Pending::wait`]. [`Error::CountsDisagree`] comes from [`Pending::wait`], on every rank. Otherwise as
    /// [`start_barrier`](Communicator::start_barrier).
    pub fn start_alltoallv<T: Pod + Send>(
        &self,
        send: Vec<T>,
        send_counts: &[usize],
        send_displs: &[usize],
        recv: Vec<T>,
        recv_counts: &[usize],
        recv_displs: &[usize],
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        let (call, rank, size, width) = (call::<T>(OPERATION), self.rank(), self.size(), size_of::<T>());
        let lens = [send.len(), recv.len()];
        let tables = ([send_counts, send_displs], [recv_counts, recv_displs]);
        if let Err(error) = counts::check_exchange(OPERATION, size, width, lens, tables) {
            return Err(self.rank_state.start_refusal(&call, error));
        }
        let table =
            |[counts, displs]: [&[usize]; 2]| ranges(&BlockTable::Given { counts, displs, width }, size);
        let exchange =
            Exchange { send, sent: table(tables.0), recv, received: table(tables.1), rank, wrong: None };
        // A row for each rank: what it sends to each, and what it expects from each.
        let row = 2 * size;
        let mut data = vec![0u64; size * row];
        let own = send_counts.iter().chain(recv_counts);
        data[rank * row..].iter_mut().zip(own).for_each(|(own, count)| *own = *count as u64);
        let blocks = ranges(&BlockTable::Equal { bytes: row * size_of::<u64>() }, size);
        let counts = OwnedBlocks { data, blocks, receiver: None, rank };
        Pending::start(self, OPERATION, call, ChainedSteps::new(counts, exchange))
    }
}

/// What is exchanged once the counts have come.
struct Exchange<T> {
    send: Vec<T>,
    /// By receiver, in bytes.
    sent: Box<[Range<usize>]>,
    recv: Vec<T>,
    /// By sender, in bytes.
    received: Box<[Range<usize>]>,
    rank: usize,
    /// The first pair of ranks whose counts differ.
    wrong: Option<Error>,
}

impl<T: Pod> Link<OwnedBlocks<u64>> for Exchange<T> {
    type Next = OwnedParts<T>;

    fn link(&mut self, counts: OwnedBlocks<u64>) -> Option<OwnedParts<T>> {
        let (rank, size) = (self.rank, self.sent.len());
        let sent = |from: usize, to: usize| counts.data[from * 2 * size + to];
        let expected = |from: usize, to: usize| counts.data[to * 2 * size + size + from];
        let mut pairs = (0..size).flat_map(|from| (0..size).map(move |to| (from, to)));
        if let Some((from, to)) = pairs.find(|(from, to)| sent(*from, *to) != expected(*from, *to)) {
            self.wrong = Some(disagreement(OPERATION, (from, to), sent(from, to), expected(from, to)));
            return None;
        }
        let block = |from: usize| {
            let length = |receivers: usize| {
                let counts = parts::receivers(from, size).take(receivers).map(|to| sent(from, to) as usize);
                counts.fold(0, usize::saturating_add).saturating_mul(size_of::<T>())
            };
            let part = if from == rank { 0 } else { length(parts::position(from, rank, size)) };
            SentBlock { len: length(size - 1), part }
        };
        let blocks = (0..size).map(block).collect();
        let (send, recv) = (std::mem::take(&mut self.send), std::mem::take(&mut self.recv));
        let (sent, received) = (std::mem::take(&mut self.sent), std::mem::take(&mut self.received));
        let mut parts = OwnedParts { send, sent, recv, received, blocks, rank };
        parts.copy_own_part();
        Some(parts)
    }
}

impl<T: Pod> Finish<Vec<T>> for ChainedSteps<OwnedBlocks<u64>, Exchange<T>> {
    fn result(&mut self) -> Vec<T> {
        self.second.as_mut().map_or_else(Vec::new, |second| std::mem::take(&mut second.blocks.recv))
    }

    fn disagreement(&mut self) -> Option<Error> {
        self.link.wrong.take()
    }
}
