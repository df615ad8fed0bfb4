//! Bytes that one rank writes and others read: every access is checked against all others.

use std::cell::UnsafeCell;
use std::sync::{Arc, Mutex};

use intranode::copy::{Sink, Source};
use intranode::protocol::Payload;

use crate::harness::clock::{Accesses, Clock, lock};
use crate::harness::simulation::{Simulation, me};

/// The bytes, and which actors have accessed them. A clone is the same cell.
#[derive(Clone)]
pub struct Cell(Arc<Store>);

struct Store {
    simulation: Arc<Simulation>,
    name: String,
    /// The names of writing and of reading.
    sites: [&'static str; 2],
    bytes: UnsafeCell<Box<[u8]>>,
    accesses: Mutex<Accesses>,
}

// SAFETY: shuttle's tasks take turns on one thread, and none is interrupted between its scheduling points. There
// is none while an actor accesses the bytes, so two accesses never overlap.
unsafe impl Sync for Store {}

impl Cell {
    pub fn new(simulation: &Arc<Simulation>, name: String, sites: [&'static str; 2], len: usize) -> Self {
        let bytes = UnsafeCell::new(vec![0; len].into_boxed_slice());
        Cell(Arc::new(Store { simulation: simulation.clone(), name, sites, bytes, accesses: Mutex::default() }))
    }

    fn access(
        &self,
        site: &'static str,
        record: impl FnOnce(&mut Accesses, usize, &Clock) -> Result<(), String>,
    ) {
        let Store { simulation, name, accesses, .. } = &*self.0;
        simulation.step(site);
        let recorded = simulation.with_clock(|actor, clock| record(&mut lock(accesses), actor, clock));
        if let Err(race) = recorded {
            panic!("data race in {name}, actor {}: {race}", me());
        }
    }
}

// SAFETY: the view is the whole of a boxed slice that lives as long as the cell.
unsafe impl Payload for Cell {
    fn write<R>(&self, fill: impl FnOnce(Sink<'_>) -> R) -> R {
        self.access(self.0.sites[0], Accesses::write);
        // SAFETY: no other access is under way: see `Sync`.
        let bytes = unsafe { &mut *self.0.bytes.get() };
        let (start, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the slice lives as long as the cell, and `access` has found no race.
        fill(unsafe { Sink::new(start, len) })
    }

    fn read<R>(&self, read: impl FnOnce(Source<'_>) -> R) -> R {
        self.access(self.0.sites[1], Accesses::read);
        // SAFETY: no other access is under way: see `Sync`.
        let bytes = unsafe { &*self.0.bytes.get() };
        // SAFETY: the slice lives as long as the cell, and `access` has found no race.
        read(unsafe { Source::new(bytes.as_ptr(), bytes.len()) })
    }
}
