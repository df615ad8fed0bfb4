//! The library's collectives over buffers of Python: by way of private memory, see `foreign`.

use intranode::{Communicator, Error, Operation, ReduceOp};
use num_complex::Complex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::buffer::{Kind, View};
use crate::errors;
use crate::interrupt;
use crate::scratch::Scratch;

/// Runs a call while the interpreter is detached.
pub(crate) fn run(
    py: Python<'_>,
    comm: &Communicator,
    call: impl FnOnce(&Communicator) -> Result<(), Error> + Send,
) -> PyResult<()> {
    let result = py.detach(|| call(comm));
    finish(py, result)
}

/// The result of a call, or what a handler of a signal has raised meanwhile.
pub(crate) fn finish<T>(py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
    match interrupt::raised() {
        Some(raised) => Err(raised),
        None => result.map_err(|error| errors::exception(py, &error)),
    }
}

/// Refuses the call that the other ranks are in, because of `error`, and returns that, or the communicator's end.
pub(crate) fn refuse(py: Python<'_>, comm: &Communicator, operation: Operation, error: PyErr) -> PyErr {
    match run(py, comm, |comm| comm.refuse_call(operation)) {
        Ok(()) => error,
        Err(fatal) => {
            fatal.set_context(py, Some(error));
            fatal
        }
    }
}

/// The buffers of a call.
pub(crate) struct Buffers {
    send: Option<View>,
    recv: Option<View>,
    kind: Kind,
    width: usize,
    op: ReduceOp,
}

type Given<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

impl Buffers {
    /// In place without `send`.
    pub(crate) fn both(send: Given<'_, '_>, recv: &Bound<'_, PyAny>) -> PyResult<Self> {
        Buffers::any(send, Some(recv))
    }

    /// Of a call whose root receives; without `send` it has its own block in place.
    pub(crate) fn to_root(send: Given<'_, '_>, recv: Given<'_, '_>, is_root: bool) -> PyResult<Self> {
        match (send, recv) {
            (_, None) if is_root => {
                Err(PyTypeError::new_err("this rank is the root and needs a receive buffer"))
            }
            (None, _) if !is_root => {
                Err(PyTypeError::new_err("only the root can pass IN_PLACE: this rank needs a send buffer"))
            }
            _ => Buffers::any(send, recv.filter(|_| is_root)),
        }
    }

    /// Of a call whose root sends; without `recv` its own block stays where it is.
    pub(crate) fn from_root(send: Given<'_, '_>, recv: Given<'_, '_>, is_root: bool) -> PyResult<Self> {
        match (send, recv) {
            (None, _) if is_root => Err(PyTypeError::new_err("this rank is the root and needs a send buffer")),
            (_, None) if !is_root => {
                Err(PyTypeError::new_err("only the root can pass IN_PLACE: this rank needs a receive buffer"))
            }
            _ => Buffers::any(send.filter(|_| is_root), recv),
        }
    }

    pub(crate) fn any(send: Given<'_, '_>, recv: Given<'_, '_>) -> PyResult<Self> {
        let send = send.map(View::source).transpose()?;
        let recv = recv.map(View::target).transpose()?;
        if let (Some(send), Some(recv)) = (&send, &recv)
            && (send.kind, send.width) != (recv.kind, recv.width)
        {
            return Err(PyTypeError::new_err(format!(
                "the send buffer has elements of format {:?} ({} bytes), the receive buffer of format {:?} ({} bytes): both \
                 must be the same",
                send.format, send.width, recv.format, recv.width
            )));
        }
        let (kind, width) =
            send.as_ref().or(recv.as_ref()).map_or((Kind::U1, 1), |view| (view.kind, view.width));
        Ok(Buffers { send, recv, kind, width, op: ReduceOp::Sum })
    }

