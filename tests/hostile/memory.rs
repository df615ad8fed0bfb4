//! Regions and exchanges: what a rank owns it fills with its own stamp, and looks at it again and again; what it may read
//! it reads again and again.

use std::hint::black_box;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::thread;

use intranode::{Blocks, Error, Exchange, Placement, Region, RegionOptions, Shared};

use crate::journal::{Event, Outcome};
use crate::program::{Asks, MOST_RANKS};
use crate::stamp::{Run, Stamp, fill, runs};
use crate::worker::{Comm, Deliberate, Worker, lock};

/// How many empty ranges a rank asks for that does so at length.
const EMPTY: usize = 20_000;

type Done = Option<Result<(), Error>>;

/// Memory as all ranks know it.
#[derive(Clone)]
pub(crate) struct Name {
    pub(crate) comm: String,
    pub(crate) memory: String,
    /// How often owners have changed, or the turn.
    pub(crate) epoch: u32,
    /// By rank: the rank as it joined.
    ranks: usize,
    rank: usize,
}

/// A region of this rank.
pub(crate) struct Place {
    name: Name,
    state: State,
}

enum State {
    Populate { region: Region<u64>, written: Option<Stamp> },
    Published(Shared<u64>),
}

/// An exchange of this rank.
pub(crate) struct Block {
    name: Name,
    exchange: Exchange<u64>,
    own: Range<usize>,
    written: Option<Stamp>,
}

