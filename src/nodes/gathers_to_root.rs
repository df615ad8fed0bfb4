//! gather and gatherv over several nodes.

use bytemuck::Pod;

use crate::collective::counts;
use crate::collective::rooted::{check_equal_blocks, check_given_blocks};
use crate::communicator::call;
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::nodes::places::packed;
use crate::nodes::zeros::zeros;
use crate::protocol::Call;

impl<L: Leaders> Hierarchical<L> {
    /// Gathers the block `send` of every rank on rank `root`, in rank order, as
    /// [`Communicator::gather`](crate::Communicator::gather). `recv` is `Some` on the root and `None` elsewhere. Collective.
    ///
    /// The leaders gather the blocks of their nodes, and send them to the root's leader: each goes over the network once.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
    ///     let mut all = [0; 3];
    ///     let recv = if comm.rank() == 2 { Some(&mut all[..]) } else { None };
    ///     comm.gather(&[10 * comm.rank()], recv, 2)?;
    ///     Ok::<_, intranode::Error>(all)
    /// })?;
    /// for (rank, all) in all.into_iter().enumerate() {
    ///     assert_eq!(all?, if rank == 2 { [0, 10, 20] } else { [0; 3] });
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::RootBuffer`]; [`Error::InvalidBufferSize`] if `recv` has another length than that of all
    /// blocks; otherwise as [`barrier`](Hierarchical::barrier).
    pub fn gather<T: Pod>(&self, send: &[T], recv: Option<&mut [T]>, root: usize) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.gather(send, recv, root);
        }
        let operation = Operation::Gather;
        let call = Call { length: send.len() as u64, extra: root as u64, ..call::<T>(operation) };
        let whole = recv.as_ref().map(|whole| whole.len());
        let checked = check_equal_blocks(self, operation, root, send.len(), whole);
        let mut session = self.begin(operation)?;
        session.agree(&call, checked, &[])?;
        let own: &[u8] = bytemuck::cast_slice(send);
        let recv = recv.map_or(&mut [][..], bytemuck::cast_slice_mut);
        session.gather_on(own, recv, &vec![own.len(); self.size()], root)
    }

    /// The same with blocks of any lengths, as [`Communicator::gatherv`](crate::Communicator::gatherv): the `counts[r]` elements of
    /// rank `r` at `recv[displs[r]..]` of the root. `counts` is the same on all ranks; `displs` counts on the root only.
    /// Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     let (counts, displs, mut all) = ([1, 0, 2], [2, 0, 0], [0; 3]);
    ///     let recv = if comm.rank() == 0 { Some(&mut all[..]) } else { None };
    ///     comm.gatherv(&vec![comm.rank() + 7; counts[comm.rank()]], recv, &counts, &displs, 0)?;
    ///     Ok::<_, intranode::Error>(all)
    /// })?;
    /// for (rank, all) in all.into_iter().enumerate() {
    ///     assert_eq!(all?, if rank == 0 { [9, 9, 7] } else { [0; 3] });
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those about arguments of [`Communicator::gatherv`](crate::Communicator::gatherv); otherwise as
    /// [`barrier`](Hierarchical::barrier).
    pub fn gatherv<T: Pod>(
        &self,
        send: &[T],
        recv: Option<&mut [T]>,
        counts: &[usize],
        displs: &[usize],
        root: usize,
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.gatherv(send, recv, counts, displs, root);
        }
        let operation = Operation::Gatherv;
        let (lens, tables) = ((send.len(), recv.as_ref().map(|whole| whole.len())), (counts, displs));
        let checked = check_given_blocks(self, operation, root, lens, tables, counts::check_blocks);
        let mut session = self.begin(operation)?;
        session.agree(&counts::call_at::<T>(operation, self.key, counts, root), checked, &[])?;
        let bytes: Vec<usize> = counts.iter().map(|count| count * size_of::<T>()).collect();
        let Some(recv) = recv else {
            return session.gather_on(bytemuck::cast_slice(send), &mut [], &bytes, root);
        };
        let mut all = zeros(counts.iter().sum());
        session.gather_on(bytemuck::cast_slice(send), bytemuck::cast_slice_mut(&mut all), &bytes, root)?;
        for ((start, displ), count) in packed(counts).iter().zip(displs).zip(counts) {
            recv[*displ..displ + count].copy_from_slice(&all[*start..start + count]);
        }
        Ok(())
    }
}
