//! One-sided accesses, with payloads whose result is known: each rank accesses the memory of the next one.
//!
//! `benches/race/mpi_bench.c` in the repository does the same over MPI's windows, and must be changed together with this file.

use intranode::{Communicator, Error, Signal, Symmetric, Until};

use super::collective::{Calls, Collective, PAGE, fill, first_value, is_filled};

fn next(comm: &Communicator) -> usize {
    (comm.rank() + 1) % comm.size()
}

fn previous(comm: &Communicator) -> usize {
    (comm.rank() + comm.size() - 1) % comm.size()
}

/// [`is_filled`] for what this rank's instance holds, page by page: a copy of all of it would take the place of the payloads in the caches.
fn holds(object: &Symmetric<f64>, comm: &Communicator, starts: (f64, f64)) -> bool {
    let Ok(own) = object.at(comm.rank()) else { return false };
    let mut page = [0.0; PAGE];
    (0..object.len()).step_by(PAGE).all(|start| {
        let values = &mut page[..(object.len() - start).min(PAGE)];
        own.get(start, values);
        is_filled(values, (starts.0 + start as f64, starts.1 + start as f64), 1.0)
    })
}

/// A put into the next rank's memory, until it is complete.
pub(crate) struct Put<'a> {
    comm: &'a Communicator,
    send: Vec<f64>,
    object: Symmetric<f64>,
}

impl<'a> Put<'a> {
    pub(crate) fn new(elements: usize, comm: &'a Communicator) -> Result<Self, Error> {
        Ok(Put { comm, send: vec![0.0; elements], object: comm.symmetric(elements)? })
    }
}

impl Collective for Put<'_> {
    fn prepare(&mut self, number: u64, step: usize) {
        fill(&mut self.send, first_value(number, self.comm.rank(), self.comm.size()), step);
    }

    fn call(&mut self, comm: &Communicator) -> Result<(), Error> {
        self.object.at(next(comm))?.put(0, &self.send);
        comm.quiet()
    }

    fn is_right(&self, calls: Calls) -> bool {
        let from = previous(self.comm);
        let starts = calls.map(|number| first_value(number, from, self.comm.size()));
        holds(&self.object, self.comm, starts)
    }
}

/// A get from the next rank's memory, which changes between repetitions only.
pub(crate) struct Get<'a> {
    comm: &'a Communicator,
    recv: Vec<f64>,
    object: Symmetric<f64>,
}

impl<'a> Get<'a> {
    pub(crate) fn new(elements: usize, comm: &'a Communicator) -> Result<Self, Error> {
        Ok(Get { comm, recv: vec![0.0; elements], object: comm.symmetric(elements)? })
    }
}

impl Collective for Get<'_> {
    fn prepare(&mut self, number: u64, step: usize) {
        if step == 1 {
            fill(&mut self.recv, first_value(number, self.comm.rank(), self.comm.size()), step);
            let own = self.object.at(self.comm.rank());
            own.expect("this rank is one of the ranks").put(0, &self.recv);
        }
    }

    fn call(&mut self, comm: &Communicator) -> Result<(), Error> {
        self.object.at(next(comm))?.get(0, &mut self.recv);
        Ok(())
    }

    fn is_right(&self, calls: Calls) -> bool {
        let start = first_value(calls.first, next(self.comm), self.comm.size());
        is_filled(&self.recv, (start, start), 1.0)
    }
}

/// All ranks add to one counter.
pub(crate) struct FetchAdd<'a> {
    comm: &'a Communicator,
    counter: Symmetric<u64>,
}

impl<'a> FetchAdd<'a> {
    pub(crate) fn new(comm: &'a Communicator) -> Result<Self, Error> {
        Ok(FetchAdd { comm, counter: comm.symmetric(1)? })
    }
}

impl Collective for FetchAdd<'_> {
    fn prepare(&mut self, _number: u64, _step: usize) {}

    fn call(&mut self, _comm: &Communicator) -> Result<(), Error> {
        self.counter.at(0)?.fetch_add(0, 1);
        Ok(())
    }

    fn is_right(&self, calls: Calls) -> bool {
        self.counter.at(0).is_ok_and(|counter| counter.load(0) == calls.last * self.comm.size() as u64)
    }
}

/// A put with signal from rank to rank, once around.
pub(crate) struct PutSignal<'a> {
    put: Put<'a>,
    signals: Symmetric<u64>,
    turn: u64,
}

impl<'a> PutSignal<'a> {
    pub(crate) fn new(elements: usize, comm: &'a Communicator) -> Result<Self, Error> {
        Ok(PutSignal { put: Put::new(elements, comm)?, signals: comm.symmetric(1)?, turn: 0 })
    }
}

impl Collective for PutSignal<'_> {
    fn prepare(&mut self, number: u64, step: usize) {
        self.put.prepare(number, step);
    }

    fn call(&mut self, comm: &Communicator) -> Result<(), Error> {
        self.turn += 1;
        let turn = self.turn;
        let pass_on = || {
            let Put { send, object, .. } = &self.put;
            object.put_signal(next(comm), 0, send, &self.signals, 0, Signal::Set(turn))
        };
        if comm.rank() == 0 {
            pass_on()?;
        }
        self.signals.wait_until(0, Until::Ge(turn))?;
        if comm.rank() != 0 {
            pass_on()?;
        }
        Ok(())
    }

    fn is_right(&self, calls: Calls) -> bool {
        self.put.is_right(calls)
    }
}
