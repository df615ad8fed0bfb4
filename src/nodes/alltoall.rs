//! alltoall over several nodes.

use bytemuck::Pod;

use crate::communicator::call;
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::nodes::rooted::check_len;
use crate::nodes::session::{LEADER, Session};
use crate::protocol::Call;

impl<L: Leaders> Hierarchical<L> {
    /// Sends a block to every rank and receives one from every rank, as [`Communicator::alltoall`](crate::Communicator::alltoall):
    /// block `r` of `send` becomes block `rank()` of rank `r`'s `recv`. Collective.
    ///
    /// Any two leaders exchange one message with all blocks between their nodes, one pair of each node after the other (pairwise
    /// exchange: Thakur, Rabenseifner and Gropp 2005). A leader has a copy of what all ranks of its node send and receive.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     let (rank, mut recv) = (comm.rank(), [0; 3]);
    ///     comm.alltoall(&[10 * rank, 10 * rank + 1, 10 * rank + 2], &mut recv)?;
    ///     Ok::<_, intranode::Error>(recv)
    /// })?;
    /// for (rank, recv) in all.into_iter().enumerate() {
    ///     assert_eq!(recv?, [rank, 10 + rank, 20 + rank]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if the lengths differ, or are no multiple of the number of ranks; otherwise as
    /// [`barrier`](Hierarchical::barrier).
    pub fn alltoall<T: Pod>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.alltoall(send, recv);
        }
        let operation = Operation::Alltoall;
        let call = Call { length: send.len() as u64, ..call::<T>(operation) };
        let whole = send.len() - send.len() % self.size();
        let checked =
            check_len(operation, whole, send.len()).and_then(|()| check_len(operation, send.len(), recv.len()));
        let mut session = self.begin(operation)?;
        session.agree(&call, checked, &[])?;
        session.exchange_blocks(bytemuck::cast_slice(send), bytemuck::cast_slice_mut(recv))
    }
}

impl<L: Leaders> Session<'_, L> {
    /// An alltoall of bytes.
    ///
    /// # Errors
    /// Those of the node and of the leaders.
    fn exchange_blocks(&mut self, send: &[u8], recv: &mut [u8]) -> Result<(), Error> {
        let (map, here) = (&self.all.map, self.all.own);
        let (row, own) = (send.len(), map.ranks_of(here).len());
        let block = row / map.ranks();
        let leads = self.leads();
        // On the leader: by rank of the node what it sends, and what it receives.
        let (mut sent, mut received) = (vec![0; if leads { row * own } else { 0 }], Vec::new());
        received.resize(sent.len(), 0);
        self.node(|node| node.gather(send, leads.then_some(&mut sent[..]), LEADER))?;
        self.leaders(|leaders, wait| {
            for step in 0..map.nodes() {
                // In each step nodes are paired, or alone; of a pair the lower one sends first.
                let other = (step + map.nodes() - here) % map.nodes();
                let (theirs, width) = (map.ranks_of(other), map.ranks_of(other).len() * block);
                let mut outgoing = Vec::with_capacity(own * width);
                for from in sent.chunks(row.max(1)) {
                    outgoing.extend_from_slice(&from[theirs.start * block..][..width]);
                }
                let mut incoming = vec![0; own * width];
                if other < here {
                    leaders.recv(&mut incoming, other, wait)?;
                    leaders.send(&outgoing, other, wait)?;
                } else if other > here {
                    leaders.send(&outgoing, other, wait)?;
                    leaders.recv(&mut incoming, other, wait)?;
                } else {
                    incoming.copy_from_slice(&outgoing);
                }
                // By sender and receiver there; here by receiver and sender.
                for (from, blocks) in incoming.chunks((own * block).max(1)).enumerate() {
                    for (to, bytes) in blocks.chunks(block.max(1)).enumerate() {
                        received[to * row + (theirs.start + from) * block..][..block].copy_from_slice(bytes);
                    }
                }
            }
            Ok(())
        })?;
        self.node(|node| node.scatter(leads.then_some(&received[..]), recv, LEADER))
    }
}
