use std::sync::mpsc::{Receiver, channel};
use std::thread;

use super::robust::{DIED, LEFT};
use super::*;
use crate::layout::Layout;
use crate::sys::mapping::Mapping;
use crate::sys::testing::{LIMIT, in_forked_child};
use crate::sys::world::Ways;

/// A segment in which the ranks are threads of this process: a robust list is a thread's own.
fn world(ranks: usize) -> Arc<World> {
    let layout = Layout::new(ranks, 4096).unwrap();
    let mapping = Mapping::anonymous(layout.len()).unwrap();
    World::initialise(&mapping, &layout, 1, Ways::default()).unwrap();
    Arc::new(World::new(mapping, layout))
}

/// A watcher, and whom it has reported.
fn watch(world: &Arc<World>, rank: usize) -> (Watcher, Receiver<usize>) {
    let (sender, died) = channel();
    (Watcher::start(world, rank, move |peer| sender.send(peer).unwrap()).unwrap(), died)
}

/// A thread that registers as a rank and ends without leaving.
fn die(world: &Arc<World>, rank: usize) {
    let world = Arc::clone(world);
    let registered = move || std::mem::forget(Registration::new(&world, rank).expect("Linux has robust lists"));
    thread::spawn(registered).join().unwrap();
}

fn words(world: &World, owner: usize) -> Vec<u32> {
    let ranks = 0..world.layout().ranks();
    ranks.map(|watcher| world.alive(owner, watcher).load(Ordering::Acquire)).collect()
}

#[test]
fn the_end_of_a_thread_marks_all_its_words_and_no_other() {
    for ranks in [2, 5, MAX_PAIRED, MAX_PAIRED + 1] {
        let world = world(ranks);
        die(&world, 1);
        for rank in 0..ranks {
            let expected = if rank == 1 { DIED } else { 0 };
            assert_eq!(words(&world, rank), vec![expected; ranks], "rank {rank} of {ranks}");
        }
    }
}

#[test]
fn who_leaves_has_not_died() {
    let world = world(3);
    let leaving = Arc::clone(&world);
    thread::spawn(move || drop(Registration::new(&leaving, 2).unwrap())).join().unwrap();
    assert_eq!(words(&world, 2), [LEFT; 3]);
}

#[test]
fn a_word_that_was_overwritten_is_left_alone() {
    let world = world(3);
    let damaged = Arc::clone(&world);
    let die_damaged = move || {
        let registration = Registration::new(&damaged, 2).unwrap();
        damaged.alive(2, 0).store(12345, Ordering::Relaxed);
        std::mem::forget(registration);
    };
    thread::spawn(die_damaged).join().unwrap();
    assert_eq!(words(&world, 2), [12345, DIED, DIED]);
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
fn looking_finds_what_sleeping_finds() {
    // More ranks than a watcher can sleep on.
    let world = world(MAX_PAIRED + 1);
    let (watcher, died) = watch(&world, 7);
    die(&world, 100);
    assert_eq!(died.recv_timeout(LIMIT), Ok(100));
    drop(watcher);
    assert_eq!(words(&world, 7), [LEFT; MAX_PAIRED + 1]);
}

#[test]
fn watchers_come_and_go_without_a_death() {
    let world = world(3);
    let (first, died) = watch(&world, 0);
    drop(watch(&world, 1));
    drop(watch(&world, 2));
    drop(first);
    assert_eq!(died.iter().count(), 0);
    assert!((0..3).all(|rank| words(&world, rank) == [LEFT; 3]));
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
    assert!(words(&world, 0).iter().all(|word| ![DIED, LEFT].contains(word)));
}

#[test]
fn a_refusal_of_the_system_is_told_from_an_end_of_the_sleep() {
    let word = AtomicU32::new(5);
    let mut list = WaitList::with_capacity(200);
    list.push(&word, 4);
    assert_eq!(list.wait(Moment::after(LIMIT)), Ok(()), "the word has changed");
    list.clear();
    list.push(&word, 5);
    assert_eq!(list.wait(Moment::now()), Ok(()), "the time has passed");
    (0..MAX_PAIRED).for_each(|_| list.push(&word, 5));
    assert_eq!(list.wait(Moment::after(LIMIT)), Err(Refused), "one word too many");
}
