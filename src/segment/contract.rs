//! The platform's contract, tested for each wait of the production platform.
//!
//! The contract is written as programs over any platform, which the model checkers run on theirs too.

mod fences;
mod programs;

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

use super::mapped::MappedSegment;
use super::platform::{Fences, Hooks, ShmPlatform, Wait};
use super::settings::SegmentSettings;
use crate::protocol::generation::WAITER;
use crate::protocol::symmetric::SymmetricPlatform;
use crate::protocol::{Payload, Platform, Slot};
use crate::segment::layout::Layout;
use crate::sys::memory::mapping::Mapping;
#[cfg(target_os = "linux")]
use crate::sys::testing::skipped;
use crate::sys::testing::{end_of, fork, in_forked_child};
use crate::sys::wait::spin::SpinPolicy;
use crate::sys::wait::threads::Ticker;
use fences::{Side, write_and_look};
use programs::{Until, change, outlast, sleep_until, spin_until, take_turns, value};

/// A segment, of which one slot is used, and a platform.
struct Fixture {
    mapped: Arc<MappedSegment>,
    platform: ShmPlatform,
    _ticker: Option<Ticker>,
}

impl Fixture {
    fn slot(&self) -> &Slot<ShmPlatform> {
        &self.mapped.segment().slots[0][0]
    }

    fn word(&self) -> &AtomicU32 {
        &self.slot().state
    }
}

fn fixture(wait: &str) -> Fixture {
    let layout = Layout::new(1, 64).unwrap();
    let mapping = Mapping::anonymous(layout.len()).unwrap();
    MappedSegment::initialise(
        &mapping,
        &layout,
        1,
        SegmentSettings { pthread: wait == "pthread", ..SegmentSettings::default() },
    )
    .unwrap();
    let mapped = Arc::new(MappedSegment::new(mapping, layout));
    let ticked = Arc::clone(&mapped);
    let ticker = (wait == "threads").then(|| {
        Ticker::start(move |visit: &mut dyn FnMut(&AtomicU32)| visit(&ticked.segment().slots[0][0].state))
            .unwrap()
    });
    let wait = if wait == "threads" { Wait::Threads } else { mapped.wait() };
    let platform = ShmPlatform {
        wait,
        spin: SpinPolicy::new(2, 1),
        timeout: None,
        fences: Fences::default(),
        hooks: Hooks::NONE,
        recorder: None,
    };
    let fixture = Fixture { mapped, platform, _ticker: ticker };
    // With `WAITER` set, as the protocols set it before they sleep.
    fixture.word().store(value(0), Relaxed);
    fixture
}

/// Two threads take turns a million times, asleep in between. A lost wake-up is a hang, or, where sleeps are bounded, a
/// delay of some milliseconds.
fn no_wake_up_is_lost(wait: &str) {
    let usual = if cfg!(miri) { 500 } else { 1_000_000 };
    let turns: u32 = std::env::var("INTRANODE_HAND_OFFS").map_or(usual, |turns| turns.parse().unwrap());
    alternate(wait, sleep_until, turns);
}

/// The same without sleep.
fn spinning_hands_over(wait: &str) {
    alternate(wait, spin_until, 1000);
}

fn alternate(wait: &str, until: Until<ShmPlatform>, turns: u32) {
    let fixture = fixture(wait);
    std::thread::scope(|scope| {
        for player in [0, 1] {
            let fixture = &fixture;
            scope.spawn(move || take_turns(&fixture.platform, fixture.slot(), until, player, turns));
        }
    });
    assert_eq!(fixture.word().load(Relaxed), value(turns));
}

/// A change before the wait ends it at once, without any wake-up.
fn a_change_before_the_wait_ends_it(wait: &str) {
    let fixture = fixture(wait);
    let platform = &fixture.platform;
    change(platform, fixture.word(), value(0), value(5));
    let ended = platform.wait("sleep", fixture.word(), value(0), &platform.deadline());
    assert_eq!(ended, Ok(()));
}

