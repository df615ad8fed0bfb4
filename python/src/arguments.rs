//! What a call is given: its buffers, counts and displacements, and the operation.

use intranode::{Communicator, Error, Operation, ReduceOp};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::buffer::{Kind, View};
use crate::scratch::Scratch;

/// The buffers of a call.
pub(crate) struct Buffers {
    pub(crate) send: Option<View>,
    pub(crate) recv: Option<View>,
    pub(crate) kind: Kind,
    pub(crate) width: usize,
    pub(crate) op: ReduceOp,
}

/// What a call is given, and how many bytes of buffers that is.
pub(crate) trait Data: Send + Sync {
    fn bytes(&self) -> usize;
}

impl Data for View {
    fn bytes(&self) -> usize {
        View::bytes(self)
    }
}

impl Data for Buffers {
    fn bytes(&self) -> usize {
        [&self.send, &self.recv].into_iter().flatten().map(View::bytes).fold(0, usize::saturating_add)
    }
}

impl<T: Send + Sync> Data for (Buffers, T) {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }
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
                send.format(),
                send.width,
                recv.format(),
                recv.width
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
            let view = self.send.as_ref().or(self.recv.as_ref());
            let format = view.map(View::format).unwrap_or_default();
            return Err(PyTypeError::new_err(format!(
                "{} is not defined for elements of format {format:?}: it is for {}",
                name(self.op),
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

    /// Whether no byte is both sent and received. Otherwise both buffers are there: this rank is the root, if the call has one.
    pub(crate) fn are_apart(&self) -> bool {
        let both = self.send.as_ref().zip(self.recv.as_ref());
        both.is_none_or(|(send, recv)| !send.overlaps(recv))
    }

    /// What is sent and where is received, for a reduction on the buffers themselves: in place if both are the same memory. `None`:
    /// they overlap in part.
    pub(crate) fn apart(&self) -> Option<(Option<&View>, Option<&View>)> {
        let (send, recv) = (self.send.as_ref(), self.recv.as_ref());
        match send.zip(recv) {
            Some((send, recv)) if send.is_same(recv) => Some((None, Some(recv))),
            _ => self.are_apart().then_some((send, recv)),
        }
    }

    /// Runs a call over private copies: of what is sent, and of what is received, which is copied back afterwards. `gaps`: the
    /// call may leave parts of the receive buffer as they are.
    pub(crate) fn run(
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

/// An operation's name in Python: `SUM`, `BAND`, `LAND`.
fn name(op: ReduceOp) -> String {
    op.to_string().replace("Bit", "B").replace("Logical", "L").to_uppercase()
}

pub(crate) fn reduce_op(code: u8) -> PyResult<ReduceOp> {
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
    pub(crate) counts: Vec<usize>,
    pub(crate) displs: Vec<usize>,
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
    pub(crate) fn has_gaps(&self, len: usize) -> bool {
        self.counts.iter().fold(0usize, |sum, count| sum.saturating_add(*count)) < len
    }
}

/// What a rank of an alltoallv sends and receives.
pub(crate) struct Blocks {
    pub(crate) sent: Table,
    pub(crate) received: Table,
}