    /// The same for a reduction.
    pub(crate) fn combined_by(mut self, op: u8) -> PyResult<Self> {
        self.op = reduce_op(op)?;
        let allowed = match self.kind {
            Kind::Opaque => false,
            Kind::Bool => !matches!(self.op, ReduceOp::Sum | ReduceOp::Prod),
            _ => true,
        };
        if !allowed {
            let format = self.send.as_ref().or(self.recv.as_ref()).map_or("", |view| view.format.as_str());
            return Err(PyTypeError::new_err(format!(
                "{} is not defined for elements of format {format:?}: it is for {}",
                self.op,
                if self.kind == Kind::Bool {
                    "numbers; for truth values there are the logical operations"
                } else {
                    "integers of 1 to 8 bytes, floating-point numbers of 4 and 8 bytes, and complex numbers of these"
                }
            )));
        }
        Ok(self)
    }

    /// How many elements of the library are one of Python.
    pub(crate) fn scale(&self) -> usize {
        if self.kind == Kind::Opaque { self.width } else { 1 }
    }

    /// Runs a call over private copies: of what is sent, and of what is received, which is copied back afterwards. `gaps`: the
    /// call may leave parts of the receive buffer as they are.
    fn run(
        &self,
        comm: &Communicator,
        operation: Operation,
        gaps: bool,
        call: impl FnOnce(&[u8], &mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let bytes = [&self.send, &self.recv].map(|view| view.as_ref().map_or(0, View::bytes));
        let mut scratch = match Scratch::new(operation, bytes) {
            Ok(scratch) => scratch,
            Err(error) => {
                comm.refuse_call(operation)?;
                return Err(error);
            }
        };
        let (send, recv) = scratch.parts();
        if let Some(view) = &self.send {
            view.read(send);
        }
        if let Some(view) = self.recv.as_ref().filter(|_| gaps || self.send.is_none()) {
            view.read(recv);
        }
        call(send, recv)?;
        if let Some(view) = &self.recv {
            view.write(recv);
        }
        Ok(())
    }
}

fn reduce_op(code: u8) -> PyResult<ReduceOp> {
    use ReduceOp::{BitAnd, BitOr, BitXor, LogicalAnd, LogicalOr, LogicalXor, Max, Min, Prod, Sum};
    let all = [Sum, Prod, Min, Max, BitAnd, BitOr, BitXor, LogicalAnd, LogicalOr, LogicalXor];
    all.into_iter().find(|op| *op as u8 == code).ok_or_else(|| {
        PyValueError::new_err(
            "this operation is not defined for buffers; the methods in small letters take every operation",
        )
    })
}

/// Counts and displacements, in elements of the library.
pub(crate) struct Table {
    counts: Vec<usize>,
    displs: Vec<usize>,
}

impl Table {
    pub(crate) fn new(counts: &Bound<'_, PyAny>, displs: &Bound<'_, PyAny>, scale: usize) -> PyResult<Self> {
        let read = |table: &Bound<'_, PyAny>| {
            let table: Vec<usize> = table.extract()?;
            Ok::<_, PyErr>(table.into_iter().map(|count| count.saturating_mul(scale)).collect())
        };
        Ok(Table { counts: read(counts)?, displs: read(displs)? })
    }

    /// Whether the blocks do not cover `len` elements.
    fn has_gaps(&self, len: usize) -> bool {
        self.counts.iter().fold(0usize, |sum, count| sum.saturating_add(*count)) < len
    }
}

/// What a rank of an alltoallv sends and receives.
pub(crate) struct Blocks {
    pub(crate) sent: Table,
    pub(crate) received: Table,
}

/// Runs the body with `$T` as the type of the elements, and the bytes as slices of it.
macro_rules! moved {
    ($kind:expr, $T:ident, $send:ident, $recv:ident, $body:expr) => {
        typed!($kind, $T, $send, $recv, $body, Opaque u8)
    };
}

/// The same for a reduction, of which no opaque elements come here.
macro_rules! combined {
    ($kind:expr, $T:ident, $send:ident, $recv:ident, $body:expr) => {
        typed!($kind, $T, $send, $recv, $body, Opaque u8)
    };
}

