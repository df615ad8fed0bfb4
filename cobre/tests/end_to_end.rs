//! `cobre-shm` from the outside: the same results from any number of processes, and orderly endings.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// No run takes longer than this, or it has hung.
const LIMIT: Duration = Duration::from_secs(120);

/// A directory of its own for a test, and the program in it.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        Bench(TempDir::new().expect("a temporary directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program, with no launcher's variables around it.
    fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cobre-shm"));
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if ["COBRE_", "INTRANODE_", "RAYON_"].iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    fn run(&self, arguments: &[&str]) -> Output {
        finish(start(self.program(arguments)))
    }

    /// The same where it has to succeed; what it printed.
    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> String {
        succeeded(self.run(arguments))
    }

    /// Writes a small case: 6 stages and 7 forward passes, so that 8 ranks have some with nothing to do.
    fn case(&self, more: &[&str]) {
        let shape = ["--stages=6", "--forward-passes=7", "--hydros=4", "--openings=5", "--scenarios=6"];
        self.succeed(&[&["case", "case"], &shape[..], &["--check-frequency=2"], more].concat());
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(name)).expect(name)).expect(name)
    }
}

fn start(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Waits for the end, and kills what has hung.
#[track_caller]
fn finish(mut child: Child) -> Output {
    let deadline = Instant::now() + LIMIT;
    // What it prints fits into a pipe.
    while child.try_wait().expect("its status").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("it is there");
            let output = child.wait_with_output().expect("its output");
            panic!("hung: {}", String::from_utf8_lossy(&output.stderr));
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("its output")
}

#[track_caller]
fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, said(&output));
    String::from_utf8(output.stdout).expect("text")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// All files below a directory, with their bytes.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap_or_else(|_| panic!("{}", directory.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below the root").to_path_buf();
                found.insert(name, fs::read(&path).expect("its bytes"));
            }
        }
    }
    found
}

/// Runs the case of `bench` with the local backend and with these numbers of ranks, and compares all
/// that they write: with `cobre-shm compare`, and the policy of every rank also byte by byte.
fn all_equal(bench: &Bench, ranks: &[usize], more: &[&str]) {
    bench.succeed(&[&["run", "case", "--out=local", "--backend=local", "--threads=1"], more].concat());
    for ranks in ranks {
        let (out, policies) = (format!("ranks-{ranks}"), format!("policies-{ranks}"));
        let (n, policy_per_rank) = (format!("-n{ranks}"), format!("--policy-per-rank={policies}"));
        let run = ["run", "case", "--out", &out, &n, &policy_per_rank, "--threads=1"];
        bench.succeed(&[&run[..], more].concat());
        let report = bench.succeed(&["compare", "local", &out]);
        assert!(report.starts_with("equal: "), "{report}");
        for rank in 0..*ranks {
            for part in ["cuts", "basis"] {
                let expected = files(&bench.path("local/policy").join(part));
                assert_eq!(expected.len(), 6, "a file for each stage");
                let actual = files(&bench.path(&format!("{policies}/rank-{rank}/{part}")));
                assert!(expected == actual, "{part} of rank {rank} of {ranks}");
            }
        }
    }
}

#[test]
fn every_number_of_ranks_gives_the_same_results() {
    let bench = Bench::new();
    bench.case(&["--iterations=5", "--cut-selection=lml1", "--max-active-per-stage=20"]);
    all_equal(&bench, &[1, 2, 3, 4, 8], &["--quiet"]);
    // It was a training: the bound rises, and cuts were dropped.
    let metadata = bench.json("ranks-8/training/metadata.json");
    assert_eq!(metadata["iterations"]["completed"], 5);
    assert_eq!(metadata["distribution"]["world_size"], 8);
    assert_eq!(metadata["distribution"]["backend"], "shm");
    assert!(metadata["row_pool"]["cuts_active"].as_u64() < metadata["row_pool"]["total_generated"].as_u64());
    assert!(bench.path("ranks-8/training/cut_selection/iterations.parquet").exists());
    assert_eq!(bench.json("ranks-8/simulation/metadata.json")["scenarios"]["completed"], 6);
}

fn cut_selection(name: &str) {
    let bench = Bench::new();
    bench.case(&["--iterations=4", &format!("--cut-selection={name}")]);
    all_equal(&bench, &[2, 3], &["--quiet"]);
}

