//! Collectives whose blocks have the same length, and fit into the headers: one round, and nothing of what longer blocks need.
//!
//! Longer blocks, and those of different lengths, are a [`BlockTransfer`](crate::protocol::block_transfer::BlockTransfer). What a
//! rank publishes is the same in both: some ranks may call the in-place form of a collective.

use super::parts::position;
use crate::communicator::Communicator;
use crate::copy::policy::Stores;
use crate::copy::{Sink, Source};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::call::INLINE;
use crate::rank::choices::{Choice, Path};

/// Whether so many blocks of a length fit into a header.
#[inline]
pub(super) fn fit_inline(blocks: usize, bytes: usize) -> bool {
    blocks.saturating_mul(bytes) <= INLINE
}

/// The blocks in a buffer, all of this length.
#[derive(Clone, Copy)]
struct Blocks {
    bytes: usize,
    size: usize,
}

impl Blocks {
    /// Writes all blocks but that of `rank`, in the order of [`receivers`](super::parts::receivers).
    #[inline]
    fn put_others(self, blocks: &[u8], rank: usize, mut header: Sink<'_>) {
        let (before, from) = blocks.split_at(rank * self.bytes);
        header.put(0, &from[self.bytes..]);
        header.put(from.len() - self.bytes, before);
    }

    /// Where the block of a sender for a receiver begins behind these.
    #[inline]
    fn start(self, sender: usize, receiver: usize) -> usize {
        position(sender, receiver, self.size) * self.bytes
    }

    #[inline]
    fn of(self, blocks: &[u8], rank: usize) -> &[u8] {
        &blocks[rank * self.bytes..(rank + 1) * self.bytes]
    }

    #[inline]
    fn of_mut(self, blocks: &mut [u8], rank: usize) -> &mut [u8] {
        &mut blocks[rank * self.bytes..(rank + 1) * self.bytes]
    }
}

impl Communicator {
    /// One round: see [`Member::exchange`](crate::protocol::Member::exchange).
    #[inline]
    fn exchange_inline(
        &self,
        (operation, call): (Operation, &Call),
        recv: &mut [u8],
        publish: impl FnOnce(&mut [u8], Sink<'_>),
        read: impl FnMut(&mut [u8], usize, Source<'_>),
    ) -> Result<(), Error> {
        let choice = Choice { operation, path: Path::Inline, receive: Stores::Cached };
        self.rank_state.chosen(recv.len(), move || choice);
        self.rank_state.collective(operation, |member| member.exchange(call, recv, publish, read))
    }

    /// A broadcast of bytes.
    #[inline]
    pub(super) fn broadcast_inline(&self, call: &Call, buffer: &mut [u8], root: usize) -> Result<(), Error> {
        let is_root = self.rank() == root;
        self.exchange_inline(
            (Operation::Broadcast, call),
            buffer,
            |buffer, mut header| {
                if is_root {
                    header.put(0, buffer);
                }
            },
            |buffer, sender, header| {
                if sender == root {
                    header.get(0, buffer);
                }
            },
        )
    }

    /// An allgather of bytes.
    #[inline]
    pub(super) fn allgather_inline(&self, call: &Call, send: &[u8], recv: &mut [u8]) -> Result<(), Error> {
        let blocks = Blocks { bytes: send.len(), size: self.size() };
        self.exchange_inline(
            (Operation::Allgather, call),
            recv,
            |_, mut header| header.put(0, send),
            |recv, sender, header| header.get(0, blocks.of_mut(recv, sender)),
        )?;
        blocks.of_mut(recv, self.rank()).copy_from_slice(send);
        Ok(())
    }

    /// A gather of bytes. `recv` is `Some` on the root.
    #[inline]
    pub(super) fn gather_inline(&self, call: &Call, send: &[u8], recv: Option<&mut [u8]>) -> Result<(), Error> {
        let blocks = Blocks { bytes: send.len(), size: self.size() };
        let is_root = recv.is_some();
        let recv = recv.unwrap_or_default();
        self.exchange_inline(
            (Operation::Gather, call),
            recv,
            |_, mut header| {
                if !is_root {
                    header.put(0, send);
                }
            },
            |recv, sender, header| {
                if is_root {
                    header.get(0, blocks.of_mut(recv, sender));
                }
            },
        )?;
        if is_root {
            blocks.of_mut(recv, self.rank()).copy_from_slice(send);
        }
        Ok(())
    }

    /// A scatter of bytes. `send` is `Some` on the root.
    #[inline]
    pub(super) fn scatter_inline(
        &self,
        call: &Call,
        send: Option<&[u8]>,
        recv: &mut [u8],
        root: usize,
    ) -> Result<(), Error> {
        let blocks = Blocks { bytes: recv.len(), size: self.size() };
        let start = blocks.start(root, self.rank());
        self.exchange_inline(
            (Operation::Scatter, call),
            recv,
            |_, header| {
                if let Some(send) = send {
                    blocks.put_others(send, root, header);
                }
            },
            |recv, sender, header| {
                if sender == root {
                    header.get(start, recv);
                }
            },
        )?;
        if let Some(send) = send {
            recv.copy_from_slice(blocks.of(send, root));
        }
        Ok(())
    }

    /// An alltoall of bytes.
    #[inline]
    pub(super) fn alltoall_inline(&self, call: &Call, send: &[u8], recv: &mut [u8]) -> Result<(), Error> {
        let (rank, size) = (self.rank(), self.size());
        let blocks = Blocks { bytes: send.len() / size, size };
        self.exchange_inline(
            (Operation::Alltoall, call),
            recv,
            |_, header| blocks.put_others(send, rank, header),
            |recv, sender, header| header.get(blocks.start(sender, rank), blocks.of_mut(recv, sender)),
        )?;
        blocks.of_mut(recv, rank).copy_from_slice(blocks.of(send, rank));
        Ok(())
    }
}
