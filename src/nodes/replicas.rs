//! One copy of data on each node.

use std::mem;

use bytemuck::Pod;

use crate::communicator::call;
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::nodes::session::Session;
use crate::protocol::Call;
use crate::rank::rank_state::EndsByPanic;
use crate::region::{Region, Shared};
use crate::tuning::SPREAD_PIECE_BYTES;

impl<L: Leaders> Hierarchical<L> {
    /// Makes `len` values that all ranks can read, of which there is **one copy on each node**. Rank 0 fills them: there `fill`
    /// gets the zeros, in shared memory already. `len` is the same on all ranks. Collective.
    ///
    /// Over the network they go once to each node, out of and into the regions themselves. What comes is a region of the node's
    /// communicator: [`reclaim`](Shared::reclaim) makes it writable for the ranks of this node, and changes nothing on others.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let sums = intranode::threads(4, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 3])?)?;
    ///     let table = comm.replicate(1000, |table: &mut [u64]| {
    ///         table.iter_mut().zip(1..).for_each(|(value, number)| *value = number);
    ///     })?;
    ///     Ok::<_, intranode::Error>(table.iter().sum::<u64>())
    /// })?;
    /// for sum in sums {
    ///     assert_eq!(sum?, 500_500);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::AllocationFailed`] on the ranks of a node that has not enough memory, and [`Error::Refused`], which names its leader,
    /// on the others; otherwise as [`barrier`](Hierarchical::barrier).
    ///
    /// # Panics
    /// If `fill` panics; then the communicator ends on all ranks.
    pub fn replicate<T: Pod>(&self, len: usize, fill: impl FnOnce(&mut [T])) -> Result<Shared<T>, Error> {
        let operation = Operation::Region;
        if self.map.nodes() == 1 {
            let mut region = self.node.region(len)?;
            if self.node.rank() == 0 {
                let filling = EndsByPanic(&self.node.rank_state);
                fill(region.as_mut_slice());
                mem::forget(filling);
            }
            return region.publish();
        }
        let mut session = self.begin(operation)?;
        let mut region = session.region(len)?;
        if self.rank() == 0 {
            session.run(|_| fill(region.as_mut_slice()));
        }
        // Only a leader has a part of it; all ranks of a node count its pieces.
        let bytes = len * size_of::<T>();
        let own: &mut [u8] = bytemuck::cast_slice_mut(region.as_mut_slice());
        for start in (0..bytes).step_by(SPREAD_PIECE_BYTES) {
            let piece = start..(start + SPREAD_PIECE_BYTES).min(bytes);
            session.leaders(|leaders, wait| leaders.broadcast(&mut own[piece], 0, wait))?;
        }
        session.node(|_| region.publish())
    }

    /// Makes a region of `len` zeros on **each node**, which its ranks share: rank 0 of a node may write it, or all of them after
    /// [`distribute`](Region::distribute). Its epochs are the node's: other nodes see nothing of what is written. `len` is the same
    /// on all ranks. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let seen = intranode::threads(4, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::even(4, 2)?)?;
    ///     let mut region = comm.region::<usize>(3)?;
    ///     region.as_mut_slice().fill(comm.node()); // empty but on the first rank of a node
    ///     Ok::<_, intranode::Error>(region.publish()?.to_vec())
    /// })?;
    /// for (seen, node) in seen.into_iter().zip([0, 0, 1, 1]) {
    ///     assert_eq!(seen?, [node; 3]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`replicate`](Hierarchical::replicate).
    pub fn region<T: Pod>(&self, len: usize) -> Result<Region<T>, Error> {
        if self.map.nodes() == 1 {
            return self.node.region(len);
        }
        self.begin(Operation::Region)?.region(len)
    }
}

impl<L: Leaders> Session<'_, L> {
    /// Agrees on a region, and makes it on each node, or on none.
    ///
    /// # Errors
    /// Those of [`Hierarchical::region`].
    fn region<T: Pod>(&mut self, len: usize) -> Result<Region<T>, Error> {
        let operation = self.operation;
        self.agree(&Call { length: len as u64, ..call::<T>(operation) }, Ok(()), &[])?;
        let made = self.all.node.region(len);
        self.made_on_all_nodes(made)
    }

    /// What every node has made, if all have.
    ///
    /// # Errors
    /// The own one, which all ranks of the node have; [`Error::Refused`] names the leader of the first node that has one.
    pub(super) fn made_on_all_nodes<R>(&mut self, made: Result<R, Error>) -> Result<R, Error> {
        let made = match made {
            Err(error) if error.is_fatal() => self.node(|_| Err(error))?,
            other => other,
        };
        let (map, operation) = (&self.all.map, self.operation);
        let mut has_failed = vec![0u64; map.nodes()];
        has_failed[self.all.own] = made.is_err().into();
        let counts = vec![8; map.nodes()];
        self.leaders_with(&mut has_failed, |leaders, words, wait| {
            leaders.allgatherv(bytemuck::cast_slice_mut(words), &counts, wait)
        })?;
        let made = made?;
        match has_failed.iter().position(|failed| *failed != 0) {
            Some(node) => Err(Error::Refused { operation, round: self.round(), rank: map.leader_of(node) }),
            None => Ok(made),
        }
    }
}
