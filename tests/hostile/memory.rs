//! Regions and exchanges: a rank fills memory that it owns with its stamp, and reads it, and memory that is published,
//! repeatedly.

use std::hint::black_box;
use std::ops::Range;
use std::thread;

use intranode::Error;

use crate::journal::{Event, Outcome};
use crate::stamp::{Run, Stamp, fill, runs};
use crate::worker::{Comm, Worker, lock};

/// The name and the epoch of a region or an exchange.
#[derive(Clone)]
pub(crate) struct Name {
    pub(crate) comm: String,
    pub(crate) memory: String,
    /// The number of changes of ownership so far.
    pub(crate) epoch: u32,
    /// The size of the communicator, and this rank in it.
    pub(crate) ranks: usize,
    pub(crate) rank: usize,
}

impl Worker<'_> {
    /// Creates memory, and names it by its number in the communicator.
    pub(crate) fn create<M>(
        &self,
        comm: &Comm,
        what: &str,
        make: impl FnOnce() -> Result<M, Error>,
    ) -> Result<(M, Name), Error> {
        let mut created = lock(&comm.created);
        let memory = self.call(&comm.name, || Outcome::Ok(what.to_owned()), |_| make())?;
        *created += 1;
        let name = format!("{}#{created} {what}", comm.name);
        let (ranks, rank) = (comm.comm.size(), comm.comm.rank());
        Ok((memory, Name { comm: comm.name.clone(), memory: name, epoch: 0, ranks, rank }))
    }

    /// Makes a call on memory, and records it.
    pub(crate) fn change<R>(
        &self,
        name: &Name,
        what: &str,
        call: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.call(&name.comm, || Outcome::Ok(format!("{what} {}", name.memory)), |_| call())
    }

    /// Writes what this rank owns, and checks repeatedly that it does not change.
    pub(crate) fn write_and_check(
        &self,
        name: &Name,
        values: &mut [u64],
        start: usize,
        stamp: Stamp,
        rereads: u8,
    ) {
        fill(black_box(&mut *values), start, stamp);
        for _ in 0..rereads {
            thread::yield_now();
            self.check(name, values, start, Some(stamp));
        }
    }

    /// Checks that the values are those that this rank has written, if it has. After a fatal error there may be none.
    pub(crate) fn check(&self, name: &Name, values: &[u64], start: usize, written: Option<Stamp>) {
        let Some(stamp) = written.filter(|_| !values.is_empty()) else { return };
        match runs(black_box(values), start).as_deref() {
            Ok([run]) if run.stamp == stamp => {}
            other => self.violation(|| format!("{}: {stamp:?} has become {other:?}", name.memory)),
        }
    }

    /// Checks repeatedly that published values do not change, and records them.
    pub(crate) fn read_and_check(&self, name: &Name, values: &[u64], rereads: u8) {
        let Some(first) = self.runs(name, values, 0) else { return };
        for _ in 0..rereads {
            thread::yield_now();
            let again = runs(black_box(values), 0);
            self.ensure(again.as_ref() == Ok(&first), || {
                format!("{}: {first:?} has become {again:?} while it could be read", name.memory)
            });
        }
        let Name { memory, epoch, .. } = name.clone();
        self.rank.journal.record(Event::Reads { memory, epoch, runs: first });
    }

    pub(crate) fn record_contents<'v>(
        &self,
        name: &Name,
        parts: &[Range<usize>],
        slices: impl Iterator<Item = &'v mut [u64]>,
    ) {
        let found = parts.iter().zip(slices).filter_map(|(part, slice)| self.runs(name, slice, part.start));
        let runs: Vec<Run> = found.flatten().collect();
        let Name { memory, epoch, .. } = name.clone();
        self.rank.journal.record(Event::Found { memory, epoch, runs });
    }

    /// Records that this rank owns these parts, and with a stamp that it writes them.
    pub(crate) fn record_ownership(&self, name: &Name, parts: &[Range<usize>], stamp: Stamp) {
        let Name { memory, epoch, .. } = name.clone();
        self.rank.journal.record(Event::Owns { memory, epoch, ranges: parts.to_vec(), stamp });
    }

    fn runs(&self, name: &Name, values: &[u64], start: usize) -> Option<Vec<Run>> {
        match runs(black_box(values), start) {
            Ok(runs) => Some(runs),
            Err(what) => {
                self.violation(|| format!("{}: {what}", name.memory));
                None
            }
        }
    }
}
