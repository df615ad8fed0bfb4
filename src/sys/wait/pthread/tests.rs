use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::time::Instant;
use std::{env, fs, process};

use super::*;
use crate::sys::memory::mapping::Mapping;
use crate::sys::testing::{Helper, LIMIT, role, told};

const HELPER: &str = "sys::wait::pthread::tests::helper";

/// So long that the slices do not hide a wake-up that was lost.
const ENDLESS: u64 = 2 * LIMIT.as_nanos() as u64;

/// A pair and words in memory that processes share.
struct Shared {
    mapping: Mapping,
}

impl Shared {
    fn pair(&self) -> &Pair {
        // SAFETY: the pair is at the start, made by `Room::new`, and mapped for as long as `self`.
        unsafe { Pair::at(self.mapping.start()) }
    }

    fn word(&self, i: usize) -> &AtomicU32 {
        let offset = PAIR_SIZE.next_multiple_of(64) + i * size_of::<AtomicU32>();
        assert!(offset < self.mapping.len());
        // SAFETY: an aligned word inside the mapping, which is used as an atomic only.
        unsafe { &*self.mapping.start().wrapping_add(offset).cast::<AtomicU32>() }
    }

    fn open(path: &str) -> Self {
        let file = File::options().read(true).write(true).open(path).unwrap();
        Shared { mapping: Mapping::of(&file, 4096).unwrap() }
    }

    /// Adds one to a word and wakes.
    fn advance(&self, i: usize) {
        self.word(i).fetch_add(1, Ordering::Release);
        self.pair().wake_all();
    }

    /// Waits until a word has reached a value; only a wake-up ends the wait.
    fn reach(&self, i: usize, value: u32) {
        loop {
            let seen = self.word(i).load(Ordering::Acquire);
            if seen >= value {
                return;
            }
            let deadline = now() + LIMIT.as_nanos() as u64;
            assert!(
                !self.pair().wait_in_slices(self.word(i), seen, Some(deadline), ENDLESS),
                "a wake-up was lost"
            );
        }
    }

    /// Follows word 0 with a word of its own.
    fn answer_turns(&self, turns: u32, own: usize) {
        for turn in 1..=turns {
            self.reach(0, turn);
            self.advance(own);
        }
    }
}

/// A file with a pair, removed on drop.
struct Room {
    path: PathBuf,
    shared: Shared,
}

impl Room {
    fn new(test: &str) -> Self {
        let path = env::temp_dir().join(format!("pair-{}-{test}", process::id()));
        fs::write(&path, [0; 4096]).unwrap();
        let shared = Shared::open(path.to_str().unwrap());
        // SAFETY: fresh memory, long enough, aligned to a page.
        unsafe { Pair::init(shared.mapping.start()) }.unwrap();
        Room { path, shared }
    }

    fn helper(&self) -> Helper {
        let mut helper = Helper::start(HELPER, "pair");
        helper.tell(self.path.to_str().unwrap());
        helper
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        fs::remove_file(&self.path).unwrap();
    }
}

fn after(millis: u64) -> Option<u64> {
    Some(now() + millis * 1_000_000)
}

#[test]
fn it_fits_its_place() {
    assert_eq!(PAIR_SIZE % PAIR_ALIGN, 0);
    const { assert!(PAIR_SIZE <= 256 && PAIR_ALIGN <= 64) };
}

#[test]
fn a_word_that_has_changed_ends_a_wait_at_once() {
    let room = Room::new("changed");
    assert!(!room.shared.pair().wait(room.shared.word(0), 1, after(0)));
    assert!(!room.shared.pair().wait(room.shared.word(0), 1, None));
}

#[test]
fn a_deadline_is_honoured() {
    let room = Room::new("deadline");
    // Shorter than a slice, longer than several; already over.
    for millis in [1, 35, 0] {
        let start = Instant::now();
        assert!(room.shared.pair().wait(room.shared.word(0), 0, after(millis)));
        let elapsed = start.elapsed();
        assert!(elapsed >= Duration::from_millis(millis), "{elapsed:?}");
        assert!(elapsed < Duration::from_millis(millis) + Duration::from_secs(5), "{elapsed:?}");
    }
    assert!(room.shared.pair().wait(room.shared.word(0), 0, Some(0)));
}

#[test]
fn a_change_without_a_wake_up_is_seen_after_a_slice() {
    let room = Room::new("slice");
    thread::scope(|scope| {
        scope.spawn(|| assert!(!room.shared.pair().wait(room.shared.word(0), 0, None)));
        room.shared.word(0).store(1, Ordering::Relaxed);
    });
}

#[test]
fn no_wake_up_is_lost_between_threads() {
    const TURNS: u32 = 20_000;
    let room = Room::new("threads");
    let shared = &room.shared;
    thread::scope(|scope| {
        scope.spawn(|| shared.answer_turns(TURNS, 1));
        for turn in 1..=TURNS {
            shared.advance(0);
            shared.reach(1, turn);
        }
    });
}

