use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{env, fs, process};

use super::*;
use crate::sys::memory::mapping::Mapping;
use crate::sys::testing::{Helper, LIMIT, next_line, role};

const HELPER: &str = "sys::wait::pthread::tests::helper";

/// Longer than any test, so that the bounded sleep does not hide a lost wake-up.
const ENDLESS: u64 = 2 * LIMIT.as_nanos() as u64;

/// A pair and words in shared memory.
struct Shared {
    mapping: Mapping,
}

impl Shared {
    fn pair(&self) -> &Pair {
        // SAFETY: the pair is at the start, initialised by `PairFile::new`, and mapped for as long as `self`.
        unsafe { Pair::at(self.mapping.start()) }
    }

    fn word(&self, i: usize) -> &AtomicU32 {
        let offset = PAIR_SIZE.next_multiple_of(64) + i * size_of::<AtomicU32>();
        assert!(offset < self.mapping.len());
        // SAFETY: an aligned word inside the mapping, accessed as an atomic only.
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
    fn wait_for(&self, i: usize, value: u32) {
        loop {
            let current = self.word(i).load(Ordering::Acquire);
            if current >= value {
                return;
            }
            let deadline = now() + LIMIT.as_nanos() as u64;
            assert!(
                !self.pair().wait_bounded(self.word(i), current, Some(deadline), ENDLESS),
                "a wake-up was lost"
            );
        }
    }

    /// The other side of a ping-pong: advances its own word each time that word 0 has advanced.
    fn pong(&self, rounds: u32, own: usize) {
        for round in 1..=rounds {
            self.wait_for(0, round);
            self.advance(own);
        }
    }
}

/// A file with a pair, removed on drop.
struct PairFile {
    path: PathBuf,
    shared: Shared,
}

impl PairFile {
    fn new(test: &str) -> Self {
        let path = env::temp_dir().join(format!("pair-{}-{test}", process::id()));
        fs::write(&path, [0; 4096]).unwrap();
        let shared = Shared::open(path.to_str().unwrap());
        // SAFETY: fresh memory, long enough, aligned to a page.
        unsafe { Pair::init(shared.mapping.start()) }.unwrap();
        PairFile { path, shared }
    }

