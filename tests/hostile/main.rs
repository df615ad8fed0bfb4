//! Random safe programs in which several threads of each rank call everything on everything.
//!
//! What no safe program may be able to do, these try: two threads call at the same time, ranks call different things, retry
//! what failed, go on after fatal errors, drop and forget handles in any order, panic, and exit while others are inside a
//! call. An oracle then says whether
//!
//! * any two ranks have held `&mut` of the same element, and whether anything behind a `&[T]` has changed;
//! * what one rank got as a success was a success on every rank, with the right result, and an error the same error;
//! * nothing hangs, nothing ends by a signal, nothing panics that should not, nothing is left in shared memory.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `program` | a program as data: by rank, by thread, a list of steps over slots that the threads share |
//! | `generator`, `author` | the program of a seed |
//! | `stamp` | values that name who wrote them |
//! | `journal` | what a rank records: what it called, with which outcome, what it owned, wrote and saw |
//! | `worker`, `calls`, `memory`, `regions`, `exchanges`, `endings` | how a thread performs its steps, and what it can check by itself |
//! | `agreement`, `ownership` | the oracle: what the journals of all ranks must say together |
//! | `tally` | whether all kinds of things have happened |
//! | `threads`, `processes` | where ranks are threads, and where they are processes |
//! | `findings`, `torn` | what was once found, each as a small test of its own |
//!
//! A failure prints its seed. `HOSTILE_SEED=N` repeats the choices, over and over, since what happens also depends on when
//! threads run; `HOSTILE_SECONDS=N` says for how long to try random programs, 48 if it is not set.
//! `HOSTILE_ALLOW=TEXT` looks past complaints that have this in their text; `HOSTILE_EVENTS=1` shows with a failure what all
//! ranks have recorded.

#![forbid(unsafe_code)]

mod agreement;
mod author;
mod calls;
mod child;
mod endings;
mod exchanges;
mod findings;
mod generator;
mod journal;
mod memory;
mod ownership;
mod processes;
mod program;
mod regions;
mod settings;
mod stamp;
mod tally;
mod threads;
#[cfg(target_os = "linux")]
mod torn;
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
    trials.extend(torn::trials());
    trials.extend(threads::trials());
    trials.extend(processes::trials());
    let mut arguments = Arguments::from_args();
    // Ranks should have the processors for themselves.
    arguments.test_threads = arguments.test_threads.or(Some(1));
    libtest_mimic::run(&arguments, trials).exit_code()
}