impl Worker<'_> {
    /// Makes memory that gets a name by its number among those of the communicator.
    fn make<M>(
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

    pub(crate) fn make_region(&self, slot: usize, to: usize, len: usize, distributed: bool) -> Done {
        let comm = self.comm(slot)?;
        let options = RegionOptions::new();
        let options = if distributed { options.placement(Placement::Distributed) } else { options };
        let what = format!("region of {len}{}", if distributed { ", distributed" } else { "" });
        let made = self.make(&comm, &what, || comm.comm.region_with::<u64>(len, &options));
        Some(made.map(|(region, name)| {
            self.owns(&name, region.parts(), Stamp::NOBODY);
            self.rank.regions[to].put(Place { name, state: State::Populate { region, written: None } });
        }))
    }

    pub(crate) fn distribute(&self, slot: usize) -> Done {
        self.change_owners(slot, |this, name, region| {
            let own = Blocks::new(region.len(), name.ranks).range(name.rank);
            let result = this.change(name, "distribute", || region.distribute());
            (result, vec![own])
        })
    }

    pub(crate) fn assign(&self, slot: usize, asked: &[Vec<Range<usize>>; MOST_RANKS], asks: Asks) -> Done {
        self.change_owners(slot, |this, name, region| {
            let own = &asked[name.rank];
            if asks == Asks::Panicking {
                let panics = std::iter::once_with(|| panic_any(Deliberate));
                let caught = catch_unwind(AssertUnwindSafe(|| region.assign(panics)));
                this.ensure(caught.is_err(), || "an iterator's panic has gone".to_owned());
            }
            let calling = (asks == Asks::Calling).then(|| this.comm(0)).flatten();
            let result = this.change(name, "assign", || {
                let barrier = || {
                    let comm = calling.as_ref()?;
                    let outcome = |error: Option<&Error>| {
                        error.map_or_else(|| Outcome::Ok("barrier".to_owned()), Outcome::of)
                    };
                    // Whatever becomes of it: it is the assignment that counts.
                    let _ = this.record(&comm.name, outcome, |_| comm.comm.barrier());
                    None
                };
                let empty = std::iter::repeat_n(0..0, if asks == Asks::AtLength { EMPTY } else { 0 });
                region.assign(own.iter().cloned().chain(empty).chain(std::iter::once_with(barrier).flatten()))
            });
            (result, own.clone())
        })
    }

    /// Records the call as one on this memory.
    fn change<R>(&self, name: &Name, what: &str, call: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
        // A distribution is an assignment to the others.
        let what = if what == "distribute" { "assign" } else { what };
        self.call(&name.comm, || Outcome::Ok(format!("{what} {}", name.memory)), |_| call())
    }

    fn change_owners(
        &self,
        slot: usize,
        change: impl FnOnce(&Self, &Name, &mut Region<u64>) -> (Result<(), Error>, Vec<Range<usize>>),
    ) -> Done {
        let Place { mut name, state } = self.rank.regions[slot].take()?;
        let State::Populate { mut region, mut written } = state else {
            self.rank.regions[slot].put(Place { name, state });
            return None;
        };
        self.check_own(&name, &mut region, written);
        let before = region.parts().to_vec();
        let (result, mut asked) = change(self, &name, &mut region);
        let parts = region.parts().to_vec();
        match &result {
            Ok(()) => {
                asked.retain(|part| !part.is_empty());
                asked.sort_by_key(|part| part.start);
                self.ensure(parts == asked, || format!("{}: {parts:?} for {asked:?}", name.memory));
                name.epoch += 1;
                self.owns(&name, &parts, Stamp::NOBODY);
                written = None;
            }
            Err(error) if error.is_fatal() => {
                self.ensure(parts.is_empty() && region.as_mut_slice().is_empty(), || {
                    format!("{}: owns {parts:?} after {error}", name.memory)
                });
            }
            Err(error) => {
                self.ensure(parts == before, || format!("{}: {parts:?} after {error}", name.memory));
                self.check_own(&name, &mut region, written);
            }
        }
        self.rank.regions[slot].put(Place { name, state: State::Populate { region, written } });
        Some(result)
    }

    pub(crate) fn write(&self, slot: usize, looks: u8) -> Done {
        let Place { name, state } = self.rank.regions[slot].take()?;
        let state = match state {
            State::Populate { mut region, written } => {
                self.check_own(&name, &mut region, written);
                let stamp = self.stamp();
                let parts = region.parts().to_vec();
                if written.is_none() {
                    self.found(&name, &parts, region.parts_mut());
                }
                self.owns(&name, &parts, stamp);
                let mut slices: Vec<&mut [u64]> = region.parts_mut().collect();
                // Each by a thread of its own: they are apart.
                thread::scope(|scope| {
                    for (part, slice) in parts.iter().zip(&mut slices) {
                        scope.spawn(|| self.hold(&name, slice, part.start, stamp, looks));
                    }
                });
                State::Populate { region, written: Some(stamp) }
            }
            published => published,
        };
        self.rank.regions[slot].put(Place { name, state });
        None
    }

    pub(crate) fn publish(&self, slot: usize) -> Done {
        let Place { mut name, state } = self.rank.regions[slot].take()?;
        let State::Populate { mut region, written } = state else {
            self.rank.regions[slot].put(Place { name, state });
            return None;
        };
        self.check_own(&name, &mut region, written);
        let result = self.change(&name, "publish", || region.publish());
        Some(result.map(|shared| {
            name.epoch += 1;
            self.look(&name, &shared, 2);
            self.rank.regions[slot].put(Place { name, state: State::Published(shared) });
        }))
    }

    pub(crate) fn read(&self, slot: usize, looks: u8) -> Done {
        let place = self.rank.regions[slot].take()?;
        if let Place { name, state: State::Published(shared) } = &place {
            self.look(name, shared, looks);
        }
        self.rank.regions[slot].put(place);
        None
    }

    pub(crate) fn reclaim(&self, slot: usize) -> Done {
        let Place { mut name, state } = self.rank.regions[slot].take()?;
        let State::Published(shared) = state else {
            self.rank.regions[slot].put(Place { name, state });
            return None;
        };
        let result = self.change(&name, "reclaim", || shared.reclaim());
        Some(result.map(|region| {
            name.epoch += 1;
            self.owns(&name, region.parts(), Stamp::NOBODY);
            let state = State::Populate { region, written: None };
            self.rank.regions[slot].put(Place { name, state });
        }))
    }

    pub(crate) fn make_exchange(&self, slot: usize, to: usize, counts: &[usize; MOST_RANKS]) -> Done {
        let comm = self.comm(slot)?;
        let counts = &counts[..comm.comm.size()];
        let made = self.make(&comm, &format!("exchange of {counts:?}"), || comm.comm.exchange::<u64>(counts));
        Some(made.map(|(exchange, name)| {
            let start = counts[..name.rank].iter().sum();
            let own = start..start + counts[name.rank];
            self.owns(&name, std::slice::from_ref(&own), Stamp::NOBODY);
            self.rank.exchanges[to].put(Block { name, exchange, own, written: None });
        }))
    }

    pub(crate) fn turn(&self, slot: usize, writes: bool, looks: u8) -> Done {
        let Block { mut name, mut exchange, own, mut written } = self.rank.exchanges[slot].take()?;
        self.check(&name, exchange.own(), own.start, written);
        if writes {
            let stamp = self.stamp();
            if written.is_none() {
                self.found(&name, std::slice::from_ref(&own), std::iter::once(exchange.own()));
            }
            self.owns(&name, std::slice::from_ref(&own), stamp);
            self.hold(&name, exchange.own(), own.start, stamp, looks);
            written = Some(stamp);
        }
        let shared = self.change(&name, "share", || exchange.share());
        let result = match shared {
            Ok(values) => {
                name.epoch += 1;
                self.look(&name, values, looks);
                written = None;
                Ok(())
            }
            Err(error) => {
                let left = exchange.own().len();
                let expected = if error.is_fatal() { 0 } else { own.len() };
                self.ensure(left == expected, || format!("{}: owns {left} after {error}", name.memory));
                self.check(&name, exchange.own(), own.start, written);
                Err(error)
            }
        };
        self.rank.exchanges[slot].put(Block { name, exchange, own, written });
        Some(result)
    }

    /// Writes what this rank owns, and looks whether it stays as it is.
    fn hold(&self, name: &Name, values: &mut [u64], start: usize, stamp: Stamp, looks: u8) {
        fill(black_box(&mut *values), start, stamp);
        for _ in 0..looks {
            thread::yield_now();
            self.check(name, values, start, Some(stamp));
        }
    }

    fn check_own(&self, name: &Name, region: &mut Region<u64>, written: Option<Stamp>) {
        let parts = region.parts().to_vec();
        for (part, slice) in parts.iter().zip(region.parts_mut()) {
            self.check(name, slice, part.start, written);
        }
    }

    /// Fails unless the values are those that this rank has written, if it has. After a fatal error there may be none.
    fn check(&self, name: &Name, values: &[u64], start: usize, written: Option<Stamp>) {
        let Some(stamp) = written.filter(|_| !values.is_empty()) else { return };
        match runs(black_box(values), start).as_deref() {
            Ok([run]) if run.stamp == stamp => {}
            other => self.broken(|| format!("{}: {stamp:?} has become {other:?}", name.memory)),
        }
    }

    /// Looks whether what may be read stays as it is.
    fn look(&self, name: &Name, values: &[u64], looks: u8) {
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

    fn found<'v>(&self, name: &Name, parts: &[Range<usize>], slices: impl Iterator<Item = &'v mut [u64]>) {
        let found = parts.iter().zip(slices).filter_map(|(part, slice)| self.runs(name, slice, part.start));
        let runs: Vec<Run> = found.flatten().collect();
        let Name { memory, epoch, .. } = name.clone();
        self.rank.journal.record(Event::Found { memory, epoch, runs });
    }

    /// Records that this rank owns these parts, and writes them if there is a stamp.
    fn owns(&self, name: &Name, parts: &[Range<usize>], stamp: Stamp) {
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
