//! The calls that are completed later, of these steps: the bits are those of the blocking calls, since the order of each fold is.

use bytemuck::Pod;

use crate::element::{ReduceOp, Reducible};
use crate::error::Error;
use crate::nodes::desk::Exchange;
use crate::nodes::packets::comes_along;
use crate::nodes::places::{packed, parts};
use crate::nodes::reductions::{fold_all, folded};
use crate::nodes::steps::{LEADER, Steps};
use crate::protocol::Call;
use crate::tuning::SPREAD_PIECE_BYTES;

impl Steps {
    /// [`Hierarchical::start_barrier`](crate::Hierarchical::start_barrier), and a call that is refused.
    ///
    /// # Errors
    /// As [`agree`](Steps::agree).
    pub(super) async fn only_agree(self, call: Call, checked: Result<(), Error>) -> Result<(), Error> {
        self.agree(&call, checked, &[]).await.map(drop)
    }

    /// [`Hierarchical::start_allreduce`](crate::Hierarchical::start_allreduce), in the forms of the blocking call.
    ///
    /// # Errors
    /// Those of the node and of the leaders.
    pub(super) async fn allreduce<T: Reducible>(
        self,
        call: Call,
        mut data: Vec<T>,
        op: ReduceOp,
    ) -> Result<Vec<T>, Error> {
        let (len, size) = (data.len(), self.map.ranks());
        let bytes = len * size_of::<T::Repr>();
        let comes_along = comes_along(bytes, self.map.largest());
        let own = bytemuck::cast_slice(&T::encode(&data)).to_vec();
        let came = self.agree(&call, Ok(()), if comes_along { &own } else { &[] }).await?;
        if !comes_along && bytes.saturating_mul(size) >= self.sizes.chain_from {
            drop(own);
            self.fold_along_nodes(&mut data, op).await?;
            return Ok(data);
        }
        let all = match comes_along {
            true => {
                let mut all = vec![0; bytes * size];
                came.unpack(&self.map, bytes, &mut all);
                all
            }
            false => self.gather_all(&own, &vec![bytes; size]).await?,
        };
        let all: Vec<T::Repr> = bytemuck::pod_collect_to_vec(&all);
        T::update(&mut data, |result| fold_all::<T>(op, result, &all, size));
        Ok(data)
    }

    /// Chunk by chunk goes from node to node: what a leader receives and its own contribution, folded, is its contribution to the
    /// fold of its node.
    async fn fold_along_nodes<T: Reducible>(&self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let (width, last) = (size_of::<T::Repr>(), self.map.nodes() - 1);
        for part in parts(data.len(), width, self.sizes.chunk) {
            let mut first = data[part.clone()].to_vec();
            if let Some(from) = self.own.checked_sub(1) {
                let room = vec![0; if self.leads() { first.len() * width } else { 0 }];
                let came = self.leaders(room, |data| Exchange::Recv { data, from }).await?;
                if self.leads() {
                    let mut before = first.clone();
                    set::<T>(&mut before, &came);
                    first = folded(Some(&before), &first, op);
                }
            }
            let result = self.node(|node| node.start_allreduce(first, op)).await?;
            if self.own == last {
                data[part].copy_from_slice(&result);
            } else {
                let (sent, to) = (self.of_leader(|| encoded(&result)), self.own + 1);
                self.leaders(sent, |data| Exchange::Send { data, to }).await?;
            }
        }
        for part in parts(data.len(), width, SPREAD_PIECE_BYTES) {
            let room = self.of_leader(|| encoded(&data[part.clone()]));
            let came = self.leaders(room, |data| Exchange::Broadcast { data, root: last }).await?;
            if self.own != last {
                let bytes = if self.leads() { came } else { vec![0; part.len() * width] };
                let bytes = self.node(|node| node.start_broadcast(bytes, LEADER)).await?;
                set(&mut data[part], &bytes);
            }
        }
        Ok(())
    }

    /// [`Hierarchical::start_broadcast`](crate::Hierarchical::start_broadcast).
    ///
    /// # Errors
    /// Those of the node and of the leaders.
    pub(super) async fn broadcast<T: Pod + Send>(
        self,
        call: Call,
        mut buffer: Vec<T>,
        root: usize,
    ) -> Result<Vec<T>, Error> {
        self.agree(&call, Ok(()), &[]).await?;
        let home = self.map.node_of(root);
        if self.own == home {
            let local = root - self.map.leader_of(home);
            buffer = self.node(|node| node.start_broadcast(buffer, local)).await?;
        }
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut buffer);
        for piece in bytes.chunks_mut(SPREAD_PIECE_BYTES) {
            let sent = self.of_leader(|| piece.to_vec());
            let came = self.leaders(sent, |data| Exchange::Broadcast { data, root: home }).await?;
            if self.own != home {
                let room = if self.leads() { came } else { vec![0; piece.len()] };
                piece.copy_from_slice(&self.node(|node| node.start_broadcast(room, LEADER)).await?);
            }
        }
        Ok(buffer)
    }

    /// [`Hierarchical::start_allgatherv`](crate::Hierarchical::start_allgatherv).
    ///
    /// # Errors
    /// Those of the node and of the leaders.
    pub(super) async fn allgatherv<T: Pod + Send>(
        self,
        call: Call,
        (send, mut recv): (Vec<T>, Vec<T>),
        (counts, displs): (Vec<usize>, Vec<usize>),
    ) -> Result<Vec<T>, Error> {
        self.agree(&call, Ok(()), &[]).await?;
        let width = size_of::<T>();
        let lens: Vec<usize> = counts.iter().map(|count| count * width).collect();
        let all = self.gather_all(bytemuck::cast_slice(&send), &lens).await?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut recv);
        for ((start, displ), len) in packed(&lens).iter().zip(&displs).zip(&lens) {
            bytes[displ * width..][..*len].copy_from_slice(&all[*start..][..*len]);
        }
        Ok(recv)
    }

    /// Gathers the block `own` of every rank on every rank: `counts[r]` bytes of rank `r`, one after the other.
    async fn gather_all(&self, own: &[u8], counts: &[usize]) -> Result<Vec<u8>, Error> {
        let (map, starts) = (&self.map, packed(counts));
        let of_nodes = map.sums_of_nodes(counts);
        let (local, places) = (&counts[map.ranks_of(self.own)], &starts[map.ranks_of(self.own)]);
        let all = vec![0; counts.iter().sum()];
        let all = self.node(|node| node.start_allgatherv(own, all, local, places)).await?;
        let all = self.leaders(all, |data| Exchange::Allgatherv { data, counts: of_nodes }).await?;
        self.node(|node| node.start_broadcast(all, LEADER)).await
    }

    /// Bytes that only the leader needs.
    fn of_leader(&self, bytes: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
        if self.leads() { bytes() } else { Vec::new() }
    }
}

/// Values as they are sent.
fn encoded<T: Reducible>(values: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(&T::encode(values)).to_vec()
}

/// Replaces values by what was sent.
fn set<T: Reducible>(values: &mut [T], bytes: &[u8]) {
    T::update(values, |sent| bytemuck::cast_slice_mut(sent).copy_from_slice(bytes));
}
