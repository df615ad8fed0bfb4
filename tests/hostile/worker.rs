//! A rank that runs a program, and its threads.

use std::any::Any;
use std::panic::panic_any;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use intranode::{Communicator, Config, Error};

use crate::exchanges::Block;
use crate::journal::{Event, Journal, Outcome};
use crate::program::{Act, COMMS, EXCHANGES, Program, REGIONS, Step};
use crate::regions::Place;
use crate::stamp::Stamp;

/// What a thread says that is meant to panic.
pub(crate) struct Deliberate;

/// A rank and what its threads share.
pub(crate) struct Rank<'a> {
    pub(crate) program: &'a Program,
    pub(crate) journal: &'a Journal,
    /// As it joined.
    pub(crate) rank: usize,
    pub(crate) comms: [Slot<Arc<Comm>>; COMMS],
    pub(crate) regions: [Slot<Place>; REGIONS],
    pub(crate) exchanges: [Slot<Block>; EXCHANGES],
    /// Held during a call, where threads take turns.
    turn: Mutex<()>,
}

/// A communicator that threads share.
pub(crate) struct Comm {
    pub(crate) comm: Communicator,
    /// The same on all its ranks.
    pub(crate) name: String,
    /// By rank: the rank as it joined.
    pub(crate) joined: Vec<usize>,
    /// How many regions and exchanges it has made. Held while one is made: that names it.
    pub(crate) made: Mutex<usize>,
}

/// A place for something that a thread takes out while it uses it.
pub(crate) struct Slot<T>(Mutex<Option<T>>);

impl<T> Slot<T> {
    fn new(value: Option<T>) -> Self {
        Slot(Mutex::new(value))
    }

    pub(crate) fn take(&self) -> Option<T> {
        lock(&self.0).take()
    }

    /// What was there before is dropped outside of the lock.
    pub(crate) fn put(&self, value: T) {
        let before = lock(&self.0).replace(value);
        drop(before);
    }
}

impl<T: Clone> Slot<T> {
    pub(crate) fn get(&self) -> Option<T> {
        lock(&self.0).clone()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic may have passed by.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How the ranks of a program join.
pub(crate) fn configure(program: &Program, config: Config) -> Config {
    let config = config.timeout(program.timeout).group(program.group);
    match program.staging {
        Some(staging) => config.chunk_bytes(staging),
        None => config,
    }
}

/// Does what the program says for this rank. Panics where that says so.
pub(crate) fn play<'a>(program: &'a Program, comm: Communicator, journal: &Journal) {
    let (rank, size) = (comm.rank(), comm.size());
    let joined: Vec<usize> = (0..size).collect();
    journal.record(Event::Joined { comm: "world".to_owned(), ranks: joined.clone() });
    let world = Comm { comm, name: "world".to_owned(), joined, made: Mutex::default() };
    let mut world = Some(Arc::new(world));
    let rank = Rank {
        program,
        journal,
        rank,
        comms: std::array::from_fn(|_| Slot::new(world.take())),
        regions: std::array::from_fn(|_| Slot::new(None)),
        exchanges: std::array::from_fn(|_| Slot::new(None)),
        turn: Mutex::default(),
    };
    let rank = &rank;
    let threads = &program.threads[rank.rank];
    thread::scope(|scope| {
        let start = |(thread, steps): (usize, &'a Vec<Step>)| {
            scope.spawn(move || Worker::new(rank, thread).work(steps))
        };
        let others: Vec<_> = threads.iter().enumerate().skip(1).map(start).collect();
        let own = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Worker::new(rank, 0).work(&threads[0]);
        }));
        for other in others {
            if let Err(panic) = other.join() {
                rank.expect_deliberate(&*panic);
            }
        }
        if let Err(panic) = own {
            rank.expect_deliberate(&*panic);
            // Out of the rank, past all that is in the slots.
            panic_any(Deliberate);
        }
    });
}

impl Rank<'_> {
    pub(crate) fn expect_deliberate(&self, panic: &(dyn Any + Send)) {
        if !panic.is::<Deliberate>() {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("something");
            self.journal.broken(format!("rank {} panicked: {text}", self.rank));
        }
    }
}

/// A thread of a rank.
pub(crate) struct Worker<'a> {
    pub(crate) rank: &'a Rank<'a>,
    thread: usize,
    calls: AtomicU16,
}

impl<'a> Worker<'a> {
    fn new(rank: &'a Rank<'a>, thread: usize) -> Self {
        Worker { rank, thread, calls: AtomicU16::new(0) }
    }

