//! Nothing is left behind.

use std::fs;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{Directory, eventually, intranode, run, script, skipped, start, unique};

/// A rank 0 that is killed while it waits for rank 1: it leaves its segment's name, and its own.
fn dies_joining() -> String {
    let rank = format!("INTRANODE_SIZE=2 {} __bench", env!("CARGO_BIN_EXE_intranode"));
    format!(
        "{rank} & rank=$!
        while [ ! -e /dev/shm$INTRANODE_NAME ]; do sleep 0.01; done
        echo $INTRANODE_NAME; kill -9 $rank; wait; kill -9 $$"
    )
}

fn file_of(name: &str) -> PathBuf {
    Path::new("/dev/shm").join(&name[1..])
}

#[test]
fn the_segment_of_a_rank_that_died_joining_is_removed() {
    let finished = run(script(["-n", "1"], &dies_joining()));
    assert_eq!(finished.code(), 128 + 9);
    assert!(!file_of(finished.stdout.trim()).exists());
}

#[test]
fn the_segment_of_a_given_name_is_not_the_launcher_s() {
    let name = format!("/given-{}", unique());
    let finished = run(script(["-n", "1", "--name", &name], &dies_joining()));
    assert_eq!(finished.code(), 128 + 9);
    fs::remove_file(file_of(&name)).unwrap();
}

/// Files under names that begin like the job's, whichever program wrote them.
#[test]
fn files_of_other_programs_are_left_alone() {
    let writes = "for name in '' _region_1 _new_1 _result; do
        echo precious > /dev/shm$INTRANODE_NAME$name; done; : > /dev/shm${INTRANODE_NAME}_new_2; echo $INTRANODE_NAME";
    let mut launcher = start(script(["-n", "1"], writes));
    let name = launcher.lines(1).remove(0);
    assert!(eventually(Duration::from_secs(30), || launcher.processes().is_empty()));
    let content = ["", "_region_1", "_new_1", "_result", "_new_2"].map(|suffix| {
        let file = file_of(&format!("{name}{suffix}"));
        let content = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        fs::remove_file(file).unwrap();
        content
    });
    assert_eq!(
        content.map(|content| String::from_utf8(content).unwrap()),
        ["precious\n", "precious\n", "precious\n", "precious\n", ""]
    );
    launcher.finish().succeeded();
}

#[test]
fn what_a_rank_leaves_running_ends_with_it() {
    let finished = run(script(["-n", "2"], "sleep 50 & :")).succeeded();
    assert_eq!(finished.stderr, "");
}

#[test]
fn row_15_ranks_end_within_a_second_of_a_killed_launcher() {
    // The shell's own children too, which the parent-death signal does not reach. One is a rank 0 that waits for others.
    let wait = format!(
        "trap '' HUP INT TERM; [ $INTRANODE_RANK = 0 ] && INTRANODE_SIZE=3 {} __bench & sleep 50 &
        while [ ! -e /dev/shm$INTRANODE_NAME ]; do sleep 0.01; done; echo $INTRANODE_NAME; wait",
        env!("CARGO_BIN_EXE_intranode")
    );
    let mut launcher = start(script(["-n", "2"], &wait));
    let name = launcher.lines(2).remove(0);
    let file = file_of(&name);
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

/// Also while it still starts ranks.
#[test]
fn row_15_a_launcher_killed_by_a_rank_that_has_just_started_leaves_nothing() {
    for _ in 0..20 {
        let finished = run(script(["-n", "4"], "sleep 50 & kill -9 $PPID; wait"));
        assert_eq!(finished.status.signal(), Some(9));
    }
}

#[test]
fn the_guard_kills_the_ranks_of_a_launcher_that_was_killed_inside_a_line() {
    let mut rank = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
    let mut guard = intranode(["__guard"]).stdin(Stdio::piped()).spawn().unwrap();
    write!(guard.stdin.take().unwrap(), "{}\n-", rank.id()).unwrap();
    assert!(guard.wait().unwrap().success());
    let killed = eventually(Duration::from_secs(20), || rank.try_wait().unwrap().is_some());
    if !killed {
        rank.kill().unwrap();
        rank.wait().unwrap();
    }
    assert!(killed);
}

#[test]
fn as_the_first_process_of_a_container_the_launcher_reaps_what_ranks_leave() {
    let namespaces = ["--pid", "--fork", "--mount-proc"];
    if !Command::new("unshare").args(namespaces).arg("true").status().is_ok_and(|status| status.success()) {
        return skipped("no PID namespaces here");
    }
    let directory = Directory::new();
    // The launcher becomes the parent of each, whose own shell has ended.
    let orphans = "
        for number in 1 2 3; do (sh -c 'echo $$ > $1.new; mv $1.new $1' - $number &); done
        for number in 1 2 3; do
            until [ -e $number ]; do sleep 0.01; done
            tries=0
            while [ -e /proc/$(cat $number) ]; do
                tries=$((tries + 1)); [ $tries = 2000 ] && exit 3; sleep 0.01
            done
        done";
    let mut command = Command::new("unshare");
    command.args(namespaces).arg(env!("CARGO_BIN_EXE_intranode"));
    command.args(["run", "-n", "1", "--", "sh", "-c", orphans]).stdin(Stdio::null());
    command.current_dir(&directory.0);
    run(command).succeeded();
}
