//! Telling the other ranks of a fatal signal before it ends this process.
//!
//! The watchers notice a death when the process's threads end. A core dump comes before that, and can take seconds.
//!
//! A handler may interrupt anything, so it only reads atomics and makes system calls: it walks a list to which entries
//! are added and whose links never change, and poisons. Then it does what would have happened without it.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::protocol::{Cause, CauseKind, membership};
use crate::segment::mapped::MappedSegment;
use crate::segment::platform::{ShmPlatform, Wait};
use crate::sys::handler;

/// The signals that end a process because of a mistake of its own.
const SIGNALS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT, libc::SIGILL, libc::SIGFPE];

/// What was there before the handler, by the signals' order.
static BEFORE: [OnceLock<libc::sigaction>; SIGNALS.len()] = [const { OnceLock::new() }; SIGNALS.len()];

/// All jobs of this process that want it.
static JOBS: AtomicPtr<Link> = AtomicPtr::new(ptr::null_mut());

/// How many handlers are walking the list.
static WALKING: AtomicUsize = AtomicUsize::new(0);

/// A place for a job. Never freed, but used again.
struct Link {
    job: AtomicPtr<Job>,
    next: *const Link,
}

struct Job {
    world: Arc<MappedSegment>,
    machine: ShmPlatform,
    rank: usize,
}

/// While this lives, a fatal signal in this process ends the communicator for the other ranks.
pub(crate) struct FatalSignals {
    link: &'static Link,
    world: Arc<MappedSegment>,
}

// SAFETY: I11: a link is shared by all threads anyway; its atomic is all that changes.
unsafe impl Sync for Link {}

impl FatalSignals {
    pub(crate) fn announce(world: &Arc<MappedSegment>, machine: ShmPlatform, rank: usize) -> io::Result<Self> {
        install()?;
        // A pthread wait looks again after a moment, and a handler must not wake it: no mutexes here.
        let wait = if let Wait::Pthread(_) = machine.wait { Wait::Threads } else { machine.wait };
        let job = Box::into_raw(Box::new(Job {
            world: Arc::clone(world),
            machine: ShmPlatform { wait, ..machine },
            rank,
        }));
        let free = |link: &&Link| {
            link.job.compare_exchange(ptr::null_mut(), job, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        let link = links().find(free).unwrap_or_else(|| add(job));
        Ok(FatalSignals { link, world: Arc::clone(world) })
    }
}

impl Drop for FatalSignals {
    fn drop(&mut self) {
        if self.world.forked() {
            // A handler that was at work in the parent never ends here.
            return;
        }
        let job = self.link.job.swap(ptr::null_mut(), Ordering::SeqCst);
        // SeqCst, here and in the handler: either it finds the place empty, or it is seen here.
        while WALKING.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        // SAFETY: I11: `announce` made it, and nobody can find it any more.
        drop(unsafe { Box::from_raw(job) });
    }
}

fn add(job: *mut Job) -> &'static Link {
    static ADDING: Mutex<()> = Mutex::new(());
    let _adding = ADDING.lock().unwrap_or_else(PoisonError::into_inner);
    let next = JOBS.load(Ordering::SeqCst);
    let link = Box::leak(Box::new(Link { job: AtomicPtr::new(job), next }));
    JOBS.store(link, Ordering::SeqCst);
    link
}

fn links() -> impl Iterator<Item = &'static Link> {
    // SAFETY: I11: null or leaked.
    let link = |at: *const Link| unsafe { at.as_ref() };
    std::iter::successors(link(JOBS.load(Ordering::SeqCst)), move |before| link(before.next))
}

/// Puts the handler in place, once and for good: taking it out could break a chain.
fn install() -> io::Result<()> {
    static RESULT: OnceLock<Result<(), i32>> = OnceLock::new();
    let install_all =
        || SIGNALS.iter().zip(&BEFORE).try_for_each(|(signal, before)| install_one(*signal, before));
    let result = RESULT.get_or_init(|| install_all().map_err(|error| error.raw_os_error().unwrap_or_default()));
    result.map_err(io::Error::from_raw_os_error)
}

