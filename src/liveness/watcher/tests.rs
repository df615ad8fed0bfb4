use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use super::waitv::{Refused, WaitList};
use super::*;
use crate::protocol::watch::{ANNOUNCED, DIED, LEFT, NOTICED};
use crate::segment::layout::{Layout, WATCHERS};
use crate::segment::settings::SegmentSettings;
use crate::sys::memory::mapping::Mapping;
use crate::sys::testing::{LIMIT, in_forked_child};

/// A segment in which the ranks are threads of this process: a robust list is a thread's own.
fn world(ranks: usize) -> Arc<MappedSegment> {
    let layout = Layout::new(ranks, 4096).unwrap();
    let mapping = Mapping::anonymous(layout.len()).unwrap();
    MappedSegment::initialise(&mapping, &layout, 1, SegmentSettings::default()).unwrap();
    Arc::new(MappedSegment::new(mapping, layout))
}

/// Passes on whose deaths it is told of.
struct Ear(Sender<usize>);

impl watch::Listener for Ear {
    fn end(&self, _: usize) {}

    fn died(&self, dead: usize) {
        // A test may have heard enough.
        let _ = self.0.send(dead);
    }
}

impl Listener for Ear {}

/// A watcher, and whose deaths it has reported.
fn watch(world: &Arc<MappedSegment>, rank: usize) -> (Watcher, Receiver<usize>) {
    let (sender, died) = channel();
    (Watcher::start(world, rank, Ear(sender), Detection::Wake).unwrap(), died)
}

/// A thread that registers as a rank and ends without leaving.
fn die(world: &Arc<MappedSegment>, rank: usize) {
    let world = Arc::clone(world);
    let registered =
        move || std::mem::forget(Registration::new(&world, MACHINE, rank).expect("Linux has robust lists"));
    thread::spawn(registered).join().unwrap();
}

fn words(world: &MappedSegment, owner: usize) -> Vec<u32> {
    world.roll().row(owner).iter().map(|slot| slot.word.load(Ordering::Acquire)).collect()
}

/// Waits until something is so.
fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LIMIT, "{what}");
        thread::yield_now();
    }
}

#[test]
fn the_end_of_a_thread_marks_all_its_words_and_no_other() {
    for ranks in [2, 5, 9, 20] {
        let world = world(ranks);
        die(&world, 1);
        for rank in 0..ranks {
            let expected = if rank == 1 { DIED } else { 0 };
            assert_eq!(words(&world, rank), vec![expected; WATCHERS.min(ranks - 1)], "rank {rank} of {ranks}");
        }
    }
}

#[test]
fn who_leaves_has_not_died() {
    let world = world(3);
    let leaving = Arc::clone(&world);
    thread::spawn(move || drop(Registration::new(&leaving, MACHINE, 2).unwrap())).join().unwrap();
    assert!(words(&world, 2).iter().all(|word| word & LEFT == LEFT));
}

#[test]
fn a_word_that_was_overwritten_is_left_alone() {
    let world = world(3);
    let damaged = Arc::clone(&world);
    let die_damaged = move || {
        let registration = Registration::new(&damaged, MACHINE, 2).unwrap();
        damaged.roll().row(2)[0].word.store(12345, Ordering::Relaxed);
        std::mem::forget(registration);
    };
    thread::spawn(die_damaged).join().unwrap();
    assert_eq!(words(&world, 2), [12345, DIED]);
}

#[test]
fn every_peer_is_told_of_a_death_once() {
    let world = world(4);
    let watchers: Vec<_> = (0..3).map(|rank| watch(&world, rank)).collect();
    die(&world, 3);
    for (_, died) in &watchers {
        assert_eq!(died.recv_timeout(LIMIT), Ok(3));
    }
    let reports = watchers.into_iter().map(|(watcher, died)| {
        drop(watcher);
        died.iter().count()
    });
    assert_eq!(reports.collect::<Vec<_>>(), [0; 3]);
}

#[test]
fn those_who_do_not_watch_a_rank_are_told_by_those_who_do() {
    let ranks = WATCHERS + 4;
    let world = world(ranks);
    // The last three watch others.
    let watchers: Vec<_> = (0..ranks - 1).map(|rank| watch(&world, rank)).collect();
    die(&world, ranks - 1);
    for (_, died) in &watchers {
        assert_eq!(died.recv_timeout(LIMIT), Ok(ranks - 1));
    }
    let fate = || world.roll().fates[ranks - 1].load(Ordering::Acquire);
    await_that("the death is announced", || fate() == NOTICED | ANNOUNCED);
}

