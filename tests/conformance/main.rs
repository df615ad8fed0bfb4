//! The requirements of a backend of Cobre, tested over processes and over ranks that are threads.
//!
//! Each row is a *scenario*: the program of one rank, with its checks. Two drivers run it, so a test has a name such as
//! `processes::futex::4::allgatherv_one_rank_sends_nothing` or `threads::2::broadcast_64_mb`. The processes run this same
//! program, with their rank in the environment.
//!
//! Some delays and sizes are random. The seed is printed; `CONFORMANCE_SEED` repeats a run.

mod alltoalls;
mod board;
mod buffers;
mod checked;
mod collectives;
mod delays;
mod endings;
mod errors;
mod examples;
mod exchanges;
// It locks files as a job does, for which there is a safe function on Linux only.
#[cfg(target_os = "linux")]
mod foreign;
mod groups;
mod holdings;
mod in_place;
mod job;
mod joining;
// It stops and kills ranks, and refuses system calls, as on Linux only.
#[cfg(target_os = "linux")]
mod messages;
mod mismatch;
mod model;
mod operation_errors;
mod processes;
mod progress;
mod random;
mod raw;
mod raw_parts;
mod reductions;
mod region_sources;
mod regions;
mod rooted;
mod scans;
mod scenario;
mod settings;
mod started;
mod started_kinds;
mod symmetric;
mod threads;
mod types;
mod vectors;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use scenario::Scenario;

/// The rows that run on a joined communicator.
fn scenarios() -> Vec<Scenario> {
    let mut all = collectives::rows();
    all.extend(reductions::rows());
    all.extend(rooted::rows());
    all.extend(alltoalls::rows());
    all.extend(scans::rows());
    all.extend(started::rows());
    all.extend(started_kinds::rows());
    all.extend(progress::rows());
    all.extend(in_place::rows());
    all.extend(raw::rows());
    all.extend(raw_parts::rows());
    all.extend(types::rows());
    all.extend(vectors::rows());
    all.extend(delays::rows());
    all.extend(errors::rows());
    all.extend(operation_errors::rows());
    all.extend(mismatch::rows());
    all.extend(endings::rows());
    all.extend(regions::rows());
    all.extend(region_sources::rows());
    all.extend(buffers::rows());
    all.extend(holdings::rows());
    all.extend(groups::rows());
    all.extend(exchanges::rows());
    all.extend(symmetric::rows());
    all.extend(in_groups());
    #[cfg(target_os = "linux")]
    all.extend(messages::rows());
    all
}

/// The rows with rounds without data, also with a hierarchical barrier.
fn in_groups() -> Vec<Scenario> {
    let meetings = [
        delays::rows(),
        mismatch::rows(),
        endings::rows(),
        regions::rows(),
        groups::rows(),
        exchanges::rows(),
        symmetric::rows_of_phases(),
    ];
    let quick = |row: &Scenario| !row.name.contains("10_000") && !row.name.contains("8_mb");
    meetings.into_iter().flatten().filter(quick).map(|row| row.in_groups(3)).collect()
}

/// Set by `make heap`: then what ranks send from a `Vec` is read in place.
#[cfg(shared_heap)]
#[global_allocator]
static HEAP: intranode::SharedHeap = intranode::SharedHeap::new();

fn main() -> ExitCode {
    if let Some(role) = job::role() {
        return processes::run_as_rank(&role);
    }
    threads::hush_deliberate_panics();
    let mut arguments = Arguments::from_args();
    // Many tests only wait for a time-out.
    let processors = std::thread::available_parallelism().map_or(1, |processors| processors.get());
    arguments.test_threads.get_or_insert(2 * processors);
    if !arguments.list {
        eprintln!("CONFORMANCE_SEED={}", scenario::seed());
    }
    let mut trials: Vec<Trial> = Vec::new();
    for scenario in scenarios() {
        trials.extend(threads::trials(scenario));
        trials.extend(processes::trials(scenario));
    }
    trials.extend(joining::trials());
    #[cfg(target_os = "linux")]
    trials.extend(foreign::trials());
    trials.extend(settings::trials());
    trials.extend(checked::trials());
    trials.extend(endings::trials());
    trials.extend(holdings::trials());
    trials.extend(buffers::trials());
    trials.extend(random::trials());
    trials.extend(symmetric::trials());
    trials.extend(examples::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}