fn install_one(signal: c_int, before: &OnceLock<libc::sigaction>) -> io::Result<()> {
    let old = handler::current(signal)?;
    if old.sa_sigaction == libc::SIG_IGN {
        // It does not end this process.
        return Ok(());
    }
    // Before the handler can run.
    let _ = before.set(old);
    handler::set(signal, handle, 0)
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // It returns where a segment was cut short, and to a handler of the program's that goes on.
    handler::keep_errno(|| tell(signal, info, context));
}

fn tell(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    WALKING.fetch_add(1, Ordering::SeqCst);
    // SAFETY: I11: while this is counted as walking, a job that can be found is not freed.
    let jobs = || links().filter_map(|link| unsafe { link.job.load(Ordering::SeqCst).as_ref() });
    let jobs = || jobs().filter(|job| !job.world.forked());
    // A segment that somebody has cut short is an error of this rank's calls, not its end.
    let torn = gone(signal, info).is_some_and(|address| jobs().any(|job| job.world.tear(address)));
    if !torn {
        for job in jobs() {
            let cause = Cause { kind: CauseKind::Died, rank: job.rank, detail: 0 };
            let _ = membership::poison(&job.machine, job.world.segment(), cause);
        }
    }
    WALKING.fetch_sub(1, Ordering::SeqCst);
    if !torn {
        go_on(signal, info, context);
    }
}

/// The address of memory that is gone, if that is what the signal is about.
fn gone(signal: c_int, info: *mut libc::siginfo_t) -> Option<usize> {
    // SAFETY: I7: the kernel gives every handler a live description of its signal.
    let info = unsafe { info.as_ref() }?;
    if signal != libc::SIGBUS || info.si_code != BUS_ADRERR {
        return None;
    }
    // SAFETY: I7: such a signal has an address.
    Some(unsafe { info.si_addr() }.addr())
}

/// Memory that does not exist: the file ends before it.
const BUS_ADRERR: c_int = 2;

/// Does what would have happened without this handler.
fn go_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before =
        SIGNALS.iter().zip(&BEFORE).find(|(known, _)| **known == signal).and_then(|(_, old)| old.get());
    if before.is_some_and(|before| handler::call(before, signal, info, context)) {
        return;
    }
    let _ = handler::set_default(signal);
    // SAFETY: I7: the kernel gives every handler a live description of its signal.
    let sent = unsafe { (*info).si_code } <= 0;
    if sent {
        // SAFETY: I7: touches no memory. It is delivered when the handler returns.
        unsafe { libc::raise(signal) };
    }
    // Otherwise the faulty instruction is tried again, and ends the process with all that a core dump can tell.
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::layout::Layout;
    use crate::segment::settings::SegmentSettings;
    use crate::sys::memory::mapping::Mapping;
    use crate::sys::wait::spin::SpinPolicy;

    /// That the handler does its work is shown over real processes: it is the last thing that they do.
    #[test]
    fn places_are_used_again_and_let_go_of_the_segment() {
        let layout = Layout::new(2, 4096).unwrap();
        let mapping = Mapping::anonymous(layout.len()).unwrap();
        MappedSegment::initialise(&mapping, &layout, 1, SegmentSettings::default()).unwrap();
        let world = Arc::new(MappedSegment::new(mapping, layout));
        let machine = ShmPlatform { wait: Wait::Threads, spin: SpinPolicy::new(1, 1), timeout: None };
        for _ in 0..3 {
            let both = [0, 1].map(|rank| FatalSignals::announce(&world, machine, rank).unwrap());
            assert_eq!(links().count(), 2);
            drop(both);
        }
        assert_eq!(Arc::strong_count(&world), 1);
    }
}
