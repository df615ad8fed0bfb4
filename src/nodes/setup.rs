//! How a communicator of several nodes is made.

use std::sync::{Arc, Mutex, PoisonError};

use crate::communicator::Communicator;
use crate::error::{Error, InvalidSetting, Operation};
use crate::job::environment;
use crate::nodes::connector::{Boxed, Connector};
use crate::nodes::hierarchical::{Hierarchical, Sizes, State};
use crate::nodes::leaders::Leaders;
use crate::nodes::local::LocalLeaders;
use crate::nodes::map::{NodeMap, wrong};
use crate::nodes::queue::Queue;
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
    /// [`Error::InvalidConfiguration`] if the map does not fit to the node's ranks or to the leaders, or is not the same on all ranks;
    /// otherwise as [`barrier`](Hierarchical::barrier).
    pub fn new(node: Communicator, leaders: Option<L>, map: NodeMap) -> Result<Self, Error> {
        let leads = node.rank() == 0;
        let digest = digest(&map);
        // Its node, whether all is as it has to be, the key, and the map, from the leader to the others.
        let mut own = [0, 1, node.rank_state.mapped.key() as usize, digest as usize];
        if leads {
            let (number, nodes) = leaders.as_ref().map_or((0, 1), |leaders| (leaders.node(), leaders.nodes()));
            own[0] = number;
            own[1] = usize::from(nodes == map.nodes() && number < nodes && map.counts()[number] == node.size());
        }
        node.broadcast(&mut own, 0)?;
        let own_fits = own[1] == 1 && own[3] == digest as usize;
        let mut fits = [u8::from(own_fits && (leads || leaders.is_none()))];
        node.allreduce_in_place(&mut fits, crate::element::ReduceOp::Min)?;
        if fits != [1] {
            // Its leader leaves, and so the other nodes get an error too.
            return Err(wrong(
                &map.counts(),
                "the numbers of ranks of all nodes, and a leader in rank 0 of each",
            ));
        }
        Hierarchical::of_parts(node, leaders, map, (own[0], own[2] as u64)).agree_on_the_map()
    }

    /// A communicator whose ranks are all on one node: every call is that of `comm`. Not collective. So a program, or a library
    /// such as Cobre's backend, has one type for one node and for several.
    ///
    /// ```
    /// use intranode::{Hierarchical, LocalLeaders};
    ///
    /// let ranks = intranode::threads(2, |comm| {
    ///     let comm = Hierarchical::<LocalLeaders>::on_one_node(comm);
    ///     comm.barrier()?;
    ///     Ok::<_, intranode::Error>((comm.rank(), comm.size(), comm.map().nodes()))
    /// })?;
    /// assert!(matches!(ranks[..], [Ok((0, 2, 1)), Ok((1, 2, 1))]));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    pub fn on_one_node(comm: Communicator) -> Self {
        let (map, key) = (NodeMap::of_counts(&[comm.size()]), comm.rank_state.mapped.key());
        Hierarchical::of_parts(comm, None, map, (0, key))
    }

    /// The same communicator with its leaders behind a pointer, so that a program can choose at run time what connects the nodes.
    /// Not collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, Leaders, NodeMap};
    ///
    /// let sizes = intranode::threads(2, |comm| {
    ///     let comm: Hierarchical<Box<dyn Leaders>> = match comm.size() {
    ///         1 => Hierarchical::on_one_node(comm),
    ///         ranks => Hierarchical::simulated(comm, &NodeMap::even(ranks, 2)?)?.boxed(),
    ///     };
    ///     comm.barrier()?;
    ///     Ok::<_, intranode::Error>(comm.size())
    /// })?;
    /// assert!(matches!(sizes[..], [Ok(2), Ok(2)]));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    pub fn boxed(self) -> Hierarchical<Box<dyn Leaders>>
    where
        L: 'static,
    {
        let Hierarchical { node, map, own, key, timeout, sizes, connector, desk, leaders, state } = self;
        let leaders = leaders.into_inner().unwrap_or_else(PoisonError::into_inner);
        let leaders = Mutex::new(leaders.map(|leaders| Box::new(leaders) as Box<dyn Leaders>));
        let connector = connector.map(|connector| Box::new(Boxed(connector)) as Box<dyn Connector<_>>);
        Hierarchical { node, map, own, key, timeout, sizes, connector, desk, leaders, state }
    }

    /// The parts as they are. `own` is the number of this rank's node, and the key.
    fn of_parts(node: Communicator, leaders: Option<L>, map: NodeMap, own: (usize, u64)) -> Self {
        let timeout = node.rank_state.platform.timeout;
        let sizes = Sizes { chain_from: CHAIN_FROM_BYTES, chunk: CHAIN_CHUNK_BYTES };
        let state = Mutex::new(State { round: 0, failed: None, queue: Queue::default() });
        Hierarchical {
            node: Arc::new(node),
            map: Arc::new(map),
            own: own.0,
            key: own.1,
            timeout,
            sizes,
            connector: None,
            desk: Arc::default(),
            leaders: Mutex::new(leaders),
            state,
        }
    }

    /// Compares the maps of all nodes, and takes the key of node 0.
    fn agree_on_the_map(mut self) -> Result<Self, Error> {
        let nodes = self.map.nodes();
        if nodes == 1 {
            return Ok(self);
        }
        let digest = digest(&self.map);
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
    /// Collective over `comm`, by which [`split`](Hierarchical::split) finds leaders later. Example: [`Hierarchical`].
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
            return Ok(Hierarchical::on_one_node(node));
        }
        let leaders = comm.leaders(node.rank() == 0)?;
        Ok(Hierarchical::new(node, leaders, map.clone())?.with_connector(Box::new(comm)))
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
        Hierarchical::simulated_by_env(Communicator::from_env()?)
    }

    /// The same for a communicator that has joined: `INTRANODE_NODES` says which nodes are simulated. Without it all ranks are
    /// on one node. Collective over `comm`.
    ///
    /// ```
    /// let nodes = intranode::threads(2, |comm| {
    ///     let comm = intranode::Hierarchical::simulated_by_env(comm)?;
    ///     Ok::<_, intranode::Error>(comm.map().nodes())
    /// })?;
    /// // One, unless the variable is set.
    /// assert!(matches!(nodes[..], [Ok(one), Ok(other)] if one == other));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidConfiguration`] for a value that does not fit to the number of ranks; otherwise as
    /// [`simulated`](Hierarchical::simulated).
    pub fn simulated_by_env(comm: Communicator) -> Result<Self, Error> {
        match environment::setting(VARIABLE) {
            Some(value) => {
                let map = parse(&value, comm.size())?;
                Hierarchical::simulated(comm, &map)
            }
            None => Ok(Hierarchical::on_one_node(comm)),
        }
    }
}

/// A map in short, to be compared.
fn digest(map: &NodeMap) -> u64 {
    map.counts().iter().fold(map.ranks() as u64, |digest, count| {
        digest.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23) ^ *count as u64
    })
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
        for wrong in ["0", "6", "18446744073709551615", "3,1", "5,0", "", "two", "2,"] {
            let error = counts(wrong, 5).expect_err("it is refused");
            assert!(error.to_string().contains(VARIABLE), "{error}");
        }
    }
}
