//! A communicator's life: how it is joined, shared between objects of Python, and left.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use intranode::{Communicator, Config, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::collectives;
use crate::detach;
use crate::errors;
use crate::interrupt;
use crate::numbers;

/// A communicator of the library. Several objects can stand for it; `leave` ends it for all of them.
#[pyclass(frozen, module = "intranode._core")]
pub(crate) struct Joined {
    /// Until this rank leaves.
    owned: Mutex<Option<Arc<Communicator>>>,
    /// The same for calls, which take no lock.
    comm: Weak<Communicator>,
    rank: usize,
    size: usize,
    /// Whether there is something in `before`.
    is_deferred: AtomicBool,
    /// What has to be called before the next collective: it completes calls that were started, and have several steps.
    before: Mutex<Option<Py<PyAny>>>,
}

impl Joined {
    pub(crate) fn new(comm: Communicator) -> Self {
        let (rank, size) = (comm.rank(), comm.size());
        let owned = Arc::new(comm);
        let comm = Arc::downgrade(&owned);
        let owned = Mutex::new(Some(owned));
        Joined { owned, comm, rank, size, is_deferred: AtomicBool::new(false), before: Mutex::new(None) }
    }

    /// The rank, and the number of ranks.
    pub(crate) fn position(&self) -> (usize, usize) {
        (self.rank, self.size)
    }

    /// For a collective: what was deferred comes before it.
    pub(crate) fn for_call(&self, py: Python<'_>) -> PyResult<Arc<Communicator>> {
        if self.is_deferred.load(Relaxed) && self.is_deferred.swap(false, Relaxed) {
            let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).take();
            before.map(|call| call.call0(py)).transpose()?;
        }
        self.comm()
    }

    /// Calls this before the next collective.
    pub(crate) fn defer(&self, before: Py<PyAny>) {
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        self.is_deferred.store(true, Relaxed);
    }

    pub(crate) fn leave(&self, py: Python<'_>) -> PyResult<()> {
        drop(self.before.lock().unwrap_or_else(PoisonError::into_inner).take());
        let comm = self.owned.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Another thread may be inside a call: then this rank leaves when that returns.
        match comm.and_then(Arc::into_inner) {
            Some(comm) => collectives::finish(py, py.detach(|| comm.leave())),
            None => Ok(()),
        }
    }

    pub(crate) fn comm(&self) -> PyResult<Arc<Communicator>> {
        self.comm.upgrade().ok_or_else(|| {
            PyValueError::new_err(
                "this rank has left the communicator, by leave(), Free() or Finalize(): there are no further calls",
            )
        })
    }
}

/// Joins as the environment says; alone if no launcher has started this process.
#[pyfunction]
pub(crate) fn from_env(py: Python<'_>) -> PyResult<Joined> {
    start(py, || with_hooks(Config::from_env_or_alone()?).join())
}

/// Joins by name.
#[pyfunction]
#[pyo3(signature = (name, rank, size, timeout, join_timeout))]
pub(crate) fn join(
    py: Python<'_>,
    name: String,
    rank: &Bound<'_, PyAny>,
    size: &Bound<'_, PyAny>,
    timeout: Option<f64>,
    join_timeout: Option<f64>,
) -> PyResult<Joined> {
    let size = numbers::setting(size, "size", || format!("1 to {}", Config::MAX_RANKS))?;
    let rank =
        numbers::setting(rank, "rank", || format!("0 to {}, since size is {size}", size.saturating_sub(1)))?;
    let (timeout, join_timeout) =
        (seconds(py, "timeout", timeout)?, seconds(py, "join_timeout", join_timeout)?);
    start(py, || {
        let config = Config::new(name, rank, size).timeout(timeout).join_timeout(join_timeout);
        with_hooks(config).join()
    })
}

/// What every communicator of the wheel calls while it waits.
fn with_hooks(config: Config) -> Config {
    config.interrupt(interrupt::is_interrupted).long_wait(detach::give)
}

/// A time-out. One that is rounded to zero is none.
fn seconds(py: Python<'_>, setting: &str, time: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(time) = time else { return Ok(None) };
    match Duration::try_from_secs_f64(time) {
        Ok(time) if !time.is_zero() => Ok(Some(time)),
        _ => {
            let value = format_args!("{time:?}");
            Err(errors::invalid(py, setting, value, "a positive number of seconds up to 1e19, or None")?)
        }
    }
}

/// Runs what joins, or splits.
pub(crate) fn start(
    py: Python<'_>,
    join: impl FnOnce() -> Result<Communicator, Error> + Send,
) -> PyResult<Joined> {
    let joined = py.detach(join);
    collectives::finish(py, joined).map(Joined::new)
}
