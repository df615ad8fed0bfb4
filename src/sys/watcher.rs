//! Who is still alive: tells a rank when another rank's process has died, within a fraction of a millisecond.
//!
//! Every rank has a watcher, a thread that sleeps until something happens to a peer. When a thread ends, however it
//! ends, the kernel marks the words on the list that the thread has registered, and wakes who sleeps on them. It does so
//! before it takes down the process's memory, which can last for seconds. So each watcher registers one word for each
//! peer, and sleeps on the words that its peers have registered for it:
//!
//! ```text
//!                 watcher 0      watcher 1      watcher 2        the words in the segment
//!   owner 0           ·          tid of 0       tid of 0         a row: what one rank registers
//!   owner 1       tid of 1           ·          tid of 1
//!   owner 2       tid of 2       tid of 2           ·
//!                     ╰ a column: what one rank sleeps on
//! ```
//!
//! | word | meaning |
//! | --- | --- |
//! | 0 | the rank has not come yet |
//! | `FUTEX_WAITERS \| tid` | it is alive. The bit is set in advance: it makes the kernel wake |
//! | `FUTEX_WAITERS \| FUTEX_OWNER_DIED` | it has died: what the kernel writes |
//! | `FUTEX_TID_MASK` | it has left in order |
//!
//! The thread that registers must live as long as the rank does: a program's own thread may end without harm. Hence one
//! thread for this alone, which no signal interrupts. The list is per thread, so the robust mutexes of the program are
//! not affected.
//!
//! Two things stand in where that fails. Where the system refuses to let a thread sleep on many words, or has no word
//! for each pair, the watcher looks at them every [`SLICE`]. And since a word can be overwritten by mistake, it asks
//! every [`BACKUP`] whether the peers' processes still exist.

mod beside;
mod pidfd;
mod robust;
mod signals;
mod slice;
#[cfg(test)]
mod tests;
mod waitv;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use self::beside::Beside;
use self::pidfd::Processes;
use self::robust::Registration;
use self::waitv::{Refused, WaitList};
use super::clock::Moment;
use super::world::World;
use super::{asked, futex};
use crate::layout::MAX_PAIRED;

/// How often the words are looked at where sleeping on them is not possible.
const SLICE: Duration = Duration::from_millis(2);

/// How often the processes are asked for.
const BACKUP: Duration = Duration::from_millis(100);

/// The thread needs little: it calls the system and poisons.
const STACK: usize = 128 << 10;

/// Chooses looking over sleeping, so that it can be tested where both work; or to watch nobody, so that what watching
/// costs can be measured.
const VARIABLE: &str = "INTRANODE_LIVENESS";

/// What the word on which a watcher sleeps besides those of its peers holds until the watcher shall end.
const RUNNING: u32 = 0;
const ENDING: u32 = 1;

/// Whom a watcher tells, on its own thread, which must not be kept: a death is not noticed meanwhile.
pub(crate) trait Listener: Send + 'static {
    /// A rank has died.
    fn died(&self, rank: usize);

    /// Some time has passed, [`BACKUP`] or less.
    fn tick(&self) {}

    /// This process was asked for the state of its jobs.
    fn asked(&self) {}
}

impl<F: Fn(usize) + Send + 'static> Listener for F {
    fn died(&self, rank: usize) {
        self(rank);
    }
}

/// The watcher of one rank in one segment. Ends on drop, which tells the peers that this rank has left.
pub(crate) struct Watcher {
    world: Arc<World>,
    end: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Registers `rank` with its peers, and watches them: the listener is told of each that dies. Peers that have not
    /// come yet are watched from when they come.
    pub(crate) fn start(world: &Arc<World>, rank: usize, listener: impl Listener) -> io::Result<Self> {
        let end = Arc::new(AtomicU32::new(RUNNING));
        let (ready, registered) = sync_channel(1);
        let ranks = world.layout().ranks();
        let way = std::env::var(VARIABLE).unwrap_or_default();
        if way == "none" {
            return Ok(Watcher { world: Arc::clone(world), end, thread: None });
        }
        let scan = ranks > MAX_PAIRED || way == "scan";
        let mut watch = Watch {
            peers: (0..ranks).filter(|peer| *peer != rank).collect(),
            words: WaitList::with_capacity(ranks),
            processes: Processes::new(world, rank),
            world: Arc::clone(world),
            end: Arc::clone(&end),
            rank,
            scan,
            beside: Beside::this_thread(ranks),
            asked: asked::count().map(|count| (count, count.load(Ordering::Acquire))),
            listener,
        };
        let run = move || {
            slice::shorten();
            let registration = Registration::new(&watch.world, rank);
            // Nobody listens any more: then the rank has left already.
            let _ = ready.send(());
            watch.run();
            drop(registration);
        };
        // The name is cut to 15 bytes.
        let builder = Builder::new().name("intranode-watch".to_owned()).stack_size(STACK);
        let thread = signals::blocked(|| builder.spawn(run))?;
        let watcher = Watcher { world: Arc::clone(world), end, thread: Some(thread) };
        // An error means that the thread has panicked, which it can not.
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

/// The state of a watcher's thread.
struct Watch<L> {
    world: Arc<World>,
    end: Arc<AtomicU32>,
    rank: usize,
    /// The ranks that have neither died nor left.
    peers: Vec<usize>,
    words: WaitList,
    processes: Processes,
    scan: bool,
    beside: Beside,
    /// How often this process was asked, and how often that was noticed.
    asked: Option<(&'static AtomicU32, u32)>,
    listener: L,
}

impl<L: Listener> Watch<L> {
    fn run(&mut self) {
        let mut backup = Moment::after(BACKUP);
        self.beside.stay();
        while self.end.load(Ordering::Acquire) == RUNNING {
            self.look_at_words();
            self.look_for_questions();
            if backup.has_passed() {
                self.look_at_processes();
                self.listener.tick();
                self.beside.stay();
                backup = Moment::after(BACKUP);
            }
            self.sleep(backup);
        }
    }

    /// Finds out who has died or left, and prepares to sleep until another does.
    fn look_at_words(&mut self) {
        let Watch { world, rank, peers, words, listener, .. } = self;
        words.clear();
        words.push(&self.end, RUNNING);
        peers.retain(|peer| {
            let word = world.alive(*peer, *rank);
            let seen = word.load(Ordering::Acquire);
            match seen {
                robust::DIED => listener.died(*peer),
                robust::LEFT => {}
                _ => words.push(word, seen),
            }
            !matches!(seen, robust::DIED | robust::LEFT)
        });
    }

    fn look_for_questions(&mut self) {
        let Some((count, noticed)) = &mut self.asked else { return };
        let now = count.load(Ordering::Acquire);
        self.words.push(count, now);
        if now != *noticed {
            *noticed = now;
            self.listener.asked();
        }
    }

    fn look_at_processes(&mut self) {
        let Watch { world, rank, peers, processes, listener, .. } = self;
        peers.retain(|peer| {
            if !processes.ended(world, *peer) {
                return true;
            }
            // Whoever leaves says so before its process ends.
            if world.alive(*peer, *rank).load(Ordering::Acquire) != robust::LEFT {
                listener.died(*peer);
            }
            false
        });
    }

    /// Sleeps until a word changes, or until the moment.
    fn sleep(&mut self, until: Moment) {
        if !self.scan {
            match self.words.wait(until) {
                Ok(()) => return,
                Err(Refused) => self.scan = true,
            }
        }
        let _ = futex::wait(&self.end, RUNNING, Some(until.min(Moment::after(SLICE))));
    }
}
