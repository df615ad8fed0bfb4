//! What every way of sleeping must do: the platform's contract, for each of them.
//!
//! The simulated machines of the model checkers pass the same demands as models, beside them.

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

use super::machine::{Machine, Wait};
use super::mapping::Mapping;
use super::spin::SpinPolicy;
use super::thread_wait::Ticker;
use super::world::World;
use crate::layout::Layout;
use crate::protocol::generation::WAITER;
use crate::protocol::{Expired, Platform};

/// A segment, one word of it, and a machine that sleeps on it.
struct Bed {
    world: Arc<World>,
    machine: Machine,
    _ticker: Option<Ticker>,
}

impl Bed {
    fn word(&self) -> &AtomicU32 {
        &self.world.segment().records[0][0].word
    }
}

/// How one platform sleeps.
fn bed(way: &str) -> Bed {
    let layout = Layout::new(1, 64).unwrap();
    let mapping = Mapping::anonymous(layout.len()).unwrap();
    World::initialise(&mapping, &layout, 1, way == "pthread").unwrap();
    let world = Arc::new(World::new(mapping, layout));
    let wait = if way == "threads" { Wait::Threads } else { world.wait() };
    let for_ticker = Arc::clone(&world);
    let ticker = (way == "threads").then(|| {
        Ticker::start(move |visit: &mut dyn FnMut(&AtomicU32)| visit(&for_ticker.segment().records[0][0].word))
            .unwrap()
    });
    let machine = Machine { wait, spin: SpinPolicy::new(2, 1), patience: None };
    let bed = Bed { world, machine, _ticker: ticker };
    // The ticker wakes those who say that they wait, as the protocols do.
    bed.word().store(WAITER, Relaxed);
    bed
}

fn wait(bed: &Bed, expected: u32, within: Option<Duration>) -> Result<(), Expired> {
    let machine = Machine { patience: within, ..bed.machine };
    machine.wait("contract", bed.word(), expected, &machine.deadline())
}

/// Two threads take turns a great many times, always asleep in between. A lost wake-up is a hang; with the ways that
/// look again by themselves, a delay of some milliseconds.
fn no_wake_up_is_lost(way: &str) {
    let turns: u32 = std::env::var("INTRANODE_HAND_OFFS").map_or(20_000, |turns| turns.parse().unwrap());
    let bed = bed(way);
    let player = |me: u32| {
        for turn in (me..turns).step_by(2) {
            let before = turn << 1 | WAITER;
            loop {
                let seen = bed.word().load(Acquire);
                if seen == before {
                    break;
                }
                let _ = wait(&bed, seen, None);
            }
            bed.word().store((turn + 1) << 1 | WAITER, Release);
            bed.machine.wake_all("contract", bed.word());
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| player(0));
        scope.spawn(|| player(1));
    });
    assert_eq!(bed.word().load(Relaxed), turns << 1 | WAITER);
}

/// A change before the wait ends it at once, without any wake-up.
fn a_change_before_the_wait_ends_it(way: &str) {
    let bed = bed(way);
    bed.word().store(5 << 1 | WAITER, Release);
    bed.machine.wake_all("contract", bed.word());
    assert_eq!(wait(&bed, WAITER, None), Ok(()));
}

/// Every sleeper is woken, not one of them.
fn all_are_woken(way: &str) {
    let bed = bed(way);
    let asleep = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                asleep.fetch_add(1, Relaxed);
                while bed.word().load(Acquire) == WAITER {
                    let _ = wait(&bed, WAITER, None);
                }
            });
        }
        while asleep.load(Relaxed) < 4 {
            std::thread::yield_now();
        }
        bed.word().store(1 << 1 | WAITER, Release);
        bed.machine.wake_all("contract", bed.word());
    });
}

/// The deadline ends the wait: not before it, and not long after it.
fn the_deadline_is_kept(way: &str) {
    let (bed, patience) = (bed(way), Duration::from_millis(50));
    let machine = Machine { patience: Some(patience), ..bed.machine };
    let (start, deadline) = (Instant::now(), machine.deadline());
    while machine.wait("contract", bed.word(), WAITER, &deadline).is_ok() {}
    let waited = start.elapsed();
    assert!(waited >= patience, "{waited:?}");
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
