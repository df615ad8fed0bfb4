//! The library's collectives over buffers of Python: on the buffers themselves where the library has that, and otherwise by way of
//! private memory, see `foreign`.

use intranode::{Communicator, Error, Operation, RawSource, RawTarget};
use pyo3::prelude::*;

use crate::arguments::{Blocks, Buffers, Table};
use crate::buffer::View;
use crate::detach;
use crate::errors;
use crate::interrupt;
use crate::typed::{moved, of_kind, of_number};

/// Runs a call that moves this number of bytes.
pub(crate) fn run(
    py: Python<'_>,
    comm: &Communicator,
    bytes: usize,
    call: impl FnOnce(&Communicator) -> Result<(), Error> + Send,
) -> PyResult<()> {
    let result = detach::during(py, bytes, || call(comm));
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
    match run(py, comm, 0, |comm| comm.refuse_call(operation)) {
        Ok(()) => error,
        Err(fatal) => {
            fatal.set_context(py, Some(error));
            fatal
        }
    }
}

pub(crate) fn allreduce(comm: &Communicator, buffers: &Buffers) -> Result<(), Error> {
    if let Some((send, recv)) = buffers.apart()
        && let Some(recv) = recv
    {
        let result = of_number!(buffers.kind, T, {
            comm.allreduce_raw::<T>(send.map(View::raw_source), recv.raw_target(), buffers.op)
        });
        if let Some(result) = result {
            return result;
        }
    }
    buffers.run(comm, Operation::Allreduce, false, |send, recv| {
        moved!(
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
    if let Some((send, recv)) = buffers.apart() {
        let result = of_number!(buffers.kind, T, {
            let (send, recv) = (send.map(View::raw_source), recv.map(View::raw_target));
            comm.reduce_raw::<T>(send, recv, buffers.op, root)
        });
        if let Some(result) = result {
            return result;
        }
    }
    buffers.run(comm, Operation::Reduce, false, |send, recv| {
        moved!(
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
        moved!(
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
        moved!(
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
        moved!(
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
        moved!(
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
    of_kind!(view.kind, T, {
        let send = is_root.then(|| view.raw_source());
        let recv = (!is_root).then(|| view.raw_target());
        comm.broadcast_raw::<T>(send, recv, root)
    })
}

pub(crate) fn allgather(comm: &Communicator, buffers: &Buffers) -> Result<(), Error> {
    if let (Some(recv), true) = (&buffers.recv, buffers.are_apart()) {
        return of_kind!(buffers.kind, T, {
            comm.allgather_raw::<T>(buffers.send.as_ref().map(View::raw_source), recv.raw_target())
        });
    }
    buffers.run(comm, Operation::Allgather, false, |send, recv| {
        moved!(buffers.kind, T, send, recv, comm.allgather::<T>(send, recv))
    })
}

pub(crate) fn allgatherv(comm: &Communicator, buffers: &Buffers, table: &Table) -> Result<(), Error> {
    let Table { counts, displs } = table;
    if let (Some(recv), true) = (&buffers.recv, buffers.are_apart()) {
        return of_kind!(buffers.kind, T, {
            let send = buffers.send.as_ref().map(View::raw_source);
            comm.allgatherv_raw::<T>(send, recv.raw_target(), counts, displs)
        });
    }
    let len = buffers.recv.as_ref().map_or(0, View::bytes) / buffers.width * buffers.scale();
    buffers.run(comm, Operation::Allgatherv, table.has_gaps(len), |send, recv| {
        moved!(buffers.kind, T, send, recv, comm.allgatherv::<T>(send, recv, counts, displs))
    })
}

pub(crate) fn gather(comm: &Communicator, buffers: &Buffers, root: usize) -> Result<(), Error> {
    if buffers.are_apart() {
        return of_kind!(buffers.kind, T, {
            let (send, recv) = (buffers.send.as_ref(), buffers.recv.as_ref());
            comm.gather_raw::<T>(send.map(View::raw_source), recv.map(View::raw_target), root)
        });
    }
    buffers.run(comm, Operation::Gather, false, |send, recv| {
        moved!(buffers.kind, T, send, recv, comm.gather::<T>(send, Some(recv), root))
    })
}

pub(crate) fn scatter(comm: &Communicator, buffers: &Buffers, root: usize) -> Result<(), Error> {
    if buffers.are_apart() {
        return of_kind!(buffers.kind, T, {
            let (send, recv) = (buffers.send.as_ref(), buffers.recv.as_ref());
            comm.scatter_raw::<T>(send.map(View::raw_source), recv.map(View::raw_target), root)
        });
    }
    buffers.run(comm, Operation::Scatter, false, |send, recv| {
        moved!(buffers.kind, T, send, recv, comm.scatter::<T>(Some(send), recv, root))
    })
}

pub(crate) fn alltoall(comm: &Communicator, buffers: &Buffers) -> Result<(), Error> {
    if let Buffers { send: Some(send), recv: Some(recv), .. } = buffers
        && buffers.are_apart()
    {
        return of_kind!(buffers.kind, T, comm.alltoall_raw::<T>(send.raw_source(), recv.raw_target()));
    }
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
    if buffers.are_apart() {
        return of_kind!(buffers.kind, T, {
            let send = buffers.send.as_ref().map_or(RawSource::from(&[][..]), View::raw_source);
            let recv = buffers.recv.as_ref().map_or(RawTarget::from(&mut [][..]), View::raw_target);
            let (from, to) = ((&sent.counts, &sent.displs), (&received.counts, &received.displs));
            comm.alltoallv_raw::<T>(send, from.0, from.1, recv, to.0, to.1)
        });
    }
    let len = buffers.recv.as_ref().map_or(0, View::bytes) / buffers.width * buffers.scale();
    buffers.run(comm, Operation::Alltoallv, received.has_gaps(len), |send, recv| {
        moved!(buffers.kind, T, send, recv, {
            comm.alltoallv::<T>(send, &sent.counts, &sent.displs, recv, &received.counts, &received.displs)
        })
    })
}
