//! loom's search, run to its end and counted.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::trace;

/// A search that found nothing wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Explored {
    pub(crate) executions: u64,
    pub(crate) took: Duration,
}

/// A search that ended at a failing execution.
#[derive(Debug)]
pub(crate) struct Rejected {
    pub(crate) message: String,
    pub(crate) executions: u64,
    /// The failing execution.
    pub(crate) trace: String,
}

/// What makes loom stop early, and silently.
pub(crate) const LIMITS: [&str; 6] = [
    "LOOM_MAX_BRANCHES",
    "LOOM_MAX_DURATION",
    "LOOM_MAX_PERMUTATIONS",
    "LOOM_MAX_PREEMPTIONS",
    "LOOM_CHECKPOINT_FILE",
    "LOOM_CHECKPOINT_INTERVAL",
];

/// Explores every execution of `execution`, or every one with at most `bound` preemptions. `columns` name the
/// threads.
pub(crate) fn explore(
    bound: Option<usize>,
    columns: &[String],
    execution: impl Fn() + Send + Sync + 'static,
) -> Result<Explored, Rejected> {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.max_branches = 5_000;
    // Without these two, `check` returns only when there is nothing left.
    assert!(builder.max_permutations.is_none() && builder.max_duration.is_none());

    let executions = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&executions);
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            trace::clear();
            execution();
        });
    }));
    let executions = executions.load(Ordering::Relaxed);
    match result {
        Ok(()) => Ok(Explored { executions, took: start.elapsed() }),
        Err(panic) => Err(Rejected { message: message(&*panic), executions, trace: trace::render(columns) }),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without a message".to_owned())
        .trim()
        .to_owned()
}