/// Every sleeper is woken, not one of them.
fn all_are_woken(wait: &str) {
    let fixture = fixture(wait);
    let asleep = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                asleep.fetch_add(1, Relaxed);
                sleep_until(&fixture.platform, fixture.word(), value(1));
            });
        }
        while asleep.load(Relaxed) < 4 {
            std::thread::yield_now();
        }
        change(&fixture.platform, fixture.word(), value(0), value(1));
    });
}

/// The deadline ends the wait: not before it, and not long after it.
fn the_deadline_is_kept(wait: &str) {
    let (fixture, timeout) = (fixture(wait), Duration::from_millis(50));
    let platform = ShmPlatform { timeout: Some(timeout), ..fixture.platform };
    let start = Instant::now();
    outlast(&platform, fixture.word(), value(0));
    let waited = start.elapsed();
    assert!(waited >= timeout, "{waited:?}");
    assert!(waited < Duration::from_secs(5), "{waited:?}");
}

/// Signals neither end the program nor move the deadline.
fn signals_do_not_move_the_deadline(wait: &str) {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: a handler that does nothing, for a signal that no other test uses.
    unsafe { libc::signal(libc::SIGURG, nothing as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    let (wait, done) = (wait.to_owned(), Arc::new(AtomicBool::new(false)));
    let finished = Arc::clone(&done);
    let waiter = std::thread::spawn(move || {
        the_deadline_is_kept(&wait);
        finished.store(true, Release);
    });
    let thread = waiter.as_pthread_t();
    while !done.load(Acquire) {
        // SAFETY: the thread is joined only below.
        unsafe { libc::pthread_kill(thread, libc::SIGURG) };
        std::thread::sleep(Duration::from_micros(100));
    }
    waiter.join().unwrap();
}

/// Memory that forked processes share, as words.
fn shared_words(len: usize) -> &'static [AtomicU32] {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANON);
    // SAFETY: new memory, at any address; it stays mapped.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), 4 * len, access, kind, -1, 0) };
    assert!(start != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
    // SAFETY: it has this length, is zeroed and aligned to a page, and is accessed by atomics only.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}

/// Where in these words is what: on lines of their own, what each side writes, and how many turns it has come to. Behind
/// them, by turn, whether it saw the other.
const LINE: usize = 32;
const SEEN: usize = 4 * LINE;

const FENCE_TURNS: u32 = 100_000;

/// One side of all turns. Both begin each turn at the same moment, or apart by a little, which changes from turn to turn.
fn fence_turns(platform: &ShmPlatform, side: Side, words: &[AtomicU32]) {
    let (own, other) = if side == Side::Light { (0, 1) } else { (1, 0) };
    for turn in 1..=FENCE_TURNS {
        words[(2 + own) * LINE].store(turn, Release);
        let mut polls = 0u32;
        while words[(2 + other) * LINE].load(Acquire) < turn {
            polls += 1;
            if polls.is_multiple_of(1000) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        let apart = turn.wrapping_mul(if own == 0 { 0x9E37_79B9 } else { 0x85EB_CA6B }) >> 26;
        (0..apart).for_each(|_| std::hint::spin_loop());
        let saw = write_and_look(platform, side, &words[own * LINE], &words[other * LINE], turn);
        words[SEEN + 2 * turn as usize + own].store(u32::from(saw), Relaxed);
    }
}

/// The platform with these fences; `None` where the system does not have them.
fn with_fences(fences: Fences) -> Option<ShmPlatform> {
    let wait = Wait::Threads;
    #[cfg(target_os = "linux")]
    if fences == Fences::Membarrier && !crate::sys::membarrier::register() {
        skipped("the system has no membarrier");
        return None;
    }
    Some(ShmPlatform {
        wait,
        spin: SpinPolicy::new(2, 2),
        timeout: None,
        fences,
        hooks: Hooks::NONE,
        recorder: None,
    })
}

/// In no turn both sides miss the other's write.
fn one_side_sees_the_other(words: &[AtomicU32]) {
    let neither = |turn: &u32| {
        let at = SEEN + 2 * *turn as usize;
        words[at].load(Relaxed) + words[at + 1].load(Relaxed) == 0
    };
    let count = (1..=FENCE_TURNS).filter(neither).count();
    assert_eq!(count, 0, "in {count} of {FENCE_TURNS} turns neither side saw the other");
}

#[test]
fn fences_order_threads_symmetrically() {
    let platform = with_fences(Fences::Symmetric).expect("a system has these");
    let words = shared_words(SEEN + 2 * (FENCE_TURNS as usize + 1));
    std::thread::scope(|scope| {
        scope.spawn(|| fence_turns(&platform, Side::Heavy, words));
        fence_turns(&platform, Side::Light, words);
    });
    one_side_sees_the_other(words);
}

/// Both sides are processes of one thread, and each has a processor of its own if there are two.
fn fences_order_processes(fences: Fences) {
    let Some(platform) = with_fences(fences) else { return };
    let words = shared_words(SEEN + 2 * (FENCE_TURNS as usize + 1));
    let run = |side| {
        let is_ready = bind(side) && with_fences(fences).is_some() && has_been_switched();
        if is_ready {
            fence_turns(&platform, side, words);
        }
        is_ready
    };
    let ended = in_forked_child(|| {
        let light = fork(|| run(Side::Light));
        let ended = run(Side::Heavy);
        end_of(light) && ended
    });
    assert!(ended, "a child has failed");
    one_side_sees_the_other(words);
}

/// Lets another process run on this process's processor. Behind that membarrier keeps its promise to a process of one thread: see
/// [`membarrier`](crate::sys::membarrier).
fn has_been_switched() -> bool {
    end_of(fork(|| true))
}

/// Binds this process to the first of its processors, or to the last.
fn bind(side: Side) -> bool {
    #[cfg(target_os = "linux")]
    {
        use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
        use nix::unistd::Pid;
        let this = Pid::from_raw(0);
        let Ok(usual) = sched_getaffinity(this) else { return false };
        let mut all = (0..CpuSet::count()).filter(|processor| usual.is_set(*processor) == Ok(true));
        let processor = if side == Side::Light { all.next() } else { all.next_back() };
        let mut bound = CpuSet::new();
        processor.is_some_and(|processor| bound.set(processor).is_ok())
            && sched_setaffinity(this, &bound).is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = side;
        true
    }
}

#[test]
fn fences_order_processes_symmetrically() {
    fences_order_processes(Fences::Symmetric);
}

#[cfg(target_os = "linux")]
#[test]
fn membarrier_orders_processes() {
    fences_order_processes(Fences::Membarrier);
}

macro_rules! contract {
    ($($wait:ident)*) => {$(
        mod $wait {
            #[test]
            fn no_wake_up_is_lost() {
                super::no_wake_up_is_lost(stringify!($wait));
            }

            #[test]
            fn spinning_hands_over() {
                super::spinning_hands_over(stringify!($wait));
            }

            #[test]
            fn a_change_before_the_wait_ends_it() {
                super::a_change_before_the_wait_ends_it(stringify!($wait));
            }

            #[test]
            fn all_are_woken() {
                super::all_are_woken(stringify!($wait));
            }

            #[test]
            fn the_deadline_is_kept() {
                super::the_deadline_is_kept(stringify!($wait));
            }

            #[test]
            #[cfg_attr(miri, ignore = "Miri sends no signals")]
            fn signals_do_not_move_the_deadline() {
                super::signals_do_not_move_the_deadline(stringify!($wait));
            }
        }
    )*};
}

#[cfg(target_os = "linux")]
contract!(futex);
contract!(pthread threads);