#[test]
fn without_cut_selection() {
    cut_selection("off");
}

#[test]
fn cut_selection_level1() {
    cut_selection("level1");
}

#[test]
fn cut_selection_lml1() {
    cut_selection("lml1");
}

#[test]
fn cut_selection_domination() {
    cut_selection("domination");
}

#[test]
fn cut_selection_dynamic() {
    cut_selection("dynamic");
}

#[test]
fn threads_make_no_difference() {
    let bench = Bench::new();
    bench.case(&["--iterations=3"]);
    bench.succeed(&["run", "case", "--out=one", "--backend=local", "--threads=1"]);
    bench.succeed(&["run", "case", "--out=four", "-n2", "--threads=2"]);
    bench.succeed(&["compare", "one", "four"]);
}

#[test]
fn the_demo_compares_all_runs() {
    let bench = Bench::new();
    let table = bench.succeed(&[
        "demo",
        "demo",
        "--ranks=1,2",
        "--stages=4",
        "--hydros=2",
        "--iterations=2",
        "--scenarios=2",
    ]);
    let verdicts: Vec<&str> = table.lines().filter(|line| line.contains("yes: ")).collect();
    assert_eq!(verdicts.len(), 2, "{table}");
    assert!(verdicts[1].contains("2 policies"), "{table}");
}

/// Ranks started by hand, as a launcher or a shell does, with the default output directory.
#[test]
fn ranks_started_one_by_one() {
    let bench = Bench::new();
    bench.case(&["--iterations=2"]);
    for prefix in ["COBRE_SHM", "INTRANODE"] {
        let name = format!("/by-hand-{prefix}-{}", std::process::id());
        // Rank 0 comes last.
        let ranks: Vec<Child> = (0..3)
            .rev()
            .map(|rank| {
                let mut command = bench.program(&["run", "case"]);
                command.env("COBRE_COMM_BACKEND", "shm");
                for (suffix, value) in
                    [("NAME", name.clone()), ("RANK", rank.to_string()), ("SIZE", "3".into())]
                {
                    command.env(format!("{prefix}_{suffix}"), value);
                }
                start(command)
            })
            .collect();
        for rank in ranks {
            succeeded(finish(rank));
        }
        bench.succeed(&["run", "case", "--out=local", "--backend=local"]);
        bench.succeed(&["compare", "local", "case/output"]);
        fs::remove_dir_all(bench.path("case/output")).expect("it was written");
    }
}

#[test]
fn a_run_is_resumed_and_a_policy_simulated() {
    let bench = Bench::new();
    bench.case(&["--iterations=2"]);
    bench.succeed(&["run", "case", "--out=local", "--backend=local"]);
    bench.succeed(&["run", "case", "--out=ranks-2", "-n2"]);

    let mut config = bench.json("case/config.json");
    config["training"]["stopping_rules"][0]["limit"] = json!(4);
    config["policy"] = json!({ "mode": "resume" });
    fs::write(bench.path("case/config.json"), config.to_string()).expect("a new configuration");
    bench.succeed(&["run", "case", "--out=local", "--backend=local"]);
    bench.succeed(&["run", "case", "--out=ranks-2", "-n2"]);
    bench.succeed(&["compare", "local", "ranks-2"]);
    let completed = &bench.json("ranks-2/training/metadata.json")["iterations"]["completed"];
    assert_eq!(*completed, 4);

    config["training"]["enabled"] = json!(false);
    fs::write(bench.path("case/config.json"), config.to_string()).expect("a new configuration");
    for arguments in [["--out=local", "--backend=local"], ["--out=ranks-2", "-n2"]] {
        bench.succeed(&[&["run", "case"], &arguments[..]].concat());
    }
    let output = bench.run(&["run", "case", "--out=empty", "-n2"]);
    assert_eq!(output.status.code(), Some(1), "there is no policy to simulate: {}", said(&output));
    bench.succeed(&["compare", "local", "ranks-2"]);
    assert_eq!(bench.json("ranks-2/simulation/metadata.json")["scenarios"]["completed"], 6);
}

