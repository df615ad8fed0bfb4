//! What the thread sanitizer checks: everything that ranks do together, over ranks that are threads. `make tsan` runs it
//! under the sanitizer; otherwise it shows that the results are right.
//!
//! Between its operations each program reads plain memory that other ranks write, and that nothing guards but the
//! operation's promise: what was done before a call is seen after it.
//!
//! The programs of [`planted`] have a race. They run only when they are asked for, to show that it is found.

mod buffers;
#[path = "../heap/data.rs"]
mod data;
mod endings;
#[path = "../heap/machine.rs"]
mod machine;
mod planted;
mod regions;

use std::cell::Cell;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use intranode::{Communicator, Config, Error};

use crate::data::Slots;

/// A program of all ranks, by name.
type Program = (&'static str, fn());

/// Without an argument all that have no race; with one, those of this name.
fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let sound = [buffers::PROGRAMS, regions::PROGRAMS, endings::PROGRAMS].concat();
    let all = [&sound, planted::PROGRAMS].concat();
    let programs = match &wanted {
        None => sound,
        Some(wanted) => all.into_iter().filter(|(name, _)| name == wanted).collect(),
    };
    if programs.is_empty() {
        eprintln!("there is no program of that name");
        return ExitCode::FAILURE;
    }
    for (name, program) in programs {
        let started = Instant::now();
        program();
        println!("{name}: {:.1} s", started.elapsed().as_secs_f64());
    }
    ExitCode::SUCCESS
}

/// Nothing here takes as long, under the sanitizer neither.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a program on the ranks of jobs of these sizes, with a flat barrier and with a hierarchical one.
fn run(sizes: &[usize], program: impl Fn(&Communicator, &Guarded<'_>) -> Result<(), Error> + Sync) {
    for (size, group) in sizes.iter().flat_map(|size| [(*size, 0), (*size, 2)]) {
        let config = Config::new("/tsan", 0, size).timeout(LIMIT).group(group);
        let slots = Slots::new(size);
        let ends = intranode::threads_with(&config, |comm| {
            let guarded = Guarded { slots: &slots, rank: comm.rank(), number: Cell::new(0) };
            program(&comm, &guarded)
        });
        let ends: Result<Vec<()>, Error> = ends.expect("a job").into_iter().collect();
        ends.expect("every call succeeds");
    }
}

/// Plain memory that only what ranks do together guards.
struct Guarded<'a> {
    slots: &'a Slots,
    rank: usize,
    /// What was written last: the same on every rank.
    number: Cell<u64>,
}

impl Guarded<'_> {
    /// Does something that has to show all ranks what each has written before it.
    fn by<R>(&self, comm: &Communicator, call: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
        let number = self.number.get() + 1;
        self.number.set(number);
        self.slots.write(self.rank, number);
        let result = call()?;
        assert!(self.slots.all(number));
        // Nobody writes before all have read.
        comm.barrier()?;
        Ok(result)
    }
}
