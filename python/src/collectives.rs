//! The library's collectives over buffers of Python: by way of private memory, see `foreign`.

use intranode::{Communicator, Error, Operation};
use pyo3::prelude::*;

use crate::arguments::{Blocks, Buffers, Table};
use crate::buffer::View;
use crate::errors;
use crate::interrupt;
use crate::scratch::Scratch;
use crate::typed::{moved, of_number};

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

/// From here on a call on the buffers themselves takes less time than one on private copies of them.
const RAW_FROM_BYTES: usize = 32 << 10;

pub(crate) fn allreduce(comm: &Communicator, buffers: &Buffers) -> Result<(), Error> {
    if let Some(result) = raw(comm, buffers) {
        return result;
    }
    if let (Some(send), Some(recv)) = (&buffers.send, &buffers.recv)
        && send.bytes() == recv.bytes()
    {
        // In one private copy: less memory passes through the caches than with two.
        return in_place(comm, buffers, send, recv);
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

/// On the buffers themselves, if they are long, and of numbers.
fn raw(comm: &Communicator, buffers: &Buffers) -> Option<Result<(), Error>> {
    let recv = buffers.recv.as_ref().filter(|recv| recv.bytes() >= RAW_FROM_BYTES)?;
    let send = buffers.send.as_ref().filter(|send| !send.is_same(recv));
    if send.is_some_and(|send| send.overlaps(recv)) {
        return None;
    }
    of_number!(buffers.kind, T, {
        comm.allreduce_raw::<T>(send.map(View::raw_source), recv.raw_target(), buffers.op)
    })
}

fn in_place(comm: &Communicator, buffers: &Buffers, send: &View, recv: &View) -> Result<(), Error> {
    let mut scratch = match Scratch::new(Operation::Allreduce, [0, send.bytes()]) {
        Ok(scratch) => scratch,
        Err(error) => {
            comm.refuse_call(Operation::Allreduce)?;
            return Err(error);
        }
    };
    let (none, bytes) = scratch.parts();
    send.read(bytes);
    {
        let data = &mut *bytes;
        moved!(buffers.kind, T, none, data, {
            let _: &[T] = none;
            comm.allreduce_in_place::<T>(data, buffers.op)
        })?;
    }
    recv.write(bytes);
    Ok(())
}

pub(crate) fn reduce(comm: &Communicator, buffers: &Buffers, root: usize) -> Result<(), Error> {
    let is_root = comm.rank() == root;
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