#[test]
fn compare_sees_a_single_bit() {
    let bench = Bench::new();
    bench.case(&["--iterations=2"]);
    bench.succeed(&["run", "case", "--out=a", "--backend=local"]);
    bench.succeed(&["run", "case", "--out=b", "--backend=local"]);
    bench.succeed(&["compare", "a", "b"]);

    let cuts = bench.path("b/policy/cuts/002.bin");
    let good = fs::read(&cuts).expect("the cuts");
    let mut bad = good.clone();
    *bad.last_mut().expect("a byte") ^= 1;
    fs::write(&cuts, bad).expect("writing");
    differ(&bench, "policy/cuts/002.bin: byte ");
    fs::write(&cuts, good).expect("writing");

    let summary = bench.path("b/simulation/paths.parquet");
    fs::rename(&summary, bench.path("elsewhere")).expect("renaming");
    differ(&bench, "simulation/paths.parquet: missing");
    fs::rename(bench.path("elsewhere"), summary).expect("renaming");

    let mut metadata = bench.json("b/training/metadata.json");
    let bound = metadata["bounds"]["final_lower_bound"].as_f64().expect("a bound");
    metadata["bounds"]["final_lower_bound"] = json!(f64::from_bits(bound.to_bits() ^ 1));
    fs::write(bench.path("b/training/metadata.json"), metadata.to_string()).expect("writing");
    differ(&bench, "training/metadata.json: /bounds/final_lower_bound is");

    // Columns, and what is next to the columns that differ by nature.
    bench.succeed(&["case", "other", "--stages=6", "--seed=2", "--iterations=2"]);
    bench.succeed(&["run", "other", "--out=b", "--backend=local"]);
    differ(&bench, "training/convergence.parquet: column lower_bound differs in row 0");
    let output = bench.run(&["compare", "a", "case"]);
    assert_eq!(output.status.code(), Some(1));
}

#[track_caller]
fn differ(bench: &Bench, line: &str) {
    let output = bench.run(&["compare", "a", "b"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.lines().any(|printed| printed.starts_with(line)), "{printed}");
    assert!(printed.contains("DIFFERENT: "), "{printed}");
}

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

/// Starts a run that would take for ever, and waits until it has trained for an iteration.
fn start_long_run(bench: &Bench) -> Child {
    bench.case(&["--iterations=1000000"]);
    let log = fs::File::create(bench.path("log")).expect("a log");
    let mut command = bench.program(&["run", "case", "--out=out", "-n2"]);
    let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("the program starts");
    let deadline = Instant::now() + LIMIT;
    while !log_of(bench).contains("iteration    1 ") {
        assert!(Instant::now() < deadline, "{}", log_of(bench));
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
fn all_end(processes: &[u32]) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while processes.iter().any(|process| is_running(*process)) {
        assert!(Instant::now() < deadline, "a rank still runs");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_signal_stops_training_and_the_policy_is_written() {
    for signal in [Signal::TERM, Signal::INT] {
        let bench = Bench::new();
        let child = start_long_run(&bench);
        kill_process(pid(child.id()), signal).expect("it is running");
        assert_eq!(finish(child).status.code(), Some(5), "{}", log_of(&bench));
        let training = bench.json("out/training/metadata.json");
        assert_eq!(training["status"], "partial");
        assert_eq!(files(&bench.path("out/policy/cuts")).len(), 6);
        assert_eq!(bench.json("out/simulation/metadata.json")["status"], "partial");
    }
}

#[test]
fn the_death_of_a_rank_ends_the_run_with_its_status() {
    let bench = Bench::new();
    let child = start_long_run(&bench);
    let ranks = children(child.id());
    assert_eq!(ranks.len(), 2);
    kill_process(pid(ranks[1]), Signal::KILL).expect("it is running");
    let output = finish(child);
    assert_eq!(output.status.code(), Some(128 + 9), "{}", log_of(&bench));
    assert!(log_of(&bench).contains("cobre-shm: rank 1 was ended by signal 9"), "{}", log_of(&bench));
    all_end(&ranks);
}

#[test]
fn the_death_of_the_launcher_ends_the_ranks() {
    let bench = Bench::new();
    let mut child = start_long_run(&bench);
    let ranks = children(child.id());
    child.kill().expect("it is running");
    child.wait().expect("its status");
    all_end(&ranks);
}
