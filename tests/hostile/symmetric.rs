//! Steps on symmetric objects: in one phase each rank writes its own instance, in another all read all instances, and in a third all
//! get them. Nothing is put, so that what they get is known.

use intranode::{Error, Own, Read, Symmetric};

use crate::memory::Name;
use crate::program::Phase;
use crate::stamp::Stamp;
use crate::worker::Worker;

/// The result of a step; None: the slot was empty, or the object in another phase.
type Done = Option<Result<(), Error>>;

/// A symmetric object of this rank.
pub(crate) struct HeldSymmetric {
    name: Name,
    state: State,
}

enum State {
    Open(Symmetric<u64>),
    Own { object: Symmetric<u64, Own>, written: Option<Stamp> },
    Read(Symmetric<u64, Read>),
}

/// The instance of a rank, which is memory of its own.
fn instance(name: &Name, rank: usize) -> Name {
    Name { memory: format!("{}, instance of {rank}", name.memory), ..name.clone() }
}

impl Worker<'_> {
    pub(crate) fn make_symmetric(&self, slot: usize, to: usize, len: usize) -> Done {
        let comm = self.comm(slot)?;
        let created = self.create(&comm, &format!("symmetric of {len}"), || comm.comm.symmetric::<u64>(len));
        Some(created.map(|(object, name)| {
            self.rank.symmetrics[to].put(HeldSymmetric { name, state: State::Open(object) });
        }))
    }

    /// Begins a phase, if the object can go to it.
    pub(crate) fn begin_phase(&self, slot: usize, phase: Phase) -> Done {
        let HeldSymmetric { mut name, state } = self.rank.symmetrics[slot].take()?;
        let begun = match (state, phase) {
            (State::Open(object), Phase::Own) => self
                .change(&name, "own", || object.into_own())
                .map(|object| State::Own { object, written: None }),
            (State::Open(object), Phase::Read) => {
                self.change(&name, "read", || object.into_read()).map(State::Read)
            }
            (State::Own { object, written }, Phase::Open) => {
                self.check(&instance(&name, name.rank), &object, 0, written);
                self.change(&name, "open", || object.open()).map(State::Open)
            }
            (State::Read(object), Phase::Open) => self.change(&name, "open", || object.open()).map(State::Open),
            (state, _) => {
                self.rank.symmetrics[slot].put(HeldSymmetric { name, state });
                return None;
            }
        };
        Some(begun.map(|state| {
            name.epoch += 1;
            if let State::Own { object, .. } = &state {
                let all = 0..object.len();
                let own = instance(&name, name.rank);
                self.record_ownership(&own, std::slice::from_ref(&all), Stamp::NONE);
            }
            self.rank.symmetrics[slot].put(HeldSymmetric { name, state });
        }))
    }

    /// Writes this rank's own instance, or reads all.
    pub(crate) fn use_symmetric(&self, slot: usize, rereads: u8) -> Done {
        let HeldSymmetric { name, mut state } = self.rank.symmetrics[slot].take()?;
        match &mut state {
            State::Own { object, written } => {
                let (own, all, stamp) = (instance(&name, name.rank), 0..object.len(), self.stamp());
                self.check(&own, object, 0, *written);
                if written.is_none() {
                    self.record_contents(&own, std::slice::from_ref(&all), std::iter::once(&mut **object));
                }
                self.record_ownership(&own, std::slice::from_ref(&all), stamp);
                self.write_and_check(&own, object, 0, stamp, rereads);
                *written = Some(stamp);
            }
            State::Read(object) => {
                for rank in 0..name.ranks {
                    self.read_and_check(&instance(&name, rank), object.of(rank), rereads);
                }
            }
            State::Open(object) => {
                for rank in 0..name.ranks {
                    let mut values = vec![0; object.len()];
                    match object.at(rank) {
                        Ok(remote) => {
                            remote.get(0, &mut values);
                            self.read_and_check(&instance(&name, rank), &values, 0);
                        }
                        Err(error) => self.violation(|| format!("{}: {error}", name.memory)),
                    }
                }
            }
        }
        self.rank.symmetrics[slot].put(HeldSymmetric { name, state });
        None
    }

    pub(crate) fn free_symmetric(&self, slot: usize) -> Done {
        let HeldSymmetric { name, state } = self.rank.symmetrics[slot].take()?;
        let State::Open(object) = state else {
            self.rank.symmetrics[slot].put(HeldSymmetric { name, state });
            return None;
        };
        Some(self.change(&name, "free", || object.free()))
    }
}