#[test]
fn no_wake_up_is_lost_between_processes() {
    const TURNS: u32 = 10_000;
    let room = Room::new("processes");
    let mut helpers = [room.helper(), room.helper(), room.helper()];
    for (i, helper) in helpers.iter_mut().enumerate() {
        helper.tell(&format!("turns {TURNS} {}", i + 1));
    }
    for turn in 1..=TURNS {
        room.shared.advance(0);
        (1..=helpers.len()).for_each(|i| room.shared.reach(i, turn));
    }
    helpers.iter().for_each(|helper| assert_eq!(helper.answer(), "done"));
}

#[test]
fn no_wake_up_comes_between_looking_and_sleeping() {
    let room = Room::new("between");
    let waking = AtomicU32::new(0);
    thread::scope(|scope| {
        let locked = room.shared.pair().lock(now()).unwrap();
        scope.spawn(|| {
            waking.store(1, Ordering::Relaxed);
            room.shared.pair().wake_all_within(ENDLESS);
        });
        while waking.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        // Time for a wake-up that does not wait for the mutex to be too early.
        thread::sleep(NAP);
        let until = now() + LIMIT.as_nanos() as u64;
        locked.sleep(until);
        assert!(now() < until, "a wake-up was lost");
    });
}

#[test]
fn everybody_is_woken() {
    const SLEEPERS: u32 = 6;
    let room = Room::new("everybody");
    let shared = &room.shared;
    for round in 1..=200 {
        thread::scope(|scope| {
            for _ in 0..SLEEPERS {
                scope.spawn(|| {
                    shared.word(1).fetch_add(1, Ordering::Relaxed);
                    shared.reach(0, round);
                });
            }
            while shared.word(1).load(Ordering::Relaxed) < round * SLEEPERS {
                thread::yield_now();
            }
            shared.advance(0);
        });
    }
}

#[test]
#[cfg(target_os = "linux")]
fn who_is_killed_with_the_mutex_gives_it_back() {
    let room = Room::new("killed");
    for _ in 0..3 {
        let mut helper = room.helper();
        helper.tell("hold");
        assert_eq!(helper.answer(), "held");
        assert!(room.shared.pair().lock(now()).is_none());
        helper.kill();
        // More than once: an owner's death that is not dealt with makes the mutex unusable.
        for _ in 0..3 {
            assert!(room.shared.pair().lock(now()).is_some());
        }
    }
    let value = room.shared.word(0).load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| room.shared.reach(0, value + 1));
        room.shared.advance(0);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_sleeper_gets_the_mutex_of_one_that_was_killed() {
    let room = Room::new("asleep");
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| room.shared.reach(0, 1));
        let mut helper = room.helper();
        helper.tell("hold");
        assert_eq!(helper.answer(), "held");
        // The sleeper wakes up to a mutex that is taken, by one who then dies.
        room.shared.word(0).store(1, Ordering::Relaxed);
        room.shared.pair().wake_all();
        helper.kill();
        sleeper.join().unwrap();
    });
    assert!(room.shared.pair().lock(now()).is_some());
    assert!(room.shared.pair().lock(now()).is_some());
}

#[test]
fn one_that_keeps_the_mutex_delays_nobody_for_ever() {
    let room = Room::new("kept");
    let mut helper = room.helper();
    helper.tell("hold");
    assert_eq!(helper.answer(), "held");
    assert!(room.shared.pair().wait(room.shared.word(0), 0, after(30)));
    room.shared.pair().wake_all();
    thread::scope(|scope| {
        scope.spawn(|| assert!(!room.shared.pair().wait(room.shared.word(0), 0, None)));
        room.shared.advance(0);
    });
    assert!(room.shared.pair().lock(now()).is_none(), "the helper still has it");
}

#[test]
fn the_clock_only_goes_forward() {
    let last = AtomicU64::new(now());
    for _ in 0..1000 {
        let time = now();
        assert!(time >= last.swap(time, Ordering::Relaxed));
    }
}

/// What the other processes of these tests run.
#[test]
#[ignore = "other tests run it in a process of its own"]
fn helper() {
    if role().as_deref() != Some("pair") {
        return println!("not for running alone");
    }
    let shared = Shared::open(&told().unwrap());
    let mut held = None;
    while let Some(line) = told() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["hold"] => {
                held = shared.pair().lock(now() + ENDLESS);
                eprintln!("{}", if held.is_some() { "held" } else { "not held" });
            }
            ["turns", turns, own] => {
                let (turns, own) = (turns.parse().unwrap(), own.parse().unwrap());
                shared.answer_turns(turns, own);
                eprintln!("done");
            }
            _ => eprintln!("what is {line:?}?"),
        }
    }
    drop(held);
}
