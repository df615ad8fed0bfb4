//! Which ranks are on which node.

use std::ops::Range;

use crate::collective::blocks::Blocks;
use crate::error::{Error, InvalidSetting};

/// Which ranks are on which node. Ranks are numbered node by node: those of node 0 first, then those of node 1. So a fold in
/// rank order goes from node to node.
///
/// ```
/// use intranode::NodeMap;
///
/// let map = NodeMap::new(&[3, 1])?; // ranks 0 to 2, and rank 3
/// assert_eq!((map.nodes(), map.ranks()), (2, 4));
/// assert_eq!((map.ranks_of(1), map.node_of(2), map.leader_of(1)), (3..4, 0, 3));
/// assert_eq!(map.counts(), [3, 1]);
/// assert_eq!(NodeMap::even(5, 2)?.counts(), [3, 2]);
/// assert_eq!(NodeMap::of_ranks(&[0, 0, 0, 1])?, map);
/// assert!(NodeMap::of_ranks(&[0, 1, 0]).is_err(), "not node by node");
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMap {
    /// By node its first rank, and at the end the number of ranks.
    starts: Box<[usize]>,
}

impl NodeMap {
    /// The map in which node `n` has `counts[n]` ranks, at least one. Example: [`NodeMap`].
    ///
    /// # Errors
    /// [`Error::InvalidConfiguration`] without nodes, or for a node without ranks.
    pub fn new(counts: &[usize]) -> Result<Self, Error> {
        let mut starts = vec![0];
        for count in counts {
            let end = starts.last().and_then(|end: &usize| end.checked_add(*count)).filter(|_| *count > 0);
            starts.push(end.ok_or_else(|| wrong(counts, "a number of ranks for each node, at least 1"))?);
        }
        if counts.is_empty() {
            return Err(wrong(counts, "at least one node"));
        }
        Ok(NodeMap { starts: starts.into() })
    }

    /// The map of `ranks` ranks on `nodes` nodes, as evenly as possible: the [`Blocks`] of the ranks. Example: [`NodeMap`].
    ///
    /// # Errors
    /// [`Error::InvalidConfiguration`] without nodes, or for fewer ranks than nodes.
    pub fn even(ranks: usize, nodes: usize) -> Result<Self, Error> {
        if nodes == 0 {
            return Err(wrong(&[], "at least one node"));
        }
        // Before there is a count of each.
        if nodes > ranks {
            return Err(wrong(&[nodes], &format!("a number of nodes up to {ranks}, that of the ranks")));
        }
        NodeMap::new(&Blocks::new(ranks, nodes).counts())
    }

    /// The map in which rank `r` is on node `nodes[r]`. Example: [`NodeMap`].
    ///
    /// # Errors
    /// [`Error::InvalidConfiguration`] unless the ranks are numbered node by node: `nodes` begins with 0, and each entry is that
    /// before it or one more.
    pub fn of_ranks(nodes: &[usize]) -> Result<Self, Error> {
        let mut counts: Vec<usize> = Vec::new();
        for node in nodes {
            if *node == counts.len() {
                counts.push(0);
            }
            if node.checked_add(1) != Some(counts.len()) {
                return Err(wrong(nodes, "numbers of nodes that begin with 0 and go up one by one"));
            }
            counts[*node] += 1;
        }
        NodeMap::new(&counts)
    }

    /// The number of nodes. Example: [`NodeMap`].
    pub fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// The number of ranks of all nodes. Example: [`NodeMap`].
    pub fn ranks(&self) -> usize {
        self.starts[self.nodes()]
    }

    /// The ranks of a node. Example: [`NodeMap`].
    ///
    /// # Panics
    /// If there is no such node.
    pub fn ranks_of(&self, node: usize) -> Range<usize> {
        self.starts[node]..self.starts[node + 1]
    }

    /// The node of a rank. Example: [`NodeMap`].
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn node_of(&self, rank: usize) -> usize {
        assert!(rank < self.ranks(), "rank {rank} is not one of {}", self.ranks());
        self.starts.partition_point(|start| *start <= rank) - 1
    }

    /// The leader of a node: its first rank. Example: [`NodeMap`].
    ///
    /// # Panics
    /// If there is no such node.
    pub fn leader_of(&self, node: usize) -> usize {
        self.ranks_of(node).start
    }

    /// By node the number of its ranks. Example: [`NodeMap`].
    pub fn counts(&self) -> Vec<usize> {
        self.starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// The map of nodes with these numbers of ranks, which are known to be right.
    pub(super) fn of_counts(counts: &[usize]) -> Self {
        let ends = counts.iter().scan(0, |end, count| {
            *end += count;
            Some(*end)
        });
        NodeMap { starts: std::iter::once(0).chain(ends).collect() }
    }

    /// By node the sum of what its ranks have, which is given by rank.
    pub(super) fn sums_of_nodes(&self, of_ranks: &[usize]) -> Vec<usize> {
        (0..self.nodes()).map(|node| of_ranks[self.ranks_of(node)].iter().sum()).collect()
    }

    /// The ranks of the largest node.
    pub(super) fn largest(&self) -> usize {
        self.counts().into_iter().max().unwrap_or_default()
    }
}

/// The error of a map.
pub(super) fn wrong(value: &[usize], allowed: &str) -> Error {
    let numbers: Vec<String> = value.iter().map(usize::to_string).collect();
    Error::InvalidConfiguration(Box::new(InvalidSetting {
        setting: "nodes".to_owned(),
        value: Some(numbers.join(",")),
        allowed: allowed.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_too_large_are_refused() {
        for nodes in [5, 1 << 50, usize::MAX] {
            let error = NodeMap::even(4, nodes).expect_err("there are fewer ranks");
            assert!(error.to_string().contains(&nodes.to_string()), "{error}");
        }
        assert!(NodeMap::of_ranks(&[usize::MAX]).is_err());
        assert!(NodeMap::of_ranks(&[0, usize::MAX]).is_err());
        assert!(NodeMap::new(&[usize::MAX, 1]).is_err());
    }
}
