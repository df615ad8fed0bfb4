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

/// A segment for ranks that are threads of this process: a robust list belongs to one thread.
pub(super) fn segment(ranks: usize) -> Arc<MappedSegment> {
    let layout = Layout::new(ranks, 4096).unwrap();
    let mapping = Mapping::anonymous(layout.len()).unwrap();
    MappedSegment::initialise(&mapping, &layout, 1, SegmentSettings::default()).unwrap();
    Arc::new(MappedSegment::new(mapping, layout))
}

/// Sends the dead ranks to the test.
struct DeathRecorder(Sender<usize>);

impl watch::Listener for DeathRecorder {
    fn end(&self, _: usize) {}

    fn died(&self, dead: usize) {
        // A test may have dropped the receiver.
        let _ = self.0.send(dead);
    }
}

impl Listener for DeathRecorder {}

/// A watcher, and the deaths that it reports.
fn watch(mapped: &Arc<MappedSegment>, rank: usize) -> (Watcher, Receiver<usize>) {
    let (sender, died) = channel();
    (Watcher::start(mapped, rank, DeathRecorder(sender), Detection::Wake).unwrap(), died)
}

/// Registers a thread as a rank, which ends without leaving.
fn die(mapped: &Arc<MappedSegment>, rank: usize) {
    let mapped = Arc::clone(mapped);
    let registered =
        move || std::mem::forget(Registration::new(&mapped, PLATFORM, rank).expect("Linux has robust lists"));
    thread::spawn(registered).join().unwrap();
}

fn words(mapped: &MappedSegment, owner: usize) -> Vec<u32> {
    mapped.roll().row(owner).iter().map(|slot| slot.word.load(Ordering::Acquire)).collect()
}

/// Waits until a condition holds.
pub(super) fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "{what}");
        thread::yield_now();
    }
}

#[test]
fn the_end_of_a_thread_marks_all_its_words_and_no_other() {
    for ranks in [2, 5, 9, 20] {
        let mapped = segment(ranks);
        die(&mapped, 1);
        for rank in 0..ranks {
            let expected = if rank == 1 { DIED } else { 0 };
            assert_eq!(words(&mapped, rank), vec![expected; WATCHERS.min(ranks - 1)], "rank {rank} of {ranks}");
        }
    }
}

#[test]
fn leaving_is_no_death() {
    let mapped = segment(3);
    let leaving = Arc::clone(&mapped);
    thread::spawn(move || drop(Registration::new(&leaving, PLATFORM, 2).unwrap())).join().unwrap();
    assert!(words(&mapped, 2).iter().all(|word| word & LEFT == LEFT));
}

#[test]
fn the_kernel_does_not_have_the_list_of_a_thread_that_has_left() {
    let mapped = segment(3);
    let list = || {
        let (mut list, mut len) = (std::ptr::null_mut::<u8>(), 0usize);
        // SAFETY: it writes the address and the length of this thread's list into live variables.
        let status = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut list, &raw mut len) };
        assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
        list
    };
    let leave = move || {
        let registration = Registration::new(&mapped, PLATFORM, 2).unwrap();
        assert!(!list().is_null());
        drop(registration);
        assert!(list().is_null(), "the kernel would read memory that is free");
    };
    thread::spawn(leave).join().unwrap();
}

#[test]
fn the_kernel_does_not_mark_an_overwritten_word() {
    let mapped = segment(3);
    let damaged = Arc::clone(&mapped);
    let die_damaged = move || {
        let registration = Registration::new(&damaged, PLATFORM, 2).unwrap();
        damaged.roll().row(2)[0].word.store(12345, Ordering::Relaxed);
        std::mem::forget(registration);
    };
    thread::spawn(die_damaged).join().unwrap();
    assert_eq!(words(&mapped, 2), [12345, DIED]);
}

