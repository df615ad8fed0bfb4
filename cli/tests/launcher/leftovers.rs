//! Nothing is left behind.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{eventually, run, script, start, unique};

/// A rank that dies while it joins leaves its segment's name.
const DIES_JOINING: &str = ": > /dev/shm$INTRANODE_NAME; echo $INTRANODE_NAME; kill -9 $$";

#[test]
fn the_segment_of_a_rank_that_died_joining_is_removed() {
    let finished = run(script(["-n", "1"], DIES_JOINING));
    assert_eq!(finished.code(), 128 + 9);
    assert!(!Path::new("/dev/shm").join(&finished.stdout.trim()[1..]).exists());
}

#[test]
fn the_segment_of_a_given_name_is_not_the_launcher_s() {
    let name = format!("/given-{}", unique());
    let finished = run(script(["-n", "1", "--name", &name], DIES_JOINING));
    assert_eq!(finished.code(), 128 + 9);
    fs::remove_file(Path::new("/dev/shm").join(&name[1..])).unwrap();
}

#[test]
fn what_a_rank_leaves_running_ends_with_it() {
    let finished = run(script(["-n", "2"], "sleep 50 & :")).succeeded();
    assert_eq!(finished.stderr, "");
}

#[test]
fn row_15_ranks_end_within_a_second_of_a_killed_launcher() {
    // The shell's own child too, which the parent-death signal does not reach.
    let wait = ": > /dev/shm$INTRANODE_NAME; trap '' HUP INT TERM; sleep 50 & echo $INTRANODE_NAME; wait";
    let mut launcher = start(script(["-n", "2"], wait));
    let name = launcher.lines(2).remove(0);
    let file = Path::new("/dev/shm").join(&name[1..]);
    assert!(file.exists());
    let begin = Instant::now();
    launcher.signal(Signal::SIGKILL);
    // `finish` sees to it that no process is left after its own second.
    assert!(eventually(Duration::from_secs(1), || {
        launcher.processes().iter().all(|&pid| pid == launcher.pid())
    }));
    assert!(begin.elapsed() < Duration::from_secs(1));
    assert!(!file.exists());
    launcher.finish();
}