    fn work(&self, steps: &[Step]) {
        for Step { act, retries } in steps {
            for _ in 0..=*retries {
                match self.perform(act) {
                    Some(Err(error)) if !error.is_fatal() => {}
                    _ => break,
                }
            }
        }
    }

    /// None: there was nothing to do it with.
    fn perform(&self, act: &Act) -> Option<Result<(), Error>> {
        match act {
            Act::Barrier { comm } => self.barrier(*comm),
            Act::Allreduce { comm, len, op, in_place } => self.allreduce(*comm, *len, *op, *in_place),
            Act::Allgather { comm, len } => self.allgather(*comm, *len),
            Act::Allgatherv { comm, counts, gap } => self.allgatherv(*comm, counts, *gap),
            Act::Broadcast { comm, len, root } => self.broadcast(*comm, *len, *root),
            Act::RefuseCall { comm, operation } => self.refuse_call(*comm, *operation),
            Act::State { comm } => self.state(*comm),
            Act::Wrong { comm, wrong } => self.wrong(*comm, *wrong),
            Act::MakeRegion { comm, to, len, distributed } => self.make_region(*comm, *to, *len, *distributed),
            Act::Distribute { region } => self.distribute(*region),
            Act::SetOwnership { region, asked, asks } => self.set_ownership(*region, asked, *asks),
            Act::Write { region, looks } => self.write(*region, *looks),
            Act::Publish { region } => self.publish(*region),
            Act::Read { region, looks } => self.read(*region, *looks),
            Act::Reclaim { region } => self.reclaim(*region),
            Act::MakeExchange { comm, to, counts } => self.make_exchange(*comm, *to, counts),
            Act::Turn { exchange, writes, looks } => self.turn(*exchange, *writes, *looks),
            Act::Split { comm, to, colors, keys } => self.split(*comm, *to, Some((colors, keys))),
            Act::SplitLocal { comm, to } => self.split(*comm, *to, None),
            Act::Leave { comm } => self.leave(*comm),
            Act::Drop { handle } => self.drop(*handle),
            Act::Forget { handle } => self.forget(*handle),
            Act::Panic { handle, caught } => self.panic(*handle, *caught),
            Act::Exit => std::process::exit(crate::endings::EXIT),
            Act::Abort { comm } => self.abort(*comm),
            Act::Pause { micros } => {
                thread::sleep(Duration::from_micros(*micros));
                None
            }
            Act::Lurk { comm, rounds, spins } => self.lurk(*comm, *rounds, *spins),
        }
    }

    pub(crate) fn comm(&self, slot: usize) -> Option<Arc<Comm>> {
        self.rank.comms[slot].get()
    }

    /// What stands for this thread's next call, or for what it writes.
    pub(crate) fn stamp(&self) -> Stamp {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        Stamp::new(self.rank.rank, self.thread, call)
    }

    /// Makes a call, and records how it ends: a success as `success`.
    pub(crate) fn call<R>(
        &self,
        comm: &str,
        success: impl FnOnce() -> Outcome,
        call: impl FnOnce(Stamp) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let outcome = |error: Option<&Error>| error.map_or_else(success, Outcome::of);
        let _turn = self.turn_to_call();
        self.record(comm, outcome, call)
    }

    /// The same inside another call, where it is this thread's turn already, or with another outcome.
    pub(crate) fn record<R>(
        &self,
        comm: &str,
        outcome: impl FnOnce(Option<&Error>) -> Outcome,
        call: impl FnOnce(Stamp) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let by = self.stamp();
        self.rank.journal.record(Event::Began { by, comm: comm.to_owned() });
        let result = call(by);
        let outcome = outcome(result.as_ref().err());
        self.rank.journal.record(Event::Ended { by, comm: comm.to_owned(), outcome });
        result
    }

    /// Waits until no other thread of the rank is in a call, where they take turns.
    pub(crate) fn turn_to_call(&self) -> Option<MutexGuard<'_, ()>> {
        self.rank.program.orderly.then(|| lock(&self.rank.turn))
    }

    /// Records that a success has brought what others have put there, by rank of the communicator.
    pub(crate) fn met(&self, by: Stamp, with: Vec<Stamp>) {
        self.rank.journal.record(Event::Met { by, with });
    }

    pub(crate) fn broken(&self, what: impl FnOnce() -> String) {
        let (rank, thread) = (self.rank.rank, self.thread);
        self.rank.journal.broken(format!("rank {rank}, thread {thread}: {}", what()));
    }

    /// Records unless the condition holds.
    pub(crate) fn ensure(&self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.broken(otherwise);
        }
    }
}
