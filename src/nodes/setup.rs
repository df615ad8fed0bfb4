//! How a communicator of several nodes is made.

use std::sync::{Arc, Mutex};

use crate::communicator::Communicator;
use crate::error::{Error, InvalidSetting, Operation};
use crate::job::environment;
use crate::nodes::hierarchical::{Hierarchical, Sizes, State};
use crate::nodes::leaders::Leaders;
use crate::nodes::local::LocalLeaders;
use crate::nodes::map::{NodeMap, wrong};
use crate::tuning::{CHAIN_CHUNK_BYTES, CHAIN_FROM_BYTES};

const VARIABLE: &str = "INTRANODE_NODES";

impl<L: Leaders> Hierarchical<L> {
    /// A communicator of the ranks of all nodes, from that of this rank's node. `leaders` is `Some` exactly on rank 0 of each
    /// node's, if there are several; the map is the same on all ranks. Collective over the ranks of all nodes.
    ///
    /// ```
    /// use intranode::{Hierarchical, LocalLeaders, NodeMap};
    ///
    /// // What `simulated` does.
    /// let ranks = intranode::threads(4, |comm| {
    ///     let map = NodeMap::even(4, 2)?;
    ///     let node = comm.split(map.node_of(comm.rank()), comm.rank())?;
    ///     let leads = node.rank() == 0;
    ///     let meet = comm.split(usize::from(leads), comm.rank())?;
    ///     let leaders = if leads { Some(LocalLeaders::new(meet)?) } else { None };
    ///     let comm = Hierarchical::new(node, leaders, map)?;
    ///     comm.barrier()?;
    ///     Ok::<_, intranode::Error>(comm.rank())
    /// })?;
    /// assert!(matches!(ranks[..], [Ok(0), Ok(1), Ok(2), Ok(3)]));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidConfiguration`] if the map does not fit to the node's ranks or to the leaders, or is not the same on all nodes;
    /// otherwise as [`barrier`](Hierarchical::barrier).
    pub fn new(node: Communicator, leaders: Option<L>, map: NodeMap) -> Result<Self, Error> {
        let leads = node.rank() == 0;
        // Its node, and whether all is as it has to be, from the leader to the others.
        let mut own = [0usize, 1, node.rank_state.mapped.key() as usize];
        if leads {
            let (number, nodes) = leaders.as_ref().map_or((0, 1), |leaders| (leaders.node(), leaders.nodes()));
            own[0] = number;
            own[1] = usize::from(nodes == map.nodes() && number < nodes && map.counts()[number] == node.size());
        }
        node.broadcast(&mut own, 0)?;
        let own_fits = own[1] == 1 && map.nodes() > own[0] && map.counts()[own[0]] == node.size();
        let mut fits = [u8::from(own_fits && (leads || leaders.is_none()))];
        node.allreduce_in_place(&mut fits, crate::element::ReduceOp::Min)?;
        if fits != [1] {
            // Its leader leaves, and so the other nodes get an error too.
            return Err(wrong(
                &map.counts(),
                "the numbers of ranks of all nodes, and a leader in rank 0 of each",
            ));
        }
        let timeout = node.rank_state.platform.timeout;
        let sizes = Sizes { chain_from: CHAIN_FROM_BYTES, chunk: CHAIN_CHUNK_BYTES };
        let state = Mutex::new(State { leaders, round: 0, failed: None });
        let all =
            Hierarchical { node, map: Arc::new(map), own: own[0], key: own[2] as u64, timeout, sizes, state };
        all.agree_on_the_map()
    }

    /// Compares the maps of all nodes, and takes the key of node 0.
    fn agree_on_the_map(mut self) -> Result<Self, Error> {
        let nodes = self.map.nodes();
        if nodes == 1 {
            return Ok(self);
        }
        let digest = self.map.counts().iter().fold(self.map.ranks() as u64, |digest, count| {
            digest.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23) ^ *count as u64
        });
        let mut words = vec![0; 2 * nodes];
        words[2 * self.own..][..2].copy_from_slice(&[self.key, digest]);
        let counts = vec![16; nodes];
        self.begin(Operation::Init)?.leaders_with(&mut words, |leaders, words, wait| {
            leaders.allgatherv(bytemuck::cast_slice_mut(words), &counts, wait)
        })?;
        if words.chunks(2).any(|pair| pair[1] != digest) {
            return Err(wrong(&self.map.counts(), "the same map on all nodes"));
        }
        self.key = words[0];
        Ok(self)
    }
}

