//! How bytes get from ranks to ranks of other nodes: over the network once for each node, and through shared memory inside.

use crate::error::Error;
use crate::nodes::leaders::Leaders;
use crate::nodes::places::packed;
use crate::nodes::session::Session;
use crate::nodes::steps::LEADER;
use crate::tuning::SPREAD_PIECE_BYTES;

impl<L: Leaders> Session<'_, L> {
    /// Gathers the block `own` of every rank on every rank: `counts[r]` bytes of rank `r`, one after the other in `all`.
    ///
    /// A leader gathers those of its node, the leaders exchange them, and each broadcasts all.
    ///
    /// # Errors
    /// Those of the node and of the leaders.
    pub(super) fn gather_all(&mut self, own: &[u8], all: &mut [u8], counts: &[usize]) -> Result<(), Error> {
        let map = &self.all.map;
        let of_nodes = map.sums_of_nodes(counts);
        let start: usize = of_nodes[..self.all.own].iter().sum();
        let block = start..start + of_nodes[self.all.own];
        self.gather_on_leader(own, &mut all[block], &counts[map.ranks_of(self.all.own)])?;
        self.leaders(|leaders, wait| leaders.allgatherv(all, &of_nodes, wait))?;
        self.node(|node| node.broadcast(all, LEADER))
    }

    /// Gathers blocks of `counts[i]` bytes of the ranks of this node on its leader, one after the other in `block`.
    pub(super) fn gather_on_leader(
        &mut self,
        own: &[u8],
        block: &mut [u8],
        counts: &[usize],
    ) -> Result<(), Error> {
        let leads = self.leads();
        self.node(|node| node.gatherv(own, leads.then_some(block), counts, &packed(counts), LEADER))
    }

    /// Copies `data` of the leader of `node` to all ranks. It has the same length on all.
    ///
    /// # Errors
    /// Those of the node and of the leaders.
    pub(super) fn spread(&mut self, data: &mut [u8], node: usize) -> Result<(), Error> {
        for piece in data.chunks_mut(SPREAD_PIECE_BYTES) {
            self.leaders(|leaders, wait| leaders.broadcast(piece, node, wait))?;
            self.node(|node| node.broadcast(piece, LEADER))?;
        }
        Ok(())
    }
}
