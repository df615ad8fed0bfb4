//! scatter and scatterv over several nodes.

use bytemuck::Pod;

use crate::collective::counts;
use crate::collective::rooted::{check_equal_blocks, check_given_blocks};
use crate::communicator::call;
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::protocol::Call;

impl<L: Leaders> Hierarchical<L> {
    /// Sends block `r` of `send` of rank `root` to rank `r`, as [`Communicator::scatter`](crate::Communicator::scatter). `send` is
    /// `Some` on the root and `None` elsewhere. Collective. Each block goes over the network once.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let blocks = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
    ///     let mut own = [0];
    ///     comm.scatter(if comm.rank() == 1 { Some(&[4, 5, 6]) } else { None }, &mut own, 1)?;
    ///     Ok::<_, intranode::Error>(own[0])
    /// })?;
    /// for (own, expected) in blocks.into_iter().zip([4, 5, 6]) {
    ///     assert_eq!(own?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`gather`](Hierarchical::gather), about `send`.
    pub fn scatter<T: Pod>(&self, send: Option<&[T]>, recv: &mut [T], root: usize) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.scatter(send, recv, root);
        }
        let operation = Operation::Scatter;
        let call = Call { length: recv.len() as u64, extra: root as u64, ..call::<T>(operation) };
        let checked = check_equal_blocks(self, operation, root, recv.len(), send.map(<[T]>::len));
        let mut session = self.begin(operation)?;
        session.agree(&call, checked, &[])?;
        let own: &mut [u8] = bytemuck::cast_slice_mut(recv);
        let bytes = vec![own.len(); self.size()];
        session.scatter_from(bytemuck::cast_slice(send.unwrap_or_default()), own, &bytes, root)
    }

    /// The same with blocks of any lengths, as [`Communicator::scatterv`](crate::Communicator::scatterv): the `counts[r]` elements
    /// at `send[displs[r]..]` of the root go to rank `r`. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let blocks = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     let (counts, displs) = ([1, 0, 2], [2, 0, 0]);
    ///     let mut own = vec![0; counts[comm.rank()]];
    ///     comm.scatterv(if comm.rank() == 0 { Some(&[4, 5, 6]) } else { None }, &counts, &displs, &mut own, 0)?;
    ///     Ok::<_, intranode::Error>(own)
    /// })?;
    /// for (own, expected) in blocks.into_iter().zip([vec![6], vec![], vec![4, 5]]) {
    ///     assert_eq!(own?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those about arguments of [`Communicator::scatterv`](crate::Communicator::scatterv); otherwise as
    /// [`barrier`](Hierarchical::barrier).
    pub fn scatterv<T: Pod>(
        &self,
        send: Option<&[T]>,
        counts: &[usize],
        displs: &[usize],
        recv: &mut [T],
        root: usize,
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.scatterv(send, counts, displs, recv, root);
        }
        let operation = Operation::Scatterv;
        let (lens, tables) = ((recv.len(), send.map(<[T]>::len)), (counts, displs));
        let checked = check_given_blocks(self, operation, root, lens, tables, counts::check_fit);
        let mut session = self.begin(operation)?;
        session.agree(&counts::call_at::<T>(operation, self.key, counts, root), checked, &[])?;
        let width = size_of::<T>();
        let bytes: Vec<usize> = counts.iter().map(|count| count * width).collect();
        let blocks = send.map_or(Vec::new(), |send| {
            // In bytes: of elements without a size there may be more than a vector can count.
            let send: &[u8] = bytemuck::cast_slice(send);
            let blocks = displs.iter().zip(&bytes).map(|(displ, len)| &send[displ * width..][..*len]);
            blocks.collect::<Vec<_>>().concat()
        });
        session.scatter_from(&blocks, bytemuck::cast_slice_mut(recv), &bytes, root)
    }
}
