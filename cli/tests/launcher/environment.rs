//! What a rank sees.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::process::Stdio;

use nix::pty::openpty;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use crate::support::{run, script, start, unique};

/// One rank's environment.
fn environment_of_rank_1(mut command: std::process::Command) -> HashMap<String, String> {
    // They may be set where the tests run.
    for variable in ["INTRANODE_TIMEOUT", "COBRE_SHM_TIMEOUT"] {
        command.env_remove(variable);
    }
    let finished = run(command).succeeded();
    let split = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    finished.stdout.lines().filter_map(split).collect()
}

const SHOW_RANK_1: &str = "[ $INTRANODE_RANK = 1 ] && env || true";

#[test]
fn every_rank_has_its_own_number() {
    let finished =
        run(script(["-n", "3"], "echo $INTRANODE_RANK $INTRANODE_SIZE $COBRE_SHM_RANK $COBRE_SHM_SIZE"));
    assert_eq!(finished.succeeded().sorted_lines(), ["0 3 0 3", "1 3 1 3", "2 3 2 3"]);
}

#[test]
fn the_job_has_one_new_name() {
    let names = || {
        let finished = run(script(["--ranks", "2"], "echo $INTRANODE_NAME $COBRE_SHM_NAME")).succeeded();
        let lines = finished.sorted_lines();
        assert_eq!(lines[0], lines[1]);
        let (native, cobre) = lines[0].split_once(' ').unwrap();
        assert_eq!(native, cobre);
        assert!(native.starts_with('/') && !native[1..].contains('/'), "{native}");
        native.to_owned()
    };
    assert_ne!(names(), names());
}

#[test]
fn a_given_name_and_time_out_are_passed_on() {
    let name = format!("/given-{}", unique());
    let seen = environment_of_rank_1(script(["-n", "2", "--name", &name, "--timeout", "17"], SHOW_RANK_1));
    for prefix in ["INTRANODE", "COBRE_SHM"] {
        assert_eq!(seen[&format!("{prefix}_NAME")], name);
        assert_eq!(seen[&format!("{prefix}_TIMEOUT")], "17");
    }
    assert_eq!(seen["COBRE_COMM_BACKEND"], "shm");
}

#[test]
fn without_a_time_out_the_library_s_own_holds() {
    let seen = environment_of_rank_1(script(["-n", "2"], SHOW_RANK_1));
    assert!(!seen.contains_key("INTRANODE_TIMEOUT") && !seen.contains_key("COBRE_SHM_TIMEOUT"));
}

#[test]
fn threads_are_each_rank_s_share_unless_they_are_set() {
    let processors = std::thread::available_parallelism().unwrap().get();
    let mut command = script(["-n", "2"], SHOW_RANK_1);
    command.env_remove("RAYON_NUM_THREADS").env("OMP_NUM_THREADS", "7");
    let seen = environment_of_rank_1(command);
    assert_eq!(seen["RAYON_NUM_THREADS"], (processors / 2).max(1).to_string());
    assert_eq!(seen["OMP_NUM_THREADS"], "7");
}

#[test]
fn bound_ranks_share_the_allowed_processors() {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let mut allowed = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap());
    let first = allowed.next().unwrap();
    let last = allowed.next_back().unwrap_or(first);
    let show = "echo $INTRANODE_RANK $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)";
    let finished = run(script(["-n", "2", "--bind"], show)).succeeded();
    let lines = finished.sorted_lines();
    // Rank 0 begins at the first one, rank 1 ends at the last.
    let list = |rank: usize| lines[rank].split_once(' ').unwrap().1;
    assert_eq!(list(0).split(['-', ',']).next(), Some(first.to_string().as_str()));
    assert_eq!(list(1).split(['-', ',']).next_back(), Some(last.to_string().as_str()));
    assert!(first == last || list(0) != list(1));
}

#[test]
fn more_ranks_than_processors_can_be_bound() {
    let ranks = std::thread::available_parallelism().unwrap().get() + 1;
    let show = "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status";
    let finished = run(script(["-n", &ranks.to_string(), "--bind"], show)).succeeded();
    let lists = finished.sorted_lines();
    assert_eq!(lists.len(), ranks);
    assert!(lists.iter().all(|list| list.parse::<usize>().is_ok()), "{lists:?}");
}

#[test]
fn rank_0_reads_the_launcher_s_input_and_the_others_nothing() {
    let mut command = script(["-n", "2"], "echo $INTRANODE_RANK \"$(cat)\"");
    command.stdin(Stdio::piped());
    let mut launcher = start(command);
    launcher.input().write_all(b"hello").unwrap();
    assert_eq!(launcher.finish().succeeded().sorted_lines(), ["0 hello", "1 "]);
}

#[test]
fn rank_0_reads_a_terminal_through_the_launcher() {
    let terminal = openpty(None, None).unwrap();
    let mut command = script(["-n", "2"], "read line; echo $INTRANODE_RANK $line");
    command.stdin(terminal.slave);
    let launcher = start(command);
    File::from(terminal.master).write_all(b"hello\n").unwrap();
    assert_eq!(launcher.finish().sorted_lines(), ["0 hello", "1"]);
}

#[test]
fn more_ranks_than_the_launcher_may_open_files_get_the_limit_of_the_user() {
    for options in ["", "--tag"] {
        // The launcher has more open than this for its ranks.
        let start = format!("ulimit -Sn 24; exec \"$0\" run -n 40 {options} -- sh -c 'ulimit -Sn; ulimit -Hn'");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &start, env!("CARGO_BIN_EXE_intranode")]).stdin(Stdio::null());
        let finished = run(command).succeeded();
        let has_limit = |line: &&&str| line.split(' ').next_back() == Some("24");
        let lines = finished.sorted_lines();
        assert_eq!((lines.iter().filter(has_limit).count(), lines.len()), (40, 80), "{options}: {lines:?}");
    }
}
