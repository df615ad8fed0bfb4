//! Errors as exceptions with fields: the classes are those of `intranode.errors`.

use std::fmt::Display;

use intranode::{Error, Operation};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// The exception for an error.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    made(py, error).unwrap_or_else(|failed| failed)
}

/// An exception of the module `intranode.errors`.
pub(crate) fn raise(
    py: Python<'_>,
    class: &str,
    text: impl Display,
    fields: &Bound<'_, PyDict>,
) -> PyResult<PyErr> {
    let classes = CLASSES.get_or_try_init(py, || py.import("intranode.errors").map(Bound::unbind))?;
    let exception = classes.bind(py).getattr(class)?.call((text.to_string(),), Some(fields))?;
    Ok(PyErr::from_value(exception))
}

/// The exception for a `setting` that cannot have this value.
pub(crate) fn invalid(py: Python<'_>, setting: &str, value: impl Display, allowed: &str) -> PyResult<PyErr> {
    let (fields, value) = (PyDict::new(py), value.to_string());
    fields.set_item("operation", Operation::Init.to_string())?;
    fields.set_item("setting", setting)?;
    let text = format!("{setting} is {value:?}; allowed is {allowed}");
    fields.set_item("value", value)?;
    fields.set_item("allowed", allowed)?;
    raise(py, "InvalidConfiguration", text, &fields)
}

fn made(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let fields = PyDict::new(py);
    fields.set_item("operation", error.operation().to_string())?;
    fields.set_item("fatal", error.is_fatal())?;
    let set = |name: &str, value: usize| fields.set_item(name, value);
    let class = match error {
        Error::RankDied { rank, pid, round, .. } => {
            fields.set_item("pid", pid)?;
            fields.set_item("round", round)?;
            set("rank", *rank)?;
            "RankDied"
        }
        Error::RankLeft { rank, round, .. } => {
            fields.set_item("round", round)?;
            set("rank", *rank)?;
            "RankLeft"
        }
        Error::TimedOut { late, info, .. } => {
            fields.set_item("late", late.to_vec())?;
            fields.set_item("pids", &info.pids)?;
            fields.set_item("round", info.round)?;
            fields.set_item("timeout", info.timeout.map(|timeout| timeout.as_secs_f64()))?;
            "TimedOut"
        }
        Error::Mismatch { calls, round, .. } => {
            fields.set_item("calls", calls.iter().map(ToString::to_string).collect::<Vec<_>>())?;
            fields.set_item("round", round)?;
            "Mismatch"
        }
        Error::Refused { rank, round, .. } => {
            fields.set_item("round", round)?;
            set("rank", *rank)?;
            "Refused"
        }
        Error::Interrupted { rank, round, .. } => {
            fields.set_item("round", round)?;
            set("rank", *rank)?;
            "Interrupted"
        }
        Error::Aborted { rank, code, .. } => {
            fields.set_item("code", code)?;
            set("rank", *rank)?;
            "Aborted"
        }
        Error::Poisoned { rank, .. } => {
            set("rank", *rank)?;
            "Poisoned"
        }
        Error::CountsDisagree { pair, .. } => {
            set("sender", pair.from)?;
            set("receiver", pair.to)?;
            set("sent", pair.sent)?;
            set("expected", pair.expected)?;
            "CountsDisagree"
        }
        Error::Truncated { rank, bytes, capacity, .. } => {
            set("rank", *rank)?;
            set("bytes", *bytes)?;
            set("capacity", *capacity)?;
            "Truncated"
        }
        Error::InvalidBufferSize { expected, actual, .. } => {
            set("expected", *expected)?;
            set("actual", *actual)?;
            "InvalidArgument"
        }
        Error::AllocationFailed { requested_bytes, .. } => {
            set("requested_bytes", *requested_bytes)?;
            "AllocationFailed"
        }
        Error::InvalidConfiguration(bad) => {
            fields.set_item("setting", &bad.setting)?;
            fields.set_item("value", &bad.value)?;
            fields.set_item("allowed", &bad.allowed)?;
            "InvalidConfiguration"
        }
        Error::InitializationFailed(failure) => {
            fields.set_item("missing", &failure.missing)?;
            "InitializationFailed"
        }
        Error::SeveralNodes { .. } => {
            fields.set_item("setting", "INTRANODE_SCOPE")?;
            fields.set_item("value", py.None())?;
            fields.set_item("allowed", "node, where the ranks are on several nodes")?;
            "InvalidConfiguration"
        }
        Error::Forked { .. } => "Forked",
        Error::ConcurrentUse { .. } => "ConcurrentUse",
        Error::InvalidRoot { .. }
        | Error::InvalidRank { .. }
        | Error::InvalidRange { .. }
        | Error::RootBuffer { .. }
        | Error::InvalidReduction { .. }
        | Error::OverlappingBlocks { .. }
        | Error::NotWhole { .. } => "InvalidArgument",
        _ => "Error",
    };
    match advice(error) {
        Some(text) => raise(py, class, text, &fields),
        None => raise(py, class, error, &fields),
    }
}

/// The text of an error that otherwise names what Python has not.
fn advice(error: &Error) -> Option<String> {
    match error {
        Error::Truncated { operation, rank, bytes, capacity } => Some(format!(
            "{operation}: a message of {bytes} bytes from rank {rank} does not fit into a buffer of {capacity}; it is kept: \
             receive it with a longer one, whose length Probe tells"
        )),
        Error::NoRoom { operation, rank, bytes, most } => Some(format!(
            "{operation}: no room for a message of {bytes} bytes to be kept for rank {rank}, where one of up to {most} fits into \
             an empty channel; use Isend or isend, whose request waits until it is received"
        )),
        Error::SeveralNodes { ranks, local } => Some(format!(
            "the launcher has started {ranks} ranks, of which {local} are on this node, and a job has the ranks of one machine: \
             set INTRANODE_SCOPE=node to make a job of the ranks of each node, or start all ranks on one"
        )),
        _ => None,
    }
}

/// The operation of this name: the methods of `Core` and the calls of the library that they stand for.
pub(crate) fn operation(name: &str) -> Operation {
    const ALL: [Operation; 29] = [
        Operation::StartAllreduce,
        Operation::StartBroadcast,
        Operation::StartAllgatherv,
        Operation::StartReduce,
        Operation::StartScan,
        Operation::StartExscan,
        Operation::StartReduceScatter,
        Operation::StartGather,
        Operation::StartScatter,
        Operation::StartAlltoall,
        Operation::StartAlltoallv,
        Operation::Allreduce,
        Operation::Allgather,
        Operation::Allgatherv,
        Operation::Broadcast,
        Operation::Reduce,
        Operation::Gather,
        Operation::Scatter,
        Operation::Alltoall,
        Operation::Alltoallv,
        Operation::Scan,
        Operation::Exscan,
        Operation::ReduceScatter,
        Operation::ReduceScatterBlock,
        Operation::BroadcastVec,
        Operation::AllgatherVec,
        Operation::GatherVec,
        Operation::Region,
        Operation::Split,
    ];
    let is_meant = |operation: &Operation| {
        let own = operation.to_string();
        own == name
    };
    ALL.into_iter().find(is_meant).unwrap_or(Operation::Barrier)
}
