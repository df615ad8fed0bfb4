//! What regions and exchanges have in common: memory that a rank owns it fills with its own stamp, and looks at it again and
//! again; what it may read it reads again and again.

use std::hint::black_box;
use std::ops::Range;
use std::thread;

use intranode::Error;

use crate::journal::{Event, Outcome};
use crate::stamp::{Run, Stamp, fill, runs};
use crate::worker::{Comm, Worker, lock};

/// Memory as all ranks know it.
#[derive(Clone)]
pub(crate) struct Name {
    pub(crate) comm: String,
    pub(crate) memory: String,
    /// How often owners have changed, or the turn.
    pub(crate) epoch: u32,
    /// How many ranks the communicator has, and which this one is there.
    pub(crate) ranks: usize,
    pub(crate) rank: usize,
}

impl Worker<'_> {
    /// Makes memory that gets a name by its number among those of the communicator.
    pub(crate) fn make<M>(
        &self,
        comm: &Comm,
        what: &str,
        make: impl FnOnce() -> Result<M, Error>,
    ) -> Result<(M, Name), Error> {
        let mut made = lock(&comm.made);
        let memory = self.call(&comm.name, || Outcome::Ok(what.to_owned()), |_| make())?;
        *made += 1;
        let name = format!("{}#{made} {what}", comm.name);
        let (ranks, rank) = (comm.comm.size(), comm.comm.rank());
        Ok((memory, Name { comm: comm.name.clone(), memory: name, epoch: 0, ranks, rank }))
    }

    /// Records the call as one on this memory.
    pub(crate) fn change<R>(
        &self,
        name: &Name,
        what: &str,
        call: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.call(&name.comm, || Outcome::Ok(format!("{what} {}", name.memory)), |_| call())
    }

    /// Writes what this rank owns, and looks whether it stays as it is.
    pub(crate) fn hold(&self, name: &Name, values: &mut [u64], start: usize, stamp: Stamp, looks: u8) {
        fill(black_box(&mut *values), start, stamp);
        for _ in 0..looks {
            thread::yield_now();
            self.check(name, values, start, Some(stamp));
        }
    }

    /// Fails unless the values are those that this rank has written, if it has. After a fatal error there may be none.
    pub(crate) fn check(&self, name: &Name, values: &[u64], start: usize, written: Option<Stamp>) {
        let Some(stamp) = written.filter(|_| !values.is_empty()) else { return };
        match runs(black_box(values), start).as_deref() {
            Ok([run]) if run.stamp == stamp => {}
            other => self.broken(|| format!("{}: {stamp:?} has become {other:?}", name.memory)),
        }
    }

    /// Looks whether what may be read stays as it is.
    pub(crate) fn look(&self, name: &Name, values: &[u64], looks: u8) {
        let Some(first) = self.runs(name, values, 0) else { return };
        for _ in 0..looks {
            thread::yield_now();
            let again = runs(black_box(values), 0);
            self.ensure(again.as_ref() == Ok(&first), || {
                format!("{}: {first:?} has become {again:?} while it could be read", name.memory)
            });
        }
        let Name { memory, epoch, .. } = name.clone();
        self.rank.journal.record(Event::Reads { memory, epoch, runs: first });
    }

    pub(crate) fn found<'v>(
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

    /// Records that this rank owns these parts, and writes them if there is a stamp.
    pub(crate) fn owns(&self, name: &Name, parts: &[Range<usize>], stamp: Stamp) {
        let Name { memory, epoch, .. } = name.clone();
        self.rank.journal.record(Event::Owns { memory, epoch, ranges: parts.to_vec(), stamp });
    }

    fn runs(&self, name: &Name, values: &[u64], start: usize) -> Option<Vec<Run>> {
        match runs(black_box(values), start) {
            Ok(runs) => Some(runs),
            Err(what) => {
                self.broken(|| format!("{}: {what}", name.memory));
                None
            }
        }
    }
}
