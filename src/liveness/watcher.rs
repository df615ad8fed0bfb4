//! Detects within a fraction of a millisecond that another rank's process has died, by robust futexes.
//!
//! Every rank has a watcher thread. When a thread ends in any way, the kernel marks the words of its robust list
//! (`FUTEX_OWNER_DIED`) and wakes one sleeper of each. It does so before it tears down the process's memory, which can take
//! seconds. So each watcher registers a row of words, and sleeps on a word in the row of each rank that it watches, its
//! nearest neighbours in a ring. [`crate::protocol::watch`] decides which those are, and how a death becomes known to all
//! ranks; this module contains the system calls.
//!
//! | word | meaning |
//! | --- | --- |
//! | 0 | the rank has not registered yet |
//! | `FUTEX_WAITERS \| tid` | the rank is alive. The kernel wakes a sleeper only if `FUTEX_WAITERS` is set, so it always is |
//! | `FUTEX_WAITERS \| FUTEX_OWNER_DIED` | the rank has died: written by the kernel |
//! | all bits of `FUTEX_TID_MASK` | the rank has left in order |
//!
//! The registered thread must live as long as the rank. The program's threads may end earlier, so the watcher is a thread of
//! its own, with asynchronous signals blocked. A robust list belongs to one thread, so the program's robust mutexes are not affected.
//!
//! There are two fallbacks. Where the system refuses `futex_waitv`, watchers poll the words, so that each rank is polled
//! every [`WATCH_SCAN`]. And since a word can be overwritten by mistake, watchers poll pidfds, so that each process is polled
//! every [`WATCH_TICK`]. The more ranks there are, the less often each of them polls: the total cost is constant.

mod pidfd;
mod robust;
mod sched_slice;
mod sleeper;
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

use self::pidfd::Processes;
use self::robust::Registration;
use self::sleeper::{ENDING, RUNNING, WatchSleeper};
use self::ticks::Ticks;
use super::Detection;
use crate::protocol::watch::{self, Watch};
use crate::segment::mapped::MappedSegment;
use crate::segment::platform::{Fences, Hooks, ShmPlatform, Wait};
use crate::sys::sigusr2;
use crate::sys::thread_signals;
use crate::sys::wait::clock::Moment;
use crate::sys::wait::futex;
use crate::sys::wait::spin::SpinPolicy;
use crate::tuning::{LISTENER_TICK, WATCH_SCAN, WATCH_TICK};

/// The watcher only makes system calls and poisons.
const STACK: usize = 128 << 10;

/// Watchers sleep on futexes, however the ranks wait.
const PLATFORM: ShmPlatform = ShmPlatform {
    wait: Wait::Futex,
    spin: SpinPolicy::NONE,
    timeout: None,
    fences: Fences::Symmetric,
    hooks: Hooks::NONE,
    recorder: None,
};

/// Called on the watcher's thread. Must return soon: no death is noticed meanwhile.
pub(crate) trait Listener: watch::Listener + Send + 'static {
    /// Whether [`tick`](Self::tick) must be called at least every [`LISTENER_TICK`].
    fn needs_ticks(&self) -> bool {
        false
    }

    /// Time has passed.
    fn tick(&self) {}

    /// SIGUSR2 has requested a report on this process's jobs.
    fn report_requested(&self) {}
}

/// The watcher of one rank in one segment. Drop ends it and marks the rank as having left.
pub(crate) struct Watcher {
    mapped: Arc<MappedSegment>,
    end: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Registers `rank`, and watches its neighbours, also those that register later. The listener is notified of every death.
    pub(crate) fn start(
        mapped: &Arc<MappedSegment>,
        rank: usize,
        listener: impl Listener,
        detection: Detection,
    ) -> io::Result<Self> {
        let end = Arc::new(AtomicU32::new(RUNNING));
        if detection == Detection::None {
            return Ok(Watcher { mapped: Arc::clone(mapped), end, thread: None });
        }
        let (ready, registered) = sync_channel(1);
        let thread = WatcherThread {
            processes: Processes::new(mapped, rank),
            mapped: Arc::clone(mapped),
            end: Arc::clone(&end),
            rank,
            scan: detection == Detection::Scan,
            report_requests: sigusr2::count().map(|count| (count, count.load(Ordering::Acquire))),
            listener,
        };
        // The kernel truncates names to 15 bytes.
        let builder = Builder::new().name("intranode-watch".to_owned()).stack_size(STACK);
        let thread = thread_signals::blocked(|| builder.spawn(move || thread.run(&ready)))?;
        let watcher = Watcher { mapped: Arc::clone(mapped), end, thread: Some(thread) };
        // An error would mean that the thread has panicked, which it cannot.
        let _ = registered.recv();
        Ok(watcher)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.mapped.forked() {
            // The thread exists in the parent only.
            std::mem::forget(thread);
            return;
        }
        self.end.store(ENDING, Ordering::Release);
        futex::wake_all(&self.end);
        let _ = thread.join();
    }
}

/// The state of a watcher's thread.
struct WatcherThread<L> {
    mapped: Arc<MappedSegment>,
    end: Arc<AtomicU32>,
    rank: usize,
    processes: Processes,
    /// Poll the words, even if sleeping on them is possible.
    scan: bool,
    /// The number of report requests, and how many of them were noticed.
    report_requests: Option<(&'static AtomicU32, u32)>,
    listener: L,
}

impl<L: Listener> WatcherThread<L> {
    fn run(mut self, ready: &SyncSender<()>) {
        sched_slice::shorten();
        let registration = Registration::new(&self.mapped, PLATFORM, self.rank);
        // The receiver waits for this message, so an error is not possible.
        let _ = ready.send(());
        let (mapped, listener) = (Arc::clone(&self.mapped), &self.listener);
        let mut watch = Watch::new(&PLATFORM, mapped.roll(), self.rank);
        let (ticks, scans) = (self.ticks(WATCH_TICK), self.ticks(WATCH_SCAN));
        let ticks = if listener.needs_ticks() { Some(frequent(ticks)) } else { ticks };
        let mut sleeper = WatchSleeper::new(&self.end, self.report_requests, scans, self.scan);
        let next = || ticks.map(|ticks| ticks.after(Moment::now()));
        let mut tick = next();
        // The results that are ignored here are errors in tests only, which stop a watcher at a fail point.
        while !sleeper.is_over() {
            if tick.is_some_and(Moment::has_passed) {
                let _ = watch.tick(listener);
                let present = watch.others().filter(|rank| watch.is_present(*rank));
                for rank in self.processes.ended(&mapped, present) {
                    let _ = watch.ended(rank, listener);
                }
                listener.tick();
                tick = next();
            }
            let _ = watch.look(listener);
            if sleeper.report_requested() {
                listener.report_requested();
            }
            sleeper.until = tick;
            let _ = watch.sleep(&mut sleeper);
        }
        drop(registration);
    }

    /// The moments at which this rank polls, if each rank is to be polled every `gap`.
    fn ticks(&self, gap: Duration) -> Option<Ticks> {
        let layout = self.mapped.layout();
        Ticks::staggered(self.rank, layout.ranks(), layout.watchers(), gap)
    }
}

/// The ticks for a listener that needs them.
fn frequent(ticks: Option<Ticks>) -> Ticks {
    ticks.map_or(Ticks::every(LISTENER_TICK), |ticks| ticks.at_least_every(LISTENER_TICK))
}
