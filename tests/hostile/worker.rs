//! A rank that runs a program, and its threads.

use std::any::Any;
use std::panic::panic_any;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use intranode::{Buffer, Communicator, Config, Error};

use crate::exchanges::HeldExchange;
use crate::journal::{Event, Journal, Outcome};
use crate::program::{Act, BUFFERS, COMMS, EXCHANGES, Program, REGIONS, SYMMETRICS, Step};
use crate::regions::HeldRegion;
use crate::stamp::Stamp;
use crate::symmetric::HeldSymmetric;

/// The payload of deliberate panics.
pub(crate) struct Deliberate;

/// A rank, with the state that its threads share.
pub(crate) struct Rank<'a> {
    pub(crate) program: &'a Program,
    pub(crate) journal: &'a Journal,
    /// Its rank in the job.
    pub(crate) rank: usize,
    pub(crate) comms: [Slot<Arc<Comm>>; COMMS],
    pub(crate) regions: [Slot<HeldRegion>; REGIONS],
    pub(crate) exchanges: [Slot<HeldExchange>; EXCHANGES],
    pub(crate) buffers: [Slot<Buffer<u64>>; BUFFERS],
    pub(crate) symmetrics: [Slot<HeldSymmetric>; SYMMETRICS],
    /// Held during a call, if the program is serialized.
    calls: Mutex<()>,
}

/// A communicator that threads share.
pub(crate) struct Comm {
    pub(crate) comm: Communicator,
    /// The same on all its ranks.
    pub(crate) name: String,
    /// By rank: the rank in the job.
    pub(crate) joined: Vec<usize>,
    /// The number of its regions and exchanges, of which names consist. Locked while one is created.
    pub(crate) created: Mutex<usize>,
}

/// A slot, whose contents a thread takes out while it uses them.
pub(crate) struct Slot<T>(Mutex<Option<T>>);

impl<T> Slot<T> {
    fn new(value: Option<T>) -> Self {
        Slot(Mutex::new(value))
    }

    pub(crate) fn take(&self) -> Option<T> {
        lock(&self.0).take()
    }

    /// Drops the previous contents after unlocking.
    pub(crate) fn put(&self, value: T) {
        let previous = lock(&self.0).replace(value);
        drop(previous);
    }
}

impl<T: Clone> Slot<T> {
    pub(crate) fn get(&self) -> Option<T> {
        lock(&self.0).clone()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A deliberate panic may have poisoned it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Applies the program's configuration.
pub(crate) fn configure(program: &Program, config: Config) -> Config {
    let config = config.timeout(program.timeout).group(program.group);
    match program.staging {
        Some(staging) => config.chunk_bytes(staging),
        None => config,
    }
}

/// Runs the program of this rank. Panics where the program does.
pub(crate) fn play<'a>(program: &'a Program, comm: Communicator, journal: &Journal) {
    let (rank, size) = (comm.rank(), comm.size());
    let joined: Vec<usize> = (0..size).collect();
    journal.record(Event::Joined { comm: "world".to_owned(), ranks: joined.clone() });
    let comm = Comm { comm, name: "world".to_owned(), joined, created: Mutex::default() };
    let mut comm = Some(Arc::new(comm));
    let rank = Rank {
        program,
        journal,
        rank,
        comms: std::array::from_fn(|_| Slot::new(comm.take())),
        regions: std::array::from_fn(|_| Slot::new(None)),
        exchanges: std::array::from_fn(|_| Slot::new(None)),
        buffers: std::array::from_fn(|_| Slot::new(None)),
        symmetrics: std::array::from_fn(|_| Slot::new(None)),
        calls: Mutex::default(),
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
            // Unwinds out of the rank, and drops the contents of all slots.
            panic_any(Deliberate);
        }
    });
}

