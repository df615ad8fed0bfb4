//! The in-place forms of gather(v) and scatter(v) over several nodes: see [`in_place`](super::in_place).

use bytemuck::Pod;

use crate::collective::counts;
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;

impl<L: Leaders> Hierarchical<L> {
    /// A [`gather`](Hierarchical::gather) in place. On the root `data` has a block for each rank, in rank order, of which it has
    /// filled its own; on every other rank `data` is the block that it sends, and does not change. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let results = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
    ///     let mut data = if comm.rank() == 0 { vec![5, 0, 0] } else { vec![10 * comm.rank()] };
    ///     comm.gather_in_place(&mut data, 0)?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for (data, expected) in results.into_iter().zip([vec![5, 10, 20], vec![10], vec![20]]) {
    ///     assert_eq!(data?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`gather`](Hierarchical::gather).
    pub fn gather_in_place<T: Pod>(&self, data: &mut [T], root: usize) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.gather_in_place(data, root);
        }
        if self.rank() != root {
            return self.gather(data, None, root);
        }
        let own = self.own_of_equal(data);
        self.gather(&own, Some(data), root)
    }

    /// A [`gatherv`](Hierarchical::gatherv) in place: on the root `data` has the blocks of all ranks, at `displs`, of which it has
    /// filled its own; on every other rank `data` is the block that it sends, and does not change. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let results = intranode::threads(2, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::even(2, 2)?)?;
    ///     let mut data = if comm.rank() == 1 { vec![0, 0, 5] } else { vec![7, 8] };
    ///     comm.gatherv_in_place(&mut data, &[2, 1], &[0, 2], 1)?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for (data, expected) in results.into_iter().zip([vec![7, 8], vec![7, 8, 5]]) {
    ///     assert_eq!(data?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`gatherv`](Hierarchical::gatherv).
    pub fn gatherv_in_place<T: Pod>(
        &self,
        data: &mut [T],
        counts: &[usize],
        displs: &[usize],
        root: usize,
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.gatherv_in_place(data, counts, displs, root);
        }
        if self.rank() != root {
            return self.gatherv(data, None, counts, displs, root);
        }
        let Some(own) = self.own_of(data, counts, displs) else {
            let (operation, tables) = (Operation::Gatherv, (counts, displs));
            let call = counts::call_at::<T>(operation, self.key, counts, root);
            return self.refuse_blocks(operation, &call, data.len(), tables, counts::check_blocks);
        };
        self.gatherv(&own, Some(data), counts, displs, root)
    }

    /// A [`scatter`](Hierarchical::scatter) in place: on the root `data` has the blocks of all ranks, in rank order, and does not
    /// change; on every other rank it is the block that is received. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let results = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     let mut data = if comm.rank() == 1 { vec![4, 5, 6] } else { vec![0] };
    ///     comm.scatter_in_place(&mut data, 1)?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for (data, expected) in results.into_iter().zip([vec![4], vec![4, 5, 6], vec![6]]) {
    ///     assert_eq!(data?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`scatter`](Hierarchical::scatter).
    pub fn scatter_in_place<T: Pod>(&self, data: &mut [T], root: usize) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.scatter_in_place(data, root);
        }
        if self.rank() != root {
            return self.scatter(None, data, root);
        }
        let mut own = self.own_of_equal(data);
        self.scatter(Some(data), &mut own, root)
    }

    /// A [`scatterv`](Hierarchical::scatterv) in place: on the root `data` has the blocks of all ranks, at `displs`, and does not
    /// change; on every other rank it is the block that is received. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let results = intranode::threads(2, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::even(2, 2)?)?;
    ///     let mut data = if comm.rank() == 0 { vec![4, 5, 6] } else { vec![0; 2] };
    ///     comm.scatterv_in_place(&mut data, &[1, 2], &[0, 1], 0)?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for (data, expected) in results.into_iter().zip([vec![4, 5, 6], vec![5, 6]]) {
    ///     assert_eq!(data?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`scatterv`](Hierarchical::scatterv).
    pub fn scatterv_in_place<T: Pod>(
        &self,
        data: &mut [T],
        counts: &[usize],
        displs: &[usize],
        root: usize,
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.scatterv_in_place(data, counts, displs, root);
        }
        if self.rank() != root {
            return self.scatterv(None, counts, displs, data, root);
        }
        let Some(mut own) = self.own_of(data, counts, displs) else {
            let (operation, tables) = (Operation::Scatterv, (counts, displs));
            let call = counts::call_at::<T>(operation, self.key, counts, root);
            return self.refuse_blocks(operation, &call, data.len(), tables, counts::check_fit);
        };
        self.scatterv(Some(data), counts, displs, &mut own, root)
    }
}