    fn helper(&self) -> Helper {
        let mut helper = Helper::start(HELPER, "pair");
        helper.send(self.path.to_str().unwrap());
        helper
    }
}

impl Drop for PairFile {
    fn drop(&mut self) {
        fs::remove_file(&self.path).unwrap();
    }
}

fn after(millis: u64) -> Option<u64> {
    Some(now() + millis * 1_000_000)
}

#[test]
fn a_word_that_has_changed_ends_a_wait_at_once() {
    let file = PairFile::new("changed");
    assert!(!file.shared.pair().wait(file.shared.word(0), 1, after(0)));
    assert!(!file.shared.pair().wait(file.shared.word(0), 1, None));
}

#[test]
fn a_deadline_is_honoured() {
    let file = PairFile::new("deadline");
    // Shorter than one bounded sleep, longer than several, already over.
    for millis in [1, 35, 0] {
        let start = Instant::now();
        assert!(file.shared.pair().wait(file.shared.word(0), 0, after(millis)));
        let elapsed = start.elapsed();
        assert!(elapsed >= Duration::from_millis(millis), "{elapsed:?}");
        assert!(elapsed < Duration::from_millis(millis) + Duration::from_secs(5), "{elapsed:?}");
    }
    assert!(file.shared.pair().wait(file.shared.word(0), 0, Some(0)));
}

#[test]
fn a_change_without_a_wake_up_is_seen_after_a_bounded_sleep() {
    let file = PairFile::new("bounded");
    thread::scope(|scope| {
        scope.spawn(|| assert!(!file.shared.pair().wait(file.shared.word(0), 0, None)));
        file.shared.word(0).store(1, Ordering::Relaxed);
    });
}

#[test]
fn no_wake_up_is_lost_between_threads() {
    const ROUNDS: u32 = 20_000;
    let file = PairFile::new("threads");
    let shared = &file.shared;
    thread::scope(|scope| {
        scope.spawn(|| shared.pong(ROUNDS, 1));
        for round in 1..=ROUNDS {
            shared.advance(0);
            shared.wait_for(1, round);
        }
    });
}

#[test]
fn no_wake_up_is_lost_between_processes() {
    const ROUNDS: u32 = 10_000;
    let file = PairFile::new("processes");
    let mut helpers = [file.helper(), file.helper(), file.helper()];
    for (i, helper) in helpers.iter_mut().enumerate() {
        helper.send(&format!("pong {ROUNDS} {}", i + 1));
    }
    for round in 1..=ROUNDS {
        file.shared.advance(0);
        (1..=helpers.len()).for_each(|i| file.shared.wait_for(i, round));
    }
    helpers.iter().for_each(|helper| assert_eq!(helper.answer(), "done"));
}

#[test]
fn no_wake_up_comes_between_loading_and_sleeping() {
    let file = PairFile::new("between");
    let waking = AtomicU32::new(0);
    thread::scope(|scope| {
        let locked = file.shared.pair().lock(now()).unwrap();
        scope.spawn(|| {
            waking.store(1, Ordering::Relaxed);
            file.shared.pair().wake_all_within(ENDLESS);
        });
        while waking.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        // Time in which a broadcast that does not wait for the mutex would be lost.
        thread::sleep(PTHREAD_LOCK_PAUSE);
        let until = now() + LIMIT.as_nanos() as u64;
        locked.sleep(until);
        assert!(now() < until, "a wake-up was lost");
    });
}

#[test]
fn all_sleepers_are_woken() {
    const SLEEPERS: u32 = 6;
    let file = PairFile::new("all");
    let shared = &file.shared;
    for round in 1..=200 {
        thread::scope(|scope| {
            for _ in 0..SLEEPERS {
                scope.spawn(|| {
                    shared.word(1).fetch_add(1, Ordering::Relaxed);
                    shared.wait_for(0, round);
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
fn the_mutex_of_a_killed_owner_is_recovered() {
    let file = PairFile::new("killed");
    for _ in 0..3 {
        let mut helper = file.helper();
        helper.send("hold");
        assert_eq!(helper.answer(), "held");
        assert!(file.shared.pair().lock(now()).is_none());
        helper.kill();
        // More than once: a robust mutex that is not made consistent becomes unusable.
        for _ in 0..3 {
            assert!(file.shared.pair().lock(now()).is_some());
        }
    }
    let value = file.shared.word(0).load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| file.shared.wait_for(0, value + 1));
        file.shared.advance(0);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_sleeper_recovers_the_mutex_of_a_killed_owner() {
    let file = PairFile::new("asleep");
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| file.shared.wait_for(0, 1));
        let mut helper = file.helper();
        helper.send("hold");
        assert_eq!(helper.answer(), "held");
        // The sleeper wakes while the mutex is held by a process that then dies.
        file.shared.word(0).store(1, Ordering::Relaxed);
        file.shared.pair().wake_all();
        helper.kill();
        sleeper.join().unwrap();
    });
    assert!(file.shared.pair().lock(now()).is_some());
    assert!(file.shared.pair().lock(now()).is_some());
}

#[test]
fn a_process_that_keeps_the_mutex_blocks_no_other() {
    let file = PairFile::new("kept");
    let mut helper = file.helper();
    helper.send("hold");
    assert_eq!(helper.answer(), "held");
    assert!(file.shared.pair().wait(file.shared.word(0), 0, after(30)));
    file.shared.pair().wake_all();
    thread::scope(|scope| {
        scope.spawn(|| assert!(!file.shared.pair().wait(file.shared.word(0), 0, None)));
        file.shared.advance(0);
    });
    assert!(file.shared.pair().lock(now()).is_none(), "the helper still holds it");
}

/// What the other processes of these tests run.
#[test]
#[ignore = "other tests run it in a process of its own"]
fn helper() {
    if role().as_deref() != Some("pair") {
        return println!("not for running alone");
    }
    let shared = Shared::open(&next_line().unwrap());
    let mut held = None;
    while let Some(line) = next_line() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["hold"] => {
                held = shared.pair().lock(now() + ENDLESS);
                eprintln!("{}", if held.is_some() { "held" } else { "not held" });
            }
            ["pong", rounds, own] => {
                let (rounds, own) = (rounds.parse().unwrap(), own.parse().unwrap());
                shared.pong(rounds, own);
                eprintln!("done");
            }
            _ => eprintln!("unknown command {line:?}"),
        }
    }
    drop(held);
}