#[test]
fn a_watcher_looks_past_those_who_have_left() {
    let ranks = 2 * WATCHERS + 4;
    let world = world(ranks);
    let (_first, died) = watch(&world, 0);
    let between: Vec<_> = (1..ranks - 1).map(|rank| watch(&world, rank)).collect();
    drop(between);
    die(&world, ranks - 1);
    assert_eq!(died.recv_timeout(LIMIT), Ok(ranks - 1));
    assert_eq!(died.try_iter().count(), 0, "nobody else has died");
}

#[test]
fn looking_finds_what_sleeping_finds() {
    let world = world(3);
    let (sender, died) = channel();
    let end = Arc::new(AtomicU32::new(RUNNING));
    let work = Work {
        processes: Processes::new(&world, 0),
        world: Arc::clone(&world),
        end: Arc::clone(&end),
        rank: 0,
        scan: true,
        beside: Beside::this_thread(0),
        asked: None,
        listener: Ear(sender),
    };
    let (ready, registered) = sync_channel(1);
    let thread = thread::spawn(move || work.run(&ready));
    registered.recv().unwrap();
    die(&world, 2);
    assert_eq!(died.recv_timeout(LIMIT), Ok(2));
    end.store(ENDING, Ordering::Release);
    futex::wake_all(&end);
    thread.join().unwrap();
    assert!(words(&world, 0).iter().all(|word| word & LEFT == LEFT));
}

#[test]
fn watchers_come_and_go_without_a_death() {
    let world = world(3);
    let (first, died) = watch(&world, 0);
    drop(watch(&world, 1));
    drop(watch(&world, 2));
    drop(first);
    assert_eq!(died.iter().count(), 0);
    assert!((0..3).flat_map(|rank| words(&world, rank)).all(|word| word & LEFT == LEFT));
}

#[test]
fn a_watcher_ends_its_thread_and_lets_go_of_the_segment() {
    let world = world(2);
    let (watcher, _died) = watch(&world, 0);
    drop(watcher);
    assert_eq!(Arc::strong_count(&world), 1);
}

#[test]
fn no_signal_interrupts_a_watcher() {
    let world = world(2);
    let (_watcher, _died) = watch(&world, 0);
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    // Other tests have watchers too, which may end meanwhile.
    let status = |task: std::path::PathBuf| std::fs::read_to_string(task.join("status")).ok();
    let watchers: Vec<String> =
        tasks.filter_map(status).filter(|status| status.contains("intranode-watch")).collect();
    assert!(!watchers.is_empty());
    for status in watchers {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
        for signal in [libc::SIGALRM, libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGUSR1] {
            assert!(mask >> (signal - 1) & 1 == 1, "signal {signal} is not blocked in {mask:x}");
        }
    }
}

#[test]
fn a_forked_child_neither_waits_for_the_thread_nor_marks_the_words() {
    let world = world(2);
    let (watcher, _died) = watch(&world, 0);
    let mut watcher = Some(watcher);
    assert!(in_forked_child(|| {
        drop(watcher.take());
        true
    }));
    assert!(words(&world, 0).iter().all(|word| *word != DIED && word & LEFT != LEFT));
}

#[test]
fn a_single_rank_s_watcher_answers_and_ends() {
    struct Answers(Sender<()>);
    impl watch::Listener for Answers {
        fn end(&self, _: usize) {}
        fn died(&self, _: usize) {}
    }
    impl Listener for Answers {
        fn observes(&self) -> bool {
            true
        }
        fn tick(&self) {
            let _ = self.0.send(());
        }
    }
    let world = world(1);
    let (sender, ticks) = channel();
    let watcher = Watcher::start(&world, 0, Answers(sender), Detection::Wake).unwrap();
    assert_eq!(ticks.recv_timeout(LIMIT), Ok(()));
    drop(watcher);
    assert_eq!(Arc::strong_count(&world), 1);
}

#[test]
fn a_refusal_of_the_system_is_told_from_an_end_of_the_sleep() {
    let word = AtomicU32::new(5);
    let mut list = WaitList::default();
    list.push(&word, 4);
    assert_eq!(list.wait(None), Ok(()), "the word has changed");
    list.clear();
    list.push(&word, 5);
    assert_eq!(list.wait(Some(Moment::now())), Ok(()), "the time has passed");
    // More than the kernel takes.
    (0..128).for_each(|_| list.push(&word, 5));
    assert_eq!(list.wait(Some(Moment::after(LIMIT))), Err(Refused), "one word too many");
}