#[test]
fn every_watcher_reports_a_death_once() {
    let mapped = segment(4);
    let watchers: Vec<_> = (0..3).map(|rank| watch(&mapped, rank)).collect();
    die(&mapped, 3);
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
fn a_death_reaches_watchers_that_do_not_watch_the_rank() {
    let ranks = WATCHERS + 4;
    let mapped = segment(ranks);
    // The first three watch other ranks.
    let watchers: Vec<_> = (0..ranks - 1).map(|rank| watch(&mapped, rank)).collect();
    die(&mapped, ranks - 1);
    for (_, died) in &watchers {
        assert_eq!(died.recv_timeout(LIMIT), Ok(ranks - 1));
    }
    let fate = || mapped.roll().fates[ranks - 1].load(Ordering::Acquire);
    await_that("the death is announced", || fate() == NOTICED | ANNOUNCED);
}

#[test]
fn a_watcher_skips_ranks_that_have_left() {
    let ranks = 2 * WATCHERS + 4;
    let mapped = segment(ranks);
    let (_first, died) = watch(&mapped, 0);
    let between: Vec<_> = (1..ranks - 1).map(|rank| watch(&mapped, rank)).collect();
    drop(between);
    die(&mapped, ranks - 1);
    assert_eq!(died.recv_timeout(LIMIT), Ok(ranks - 1));
    assert_eq!(died.try_iter().count(), 0, "no other rank has died");
}

#[test]
fn polling_finds_a_death() {
    let mapped = segment(3);
    let (sender, died) = channel();
    let end = Arc::new(AtomicU32::new(RUNNING));
    let watcher = WatcherThread {
        processes: Processes::new(&mapped, 0),
        mapped: Arc::clone(&mapped),
        end: Arc::clone(&end),
        rank: 0,
        scan: true,
        report_requests: None,
        listener: DeathRecorder(sender),
    };
    let (ready, registered) = sync_channel(1);
    let thread = thread::spawn(move || watcher.run(&ready));
    registered.recv().unwrap();
    die(&mapped, 2);
    assert_eq!(died.recv_timeout(LIMIT), Ok(2));
    end.store(ENDING, Ordering::Release);
    futex::wake_all(&end);
    thread.join().unwrap();
    assert!(words(&mapped, 0).iter().all(|word| word & LEFT == LEFT));
}

#[test]
fn watchers_that_start_and_end_report_no_death() {
    let mapped = segment(3);
    let (first, died) = watch(&mapped, 0);
    drop(watch(&mapped, 1));
    drop(watch(&mapped, 2));
    drop(first);
    assert_eq!(died.iter().count(), 0);
    assert!((0..3).flat_map(|rank| words(&mapped, rank)).all(|word| word & LEFT == LEFT));
}

#[test]
fn a_dropped_watcher_ends_its_thread_and_releases_the_segment() {
    let mapped = segment(2);
    let (watcher, _died) = watch(&mapped, 0);
    drop(watcher);
    assert_eq!(Arc::strong_count(&mapped), 1);
}

#[test]
fn no_signal_interrupts_a_watcher() {
    let mapped = segment(2);
    let (_watcher, _died) = watch(&mapped, 0);
    // Not any thread of this name: those of other tests may be ending, and then have no mask.
    let watcher = words(&mapped, 0)[0] & libc::FUTEX_TID_MASK;
    let status = std::fs::read_to_string(format!("/proc/self/task/{watcher}/status")).unwrap();
    assert!(status.contains("intranode-watch"), "{status}");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    for signal in [libc::SIGALRM, libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGUSR1] {
        assert!(mask >> (signal - 1) & 1 == 1, "signal {signal} is not blocked in {mask:x}");
    }
}

#[test]
fn a_forked_child_neither_waits_for_the_thread_nor_marks_the_words() {
    let mapped = segment(2);
    let (watcher, _died) = watch(&mapped, 0);
    let mut watcher = Some(watcher);
    assert!(in_forked_child(|| {
        drop(watcher.take());
        true
    }));
    assert!(words(&mapped, 0).iter().all(|word| *word != DIED && word & LEFT != LEFT));
}

#[test]
fn a_single_rank_s_watcher_ticks_and_ends() {
    struct TickRecorder(Sender<()>);
    impl watch::Listener for TickRecorder {
        fn end(&self, _: usize) {}
        fn died(&self, _: usize) {}
    }
    impl Listener for TickRecorder {
        fn needs_ticks(&self) -> bool {
            true
        }
        fn tick(&self) {
            let _ = self.0.send(());
        }
    }
    let mapped = segment(1);
    let (sender, ticks) = channel();
    let watcher = Watcher::start(&mapped, 0, TickRecorder(sender), Detection::Wake).unwrap();
    assert_eq!(ticks.recv_timeout(LIMIT), Ok(()));
    drop(watcher);
    assert_eq!(Arc::strong_count(&mapped), 1);
}

#[test]
fn a_refused_wait_differs_from_one_that_ended() {
    let word = AtomicU32::new(5);
    let mut list = WaitList::default();
    list.push(&word, 4);
    assert_eq!(list.wait(None), Ok(()), "the word has changed");
    list.clear();
    list.push(&word, 5);
    assert_eq!(list.wait(Some(Moment::now())), Ok(()), "the time has passed");
    // More than the kernel accepts.
    (0..128).for_each(|_| list.push(&word, 5));
    assert_eq!(list.wait(Some(Moment::after(LIMIT))), Err(Refused), "one word too many");
}