impl Rank<'_> {
    pub(crate) fn expect_deliberate(&self, panic: &(dyn Any + Send)) {
        if !panic.is::<Deliberate>() {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("something");
            self.journal.violation(format!("rank {} panicked: {text}", self.rank));
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

    /// None: the slot is empty.
    fn perform(&self, act: &Act) -> Option<Result<(), Error>> {
        match act {
            Act::Barrier { comm } => self.barrier(*comm),
            Act::Allreduce { comm, len, op, in_place } => self.allreduce(*comm, *len, *op, *in_place),
            Act::Allgather { comm, len } => self.allgather(*comm, *len),
            Act::Allgatherv { comm, counts, gap } => self.allgatherv(*comm, counts, *gap),
            Act::Broadcast { comm, len, root } => self.broadcast(*comm, *len, *root),
            Act::Blocks { comm, len, root, call, in_place } => {
                self.blocks(*comm, *len, *root, *call, *in_place)
            }
            Act::Folded { comm, len, root, call } => self.folded(*comm, *len, *root, *call),
            Act::Started { comm, len, root, call, tests } => self.started(*comm, *len, *root, *call, *tests),
            Act::RefuseCall { comm, operation } => self.refuse_call(*comm, *operation),
            Act::State { comm } => self.state(*comm),
            Act::Wrong { comm, wrong } => self.wrong(*comm, *wrong),
            Act::MakeRegion { comm, to, len, distributed } => self.make_region(*comm, *to, *len, *distributed),
            Act::Distribute { region } => self.distribute(*region),
            Act::SetOwnership { region, ranges, style } => self.set_ownership(*region, ranges, *style),
            Act::Write { region, rereads } => self.write(*region, *rereads),
            Act::Publish { region } => self.publish(*region),
            Act::Read { region, rereads } => self.read(*region, *rereads),
            Act::Reclaim { region } => self.reclaim(*region),
            Act::MakeExchange { comm, to, counts } => self.make_exchange(*comm, *to, counts),
            Act::Share { exchange, writes, rereads } => self.share(*exchange, *writes, *rereads),
            Act::MakeBuffer { comm, to, len } => self.make_buffer(*comm, *to, *len),
            Act::SendBuffer { comm, buffer, root, call } => self.send_buffer(*comm, *buffer, *root, *call),
            Act::MakeSymmetric { comm, to, len } => self.make_symmetric(*comm, *to, *len),
            Act::BeginPhase { symmetric, phase } => self.begin_phase(*symmetric, *phase),
            Act::UseSymmetric { symmetric, rereads } => self.use_symmetric(*symmetric, *rereads),
            Act::FreeSymmetric { symmetric } => self.free_symmetric(*symmetric),
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
            Act::AwaitRounds { comm, rounds, spins } => self.await_rounds(*comm, *rounds, *spins),
        }
    }

    pub(crate) fn comm(&self, slot: usize) -> Option<Arc<Comm>> {
        self.rank.comms[slot].get()
    }

    /// A new stamp for this thread's next call or write.
    pub(crate) fn stamp(&self) -> Stamp {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        Stamp::new(self.rank.rank, self.thread, call)
    }

    /// Makes a call, and records its outcome: that of a success is `success`.
    pub(crate) fn call<R>(
        &self,
        comm: &str,
        success: impl FnOnce() -> Outcome,
        call: impl FnOnce(Stamp) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let outcome = |error: Option<&Error>| error.map_or_else(success, Outcome::of);
        let _serialized = self.lock_calls();
        self.record(comm, outcome, call)
    }

    /// The same without locking, or with another outcome.
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

    /// If the program is serialized, waits until no other thread of the rank is in a call.
    pub(crate) fn lock_calls(&self) -> Option<MutexGuard<'_, ()>> {
        self.rank.program.serialized.then(|| lock(&self.rank.calls))
    }

    /// Records the participants of a successful call, by rank of the communicator, as its result shows them.
    pub(crate) fn met(&self, by: Stamp, with: Vec<Stamp>) {
        self.rank.journal.record(Event::Met { by, with });
    }

    pub(crate) fn violation(&self, what: impl FnOnce() -> String) {
        let (rank, thread) = (self.rank.rank, self.thread);
        self.rank.journal.violation(format!("rank {rank}, thread {thread}: {}", what()));
    }

    /// Records a violation unless the condition holds.
    pub(crate) fn ensure(&self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.violation(otherwise);
        }
    }
}
