//! Splitting a communicator of several nodes.

use crate::error::{Error, Operation};
use crate::nodes::connector::Connector;
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::nodes::map::NodeMap;
use crate::protocol::Call;

impl<L: Leaders> Hierarchical<L> {
    /// Adds what [`split`](Hierarchical::split) needs: `connector` is over the ranks of this communicator, by their numbers. Not
    /// collective.
    ///
    /// ```
    /// use intranode::{Connector, Hierarchical, LocalLeaders, NodeMap};
    ///
    /// // What `simulated` does.
    /// let sizes = intranode::threads(4, |comm| {
    ///     let map = NodeMap::even(4, 2)?;
    ///     let node = comm.split(map.node_of(comm.rank()), comm.rank())?;
    ///     let leaders: Option<LocalLeaders> = comm.leaders(node.rank() == 0)?;
    ///     let comm = Hierarchical::new(node, leaders, map)?.with_connector(Box::new(comm));
    ///     Ok::<_, intranode::Error>(comm.split(comm.rank() / 3, 0)?.size())
    /// })?;
    /// assert!(matches!(sizes[..], [Ok(3), Ok(3), Ok(3), Ok(1)]));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    #[must_use]
    pub fn with_connector(mut self, connector: Box<dyn Connector<L>>) -> Self {
        self.connector = Some(connector);
        self
    }

    /// Makes a communicator of all ranks that pass the same `color`, as [`Communicator::split`](crate::Communicator::split). Its nodes are those that have such
    /// ranks. Collective over all ranks; each gets the communicator of its color.
    ///
    /// Its ranks are **numbered node by node** too: inside a node by `key`, and nodes in the order of their lowest keys; equal keys in
    /// the order of the ranks here. That is the order of `Communicator::split` unless the keys mix ranks of several nodes.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap, ReduceOp};
    ///
    /// let results = intranode::threads(5, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[3, 2])?)?;
    ///     // The even ranks, of which 0 and 2 are on node 0; and the odd ones.
    ///     let part = comm.split(comm.rank() % 2, comm.rank())?;
    ///     let mut sum = [comm.rank()];
    ///     part.allreduce_in_place(&mut sum, ReduceOp::Sum)?;
    ///     Ok::<_, intranode::Error>((part.rank(), part.map().counts(), sum[0]))
    /// })?;
    /// let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(results[2], (1, vec![2, 1], 6));
    /// assert_eq!(results[3], (1, vec![1, 1], 4));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::AllocationFailed`] on the ranks of a node that has not enough memory, and [`Error::Refused`], which names its leader,
    /// on the others; [`Error::LeadersFailed`] if this communicator was made by [`new`](Hierarchical::new) without a [`Connector`];
    /// otherwise as [`barrier`](Hierarchical::barrier).
    pub fn split(&self, color: usize, key: usize) -> Result<Hierarchical<L>, Error> {
        let operation = Operation::Split;
        if self.map.nodes() == 1 {
            return self.node.split(color, key).map(Hierarchical::on_one_node);
        }
        let Some(connector) = &self.connector else {
            let reason = "nothing connects a subset of the ranks: pass a Connector by with_connector".into();
            return Err(Error::LeadersFailed { operation, reason });
        };
        let mut session = self.begin(operation)?;
        session.agree(&Call { operation: operation as u8, ..Call::default() }, Ok(()), &[])?;
        let (own, mut all) = ([color as u64, key as u64], vec![[0u64; 2]; self.size()]);
        session.gather_all(
            bytemuck::cast_slice(&own),
            bytemuck::cast_slice_mut(&mut all),
            &vec![size_of_val(&own); self.size()],
        )?;
        let (map, members) = subset(&self.map, &all, own[0]);
        let rank = members.iter().position(|rank| *rank == self.rank()).unwrap_or_default();
        let made = self.node.split(color, key);
        let node = session.made_on_all_nodes(made)?;
        let connector = connector.part(members.iter().copied().min().unwrap_or_default(), rank)?;
        let leaders = match map.nodes() {
            1 => None,
            _ => connector.leaders(node.rank() == 0)?,
        };
        // Not before: the connector's calls have the order of the splits on every rank, whatever other threads do.
        drop(session);
        Ok(Hierarchical::new(node, leaders, map)?.with_connector(connector))
    }
}

/// The map of the ranks of a color, and the ranks in their new order. `all` has the colors and keys.
fn subset(map: &NodeMap, all: &[[u64; 2]], color: u64) -> (NodeMap, Vec<usize>) {
    let of_node = |node| {
        let mut ranks: Vec<usize> = map.ranks_of(node).filter(|rank| all[*rank][0] == color).collect();
        // The sort is stable.
        ranks.sort_by_key(|rank| all[*rank][1]);
        ranks
    };
    let mut nodes: Vec<Vec<usize>> = (0..map.nodes()).map(of_node).filter(|ranks| !ranks.is_empty()).collect();
    nodes.sort_by_key(|ranks| all[ranks[0]][1]);
    let counts: Vec<usize> = nodes.iter().map(Vec::len).collect();
    (NodeMap::of_counts(&counts), nodes.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_in_the_order_of_their_lowest_keys() {
        let map = NodeMap::new(&[2, 1, 3]).unwrap();
        let all = [[0, 9], [1, 0], [0, 5], [0, 7], [1, 1], [0, 4]];
        let (part, members) = subset(&map, &all, 0);
        assert_eq!((part.counts(), members), (vec![2, 1, 1], vec![5, 3, 2, 0]));
        let (part, members) = subset(&map, &all, 1);
        assert_eq!((part.counts(), members), (vec![1, 1], vec![1, 4]));
    }
}