macro_rules! typed {
    ($kind:expr, $T:ident, $send:ident, $recv:ident, $body:expr, $($more:ident $as:ty)*) => {
        typed!(@ $kind, $T, $send, $recv, $body, I1 i8, I2 i16, I4 i32, I8 i64, U1 u8, U2 u16, U4 u32, U8 u64, F4 f32, F8 f64,
            C8 Complex<f32>, C16 Complex<f64>, Bool u8, $($more $as)*)
    };
    (@ $kind:expr, $T:ident, $send:ident, $recv:ident, $body:expr, $($variant:ident $type:ty),*) => {
        match $kind {
            $(Kind::$variant => {
                type $T = $type;
                let ($send, $recv): (&[$T], &mut [$T]) =
                    (bytemuck::cast_slice($send), bytemuck::cast_slice_mut($recv));
                $body
            })*
        }
    };
}

pub(crate) fn allreduce(comm: &Communicator, buffers: &Buffers) -> Result<(), Error> {
    buffers.run(comm, Operation::Allreduce, false, |send, recv| {
        combined!(
            buffers.kind,
            T,
            send,
            recv,
            match buffers.send {
                Some(_) => comm.allreduce::<T>(send, recv, buffers.op),
                None => comm.allreduce_in_place::<T>(recv, buffers.op),
            }
        )
    })
}

pub(crate) fn reduce(comm: &Communicator, buffers: &Buffers, root: usize) -> Result<(), Error> {
    let is_root = comm.rank() == root;
    buffers.run(comm, Operation::Reduce, false, |send, recv| {
        combined!(
            buffers.kind,
            T,
            send,
            recv,
            match buffers.send {
                Some(_) => comm.reduce::<T>(send, is_root.then_some(recv), buffers.op, root),
                None => comm.reduce_in_place::<T>(recv, buffers.op, root),
            }
        )
    })
}

pub(crate) fn scan(comm: &Communicator, buffers: &Buffers) -> Result<(), Error> {
    buffers.run(comm, Operation::Scan, false, |send, recv| {
        combined!(
            buffers.kind,
            T,
            send,
            recv,
            match buffers.send {
                Some(_) => comm.scan::<T>(send, recv, buffers.op),
                None => comm.scan_in_place::<T>(recv, buffers.op),
            }
        )
    })
}

pub(crate) fn exscan(comm: &Communicator, buffers: &Buffers) -> Result<(), Error> {
    // On rank 0 nothing is received.
    buffers.run(comm, Operation::Exscan, true, |send, recv| {
        combined!(
            buffers.kind,
            T,
            send,
            recv,
            match buffers.send {
                Some(_) => comm.exscan::<T>(send, recv, buffers.op),
                None => comm.exscan_in_place::<T>(recv, buffers.op),
            }
        )
    })
}

pub(crate) fn reduce_scatter(comm: &Communicator, buffers: &Buffers, counts: &[usize]) -> Result<(), Error> {
    buffers.run(comm, Operation::ReduceScatter, false, |send, recv| {
        combined!(
            buffers.kind,
            T,
            send,
            recv,
            match buffers.send {
                Some(_) => comm.reduce_scatter::<T>(send, recv, counts, buffers.op),
                None => comm.reduce_scatter_in_place::<T>(recv, counts, buffers.op),
            }
        )
    })
}

pub(crate) fn reduce_scatter_block(comm: &Communicator, buffers: &Buffers) -> Result<(), Error> {
    buffers.run(comm, Operation::ReduceScatterBlock, false, |send, recv| {
        combined!(
            buffers.kind,
            T,
            send,
            recv,
            match buffers.send {
                Some(_) => comm.reduce_scatter_block::<T>(send, recv, buffers.op),
                None => comm.reduce_scatter_block_in_place::<T>(recv, buffers.op),
            }
        )
    })
}

