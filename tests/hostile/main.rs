//! Random safe programs in which several threads of each rank use the same communicators, regions, exchanges, buffers
//! and symmetric objects.
//!
//! They misuse the interface in every way that safe code allows: threads call at the same time, ranks call different
//! collectives, retry failed calls, go on after fatal errors, drop and forget handles in any order, panic, and exit while
//! others are inside a call. An oracle then checks that
//!
//! * no two ranks have held `&mut` to the same element, and nothing behind a `&[T]` has changed;
//! * each call has the same outcome on every rank, and each success has the right result;
//! * nothing hangs, no process ends by a signal or an unexpected panic, and no file is left in shared memory.
//!
//! | file | contents |
//! | --- | --- |
//! | `program` | a program as data: for each thread of each rank a list of steps on slots that a rank's threads share |
//! | `generator`, `author` | the random program of a seed |
//! | `stamp` | values that identify their writer |
//! | `journal` | the events that a rank records: calls, outcomes, memory that it owns, writes and reads |
//! | `worker`, `calls`, `memory`, `regions`, `exchanges`, `buffers`, `symmetric`, `endings` | running the steps of a thread, with local checks |
//! | `agreement`, `ownership` | the oracle, over the journals of all ranks |
//! | `tally` | whether all kinds of events have occurred |
//! | `threads`, `processes` | ranks that are threads, and ranks that are processes |
//! | `findings`, `truncated` | defects that were found, each as a small test |
//!
//! A failure prints its seed. `HOSTILE_SEED=N` repeats the program of a seed again and again, since the schedule of threads
//! matters too; `HOSTILE_SECONDS=N` sets the time for random programs, 48 by default. `HOSTILE_ALLOW=TEXT` ignores
//! violations that contain the text; `HOSTILE_EVENTS=1` prints the events of all ranks with a failure.

#![forbid(unsafe_code)]

mod agreement;
mod author;
mod buffers;
mod calls;
mod child;
mod endings;
mod exchanges;
mod findings;
mod generator;
mod journal;
mod memory;
mod more_calls;
mod ownership;
mod processes;
mod program;
mod regions;
mod settings;
mod stamp;
mod symmetric;
mod tally;
mod threads;
#[cfg(target_os = "linux")]
mod truncated;
mod worker;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Some(role) = child::role() {
        return child::run(&role);
    }
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(findings::trials());
    #[cfg(target_os = "linux")]
    trials.extend(truncated::trials());
    trials.extend(threads::trials());
    trials.extend(processes::trials());
    let mut arguments = Arguments::from_args();
    // One test at a time, so that its ranks have the processors.
    arguments.test_threads = arguments.test_threads.or(Some(1));
    libtest_mimic::run(&arguments, trials).exit_code()
}