impl Hierarchical<LocalLeaders> {
    /// Simulates nodes on one machine: splits `comm` into the nodes of `map`, whose leaders meet in a segment of their own.
    /// Collective over `comm`, which is left. Example: [`Hierarchical`].
    ///
    /// It is for tests of programs that run on several nodes. The communicators have the time-out of `comm`.
    ///
    /// # Errors
    /// [`Error::InvalidConfiguration`] if the map has another number of ranks, or is not the same on all; otherwise as
    /// [`Communicator::split`] and [`Communicator::messages`].
    pub fn simulated(comm: Communicator, map: &NodeMap) -> Result<Self, Error> {
        let rank = comm.rank();
        let mut counts = map.counts();
        counts.resize(comm.size() + 1, 0);
        let mut least = counts.clone();
        comm.allreduce_in_place(&mut least, crate::element::ReduceOp::Min)?;
        let mut most = counts;
        comm.allreduce_in_place(&mut most, crate::element::ReduceOp::Max)?;
        if least != most || most.iter().sum::<usize>() != comm.size() {
            let allowed = format!("nodes of {} ranks in all, the same on all ranks", comm.size());
            return Err(wrong(&map.counts(), &allowed));
        }
        let own = map.node_of(rank);
        let node = comm.split(own, rank)?;
        if map.nodes() == 1 {
            return Hierarchical::new(node, None, map.clone());
        }
        let leads = node.rank() == 0;
        let meet = comm.split(usize::from(leads), rank)?;
        let leaders = if leads { Some(LocalLeaders::new(meet)?) } else { None };
        Hierarchical::new(node, leaders, map.clone())
    }

    /// Joins the job given by the environment, as [`Communicator::from_env`]. `INTRANODE_NODES` simulates nodes: `2` is two, with
    /// as many ranks each as possible; `3,1` is one of three ranks and one of one. Without it all ranks are on one node.
    /// Collective.
    ///
    /// ```
    /// use intranode::{Error, Hierarchical};
    ///
    /// match Hierarchical::from_env() {
    ///     Ok(comm) => comm.barrier()?,
    ///     // Not started by a launcher.
    ///     Err(Error::InvalidConfiguration(bad)) => assert_eq!(bad.value, None),
    ///     Err(other) => return Err(other),
    /// }
    /// # Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::from_env`]; [`Error::InvalidConfiguration`] for a value of `INTRANODE_NODES` that does not fit to the
    /// number of ranks.
    pub fn from_env() -> Result<Self, Error> {
        let nodes = environment::variable(VARIABLE);
        let comm = Communicator::from_env()?;
        let map = match nodes {
            Some(value) => parse(&value, comm.size())?,
            None => NodeMap::even(comm.size(), 1)?,
        };
        Hierarchical::simulated(comm, &map)
    }
}

/// The map that `INTRANODE_NODES` describes.
fn parse(value: &str, ranks: usize) -> Result<NodeMap, Error> {
    let numbers: Option<Vec<usize>> = value.split(',').map(|number| number.trim().parse().ok()).collect();
    let map = match numbers.as_deref() {
        Some([nodes]) if value.split(',').count() == 1 => NodeMap::even(ranks, *nodes).ok(),
        Some(counts) => NodeMap::new(counts).ok(),
        None => None,
    };
    map.filter(|map| map.ranks() == ranks).ok_or_else(|| {
        Error::InvalidConfiguration(Box::new(InvalidSetting {
            setting: VARIABLE.to_owned(),
            value: Some(value.to_owned()),
            allowed: format!(
                "a number of nodes up to {ranks}, or the numbers of ranks of each, {ranks} in all, as in 3,1"
            ),
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_a_number_or_a_list() {
        let counts = |value, ranks| parse(value, ranks).map(|map| map.counts());
        assert_eq!(counts("2", 5).unwrap(), [3, 2]);
        assert_eq!(counts("1", 5).unwrap(), [5]);
        assert_eq!(counts("3, 1", 4).unwrap(), [3, 1]);
        for wrong in ["0", "6", "3,1", "5,0", "", "two", "2,"] {
            let error = counts(wrong, 5).expect_err("it is refused");
            assert!(error.to_string().contains(VARIABLE), "{error}");
        }
    }
}
