//! Poisoning the communicators from the handler of a fatal signal.
//!
//! The watchers notice a death when the process's threads end. A core dump precedes that, and can take seconds.
//!
//! The handler is async-signal-safe: it walks an append-only list of atomics, poisons, and makes system calls. Then it
//! chains to the program's handler, or to the default action.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::protocol::{Cause, CauseKind, membership};
use crate::segment::mapped::MappedSegment;
use crate::segment::platform::{ShmPlatform, Wait};
use crate::sys::handler;

/// The synchronous signals, and that of abort(3).
const SIGNALS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT, libc::SIGILL, libc::SIGFPE];

/// The program's own actions, in the order of [`SIGNALS`].
static PREVIOUS: [OnceLock<libc::sigaction>; SIGNALS.len()] = [const { OnceLock::new() }; SIGNALS.len()];

/// The list of communicators that the handler poisons.
static SLOTS: AtomicPtr<HandlerSlot> = AtomicPtr::new(ptr::null_mut());

/// The number of handlers that are walking the list.
static WALKING: AtomicUsize = AtomicUsize::new(0);

/// A list entry. Never freed, but reused.
struct HandlerSlot {
    target: AtomicPtr<Target>,
    next: *const HandlerSlot,
}

/// One rank of one communicator.
struct Target {
    mapped: Arc<MappedSegment>,
    platform: ShmPlatform,
    rank: usize,
}

/// While this lives, a fatal signal in this process ends the communicator for the other ranks.
pub(crate) struct FatalSignals {
    slot: &'static HandlerSlot,
    mapped: Arc<MappedSegment>,
}

// SAFETY: I11: a slot may be used by several threads; only its atomic changes.
unsafe impl Sync for HandlerSlot {}

impl FatalSignals {
    pub(crate) fn register(
        mapped: &Arc<MappedSegment>,
        platform: ShmPlatform,
        rank: usize,
    ) -> io::Result<Self> {
        install()?;
        // Locking a mutex is not async-signal-safe, so the handler does not wake pthread waits. They read their words every
        // 10 ms.
        let wait = if let Wait::Pthread(_) = platform.wait { Wait::Threads } else { platform.wait };
        let target = Box::into_raw(Box::new(Target {
            mapped: Arc::clone(mapped),
            platform: ShmPlatform { wait, ..platform },
            rank,
        }));
        let try_reuse = |slot: &&HandlerSlot| {
            slot.target.compare_exchange(ptr::null_mut(), target, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        let slot = slots().find(try_reuse).unwrap_or_else(|| add_slot(target));
        Ok(FatalSignals { slot, mapped: Arc::clone(mapped) })
    }
}

impl Drop for FatalSignals {
    fn drop(&mut self) {
        if self.mapped.forked() {
            // The count includes the parent's handlers, which never end in a child.
            return;
        }
        let target = self.slot.target.swap(ptr::null_mut(), Ordering::SeqCst);
        // SeqCst, here and in the handler: either the handler finds the slot empty, or it is counted here.
        while WALKING.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        // SAFETY: I11: `register` made it, and no handler can reach it any more.
        drop(unsafe { Box::from_raw(target) });
    }
}

fn add_slot(target: *mut Target) -> &'static HandlerSlot {
    static ADDING: Mutex<()> = Mutex::new(());
    let _adding = ADDING.lock().unwrap_or_else(PoisonError::into_inner);
    let next = SLOTS.load(Ordering::SeqCst);
    let slot = Box::leak(Box::new(HandlerSlot { target: AtomicPtr::new(target), next }));
    SLOTS.store(slot, Ordering::SeqCst);
    slot
}

fn slots() -> impl Iterator<Item = &'static HandlerSlot> {
    // SAFETY: I11: null or leaked.
    let slot = |at: *const HandlerSlot| unsafe { at.as_ref() };
    std::iter::successors(slot(SLOTS.load(Ordering::SeqCst)), move |previous| slot(previous.next))
}

/// Installs the handler once and for good: a handler that was installed later may chain to it.
fn install() -> io::Result<()> {
    static RESULT: OnceLock<Result<(), i32>> = OnceLock::new();
    let install_all =
        || SIGNALS.iter().zip(&PREVIOUS).try_for_each(|(signal, previous)| install_one(*signal, previous));
    let result = RESULT.get_or_init(|| install_all().map_err(|error| error.raw_os_error().unwrap_or_default()));
    result.map_err(io::Error::from_raw_os_error)
}

fn install_one(signal: c_int, previous: &OnceLock<libc::sigaction>) -> io::Result<()> {
    let current = handler::current(signal)?;
    if current.sa_sigaction == libc::SIG_IGN {
        // An ignored signal is not fatal.
        return Ok(());
    }
    // Set before the handler can run.
    let _ = previous.set(current);
    handler::set(signal, handle, 0)
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // errno matters: the handler returns after a segment was truncated, and where the program's own handler returns.
    handler::keep_errno(|| poison_and_chain(signal, info, context));
}

