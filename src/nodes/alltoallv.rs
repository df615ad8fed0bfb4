//! alltoallv over several nodes.

use std::ops::Range;

use bytemuck::Pod;

use crate::collective::counts;
use crate::communicator::call;
use crate::error::{CountPair, Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::nodes::zeros::zeros;

impl<L: Leaders> Hierarchical<L> {
    /// Sends a block of any length to every rank and receives one from every rank, as
    /// [`Communicator::alltoallv`](crate::Communicator::alltoallv): the `send_counts[r]` elements from `send[send_displs[r]]` on go to
    /// rank `r`, and those that rank `r` sends come to `recv[recv_displs[r]..]`, of which there are `recv_counts[r]`. Counts and
    /// displacements are in elements. Collective.
    ///
    /// First every rank gets the counts of all pairs of ranks, which takes 16 bytes for each pair. The data go as in
    /// [`alltoall`](Hierarchical::alltoall).
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// // Rank r sends r + 1 elements to each rank.
    /// let all = intranode::threads(2, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::even(2, 2)?)?;
    ///     let count = comm.rank() + 1;
    ///     let send = vec![comm.rank(); 2 * count];
    ///     let mut recv = [9; 3];
    ///     comm.alltoallv(&send, &[count; 2], &[0, count], &mut recv, &[1, 2], &[0, 1])?;
    ///     Ok::<_, intranode::Error>(recv)
    /// })?;
    /// for recv in all {
    ///     assert_eq!(recv?, [0, 1, 1]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those about arguments of [`Communicator::alltoallv`](crate::Communicator::alltoallv), with [`Error::CountsDisagree`] on every
    /// rank; otherwise as [`barrier`](Hierarchical::barrier).
    pub fn alltoallv<T: Pod>(
        &self,
        send: &[T],
        send_counts: &[usize],
        send_displs: &[usize],
        recv: &mut [T],
        recv_counts: &[usize],
        recv_displs: &[usize],
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.alltoallv(send, send_counts, send_displs, recv, recv_counts, recv_displs);
        }
        let (operation, size) = (Operation::Alltoallv, self.size());
        let (lens, tables) =
            ([send.len(), recv.len()], ([send_counts, send_displs], [recv_counts, recv_displs]));
        let checked = counts::check_exchange(operation, size, size_of::<T>(), lens, tables);
        let mut session = self.begin(operation)?;
        session.agree(&call::<T>(operation), checked, &[])?;

        // By rank what it sends to each, and what it expects of each.
        let own: Vec<u64> = send_counts.iter().chain(recv_counts).map(|count| *count as u64).collect();
        let mut all = vec![0u64; own.len() * size];
        session.gather_all(
            bytemuck::cast_slice(&own),
            bytemuck::cast_slice_mut(&mut all),
            &vec![16 * size; size],
        )?;
        let sent = |from: usize, to: usize| all[2 * size * from + to] as usize;
        let expected = |from: usize, to: usize| all[2 * size * to + size + from] as usize;
        let mut pairs = (0..size).flat_map(|from| (0..size).map(move |to| (from, to)));
        if let Some((from, to)) = pairs.find(|(from, to)| sent(*from, *to) != expected(*from, *to)) {
            let pair = CountPair { from, to, sent: sent(from, to), expected: expected(from, to) };
            return Err(Error::CountsDisagree { operation, pair: Box::new(pair) });
        }

        let of_send = blocks(send_counts, send_displs);
        let outgoing = of_send.map(|block| &send[block]).collect::<Vec<_>>().concat();
        let mut incoming = zeros(recv_counts.iter().sum());
        let width = size_of::<T>();
        session.exchange_blocks(
            bytemuck::cast_slice(&outgoing),
            bytemuck::cast_slice_mut(&mut incoming),
            &|from, to| sent(from, to) * width,
        )?;
        let mut rest = &incoming[..];
        for block in blocks(recv_counts, recv_displs) {
            let (own, others) = rest.split_at(block.len());
            recv[block].copy_from_slice(own);
            rest = others;
        }
        Ok(())
    }
}

fn blocks(counts: &[usize], displs: &[usize]) -> impl Iterator<Item = Range<usize>> {
    counts.iter().zip(displs).map(|(count, displ)| *displ..displ + count)
}
