//! Scenarios over ranks that are threads of this process.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use intranode::Config;
use libtest_mimic::{Failed, Trial};

use crate::scenario::{LIMIT, Scenario};

/// The message of an intended panic.
pub(crate) const DELIBERATE: &str = "a deliberate panic";

/// One trial for each number of ranks.
pub(crate) fn trials(scenario: Scenario) -> Vec<Trial> {
    let sizes = scenario.ranks.iter().copied().filter(|_| scenario.threads);
    let trial = |size| Trial::test(format!("threads::{size}::{}", scenario.name), move || run(scenario, size));
    sizes.map(trial).collect()
}

/// Suppresses the output of intended panics.
pub(crate) fn hush_deliberate_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref() != Some(&DELIBERATE) && !HUSHED.get() {
            usual(info);
        }
    }));
}

thread_local! {
    static HUSHED: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread panics intentionally, with messages of the library.
pub(crate) fn hush_this_thread() {
    HUSHED.set(true);
}

fn run(scenario: Scenario, size: usize) -> Result<(), Failed> {
    type Outcomes = Mutex<Vec<Option<Result<(), String>>>>;
    let outcomes: Arc<Outcomes> = Arc::new(Mutex::new(vec![None; size]));
    let seen = Arc::clone(&outcomes);
    let (ended, end) = mpsc::channel();
    // Not scoped: threads that hang are abandoned, and the trial still ends.
    thread::spawn(move || {
        let config = scenario.configure(Config::new("/threads", 0, size));
        let result = catch_unwind(AssertUnwindSafe(|| {
            intranode::threads_with(&config, |comm| {
                let rank = comm.rank();
                let outcome = (scenario.body)(comm).map_err(|error| format!("{error:?}"));
                outcomes.lock().unwrap_or_else(PoisonError::into_inner)[rank] = Some(outcome);
            })
        }));
        let started = match result {
            Ok(started) => started.map(drop).map_err(|error| error.to_string()),
            Err(_panic) => Ok(()),
        };
        // After the time limit there is no receiver.
        let _ = ended.send(started);
    });
    let hung = match end.recv_timeout(LIMIT) {
        Ok(started) => {
            started.map_err(Failed::from)?;
            false
        }
        Err(_) => true,
    };
    let mut failures = Vec::new();
    let outcomes = seen.lock().unwrap_or_else(PoisonError::into_inner);
    for (rank, outcome) in outcomes.iter().enumerate() {
        let panics = (scenario.ends)(rank, size) == 101;
        match outcome {
            Some(Ok(())) if !panics => {}
            Some(Ok(())) => failures.push(format!("rank {rank} did not panic")),
            Some(Err(error)) => failures.push(format!("rank {rank} failed: {error}")),
            None if hung => failures.push(format!("rank {rank} hangs after {LIMIT:?}")),
            None if panics => {}
            None => failures.push(format!("rank {rank} panicked")),
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}
