//! The calls of a communicator, and their arguments.

use std::sync::Arc;

use intranode::{Communicator, Error, Operation};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::arguments::{Blocks, Buffers, Data, Table};
use crate::buffer::View;
use crate::collectives;
use crate::detach;
use crate::errors;
use crate::joined::{self, Joined};
use crate::messages::Messages;
use crate::numbers::Code;
use crate::objects;
use crate::plain;
use crate::region::Memory;
use crate::scratch;
use crate::started::{self, Begun};
use crate::vectors;

/// What `intranode.Communicator` is built on. Its methods take buffers; `None` where one is sent means in place.
#[pyclass(frozen, subclass, module = "intranode._core")]
pub(crate) struct Core {
    joined: Py<Joined>,
    rank: usize,
    size: usize,
}

impl Core {
    fn comm(&self, py: Python<'_>) -> PyResult<Arc<Communicator>> {
        self.joined.get().for_call(py)
    }

    /// Refuses a call because of `error`, and returns that, or why this rank cannot call.
    fn refused(&self, py: Python<'_>, operation: Operation, error: PyErr) -> PyErr {
        match self.comm(py) {
            Ok(comm) => collectives::refuse(py, &comm, operation, error),
            Err(left) => left,
        }
    }

    /// Runs a call on buffers. If its arguments are wrong this rank refuses it, so that the others do not wait.
    fn call<B: Data>(
        &self,
        py: Python<'_>,
        operation: Operation,
        arguments: impl FnOnce() -> PyResult<B>,
        call: impl FnOnce(&Communicator, &B) -> Result<(), Error> + Send,
    ) -> PyResult<()> {
        let comm = self.comm(py)?;
        let arguments = arguments().map_err(|error| collectives::refuse(py, &comm, operation, error))?;
        collectives::run(py, &comm, arguments.bytes(), |comm| call(comm, &arguments))
    }
}

/// What a call is given as its root.
#[derive(FromPyObject)]
enum Root<'py> {
    Rank(usize),
    Wrong(Bound<'py, PyAny>),
}

type Buffer<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

#[pymethods]
impl Core {
    #[new]
    fn new(joined: Bound<'_, Joined>) -> Self {
        let (rank, size) = joined.get().position();
        Core { joined: joined.unbind(), rank, size }
    }

