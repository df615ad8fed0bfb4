//! Steps on regions.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::thread;

use intranode::{Blocks, Error, Placement, Region, RegionOptions, Shared};

use crate::journal::Outcome;
use crate::memory::Name;
use crate::program::{MAX_RANKS, RangeStyle};
use crate::stamp::Stamp;
use crate::worker::{Deliberate, Worker};

/// The number of empty ranges of [`RangeStyle::Long`].
const EMPTY: usize = 20_000;

/// The result of a step; None: the slot was empty, or the region in another epoch.
type Done = Option<Result<(), Error>>;

/// A region of this rank.
pub(crate) struct HeldRegion {
    name: Name,
    state: State,
}

enum State {
    Writable { region: Region<u64>, written: Option<Stamp> },
    ReadOnly(Shared<u64>),
}

impl Worker<'_> {
    pub(crate) fn make_region(&self, slot: usize, to: usize, len: usize, distributed: bool) -> Done {
        let comm = self.comm(slot)?;
        let options = RegionOptions::new();
        let options = if distributed { options.placement(Placement::Distributed) } else { options };
        let what = format!("region of {len}{}", if distributed { ", distributed" } else { "" });
        let created = self.create(&comm, &what, || comm.comm.region_with::<u64>(len, &options));
        Some(created.map(|(region, name)| {
            self.record_ownership(&name, region.parts(), Stamp::NONE);
            self.rank.regions[to].put(HeldRegion { name, state: State::Writable { region, written: None } });
        }))
    }

    pub(crate) fn distribute(&self, slot: usize) -> Done {
        self.change_ownership(slot, |this, name, region| {
            let own = Blocks::new(region.len(), name.ranks).range(name.rank);
            let result = this.change(name, "set_ownership", || region.distribute());
            (result, vec![own])
        })
    }

    pub(crate) fn set_ownership(
        &self,
        slot: usize,
        ranges: &[Vec<Range<usize>>; MAX_RANKS],
        style: RangeStyle,
    ) -> Done {
        self.change_ownership(slot, |this, name, region| {
            let own = &ranges[name.rank];
            if style == RangeStyle::Panicking {
                let panics = std::iter::once_with(|| panic_any(Deliberate));
                let caught = catch_unwind(AssertUnwindSafe(|| region.set_ownership(panics)));
                this.ensure(caught.is_err(), || "an iterator's panic was swallowed".to_owned());
            }
            let calling = (style == RangeStyle::Calling).then(|| this.comm(0)).flatten();
            let result = this.change(name, "set_ownership", || {
                let barrier = || {
                    let comm = calling.as_ref()?;
                    let outcome = |error: Option<&Error>| {
                        error.map_or_else(|| Outcome::Ok("barrier".to_owned()), Outcome::of)
                    };
                    // Its outcome is recorded, and does not matter for the assignment.
                    let _ = this.record(&comm.name, outcome, |_| comm.comm.barrier());
                    None
                };
                let empty = std::iter::repeat_n(0..0, if style == RangeStyle::Long { EMPTY } else { 0 });
                region.set_ownership(
                    own.iter().cloned().chain(empty).chain(std::iter::once_with(barrier).flatten()),
                )
            });
            (result, own.clone())
        })
    }

    fn change_ownership(
        &self,
        slot: usize,
        change: impl FnOnce(&Self, &Name, &mut Region<u64>) -> (Result<(), Error>, Vec<Range<usize>>),
    ) -> Done {
        let HeldRegion { mut name, state } = self.rank.regions[slot].take()?;
        let State::Writable { mut region, mut written } = state else {
            self.rank.regions[slot].put(HeldRegion { name, state });
            return None;
        };
        self.check_own(&name, &mut region, written);
        let before = region.parts().to_vec();
        let (result, mut ranges) = change(self, &name, &mut region);
        let parts = region.parts().to_vec();
        match &result {
            Ok(()) => {
                ranges.retain(|part| !part.is_empty());
                ranges.sort_by_key(|part| part.start);
                self.ensure(parts == ranges, || format!("{}: {parts:?} for {ranges:?}", name.memory));
                name.epoch += 1;
                self.record_ownership(&name, &parts, Stamp::NONE);
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
        self.rank.regions[slot].put(HeldRegion { name, state: State::Writable { region, written } });
        Some(result)
    }

    pub(crate) fn write(&self, slot: usize, rereads: u8) -> Done {
        let HeldRegion { name, state } = self.rank.regions[slot].take()?;
        let state = match state {
            State::Writable { mut region, written } => {
                self.check_own(&name, &mut region, written);
                let stamp = self.stamp();
                let parts = region.parts().to_vec();
                if written.is_none() {
                    self.record_contents(&name, &parts, region.parts_mut());
                }
                self.record_ownership(&name, &parts, stamp);
                let mut slices: Vec<&mut [u64]> = region.parts_mut().collect();
                // Each part by a thread of its own: they are disjoint.
                thread::scope(|scope| {
                    for (part, slice) in parts.iter().zip(&mut slices) {
                        scope.spawn(|| self.write_and_check(&name, slice, part.start, stamp, rereads));
                    }
                });
                State::Writable { region, written: Some(stamp) }
            }
            published => published,
        };
        self.rank.regions[slot].put(HeldRegion { name, state });
        None
    }

    pub(crate) fn publish(&self, slot: usize) -> Done {
        let HeldRegion { mut name, state } = self.rank.regions[slot].take()?;
        let State::Writable { mut region, written } = state else {
            self.rank.regions[slot].put(HeldRegion { name, state });
            return None;
        };
        self.check_own(&name, &mut region, written);
        let result = self.change(&name, "publish", || region.publish());
        Some(result.map(|shared| {
            name.epoch += 1;
            self.read_and_check(&name, &shared, 2);
            self.rank.regions[slot].put(HeldRegion { name, state: State::ReadOnly(shared) });
        }))
    }

    pub(crate) fn read(&self, slot: usize, rereads: u8) -> Done {
        let place = self.rank.regions[slot].take()?;
        if let HeldRegion { name, state: State::ReadOnly(shared) } = &place {
            self.read_and_check(name, shared, rereads);
        }
        self.rank.regions[slot].put(place);
        None
    }

    pub(crate) fn reclaim(&self, slot: usize) -> Done {
        let HeldRegion { mut name, state } = self.rank.regions[slot].take()?;
        let State::ReadOnly(shared) = state else {
            self.rank.regions[slot].put(HeldRegion { name, state });
            return None;
        };
        let result = self.change(&name, "reclaim", || shared.reclaim());
        Some(result.map(|region| {
            name.epoch += 1;
            self.record_ownership(&name, region.parts(), Stamp::NONE);
            let state = State::Writable { region, written: None };
            self.rank.regions[slot].put(HeldRegion { name, state });
        }))
    }

    fn check_own(&self, name: &Name, region: &mut Region<u64>, written: Option<Stamp>) {
        let parts = region.parts().to_vec();
        for (part, slice) in parts.iter().zip(region.parts_mut()) {
            self.check(name, slice, part.start, written);
        }
    }
}
