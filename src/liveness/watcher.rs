//! Who is still alive: tells a rank when another rank's process has died, within a fraction of a millisecond.
//!
//! Every rank has a watcher, a thread that sleeps until something happens to one of the ranks next to its own. When a
//! thread ends, however it ends, the kernel marks the words on the list that the thread has registered, and wakes who
//! sleeps on them. It does so before it tears down the process's memory, which can last for seconds. So each watcher
//! registers a row of words, and sleeps on a word in the row of each rank that it watches. Who watches whom, and how a
//! death becomes known to all, is decided in [`crate::protocol::watch`]; here is what belongs to the operating system.
//!
//! | word | meaning |
//! | --- | --- |
//! | 0 | the rank has not come yet |
//! | `FUTEX_WAITERS \| tid` | it is alive. The bit is set in advance: it makes the kernel wake |
//! | `FUTEX_WAITERS \| FUTEX_OWNER_DIED` | it has died: what the kernel writes |
//! | all of `FUTEX_TID_MASK` is set | it has left in order |
//!
//! The thread that registers must live as long as the rank does: a program's own thread may end without harm. Hence one
//! thread for this alone, which no signal interrupts. The list is per thread, so the robust mutexes of the program are
//! not affected.
//!
//! Two things stand in where that fails. Where the system refuses to let a thread sleep on several words, watchers look at
//! them, so that each rank is looked at every [`SCAN`]. And since a word can be overwritten by mistake, watchers ask
//! whether processes still exist, so that each is asked for every [`GAP`]. These ticks cost the same processor time in
//! all however many ranks there are: the more they are, the less often each of them looks.

mod bed;
mod beside;
mod pidfd;
mod robust;
mod signals;
mod slice;
#[cfg(test)]
mod tests;
mod ticks;
mod waitv;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use self::bed::{Bed, ENDING, RUNNING};
use self::beside::Beside;
use self::pidfd::Processes;
use self::robust::Registration;
use self::ticks::Ticks;
use super::Detection;
use crate::protocol::watch::{self, Watch};
use crate::segment::mapped::MappedSegment;
use crate::segment::platform::{ShmPlatform, Wait};
use crate::sys::sigusr2;
use crate::sys::wait::clock::Moment;
use crate::sys::wait::futex;
use crate::sys::wait::spin::SpinPolicy;

/// How often the words of a rank are looked at where sleeping on them is not possible.
const SCAN: Duration = Duration::from_millis(2);

/// How often somebody asks for a rank's process.
const GAP: Duration = Duration::from_millis(150);

/// How often a listener is told that time passes, if it wants that.
const OBSERVED: Duration = Duration::from_millis(100);

/// The thread needs little: it calls the system and poisons.
const STACK: usize = 128 << 10;

/// How a watcher wakes others: whatever the ranks sleep by, watchers sleep on futexes.
const MACHINE: ShmPlatform = ShmPlatform { wait: Wait::Futex, spin: SpinPolicy::NONE, timeout: None };

/// Whom a watcher tells, on its own thread, which must not be kept: a death is not noticed meanwhile.
pub(crate) trait Listener: watch::Listener + Send + 'static {
    /// Whether it has to be told that time passes.
    fn observes(&self) -> bool {
        false
    }

    /// Some time has passed: if it observes, [`OBSERVED`] or less.
    fn tick(&self) {}

    /// This process was asked for the state of its jobs.
    fn asked(&self) {}
}

/// The watcher of one rank in one segment. Ends on drop, which tells the other ranks that this one has left.
pub(crate) struct Watcher {
    world: Arc<MappedSegment>,
    end: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Registers `rank` with the others, and watches some of them: the listener is told of each rank that dies. Ranks that
    /// have not come yet are watched from when they come.
    pub(crate) fn start(
        world: &Arc<MappedSegment>,
        rank: usize,
        listener: impl Listener,
        detection: Detection,
    ) -> io::Result<Self> {
        let end = Arc::new(AtomicU32::new(RUNNING));
        if detection == Detection::None {
            return Ok(Watcher { world: Arc::clone(world), end, thread: None });
        }
        let (ready, registered) = sync_channel(1);
        let work = Work {
            processes: Processes::new(world, rank),
            world: Arc::clone(world),
            end: Arc::clone(&end),
            rank,
            scan: detection == Detection::Scan,
            beside: Beside::this_thread(world.layout().ranks()),
            asked: sigusr2::count().map(|count| (count, count.load(Ordering::Acquire))),
            listener,
        };
        // The name is cut to 15 bytes.
        let builder = Builder::new().name("intranode-watch".to_owned()).stack_size(STACK);
        let thread = signals::blocked(|| builder.spawn(move || work.run(&ready)))?;
        let watcher = Watcher { world: Arc::clone(world), end, thread: Some(thread) };
        // An error means that the thread has panicked, which it cannot.
        let _ = registered.recv();
        Ok(watcher)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.world.forked() {
            // The thread is the parent's.
            std::mem::forget(thread);
            return;
        }
        self.end.store(ENDING, Ordering::Release);
        futex::wake_all(&self.end);
        let _ = thread.join();
    }
}

/// What a watcher's thread does.
struct Work<L> {
    world: Arc<MappedSegment>,
    end: Arc<AtomicU32>,
    rank: usize,
    processes: Processes,
    /// Not to sleep on the words, even if that is possible.
    scan: bool,
    beside: Beside,
    /// How often this process was asked, and how often that was noticed.
    asked: Option<(&'static AtomicU32, u32)>,
    listener: L,
}

impl<L: Listener> Work<L> {
    fn run(mut self, ready: &SyncSender<()>) {
        slice::shorten();
        let registration = Registration::new(&self.world, MACHINE, self.rank);
        // Nobody listens any more: then the rank has left already.
        let _ = ready.send(());
        let (world, listener) = (Arc::clone(&self.world), &self.listener);
        let mut watch = Watch::new(&MACHINE, world.roll(), self.rank);
        let (ticks, scans) = (self.ticks(GAP), self.ticks(SCAN));
        let ticks = if listener.observes() { Some(observed(ticks)) } else { ticks };
        let mut bed = Bed::new(&self.end, self.asked, scans, self.scan);
        let next = || ticks.map(|ticks| ticks.after(Moment::now()));
        let mut tick = next();
        self.beside.stay();
        // Whatever is left out here is no result: only tests stop a watcher.
        while !bed.is_over() {
            if tick.is_some_and(Moment::has_passed) {
                let _ = watch.tick(listener);
                let present = watch.others().filter(|rank| watch.is_present(*rank));
                for rank in self.processes.ended(&world, present) {
                    let _ = watch.ended(rank, listener);
                }
                listener.tick();
                self.beside.stay();
                tick = next();
            }
            let _ = watch.look(listener);
            if bed.was_asked() {
                listener.asked();
            }
            bed.until = tick;
            let _ = watch.sleep(&mut bed);
        }
        drop(registration);
    }

    /// The moments at which this rank looks, if each rank is to be looked at every `gap`.
    fn ticks(&self, gap: Duration) -> Option<Ticks> {
        let layout = self.world.layout();
        Ticks::staggered(self.rank, layout.ranks(), layout.watchers(), gap)
    }
}

/// The ticks of a rank that is told that time passes.
fn observed(ticks: Option<Ticks>) -> Ticks {
    ticks.map_or(Ticks::every(OBSERVED), |ticks| ticks.at_least_every(OBSERVED))
}