    #[getter]
    fn rank(&self) -> usize {
        self.rank
    }

    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    #[getter]
    fn _joined(&self, py: Python<'_>) -> Py<Joined> {
        self.joined.clone_ref(py)
    }

    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        self.joined.get().leave(py)
    }

    #[pyo3(signature = (code = Code(1)), text_signature = "($self, code=1)")]
    fn abort(&self, py: Python<'_>, code: Code) -> PyResult<()> {
        let comm = self.joined.get().comm()?;
        py.detach(|| comm.abort(code.0))
    }

    fn _split(&self, py: Python<'_>, color: usize, key: usize) -> PyResult<Joined> {
        let comm = self.comm(py)?;
        joined::start(py, || comm.split(color, key))
    }

    fn _refuse(&self, py: Python<'_>, operation: &str) -> PyResult<()> {
        let comm = self.comm(py)?;
        collectives::run(py, &comm, 0, |comm| comm.refuse_call(errors::operation(operation)))
    }

    /// Its messages. Collective.
    fn _messages(&self, py: Python<'_>) -> PyResult<Messages> {
        Messages::new(py, &*self.comm(py)?)
    }

    /// A region of this number of bytes. Collective.
    fn _region(&self, py: Python<'_>, bytes: usize) -> PyResult<Memory> {
        Memory::new(py, self.joined.clone_ref(py), bytes)
    }

    #[pyo3(name = "Barrier")]
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        let comm = self.comm(py)?;
        collectives::run(py, &comm, 0, Communicator::barrier)
    }

    /// Combines `sendbuf[i]` of all ranks into `recvbuf[i]` of every rank, in rank order: by SUM, or `op`.
    ///
    /// Both have the same length and type on all ranks. `sendbuf=IN_PLACE`: the contribution is in `recvbuf`.
    #[pyo3(name = "Allreduce", signature = (sendbuf, recvbuf, op = None))]
    fn allreduce(
        slf: &Bound<'_, Self>,
        sendbuf: &Bound<'_, PyAny>,
        recvbuf: &Bound<'_, PyAny>,
        op: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let plain = plain::reduction(sendbuf, recvbuf, op);
        match plain.map_err(|error| slf.get().refused(py, Operation::Allreduce, error))? {
            Some((send, op)) => slf.get()._allreduce(py, send, recvbuf, op),
            None => slf.call_method1(intern!(py, "_allreduce_described"), (sendbuf, recvbuf, op)).map(drop),
        }
    }

    fn _allreduce(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: &Bound<'_, PyAny>,
        op: u8,
    ) -> PyResult<()> {
        let buffers = || Buffers::both(send, recv)?.combined_by(op);
        self.call(py, Operation::Allreduce, buffers, collectives::allreduce)
    }

    fn _reduce(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: Buffer<'_, '_>,
        op: u8,
        root: usize,
    ) -> PyResult<()> {
        let is_root = self.rank == root;
        let buffers = || Buffers::to_root(send, recv, is_root)?.combined_by(op);
        self.call(py, Operation::Reduce, buffers, |comm, buffers| collectives::reduce(comm, buffers, root))
    }

    fn _scan(&self, py: Python<'_>, send: Buffer<'_, '_>, recv: &Bound<'_, PyAny>, op: u8) -> PyResult<()> {
        let buffers = || Buffers::both(send, recv)?.combined_by(op);
        self.call(py, Operation::Scan, buffers, collectives::scan)
    }

    fn _exscan(&self, py: Python<'_>, send: Buffer<'_, '_>, recv: &Bound<'_, PyAny>, op: u8) -> PyResult<()> {
        let buffers = || Buffers::both(send, recv)?.combined_by(op);
        self.call(py, Operation::Exscan, buffers, collectives::exscan)
    }

    fn _reduce_scatter(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: &Bound<'_, PyAny>,
        counts: &Bound<'_, PyAny>,
        op: u8,
    ) -> PyResult<()> {
        let arguments = || Ok((Buffers::both(send, recv)?.combined_by(op)?, counts.extract::<Vec<usize>>()?));
        self.call(py, Operation::ReduceScatter, arguments, |comm, (buffers, counts)| {
            collectives::reduce_scatter(comm, buffers, counts)
        })
    }

    fn _reduce_scatter_block(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: &Bound<'_, PyAny>,
        op: u8,
    ) -> PyResult<()> {
        let buffers = || Buffers::both(send, recv)?.combined_by(op);
        self.call(py, Operation::ReduceScatterBlock, buffers, collectives::reduce_scatter_block)
    }

    fn _bcast(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, root: usize) -> PyResult<()> {
        let is_root = self.rank == root;
        let view = || if is_root { View::source(buffer) } else { View::target(buffer) };
        self.call(py, Operation::Broadcast, view, |comm, view| collectives::broadcast(comm, view, root))
    }

    fn _allgather(&self, py: Python<'_>, send: Buffer<'_, '_>, recv: &Bound<'_, PyAny>) -> PyResult<()> {
        self.call(py, Operation::Allgather, || Buffers::both(send, recv), collectives::allgather)
    }

    fn _allgatherv(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: &Bound<'_, PyAny>,
        counts: &Bound<'_, PyAny>,
        displs: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let arguments = || {
            let buffers = Buffers::both(send, recv)?;
            let table = Table::new(counts, displs, buffers.scale())?;
            Ok((buffers, table))
        };
        self.call(py, Operation::Allgatherv, arguments, |comm, (buffers, table)| {
            collectives::allgatherv(comm, buffers, table)
        })
    }

    fn _gather(&self, py: Python<'_>, send: Buffer<'_, '_>, recv: Buffer<'_, '_>, root: usize) -> PyResult<()> {
        let is_root = self.rank == root;
        let buffers = || Buffers::to_root(send, recv, is_root);
        self.call(py, Operation::Gather, buffers, |comm, buffers| collectives::gather(comm, buffers, root))
    }

    fn _scatter(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: Buffer<'_, '_>,
        root: usize,
    ) -> PyResult<()> {
        let is_root = self.rank == root;
        let buffers = || Buffers::from_root(send, recv, is_root);
        self.call(py, Operation::Scatter, buffers, |comm, buffers| collectives::scatter(comm, buffers, root))
    }

    fn _alltoall(&self, py: Python<'_>, send: Buffer<'_, '_>, recv: &Bound<'_, PyAny>) -> PyResult<()> {
        self.call(py, Operation::Alltoall, || Buffers::both(send, recv), collectives::alltoall)
    }

    /// The tables are pairs of counts and displacements. Either buffer may be None if this rank sends, or receives, nothing.
    fn _alltoallv(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        sent: (Bound<'_, PyAny>, Bound<'_, PyAny>),
        recv: Buffer<'_, '_>,
        received: (Bound<'_, PyAny>, Bound<'_, PyAny>),
    ) -> PyResult<()> {
        let arguments = || {
            let buffers = Buffers::any(send, recv)?;
            let sent = Table::new(&sent.0, &sent.1, buffers.scale())?;
            let received = Table::new(&received.0, &received.1, buffers.scale())?;
            Ok((buffers, Blocks { sent, received }))
        };
        self.call(py, Operation::Alltoallv, arguments, |comm, (buffers, blocks)| {
            collectives::alltoallv(comm, buffers, blocks)
        })
    }

    /// Calls this before the next collective.
    fn _defer(&self, before: Bound<'_, PyAny>) {
        self.joined.get().defer(before.unbind());
    }

    fn _start_barrier(&self, py: Python<'_>) -> PyResult<Begun> {
        Begun::barrier(py, self.joined.get().comm()?)
    }

    fn _start_allreduce(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: Buffer<'_, '_>,
        op: u8,
    ) -> PyResult<Begun> {
        let buffers = || Buffers::any(send, recv)?.combined_by(op);
        self.start(py, Operation::StartAllreduce, buffers, started::allreduce)
    }

    /// `bytes`: what the root sends, of which the others receive some.
    fn _start_bcast(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: Buffer<'_, '_>,
        bytes: usize,
        root: usize,
    ) -> PyResult<Begun> {
        let is_root = self.rank == root;
        let buffers = || started::sending(send, recv, if is_root { bytes } else { 0 });
        self.start(py, Operation::StartBroadcast, buffers, |comm, buffers| {
            started::broadcast(comm, buffers, bytes, root)
        })
    }

    /// The counts are in bytes; the blocks follow each other. In place without `send`.
    fn _start_allgatherv(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: Buffer<'_, '_>,
        counts: Vec<usize>,
    ) -> PyResult<Begun> {
        let arguments = || {
            let end = if send.is_some() { self.rank..self.rank + 1 } else { 0..self.rank + 1 };
            started::sending(send, recv, counts.get(end).unwrap_or_default().iter().sum())
        };
        self.start(py, Operation::StartAllgatherv, arguments, |comm, buffers| {
            started::allgatherv(comm, buffers, &counts)
        })
    }

    /// The result is the root's.
    fn _start_reduce(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: Buffer<'_, '_>,
        op: u8,
        root: usize,
    ) -> PyResult<Begun> {
        let buffers = || Buffers::any(send, recv)?.combined_by(op);
        self.start(py, Operation::StartReduce, buffers, |comm, buffers| started::reduce(comm, buffers, root))
    }

    fn _start_scan(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: Buffer<'_, '_>,
        op: u8,
        is_exclusive: bool,
    ) -> PyResult<Begun> {
        let operation = if is_exclusive { Operation::StartExscan } else { Operation::StartScan };
        let buffers = || Buffers::any(send, recv)?.combined_by(op);
        self.start(py, operation, buffers, |comm, buffers| started::scan(comm, buffers, is_exclusive))
    }

    /// The counts are in elements, and the result is this rank's block.
    fn _start_reduce_scatter(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: Buffer<'_, '_>,
        counts: &Bound<'_, PyAny>,
        op: u8,
    ) -> PyResult<Begun> {
        let arguments = || {
            let buffers = Buffers::any(send, recv)?.combined_by(op)?;
            let counts: Vec<usize> = counts.extract()?;
            let own = counts.get(self.rank).copied().unwrap_or(0);
            started::receiving(&buffers, own.saturating_mul(buffers.width))?;
            Ok((buffers, counts))
        };
        self.start(py, Operation::StartReduceScatter, arguments, |comm, (buffers, counts)| {
            started::reduce_scatter(comm, buffers, counts)
        })
    }

    /// `bytes`: those of a block. In place without `send`.
    fn _start_gather(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: Buffer<'_, '_>,
        bytes: usize,
        root: usize,
    ) -> PyResult<Begun> {
        let blocks = if send.is_some() { 1 } else { self.rank + 1 };
        let buffers = || started::sending(send, recv, bytes.saturating_mul(blocks));
        self.start(py, Operation::StartGather, buffers, |comm, buffers| {
            started::gather(comm, buffers, bytes, root)
        })
    }

    /// `bytes`: those of a block.
    fn _start_scatter(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: Buffer<'_, '_>,
        bytes: usize,
        root: usize,
    ) -> PyResult<Begun> {
        let blocks = if self.rank == root { self.size } else { 0 };
        let buffers = || started::sending(send, recv, bytes.saturating_mul(blocks));
        self.start(py, Operation::StartScatter, buffers, |comm, buffers| {
            started::scatter(comm, buffers, bytes, root)
        })
    }

    /// `bytes`: those of all blocks. In place without `send`.
    fn _start_alltoall(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: Buffer<'_, '_>,
        bytes: usize,
    ) -> PyResult<Begun> {
        let buffers = || started::sending(send, recv, bytes);
        self.start(py, Operation::StartAlltoall, buffers, |comm, buffers| {
            started::alltoall(comm, buffers, bytes)
        })
    }

    /// Lengths and beginnings of blocks, in bytes. In place without `send`.
    fn _start_alltoallv(
        &self,
        py: Python<'_>,
        send: Buffer<'_, '_>,
        recv: Buffer<'_, '_>,
        sent: (Vec<usize>, Vec<usize>),
        received: (Vec<usize>, Vec<usize>),
    ) -> PyResult<Begun> {
        self.start(
            py,
            Operation::StartAlltoallv,
            || Buffers::any(send, recv),
            |comm, buffers| started::alltoallv(comm, buffers, &sent, &received),
        )
    }

    /// `obj` of rank `root`, on every rank; there it is the object itself.
    #[pyo3(signature = (obj = None, root = Root::Rank(0)), text_signature = "($self, obj=None, root=0)")]
    fn bcast<'py>(
        slf: &Bound<'py, Self>,
        obj: Option<Bound<'py, PyAny>>,
        root: Root<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let root = match root {
            Root::Rank(rank) if rank < this.size => rank,
            // It refuses the call, and raises.
            Root::Rank(rank) => return slf.call_method1(intern!(py, "_at"), (rank, "broadcast_vec")),
            Root::Wrong(root) => return slf.call_method1(intern!(py, "_at"), (root, "broadcast_vec")),
        };
        let comm = this.comm(py)?;
        let mut data = Vec::new();
        if this.rank == root {
            let pickled = objects::dumps(py, obj.as_ref()).and_then(|pickled| {
                scratch::reserve(&mut data, Operation::BroadcastVec, pickled.as_bytes().len())
                    .map_err(|error| errors::exception(py, &error))?;
                data.extend_from_slice(pickled.as_bytes());
                Ok(())
            });
            pickled.map_err(|error| collectives::refuse(py, &comm, Operation::BroadcastVec, error))?;
        }
        let result = detach::during(py, data.len(), || comm.broadcast_vec(&mut data, root));
        collectives::finish(py, result)?;
        match this.rank == root {
            true => Ok(obj.unwrap_or_else(|| py.None().into_bound(py))),
            false => objects::loads(&PyBytes::new(py, &data)),
        }
    }

    fn _allgather_bytes<'py>(&self, py: Python<'py>, data: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let comm = self.comm(py)?;
        let data = vectors::bytes(py, &comm, Operation::AllgatherVec, data)?;
        let (all, counts) =
            collectives::finish(py, detach::during(py, data.len(), || comm.allgather_vec(&data)))?;
        vectors::blocks(py, &all, &counts)
    }

    fn _gather_bytes<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'_, PyAny>,
        root: usize,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let comm = self.comm(py)?;
        let data = vectors::bytes(py, &comm, Operation::GatherVec, data)?;
        let gathered =
            collectives::finish(py, detach::during(py, data.len(), || comm.gather_vec(&data, root)))?;
        gathered.map(|(all, counts)| vectors::blocks(py, &all, &counts)).transpose()
    }
}

impl Core {
    /// Starts a call. What was deferred comes later.
    fn start<B: Data>(
        &self,
        py: Python<'_>,
        operation: Operation,
        arguments: impl FnOnce() -> PyResult<B>,
        start: impl FnOnce(&'static Communicator, &B) -> Result<Box<dyn started::Open>, Error> + Send,
    ) -> PyResult<Begun> {
        let comm = self.joined.get().comm()?;
        let arguments = arguments().map_err(|error| collectives::refuse(py, &comm, operation, error))?;
        Begun::start(py, comm, |comm| start(comm, &arguments))
    }
}
