//! scatter and alltoall(v) over buffers that other threads may write meanwhile.
//!
//! They are the calls over slices, of other [memory](super::memory).

use bytemuck::Pod;

use super::alltoall::exchange;
use super::block_table::BlockTable;
use super::reduction::check_len;
use super::rooted::{check_buffer, check_root};
use crate::communicator::{Communicator, call};
use crate::copy::raw::{RawSource, RawTarget};
use crate::error::{Error, Operation};
use crate::protocol::Call;

impl Communicator {
    /// A [`scatter`](Communicator::scatter) over buffers that other threads of this process may write while it runs; if one does,
    /// the result is unspecified, on every rank. `send` is `Some` exactly on the root; there `recv: None` means that its own block
    /// stays where it is. The two must not overlap, or the result is unspecified. Other ranks may call `scatter` or
    /// `scatter_in_place`. Collective.
    ///
    /// ```
    /// use intranode::{RawSource, RawTarget};
    ///
    /// let blocks = intranode::threads(3, |comm| {
    ///     let (send, mut own) = ([1.5, 2.5, 3.5], [0.0]);
    ///     let send = (comm.rank() == 1).then(|| RawSource::from(&send[..]));
    ///     comm.scatter_raw(send, Some(RawTarget::from(&mut own[..])), 1)?;
    ///     Ok::<_, intranode::Error>(own[0])
    /// })?;
    /// for (own, expected) in blocks.into_iter().zip([1.5, 2.5, 3.5]) {
    ///     assert_eq!(own?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`scatter`](Communicator::scatter) and [`scatter_in_place`](Communicator::scatter_in_place); [`Error::RootBuffer`] also if
    /// another rank than the root has no `recv`.
    pub fn scatter_raw<T: Pod>(
        &self,
        send: Option<RawSource<'_, T>>,
        recv: Option<RawTarget<'_, T>>,
        root: usize,
    ) -> Result<(), Error> {
        let operation = Operation::Scatter;
        let whole = send.map(|send| send.len());
        let len = recv.as_ref().map(RawTarget::len).or(whole.map(|len| len / self.size())).unwrap_or(0);
        let call = Call { length: len as u64, extra: root as u64, ..call::<T>(operation) };
        let total = len.saturating_mul(self.size());
        let checked = check_root(self, operation, root)
            .and_then(|()| check_buffer(self, operation, root, send.is_some()))
            .and_then(|()| check_buffer(self, operation, root, send.is_some() || recv.is_none()))
            .and_then(|()| check_len(operation, total, whole.unwrap_or(total)));
        if let Err(error) = checked {
            return Err(self.rank_state.refuse(&call, error));
        }
        let table = BlockTable::Equal { bytes: len * size_of::<T>() };
        let (send, recv) = (send.map(RawSource::bytes), recv.map(RawTarget::into_bytes));
        self.scatter_from(operation, &call, send, recv, (table, root))
    }

    /// An [`alltoall`](Communicator::alltoall) over such buffers, which must not overlap, or the result is unspecified. Other ranks
    /// may call `alltoall` or `alltoall_in_place`. Collective.
    ///
    /// ```
    /// use intranode::{RawSource, RawTarget};
    ///
    /// let all = intranode::threads(2, |comm| {
    ///     let (send, mut recv) = ([10 * comm.rank(), 10 * comm.rank() + 1], [0; 2]);
    ///     comm.alltoall_raw(RawSource::from(&send[..]), RawTarget::from(&mut recv[..]))?;
    ///     Ok::<_, intranode::Error>(recv)
    /// })?;
    /// for (rank, recv) in all.into_iter().enumerate() {
    ///     assert_eq!(recv?, [rank, 10 + rank]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`alltoall`](Communicator::alltoall).
    pub fn alltoall_raw<T: Pod>(&self, send: RawSource<'_, T>, recv: RawTarget<'_, T>) -> Result<(), Error> {
        let call = self.alltoall_call::<T>(send.len(), recv.len())?;
        let mut open = self.rank_state.begin(Operation::Alltoall)?;
        exchange(&mut open, &call, send.bytes(), recv.into_bytes())
    }

    /// An [`alltoallv`](Communicator::alltoallv) over such buffers, likewise. Other ranks may call `alltoallv`. Collective.
    ///
    /// ```
    /// use intranode::{RawSource, RawTarget};
    ///
    /// // Rank r sends r + 1 elements to each rank.
    /// let all = intranode::threads(2, |comm| {
    ///     let count = comm.rank() + 1;
    ///     let (send, mut recv) = (vec![comm.rank(); 2 * count], [9; 3]);
    ///     let (send, target) = (RawSource::from(&send[..]), RawTarget::from(&mut recv[..]));
    ///     comm.alltoallv_raw(send, &[count; 2], &[0, count], target, &[1, 2], &[0, 1])?;
    ///     Ok::<_, intranode::Error>(recv)
    /// })?;
    /// for recv in all {
    ///     assert_eq!(recv?, [0, 1, 1]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`alltoallv`](Communicator::alltoallv).
    pub fn alltoallv_raw<T: Pod>(
        &self,
        send: RawSource<'_, T>,
        send_counts: &[usize],
        send_displs: &[usize],
        recv: RawTarget<'_, T>,
        recv_counts: &[usize],
        recv_displs: &[usize],
    ) -> Result<(), Error> {
        let lens = [send.len(), recv.len()];
        let (send, recv) = (send.bytes(), recv.into_bytes());
        let (sent, received) = ([send_counts, send_displs], [recv_counts, recv_displs]);
        self.alltoallv_of::<T, _, _>((send, sent), (recv, received), lens)
    }
}
