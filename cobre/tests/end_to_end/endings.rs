//! Endings: mistakes, signals and deaths.

use std::fs;
use std::io::pipe;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::bench::{Bench, LIMIT, files, finish, said, start};

/// The lines that start with the program's name.
fn complaints(output: &Output) -> Vec<String> {
    said(output).lines().filter(|line| line.starts_with("cobre-shm: ")).map(str::to_owned).collect()
}

#[test]
fn failures_are_one_line_and_the_same_status_from_all_ranks() {
    let bench = Bench::new();
    for n in ["-n1", "-n3"] {
        let output = bench.run(&["run", "nowhere", n]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        let complaints = complaints(&output);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].contains("nowhere: there is no such case directory"), "{complaints:?}");
    }
    bench.case(&[]);
    fs::write(bench.path("case/stages.json"), "{").expect("writing");
    let output = bench.run(&["run", "case", "-n2"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(complaints(&output)[0].contains("stages.json"), "{}", said(&output));

    let output = bench.run(&["case", "case"]);
    assert_eq!(output.status.code(), Some(1));
    let output = bench.run(&["run", "case", "-n2", "--backend=local"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaints(&output)[0].contains("-n 2"), "{}", said(&output));
}

#[test]
fn variables_are_named() {
    let bench = Bench::new();
    bench.case(&[]);
    for (variables, expected) in [
        (&[("COBRE_SHM_NAME", "/job")][..], "COBRE_SHM_RANK, COBRE_SHM_SIZE"),
        (&[("INTRANODE_RANK", "0"), ("INTRANODE_SIZE", "1")], "INTRANODE_NAME"),
        (
            &[("COBRE_SHM_NAME", "/job"), ("COBRE_SHM_RANK", "two"), ("COBRE_SHM_SIZE", "3")],
            "COBRE_SHM_RANK is \"two\"",
        ),
        (
            &[("COBRE_SHM_NAME", "/job"), ("COBRE_SHM_RANK", "3"), ("COBRE_SHM_SIZE", "3")],
            "COBRE_SHM_RANK is \"3\"",
        ),
        (
            &[("COBRE_SHM_NAME", "job"), ("COBRE_SHM_RANK", "0"), ("COBRE_SHM_SIZE", "1")],
            "COBRE_SHM_NAME is \"job\"",
        ),
    ] {
        let mut command = bench.program(&["run", "case"]);
        command.envs(variables.iter().copied());
        let output = finish(start(command));
        assert_eq!(output.status.code(), Some(4), "{variables:?}: {}", said(&output));
        let complaints = complaints(&output);
        assert!(complaints.len() == 1 && complaints[0].contains(expected), "{complaints:?}");
    }
}

#[test]
fn the_launcher_that_counts_is_that_of_its_variable() {
    let bench = Bench::new();
    bench.case(&[]);
    let job = [("INTRANODE_NAME", "/job"), ("INTRANODE_RANK", "0"), ("INTRANODE_SIZE", "3")];
    let mut command = bench.program(&["run", "case", "-n2"]);
    command.envs(job).env("INTRANODE_LAUNCHER", "none");
    let output = finish(start(command));
    assert!(output.status.success(), "{}", said(&output));

    let mut command = bench.program(&["run", "case"]);
    command.envs(job).env("INTRANODE_LAUNCHER", "lsf");
    let output = finish(start(command));
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    assert!(complaints(&output)[0].contains("INTRANODE_LAUNCHER is \"lsf\""), "{}", said(&output));
}

#[test]
fn a_command_line_that_is_wrong_is_no_error_of_a_file() {
    let bench = Bench::new();
    for wrong in [&["run"][..], &["run", "case", "-n0"], &["walk"], &[]] {
        let output = bench.run(wrong);
        assert_eq!(output.status.code(), Some(1), "{wrong:?}: {}", said(&output));
        assert!(output.stdout.is_empty() && said(&output).contains("--help"), "{wrong:?}: {}", said(&output));
    }
    for text in ["--help", "--version"] {
        let output = bench.run(&[text]);
        assert!(output.status.success() && output.stderr.is_empty(), "{text}: {}", said(&output));
    }
}

/// Starts a run that would take far longer than a test, and waits until it has trained for an iteration.
fn start_long_run(bench: &Bench, ranks: usize, timeout: &str) -> Child {
    let mut command = bench.program(&[&LONG_RUN[..], &["--ranks", &ranks.to_string()]].concat());
    command.env("COBRE_SHM_TIMEOUT", timeout);
    until_it_trains(bench, command)
}

const LONG_RUN: [&str; 4] = ["run", "case", "--out=out", "--threads=1"];

fn until_it_trains(bench: &Bench, mut command: Command) -> Child {
    // Not more: Cobre allocates room for the cuts of all at the start, and 1,000,000 take gigabytes, which
    // a rank that ends gives back for a second and more.
    bench.case(&["--iterations=10000"]);
    let log = fs::File::create(bench.path("log")).expect("a log");
    let mut child = command.stdout(Stdio::null()).stderr(log).spawn().expect("the program starts");
    let deadline = Instant::now() + LIMIT;
    while !log_of(bench).contains("iteration    1 ") {
        let ended = child.try_wait().expect("its status");
        assert!(ended.is_none() && Instant::now() < deadline, "{ended:?}: {}", log_of(bench));
        thread::sleep(Duration::from_millis(2));
    }
    child
}

fn log_of(bench: &Bench) -> String {
    fs::read_to_string(bench.path("log")).expect("the log")
}

fn pid(number: u32) -> Pid {
    i32::try_from(number).ok().and_then(Pid::from_raw).expect("a process")
}

/// The ranks that a launcher started.
fn children(launcher: u32) -> Vec<u32> {
    let path = format!("/proc/{launcher}/task/{launcher}/children");
    let text = fs::read_to_string(path).expect("its children");
    text.split_whitespace().map(|number| number.parse().expect("a number")).collect()
}

fn is_running(process: u32) -> bool {
    // An ended process that nobody has waited for is still there, without a command line.
    fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[track_caller]
fn all_end(processes: &[u32], limit: Duration) {
    let deadline = Instant::now() + limit;
    while processes.iter().any(|process| is_running(*process)) {
        assert!(Instant::now() < deadline, "a rank still runs after {limit:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// What has the name of this launcher's job.
fn left(launcher: u32) -> Vec<String> {
    let entries = fs::read_dir("/dev/shm").expect("it is there");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(&format!("cobre-shm-{launcher}-"))).collect()
}

#[test]
fn a_signal_stops_training_and_the_policy_is_written() {
    for signal in [Signal::TERM, Signal::INT] {
        let bench = Bench::new();
        let child = start_long_run(&bench, 2, PATIENT);
        kill_process(pid(child.id()), signal).expect("it is running");
        assert_eq!(finish(child).status.code(), Some(5), "{}", log_of(&bench));
        let training = bench.json("out/training/metadata.json");
        assert_eq!(training["status"], "partial");
        assert_eq!(files(&bench.path("out/policy/cuts")).len(), 6);
        assert_eq!(bench.json("out/simulation/metadata.json")["status"], "partial");
    }
}

#[test]
fn signals_that_were_ignored_at_the_start_stay_ignored() {
    let bench = Bench::new();
    // As `nohup` does it, and a shell for what its script starts in the background.
    let command = bench.program_with("--ignore-signal=HUP,INT", &[&LONG_RUN[..], &["--ranks=2"]].concat());
    let child = until_it_trains(&bench, command);
    let launcher = child.id();
    for process in children(launcher).into_iter().chain([launcher]) {
        for signal in [Signal::HUP, Signal::INT] {
            kill_process(pid(process), signal).expect("it is running");
        }
    }
    let iterations = || log_of(&bench).matches("\niteration ").count();
    let (seen, deadline) = (iterations(), Instant::now() + LIMIT);
    while iterations() < seen + 10 {
        assert!(is_running(launcher) && Instant::now() < deadline, "{}", log_of(&bench));
        thread::sleep(Duration::from_millis(2));
    }
    kill_process(pid(launcher), Signal::TERM).expect("it is running");
    assert_eq!(finish(child).status.code(), Some(5), "{}", log_of(&bench));
}

#[test]
fn a_reader_that_has_gone_is_no_reason_to_lose_the_results() {
    let bench = Bench::new();
    bench.case(&["--iterations=3"]);
    for ranks in ["--ranks=1", "--ranks=2"] {
        let [(nobody, output), (neither, errors)] = [(); 2].map(|()| pipe().expect("a pipe"));
        drop((nobody, neither));
        let mut command = bench.program(&["run", "case", "--out=out", "--threads=1", "--pss", ranks]);
        let child = command.stdout(output).stderr(errors).spawn().expect("the program starts");
        drop(command);
        assert_eq!(finish(child).status.code(), Some(0), "{ranks}");
        assert_eq!(bench.json("out/simulation/metadata.json")["status"], "complete");
        fs::remove_dir_all(bench.path("out")).expect("the results");
    }
}

#[test]
fn what_a_demonstration_has_started_ends_with_it() {
    let bench = Bench::new();
    let mut command = bench.program(&["demo", "demo", "--iterations=10000"]);
    let mut demo = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    let (begun, deadline) = (bench.path("demo/local-1x1/training/hydro_models.json"), Instant::now() + LIMIT);
    while !begun.exists() {
        let ended = demo.try_wait().expect("its status");
        assert!(ended.is_none() && Instant::now() < deadline, "{ended:?}");
        thread::sleep(Duration::from_millis(2));
    }
    let runs = children(demo.id());
    demo.kill().expect("it is running");
    demo.wait().expect("it is waited for");
    assert_eq!(runs.len(), 1);
    all_end(&runs, SOON);
}

/// Long enough for the slowest machine: a test does not wait for it.
const PATIENT: &str = "60";
/// What a run takes at most to end after a rank has not come.
const SOON: Duration = Duration::from_secs(20);

/// The one line that the run has complained with.
#[track_caller]
fn only_complaint(bench: &Bench) -> String {
    let log = log_of(bench);
    let complaints: Vec<&str> = log.lines().filter(|line| line.starts_with("cobre-shm: ")).collect();
    assert_eq!(complaints.len(), 1, "{log}");
    complaints[0].to_owned()
}

/// Kills a rank of four; how long the others take to end.
fn kill_one_of_four() -> Duration {
    let bench = Bench::new();
    let child = start_long_run(&bench, 4, PATIENT);
    let (launcher, ranks) = (child.id(), children(child.id()));
    assert_eq!(ranks.len(), 4);
    kill_process(pid(ranks[2]), Signal::KILL).expect("it is running");
    let killed = Instant::now();
    all_end(&ranks, SOON);
    let took = killed.elapsed();
    let output = finish(child);
    assert_eq!(output.status.code(), Some(128 + 9), "{}", log_of(&bench));
    let complaint = only_complaint(&bench);
    assert!(complaint.starts_with("cobre-shm: rank 2 was ended by signal 9"), "{complaint}");
    assert_eq!(left(launcher), [""; 0]);
    if took < SECOND {
        // The launcher would have killed them later: they have ended by themselves, and each for this reason.
        let died = format!("rank 2 (process {}) has died", ranks[2]);
        let all = complaint.split_once("; ranks 0, 1, 3: ").is_some_and(|(_, text)| text.contains(&died));
        assert!(all, "{complaint}");
    }
    took
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_death_of_a_rank_ends_all_within_a_second_and_is_told_in_one_line() {
    // Each rank computes until its next collective, which takes longer than that where many others compute too.
    let mut tries = Vec::new();
    while tries.len() < 5 && tries.last().is_none_or(|took| *took >= SECOND) {
        tries.push(kill_one_of_four());
    }
    assert!(tries.last().is_some_and(|took| *took < SECOND), "{tries:?}");
}

#[test]
fn a_rank_that_hangs_ends_the_run_after_the_time_out() {
    let bench = Bench::new();
    // Longer than ranks that read the case side by side may be apart, or the run would end before it has begun.
    let child = start_long_run(&bench, 3, "10");
    let (launcher, ranks) = (child.id(), children(child.id()));
    kill_process(pid(ranks[1]), Signal::STOP).expect("it is running");
    all_end(&ranks, SOON);
    let output = finish(child);
    assert_eq!(output.status.code(), Some(4), "{}", log_of(&bench));
    let complaint = only_complaint(&bench);
    assert!(complaint.starts_with("cobre-shm: ranks 0, 2: "), "{complaint}");
    assert!(complaint.contains("rank 1 did not arrive within 10s"), "{complaint}");
    assert_eq!(left(launcher), [""; 0]);
}

#[test]
fn the_death_of_the_launcher_ends_the_ranks() {
    let bench = Bench::new();
    let mut child = start_long_run(&bench, 2, PATIENT);
    let ranks = children(child.id());
    child.kill().expect("it is running");
    child.wait().expect("its status");
    all_end(&ranks, SOON);
}
