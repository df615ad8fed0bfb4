//! The results: the same from any number of processes, and a comparison that sees when they are not.

use std::fs;
use std::process::Child;

use serde_json::json;

use crate::bench::{Bench, files, finish, said, start, succeeded};

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

/// Bounds, cuts and policy from simulated nodes are those of one process.
#[test]
fn several_nodes_give_the_same_results() {
    let bench = Bench::new();
    bench.case(&["--iterations=4", "--cut-selection=lml1", "--max-active-per-stage=20"]);
    bench.succeed(&["run", "case", "--out=local", "--backend=local", "--threads=1"]);
    for (ranks, nodes, counts) in [(2, "2", vec![1, 1]), (4, "3,1", vec![3, 1]), (4, "1,1,2", vec![1, 1, 2])] {
        let (n, out) = (format!("-n{ranks}"), format!("nodes-{nodes}"));
        let run =
            ["run", "case", "--out", &out, &n, "--policy-per-rank=policies", "--threads=1", "--pss", "--quiet"];
        let mut command = bench.program(&run);
        command.env("INTRANODE_NODES", nodes);
        let printed = succeeded(finish(start(command)));
        assert_eq!(printed.lines().filter(|line| line.ends_with(" PSS after training")).count(), counts.len());
        let report = bench.succeed(&["compare", "local", &out]);
        assert!(report.starts_with("equal: "), "{report}");
        for rank in 0..ranks {
            for part in ["cuts", "basis"] {
                let expected = files(&bench.path("local/policy").join(part));
                let actual = files(&bench.path(&format!("policies/rank-{rank}/{part}")));
                assert!(expected == actual && !expected.is_empty(), "{part} of rank {rank} on {nodes}");
            }
        }
        let distribution = &bench.json(&format!("{out}/training/metadata.json"))["distribution"];
        assert_eq!(distribution["num_hosts"], counts.len());
        let hosts: Vec<usize> = (0..counts.len())
            .map(|node| distribution["hosts"][node]["ranks"].as_array().map_or(0, Vec::len))
            .collect();
        assert_eq!(hosts, counts, "{distribution}");
    }
}

/// The matrix in a short form: every way of selecting cuts, with every number of ranks and threads.
#[test]
fn every_cut_selection_with_every_number_of_ranks_and_threads() {
    let bench = Bench::new();
    let table = bench.succeed(&["matrix", "matrix", "--short", "--ranks=1,3,8"]);
    for selection in ["off", "level1", "lml1", "lml1, at most 10 a stage", "dynamic", "domination"] {
        let row = table.lines().find(|line| line.starts_with(&format!("{selection}  ")));
        let row = row.unwrap_or_else(|| panic!("no row {selection} in {table}"));
        // Three ranks have 3, 2 and 2 forward passes, which Cobre cannot deal out to two threads.
        let cells: Vec<&str> = row.split_whitespace().rev().take(6).collect();
        assert_eq!(cells, ["equal", "equal", "equal*", "equal", "equal", "equal"], "{table}");
    }
    assert!(table.contains("36 of 36 cells equal Cobre's local backend"), "{table}");
}

#[test]
fn threads_make_no_difference() {
    let bench = Bench::new();
    bench.case(&["--iterations=3"]);
    bench.succeed(&["run", "case", "--out=one", "--backend=local", "--threads=1"]);
    bench.succeed(&["run", "case", "--out=four", "-n2", "--threads=2"]);
    bench.succeed(&["compare", "one", "four"]);
    // Three ranks have 3, 2 and 2 forward passes, which Cobre cannot deal out to two threads.
    bench.succeed(&["run", "case", "--out=six", "-n3", "--threads=2"]);
    bench.succeed(&["compare", "one", "six"]);
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
