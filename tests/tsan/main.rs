//! All collective operations under the thread sanitizer, with ranks that are threads: `make tsan`. Without the sanitizer it
//! checks the results.
//!
//! Between its operations each program reads plain memory that other ranks write. Only the operations order these accesses:
//! what happens before a call on one rank happens before its return on all.
//!
//! The programs of [`planted`] have a race. They run on request only, to show that the sanitizer finds it.

mod buffers;
#[path = "../heap/data.rs"]
mod data;
mod endings;
#[path = "../heap/machine.rs"]
mod machine;
mod planted;
mod regions;
mod symmetric;

use std::cell::Cell;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use intranode::{Communicator, Config, Error};

use crate::data::Slots;

/// A program of all ranks, by name.
type Program = (&'static str, fn());

/// Without an argument, runs all programs without a race; with one, the programs of this name.
fn main() -> ExitCode {
    let selected = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let sound = [buffers::PROGRAMS, regions::PROGRAMS, symmetric::PROGRAMS, endings::PROGRAMS].concat();
    let all = [&sound, planted::PROGRAMS].concat();
    let programs = match &selected {
        None => sound,
        Some(selected) => all.into_iter().filter(|(name, _)| name == selected).collect(),
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

/// Longer than any call takes, also under the sanitizer.
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

/// Plain memory, whose accesses only collective operations order.
struct Guarded<'a> {
    slots: &'a Slots,
    rank: usize,
    /// The value that was written last: the same on every rank.
    number: Cell<u64>,
}

impl Guarded<'_> {
    /// Runs an operation after which every rank must read what each has written before it.
    fn by<R>(&self, comm: &Communicator, call: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
        let number = self.number.get() + 1;
        self.number.set(number);
        self.slots.write(self.rank, number);
        let result = call()?;
        assert!(self.slots.all(number));
        // No rank writes before all have read.
        comm.barrier()?;
        Ok(result)
    }
}
