//! broadcast_value, allgather_values and gather_values: values of any type that serde can encode, with the feature `serde`.
//!
//! A value is encoded by postcard before the call begins, and decoded before its last round, which says whether all ranks
//! could do that: the call succeeds on all ranks, or on none.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::allgatherv::gather;
use super::block_table::BlockTable;
use super::rooted::check_root;
use super::vectors::{self, Gathered};
use crate::communicator::{Communicator, call};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::rank::rank_state::OpenCall;

impl Communicator {
    /// Copies the value of rank `root` to all ranks. Collective. With the feature `serde`.
    ///
    /// All ranks decode the same bytes, so `V` is the same type on all ranks. That is not checked, beyond what decoding finds. It
    /// takes the rounds of [`broadcast_vec`](Communicator::broadcast_vec), and one more, in which the ranks agree that all
    /// could decode it. (The encoding: postcard, which is compact and has no schema.)
    ///
    /// ```
    /// let all = intranode::threads(3, |comm| {
    ///     let mut settings = (0, String::new());
    ///     if comm.rank() == 0 {
    ///         settings = (7, "input.bin".to_owned());
    ///     }
    ///     comm.broadcast_value(&mut settings, 0)?;
    ///     Ok::<_, intranode::Error>(settings)
    /// })?;
    /// for settings in all {
    ///     assert_eq!(settings?, (7, "input.bin".to_owned()));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::InvalidValue`] if the root cannot encode the value, or this rank cannot decode it;
    /// otherwise as [`broadcast_vec`](Communicator::broadcast_vec). `value` has not changed then.
    pub fn broadcast_value<V: Serialize + DeserializeOwned>(
        &self,
        value: &mut V,
        root: usize,
    ) -> Result<(), Error> {
        let operation = Operation::BroadcastValue;
        let call = Call { extra: root as u64, ..call::<u8>(operation) };
        let is_root = self.rank() == root;
        let encoded = check_root(self, operation, root)
            .and_then(|()| if is_root { encode(operation, root, value) } else { Ok(Vec::new()) });
        let mut bytes = match encoded {
            Ok(bytes) => bytes,
            Err(error) => return Err(self.rank_state.refuse(&call, error)),
        };
        let mut open = self.rank_state.begin(operation)?;
        vectors::broadcast_vec(&mut open, &call, &mut bytes, root)?;
        if is_root {
            return agree(open, &call, Ok(()));
        }
        *value = agree(open, &call, decode(operation, root, &bytes))?;
        Ok(())
    }

    /// Gathers the value of every rank on every rank: returns them in rank order. Collective. With the feature `serde`. `V`
    /// is the same type on all ranks, as for [`broadcast_value`](Communicator::broadcast_value). The rounds are those of
    /// [`allgather_vec`](Communicator::allgather_vec), and one more.
    ///
    /// ```
    /// let all = intranode::threads(3, |comm| comm.allgather_values(&format!("rank {}", comm.rank())))?;
    /// for names in all {
    ///     assert_eq!(names?, ["rank 0", "rank 1", "rank 2"]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if this rank cannot encode its value, or not decode that of another; otherwise as
    /// [`allgather_vec`](Communicator::allgather_vec).
    pub fn allgather_values<V: Serialize + DeserializeOwned>(&self, value: &V) -> Result<Vec<V>, Error> {
        let operation = Operation::AllgatherValues;
        let call = call::<u8>(operation);
        let bytes = match encode(operation, self.rank(), value) {
            Ok(bytes) => bytes,
            Err(error) => return Err(self.rank_state.refuse(&call, error)),
        };
        let mut open = self.rank_state.begin(operation)?;
        let gathered = vectors::allgather_vec(&mut open, &call, &bytes)?;
        agree(open, &call, decode_all(operation, &gathered))
    }

    /// Gathers the value of every rank on rank `root`: returns them in rank order there, and `None` elsewhere. Collective. With
    /// the feature `serde`. `V` is the same type on all ranks, as for
    /// [`broadcast_value`](Communicator::broadcast_value). The rounds are those of
    /// [`gather_vec`](Communicator::gather_vec), and one more.
    ///
    /// ```
    /// let gathered = intranode::threads(2, |comm| comm.gather_values(&vec![Some(comm.rank()), None], 1))?;
    /// for (rank, values) in gathered.into_iter().enumerate() {
    ///     let expected = vec![vec![Some(0), None], vec![Some(1), None]];
    ///     assert_eq!(values?, (rank == 1).then_some(expected));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::InvalidValue`] if this rank cannot encode its value, or the root not decode one;
    /// otherwise as [`gather_vec`](Communicator::gather_vec).
    pub fn gather_values<V: Serialize + DeserializeOwned>(
        &self,
        value: &V,
        root: usize,
    ) -> Result<Option<Vec<V>>, Error> {
        let operation = Operation::GatherValues;
        let call = Call { extra: root as u64, ..call::<u8>(operation) };
        let encoded = check_root(self, operation, root).and_then(|()| encode(operation, self.rank(), value));
        let bytes = match encoded {
            Ok(bytes) => bytes,
            Err(error) => return Err(self.rank_state.refuse(&call, error)),
        };
        let mut open = self.rank_state.begin(operation)?;
        let gathered = vectors::gather_vec(&mut open, &call, &bytes, root)?;
        let values = gathered.map(|gathered| decode_all(operation, &gathered)).transpose();
        agree(open, &call, values)
    }
}

/// The bytes of the value of rank `own`.
pub(crate) fn encode<V: Serialize>(operation: Operation, own: usize, value: &V) -> Result<Vec<u8>, Error> {
    postcard::to_allocvec(value).map_err(|error| invalid(operation, own, error))
}

fn invalid(operation: Operation, from: usize, error: postcard::Error) -> Error {
    Error::InvalidValue { operation, from, reason: error.to_string().into() }
}

/// The value of rank `from`.
pub(crate) fn decode<V: DeserializeOwned>(operation: Operation, from: usize, bytes: &[u8]) -> Result<V, Error> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => {
            let reason = format!("{} bytes are left over; do all ranks name the same type?", rest.len());
            Err(Error::InvalidValue { operation, from, reason: reason.into() })
        }
        Err(error) => Err(invalid(operation, from, error)),
    }
}

/// The values of all ranks, in rank order.
pub(crate) fn decode_all<V: DeserializeOwned>(
    operation: Operation,
    (bytes, counts): &Gathered<u8>,
) -> Result<Vec<V>, Error> {
    let mut rest = &bytes[..];
    let next = |(from, count): (usize, &usize)| {
        let (own, others) = rest.split_at(*count);
        rest = others;
        decode(operation, from, own)
    };
    counts.iter().enumerate().map(next).collect()
}

/// The last round: a rank that could not decode its values refuses. The call ends here: a value that is dropped then may make calls.
fn agree<V>(mut open: OpenCall<'_>, call: &Call, decoded: Result<V, Error>) -> Result<V, Error> {
    match decoded {
        Ok(value) => {
            let agreed = gather(&mut open, call, &[], &mut [], BlockTable::Equal { bytes: 0 });
            drop(open);
            agreed.map(|()| value)
        }
        Err(error) => Err(open.refuse(call, error)),
    }
}
