//! How bytes get to one rank from those of all nodes, and back.

use crate::error::Error;
use crate::nodes::leaders::Leaders;
use crate::nodes::places::packed;
use crate::nodes::session::Session;
use crate::nodes::steps::LEADER;

impl<L: Leaders> Session<'_, L> {
    /// Gathers blocks of `counts[r]` bytes on rank `root`, one after the other in `all`, which is empty elsewhere.
    ///
    /// # Errors
    /// Those of the node and of the leaders.
    pub(super) fn gather_on(
        &mut self,
        own: &[u8],
        all: &mut [u8],
        counts: &[usize],
        root: usize,
    ) -> Result<(), Error> {
        let (map, here) = (&self.all.map, self.all.own);
        let target = map.node_of(root);
        let of_nodes = map.sums_of_nodes(counts);
        let (leads, total) = (self.leads(), of_nodes.iter().sum());
        let local = &counts[map.ranks_of(here)];
        if here != target {
            let mut block = vec![0; if leads { of_nodes[here] } else { 0 }];
            self.gather_on_leader(own, &mut block, local)?;
            return self.leaders(|leaders, wait| leaders.send(&block, target, wait));
        }
        let start: usize = of_nodes[..here].iter().sum();
        let mut blocks = vec![0; if leads { total } else { 0 }];
        let block = if leads { &mut blocks[start..start + of_nodes[here]] } else { &mut [] };
        self.gather_on_leader(own, block, local)?;
        let starts = packed(&of_nodes);
        self.leaders(|leaders, wait| {
            (0..of_nodes.len()).filter(|node| *node != here).try_for_each(|node| {
                wait.restart();
                leaders.recv(&mut blocks[starts[node]..][..of_nodes[node]], node, wait)
            })
        })?;
        self.hand_down(&blocks, all, total, root)
    }

    /// Sends blocks of `counts[r]` bytes, which lie one after the other in `all` of rank `root`, to rank `r` each.
    ///
    /// # Errors
    /// Those of the node and of the leaders.
    pub(super) fn scatter_from(
        &mut self,
        all: &[u8],
        own: &mut [u8],
        counts: &[usize],
        root: usize,
    ) -> Result<(), Error> {
        let (map, here) = (&self.all.map, self.all.own);
        let source = map.node_of(root);
        let of_nodes = map.sums_of_nodes(counts);
        let starts = packed(&of_nodes);
        let leads = self.leads();
        let mut block = vec![0; if leads { of_nodes[here] } else { 0 }];
        if here == source {
            let total = of_nodes.iter().sum();
            let blocks = self.hand_up(all, total, root)?;
            self.leaders(|leaders, wait| {
                (0..of_nodes.len()).filter(|node| *node != here).try_for_each(|node| {
                    wait.restart();
                    leaders.send(&blocks[starts[node]..][..of_nodes[node]], node, wait)
                })
            })?;
            if leads {
                block.copy_from_slice(&blocks[starts[here]..][..of_nodes[here]]);
            }
        } else {
            self.leaders(|leaders, wait| leaders.recv(&mut block, source, wait))?;
        }
        let local = &counts[map.ranks_of(here)];
        self.node(|node| node.scatterv(leads.then_some(&block[..]), local, &packed(local), own, LEADER))
    }

    /// Hands `data`, which the leader of node `from` has, to rank `root`. It has the same length on all ranks; on others it may
    /// change.
    ///
    /// # Errors
    /// Those of the node and of the leaders.
    pub(super) fn hand_over(&mut self, data: &mut [u8], from: usize, root: usize) -> Result<(), Error> {
        let (here, target) = (self.all.own, self.all.map.node_of(root));
        if from != target && here == from {
            self.leaders(|leaders, wait| leaders.send(data, target, wait))?;
        }
        if here != target {
            return Ok(());
        }
        if from != target {
            self.leaders(|leaders, wait| leaders.recv(data, from, wait))?;
        }
        let (leads, is_root, total) = (self.leads(), self.all.rank() == root, data.len());
        let on_leader = if leads { data.to_vec() } else { Vec::new() };
        self.hand_down(&on_leader, if is_root { data } else { &mut [] }, total, root)
    }

    /// Hands `total` bytes of this node's leader to one of its ranks, `root` among all.
    fn hand_down(
        &mut self,
        on_leader: &[u8],
        on_root: &mut [u8],
        total: usize,
        root: usize,
    ) -> Result<(), Error> {
        let (counts, leads) = (self.only(root, total), self.leads());
        let starts = packed(&counts);
        self.node(|node| node.scatterv(leads.then_some(on_leader), &counts, &starts, on_root, LEADER))
    }

    /// Hands `total` bytes of one of this node's ranks, `root` among all, to the leader.
    fn hand_up(&mut self, on_root: &[u8], total: usize, root: usize) -> Result<Vec<u8>, Error> {
        let (counts, leads) = (self.only(root, total), self.leads());
        let mut on_leader = vec![0; if leads { total } else { 0 }];
        let starts = packed(&counts);
        self.node(|node| node.gatherv(on_root, leads.then_some(&mut on_leader[..]), &counts, &starts, LEADER))?;
        Ok(on_leader)
    }

    /// Counts of which only that of one rank is not 0.
    fn only(&self, rank: usize, count: usize) -> Vec<usize> {
        let mut counts = vec![0; self.all.node.size()];
        counts[rank - self.all.map.leader_of(self.all.own)] = count;
        counts
    }
}