fn poison_and_chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    WALKING.fetch_add(1, Ordering::SeqCst);
    // SAFETY: I11: while this handler is counted as walking, no target that it can reach is freed.
    let targets = || slots().filter_map(|slot| unsafe { slot.target.load(Ordering::SeqCst).as_ref() });
    let targets = || targets().filter(|target| !target.mapped.forked());
    // A truncated segment is an error of this rank's calls; the process goes on.
    let torn = truncated_address(signal, info)
        .is_some_and(|address| targets().any(|target| target.mapped.tear(address)));
    if !torn {
        for target in targets() {
            let cause = Cause { kind: CauseKind::Died, rank: target.rank, detail: 0 };
            let _ = membership::poison(&target.platform, target.mapped.segment(), cause);
        }
    }
    WALKING.fetch_sub(1, Ordering::SeqCst);
    if !torn {
        chain(signal, info, context);
    }
}

/// The address of an access behind the end of a mapped file.
fn truncated_address(signal: c_int, info: *mut libc::siginfo_t) -> Option<usize> {
    // SAFETY: I7: the kernel passes every handler a live description of its signal.
    let info = unsafe { info.as_ref() }?;
    if signal != libc::SIGBUS || info.si_code != BUS_ADRERR {
        return None;
    }
    // SAFETY: I7: a SIGBUS with this code has an address.
    Some(unsafe { info.si_addr() }.addr())
}

/// The file ends before the address.
const BUS_ADRERR: c_int = 2;

/// Calls the program's handler, or restores and takes the default action.
fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    release_abort();
    let previous = previous_of(signal);
    // As the system does before such a handler runs: one that returns relies on it.
    if previous.is_some_and(|previous| previous.sa_flags & libc::SA_RESETHAND != 0) {
        let _ = handler::set_default(signal);
    }
    if previous.is_some_and(|previous| handler::call(previous, signal, info, context)) {
        return;
    }
    let _ = handler::set_default(signal);
    // SAFETY: I7: the kernel passes every handler a live description of its signal.
    let sent = unsafe { (*info).si_code } <= 0;
    if sent {
        // SAFETY: I7: touches no memory. It is delivered when the handler returns.
        unsafe { libc::raise(signal) };
    }
    // Otherwise the faulting instruction is executed again, so that the core dump has the state of the fault.
}

/// Gives abort(3) its default action back, if it had that: its handler has nothing to do any more. The program's handler may call it on an
/// alternate stack without room for one more frame, as that of std does after a stack overflow: it has 8 KiB, and a frame with vectors
/// of 512 bits 3.6.
fn release_abort() {
    let is_ours = handler::current(libc::SIGABRT)
        .is_ok_and(|action| action.sa_sigaction == handle as handler::Handler as libc::sighandler_t);
    let had_none = previous_of(libc::SIGABRT).is_some_and(|action| action.sa_sigaction == libc::SIG_DFL);
    if is_ours && had_none {
        let _ = handler::set_default(libc::SIGABRT);
    }
}

/// The program's own action of a signal.
fn previous_of(signal: c_int) -> Option<&'static libc::sigaction> {
    SIGNALS.iter().zip(&PREVIOUS).find(|(known, _)| **known == signal).and_then(|(_, action)| action.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::layout::Layout;
    use crate::segment::platform::{Fences, Hooks};
    use crate::segment::settings::SegmentSettings;
    use crate::sys::memory::mapping::Mapping;
    use crate::sys::testing::in_forked_child;
    use crate::sys::wait::spin::SpinPolicy;

    /// The handler itself is tested over real processes, which it ends.
    #[test]
    fn slots_are_reused_and_release_the_segment() {
        let layout = Layout::new(2, 4096).unwrap();
        let mapping = Mapping::anonymous(layout.len()).unwrap();
        MappedSegment::initialise(&mapping, &layout, 1, SegmentSettings::default()).unwrap();
        let mapped = Arc::new(MappedSegment::new(mapping, layout));
        let platform = ShmPlatform {
            wait: Wait::Threads,
            spin: SpinPolicy::new(1, 1),
            timeout: None,
            fences: Fences::default(),
            hooks: Hooks::NONE,
            recorder: None,
        };
        for _ in 0..3 {
            let both = [0, 1].map(|rank| FatalSignals::register(&mapped, platform, rank).unwrap());
            assert_eq!(slots().count(), 2);
            drop(both);
        }
        // A child that is forked while a handler runs does not wait for its end. Here, since the slots above are counted.
        let mut registered = Some(FatalSignals::register(&mapped, platform, 0).unwrap());
        WALKING.fetch_add(1, Ordering::SeqCst);
        let ends = in_forked_child(|| {
            drop(registered.take());
            true
        });
        WALKING.fetch_sub(1, Ordering::SeqCst);
        assert!(ends, "a child waits for a handler of its parent");
        drop(registered);
        assert_eq!(Arc::strong_count(&mapped), 1);
    }
}
