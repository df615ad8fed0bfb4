//! alltoall over several nodes.

use bytemuck::Pod;

use crate::collective::reduction::check_len;
use crate::communicator::call;
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::nodes::places::packed;
use crate::nodes::session::Session;
use crate::nodes::steps::LEADER;
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
        let block = size_of_val(send) / self.size();
        session.exchange_blocks(bytemuck::cast_slice(send), bytemuck::cast_slice_mut(recv), &|_, _| block)
    }
}

impl<L: Leaders> Session<'_, L> {
    /// An alltoall of bytes: `len(from, to)` of each rank for each. `send` has those of this rank by receiver, one after the other,
    /// `recv` those for it by sender.
    ///
    /// # Errors
    /// Those of the node and of the leaders.
    pub(super) fn exchange_blocks(
        &mut self,
        send: &[u8],
        recv: &mut [u8],
        len: &dyn Fn(usize, usize) -> usize,
    ) -> Result<(), Error> {
        let (map, here, leads) = (&self.all.map, self.all.own, self.leads());
        let (own, ranks) = (map.ranks_of(here), map.ranks());
        // By rank of the node, how much it sends, and how much it receives.
        let sends: Vec<usize> = own.clone().map(|from| (0..ranks).map(|to| len(from, to)).sum()).collect();
        let receives: Vec<usize> = own.clone().map(|to| (0..ranks).map(|from| len(from, to)).sum()).collect();
        // On the leader: by rank of the node what it sends, and what it receives.
        let mut sent = vec![0; if leads { sends.iter().sum() } else { 0 }];
        let mut received = vec![0; if leads { receives.iter().sum() } else { 0 }];
        let (send_starts, recv_starts) = (packed(&sends), packed(&receives));
        self.node(|node| node.gatherv(send, leads.then_some(&mut sent[..]), &sends, &send_starts, LEADER))?;
        self.leaders(|leaders, wait| {
            for step in 0..map.nodes() {
                // In each step nodes are paired, or alone; of a pair the lower one sends first.
                let other = (step + map.nodes() - here) % map.nodes();
                let theirs = map.ranks_of(other);
                let mut outgoing = Vec::new();
                for (from, start) in own.clone().zip(&send_starts) {
                    let before: usize = (0..theirs.start).map(|to| len(from, to)).sum();
                    let block: usize = theirs.clone().map(|to| len(from, to)).sum();
                    outgoing.extend_from_slice(&sent[start + before..][..block]);
                }
                let pairs = || theirs.clone().flat_map(|from| own.clone().map(move |to| (from, to)));
                let mut incoming = vec![0; pairs().map(|(from, to)| len(from, to)).sum()];
                // A node that comes in time for each message is not late, however long all of them take.
                wait.restart();
                if other < here {
                    leaders.recv(&mut incoming, other, wait)?;
                    wait.restart();
                    leaders.send(&outgoing, other, wait)?;
                } else if other > here {
                    leaders.send(&outgoing, other, wait)?;
                    wait.restart();
                    leaders.recv(&mut incoming, other, wait)?;
                }
                // By receiver here and sender there.
                for (to, start) in own.clone().zip(&recv_starts) {
                    let mut place = start + (0..theirs.start).map(|from| len(from, to)).sum::<usize>();
                    let incoming = if other == here { &outgoing } else { &incoming };
                    let mut at = 0;
                    for from in theirs.clone() {
                        let before: usize = (own.start..to).map(|to| len(from, to)).sum();
                        let block = &incoming[at + before..][..len(from, to)];
                        received[place..place + block.len()].copy_from_slice(block);
                        place += block.len();
                        at += own.clone().map(|to| len(from, to)).sum::<usize>();
                    }
                }
            }
            Ok(())
        })?;
        self.node(|node| node.scatterv(leads.then_some(&received[..]), &receives, &recv_starts, recv, LEADER))
    }
}
