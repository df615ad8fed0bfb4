//! What every way of sleeping must do: the platform's contract, for each of them.
//!
//! The demands are programs that run on any platform; the model checkers run them on their machines too.

mod programs;

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

use super::mapped::MappedSegment;
use super::platform::{ShmPlatform, Wait};
use super::settings::SegmentSettings;
use crate::protocol::generation::WAITER;
use crate::protocol::{Payload, Platform, Slot};
use crate::segment::layout::Layout;
use crate::sys::memory::mapping::Mapping;
use crate::sys::wait::spin::SpinPolicy;
use crate::sys::wait::threads::Ticker;
use programs::{Until, change, outlast, sleep_until, spin_until, take_turns, value};

/// A segment, one word of it, and a machine that sleeps on it.
struct Bed {
    world: Arc<MappedSegment>,
    machine: ShmPlatform,
    _ticker: Option<Ticker>,
}

impl Bed {
    fn slot(&self) -> &Slot<ShmPlatform> {
        &self.world.segment().slots[0][0]
    }

    fn word(&self) -> &AtomicU32 {
        &self.slot().state
    }
}

/// How one platform sleeps.
fn bed(way: &str) -> Bed {
    let layout = Layout::new(1, 64).unwrap();
    let mapping = Mapping::anonymous(layout.len()).unwrap();
    MappedSegment::initialise(
        &mapping,
        &layout,
        1,
        SegmentSettings { pthread: way == "pthread", ..SegmentSettings::default() },
    )
    .unwrap();
    let world = Arc::new(MappedSegment::new(mapping, layout));
    let wait = if way == "threads" { Wait::Threads } else { world.wait() };
    let for_ticker = Arc::clone(&world);
    let ticker = (way == "threads").then(|| {
        Ticker::start(move |visit: &mut dyn FnMut(&AtomicU32)| visit(&for_ticker.segment().slots[0][0].state))
            .unwrap()
    });
    let machine = ShmPlatform { wait, spin: SpinPolicy::new(2, 1), timeout: None };
    let bed = Bed { world, machine, _ticker: ticker };
    // The ticker wakes those who say that they wait, as the protocols do.
    bed.word().store(value(0), Relaxed);
    bed
}

/// Two threads take turns a great many times, always asleep in between. A lost wake-up is a hang; with the settings that
/// look again by themselves, a delay of some milliseconds.
fn no_wake_up_is_lost(way: &str) {
    let turns: u32 = std::env::var("INTRANODE_HAND_OFFS").map_or(1_000_000, |turns| turns.parse().unwrap());
    alternate(way, sleep_until, turns);
}

/// The same without sleep.
fn spinning_hands_over(way: &str) {
    alternate(way, spin_until, 1000);
}

fn alternate(way: &str, until: Until<ShmPlatform>, turns: u32) {
    let bed = bed(way);
    std::thread::scope(|scope| {
        for player in [0, 1] {
            let bed = &bed;
            scope.spawn(move || take_turns(&bed.machine, bed.slot(), until, player, turns));
        }
    });
    assert_eq!(bed.word().load(Relaxed), value(turns));
}

/// A change before the wait ends it at once, without any wake-up.
fn a_change_before_the_wait_ends_it(way: &str) {
    let bed = bed(way);
    change(&bed.machine, bed.word(), value(0), value(5));
    let ended = bed.machine.wait("sleep", bed.word(), value(0), &bed.machine.deadline());
    assert_eq!(ended, Ok(()));
}

/// Every sleeper is woken, not one of them.
fn all_are_woken(way: &str) {
    let bed = bed(way);
    let asleep = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                asleep.fetch_add(1, Relaxed);
                sleep_until(&bed.machine, bed.word(), value(1));
            });
        }
        while asleep.load(Relaxed) < 4 {
            std::thread::yield_now();
        }
        change(&bed.machine, bed.word(), value(0), value(1));
    });
}

/// The deadline ends the wait: not before it, and not long after it.
fn the_deadline_is_kept(way: &str) {
    let (bed, timeout) = (bed(way), Duration::from_millis(50));
    let machine = ShmPlatform { timeout: Some(timeout), ..bed.machine };
    let start = Instant::now();
    outlast(&machine, bed.word(), value(0));
    let waited = start.elapsed();
    assert!(waited >= timeout, "{waited:?}");
    assert!(waited < Duration::from_secs(5), "{waited:?}");
}

/// Signals neither end the program nor move the deadline.
fn signals_do_not_move_the_deadline(way: &str) {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: a handler that does nothing, for a signal that nobody else uses here.
    unsafe { libc::signal(libc::SIGURG, nothing as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    let (way, done) = (way.to_owned(), Arc::new(AtomicBool::new(false)));
    let finished = Arc::clone(&done);
    let waiter = std::thread::spawn(move || {
        the_deadline_is_kept(&way);
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

macro_rules! contract {
    ($($way:ident)*) => {$(
        mod $way {
            #[test]
            fn no_wake_up_is_lost() {
                super::no_wake_up_is_lost(stringify!($way));
            }

            #[test]
            fn spinning_hands_over() {
                super::spinning_hands_over(stringify!($way));
            }

            #[test]
            fn a_change_before_the_wait_ends_it() {
                super::a_change_before_the_wait_ends_it(stringify!($way));
            }

            #[test]
            fn all_are_woken() {
                super::all_are_woken(stringify!($way));
            }

            #[test]
            fn the_deadline_is_kept() {
                super::the_deadline_is_kept(stringify!($way));
            }

            #[test]
            fn signals_do_not_move_the_deadline() {
                super::signals_do_not_move_the_deadline(stringify!($way));
            }
        }
    )*};
}

#[cfg(target_os = "linux")]
contract!(futex);
contract!(pthread threads);