pub(crate) fn broadcast(comm: &Communicator, view: &View, root: usize) -> Result<(), Error> {
    let is_root = comm.rank() == root;
    let mut scratch = match Scratch::new(Operation::Broadcast, [0, view.bytes()]) {
        Ok(scratch) => scratch,
        Err(error) => {
            comm.refuse_call(Operation::Broadcast)?;
            return Err(error);
        }
    };
    let (none, bytes) = scratch.parts();
    if is_root {
        view.read(bytes);
    }
    {
        let data = &mut *bytes;
        moved!(view.kind, T, none, data, {
            let _: &[T] = none;
            comm.broadcast::<T>(data, root)
        })?;
    }
    if !is_root {
        view.write(bytes);
    }
    Ok(())
}

pub(crate) fn allgather(comm: &Communicator, buffers: &Buffers) -> Result<(), Error> {
    buffers.run(comm, Operation::Allgather, false, |send, recv| {
        moved!(
            buffers.kind,
            T,
            send,
            recv,
            match buffers.send {
                Some(_) => comm.allgather::<T>(send, recv),
                None => comm.allgather_in_place::<T>(recv),
            }
        )
    })
}

pub(crate) fn allgatherv(comm: &Communicator, buffers: &Buffers, table: &Table) -> Result<(), Error> {
    let Table { counts, displs } = table;
    let len = buffers.recv.as_ref().map_or(0, View::bytes) / buffers.width * buffers.scale();
    buffers.run(comm, Operation::Allgatherv, table.has_gaps(len), |send, recv| {
        moved!(
            buffers.kind,
            T,
            send,
            recv,
            match buffers.send {
                Some(_) => comm.allgatherv::<T>(send, recv, counts, displs),
                None => comm.allgatherv_in_place::<T>(recv, counts, displs),
            }
        )
    })
}

pub(crate) fn gather(comm: &Communicator, buffers: &Buffers, root: usize) -> Result<(), Error> {
    let is_root = comm.rank() == root;
    buffers.run(comm, Operation::Gather, false, |send, recv| {
        moved!(
            buffers.kind,
            T,
            send,
            recv,
            match buffers.send {
                Some(_) => comm.gather::<T>(send, is_root.then_some(recv), root),
                None => comm.gather_in_place::<T>(recv, root),
            }
        )
    })
}

pub(crate) fn scatter(comm: &Communicator, buffers: &Buffers, root: usize) -> Result<(), Error> {
    let is_root = comm.rank() == root;
    buffers.run(comm, Operation::Scatter, false, |send, recv| {
        moved!(
            buffers.kind,
            T,
            send,
            recv,
            match buffers.recv {
                Some(_) => comm.scatter::<T>(is_root.then_some(send), recv, root),
                // The root's own block stays where it is.
                None => comm.scatter_in_place::<T>(&mut send.to_vec(), root),
            }
        )
    })
}

pub(crate) fn alltoall(comm: &Communicator, buffers: &Buffers) -> Result<(), Error> {
    buffers.run(comm, Operation::Alltoall, false, |send, recv| {
        moved!(
            buffers.kind,
            T,
            send,
            recv,
            match buffers.send {
                Some(_) => comm.alltoall::<T>(send, recv),
                None => comm.alltoall_in_place::<T>(recv),
            }
        )
    })
}

pub(crate) fn alltoallv(comm: &Communicator, buffers: &Buffers, blocks: &Blocks) -> Result<(), Error> {
    let Blocks { sent, received } = blocks;
    let len = buffers.recv.as_ref().map_or(0, View::bytes) / buffers.width * buffers.scale();
    buffers.run(comm, Operation::Alltoallv, received.has_gaps(len), |send, recv| {
        moved!(buffers.kind, T, send, recv, {
            comm.alltoallv::<T>(send, &sent.counts, &sent.displs, recv, &received.counts, &received.displs)
        })
    })
}
