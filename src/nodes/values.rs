//! broadcast_value, allgather_values and gather_values over several nodes: values of any type that serde can encode, with the
//! feature `serde`.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::collective::rooted::check_root;
use crate::collective::values::{decode, decode_all, encode};
use crate::communicator::call;
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::nodes::session::Session;
use crate::protocol::Call;

impl<L: Leaders> Hierarchical<L> {
    /// Copies the value of rank `root` to all ranks, as
    /// [`Communicator::broadcast_value`](crate::Communicator::broadcast_value). Collective. With the feature `serde`.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     let mut name = if comm.rank() == 0 { "input.bin".to_owned() } else { String::new() };
    ///     comm.broadcast_value(&mut name, 0)?;
    ///     Ok::<_, intranode::Error>(name)
    /// })?;
    /// for name in all {
    ///     assert_eq!(name?, "input.bin");
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::InvalidValue`] if the root cannot encode the value, or this rank cannot decode it; otherwise
    /// as [`broadcast_vec`](Hierarchical::broadcast_vec). `value` has not changed then.
    pub fn broadcast_value<V: Serialize + DeserializeOwned>(
        &self,
        value: &mut V,
        root: usize,
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.broadcast_value(value, root);
        }
        let (operation, is_root) = (Operation::BroadcastValue, self.rank() == root);
        let call = Call { extra: root as u64, ..call::<u8>(operation) };
        let encoded = check_root(self, operation, root).and_then(|()| match is_root {
            true => encode(operation, root, value),
            false => Ok(Vec::new()),
        });
        let (mut bytes, checked) = apart(encoded);
        let mut session = self.begin(operation)?;
        session.broadcast_vec(&call, checked, &mut bytes, root)?;
        let decoded = if is_root { Ok(None) } else { decode(operation, root, &bytes).map(Some) };
        if let Some(received) = all_have(session, &call, decoded)? {
            *value = received;
        }
        Ok(())
    }

    /// Gathers the value of every rank on every rank, as
    /// [`Communicator::allgather_values`](crate::Communicator::allgather_values): returns them in rank order. Collective. With the
    /// feature `serde`.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
    ///     comm.allgather_values(&format!("rank {}", comm.rank()))
    /// })?;
    /// for names in all {
    ///     assert_eq!(names?, ["rank 0", "rank 1", "rank 2"]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if this rank cannot encode its value, or not decode that of another; otherwise as
    /// [`allgather_vec`](Hierarchical::allgather_vec).
    pub fn allgather_values<V: Serialize + DeserializeOwned>(&self, value: &V) -> Result<Vec<V>, Error> {
        if self.map.nodes() == 1 {
            return self.node.allgather_values(value);
        }
        let operation = Operation::AllgatherValues;
        let call = call::<u8>(operation);
        let (bytes, checked) = apart(encode(operation, self.rank(), value));
        let mut session = self.begin(operation)?;
        let gathered = session.allgather_vec(&call, checked, &bytes)?;
        all_have(session, &call, decode_all(operation, &gathered))
    }

    /// Gathers the value of every rank on rank `root`, as
    /// [`Communicator::gather_values`](crate::Communicator::gather_values): returns them in rank order there, and `None` elsewhere.
    /// Collective. With the feature `serde`.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let gathered = intranode::threads(2, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::even(2, 2)?)?;
    ///     comm.gather_values(&Some(comm.rank()), 1)
    /// })?;
    /// for (rank, values) in gathered.into_iter().enumerate() {
    ///     assert_eq!(values?, (rank == 1).then_some(vec![Some(0), Some(1)]));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::InvalidValue`] if this rank cannot encode its value, or the root not decode one; otherwise as
    /// [`gather_vec`](Hierarchical::gather_vec).
    pub fn gather_values<V: Serialize + DeserializeOwned>(
        &self,
        value: &V,
        root: usize,
    ) -> Result<Option<Vec<V>>, Error> {
        if self.map.nodes() == 1 {
            return self.node.gather_values(value, root);
        }
        let operation = Operation::GatherValues;
        let call = Call { extra: root as u64, ..call::<u8>(operation) };
        let encoded = check_root(self, operation, root).and_then(|()| encode(operation, self.rank(), value));
        let (bytes, checked) = apart(encoded);
        let mut session = self.begin(operation)?;
        let gathered = session.gather_vec(&call, checked, &bytes, root)?;
        let values = gathered.map(|gathered| decode_all(operation, &gathered)).transpose();
        all_have(session, &call, values)
    }
}

/// Lets all ranks know whether each could decode what it needs. The call ends here: a value that is dropped then may make calls.
fn all_have<V, L: Leaders>(
    mut session: Session<'_, L>,
    call: &Call,
    decoded: Result<V, Error>,
) -> Result<V, Error> {
    let (value, decoded) = match decoded {
        Ok(value) => (Some(value), Ok(())),
        Err(error) => (None, Err(error)),
    };
    let agreed = session.all_have(call, decoded);
    drop(session);
    agreed.map(|()| value.expect("the call of a rank without it is refused"))
}

/// What is sent, and whether that could be made. If not, nothing is.
fn apart(encoded: Result<Vec<u8>, Error>) -> (Vec<u8>, Result<(), Error>) {
    match encoded {
        Ok(bytes) => (bytes, Ok(())),
        Err(error) => (Vec::new(), Err(error)),
    }
}
