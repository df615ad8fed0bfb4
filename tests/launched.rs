//! Processes that have the variables of a launcher, imitated: `make launchers` starts the launchers themselves.

#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use intranode::{Communicator, Launcher, ReduceOp};

/// For anything that should take moments.
const LIMIT: Duration = Duration::from_secs(60);

const PART: &str = "INTRANODE_TEST_PART";

/// Not a test, unless it is started as a rank.
#[test]
fn rank() {
    let Ok(part) = std::env::var(PART) else { return };
    let launcher = Launcher::detect().expect("no wrong name").map_or("none", Launcher::as_str);
    let joined = if part == "alone" { Communicator::from_env_or_alone() } else { Communicator::from_env() };
    match joined {
        Ok(comm) => {
            let mut sum = [comm.rank()];
            comm.allreduce_in_place(&mut sum, ReduceOp::Sum).expect("the sum");
            println!("\n{launcher}: {} of {}, sum {}", comm.rank(), comm.size(), sum[0]);
        }
        Err(error) => println!("\n{launcher}: {error}"),
    }
}

/// This program as a rank, with no other launcher's variables than these.
fn start(part: &str, variables: &[(&str, &str)]) -> Child {
    start_by(Command::new(this_program()), part, variables)
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("this program")
}

fn start_by(mut command: Command, part: &str, variables: &[(&str, &str)]) -> Child {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let foreign = ["INTRANODE_", "OMPI_", "PMI", "MPI_", "SLURM_", "TORCHELASTIC_"];
        if foreign.iter().any(|start| name.starts_with(start)) {
            command.env_remove(name.as_ref());
        }
    }
    command.args(["--exact", "rank", "--nocapture"]).env(PART, part).envs(variables.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process")
}

/// The rank's line, and its standard error.
fn finish(mut child: Child) -> (String, String) {
    let deadline = Instant::now() + LIMIT;
    while child.try_wait().expect("the process").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("it runs");
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("its output");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let line = stdout.lines().find(|line| line.contains(": ")).unwrap_or_default().to_owned();
    assert!(output.status.success() && !line.is_empty(), "{}: {stdout}{stderr}", output.status);
    (line, stderr.into_owned())
}

/// What no other job on this machine has.
fn namespace() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}@{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn open_mpi(namespace: &str, rank: usize, size: usize, more: &[(&str, &str)]) -> Child {
    let (rank, size) = (rank.to_string(), size.to_string());
    let mut variables = vec![
        ("OMPI_COMM_WORLD_RANK", rank.as_str()),
        ("OMPI_COMM_WORLD_SIZE", size.as_str()),
        ("OMPI_COMM_WORLD_LOCAL_RANK", rank.as_str()),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", size.as_str()),
        ("PMIX_NAMESPACE", namespace),
    ];
    variables.extend_from_slice(more);
    start("rank", &variables)
}

/// The names of Open MPI's jobs in shared memory.
fn names() -> BTreeSet<String> {
    let entries = fs::read_dir("/dev/shm").expect("shared memory").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("intranode-") && name.contains("-openmpi-")).collect()
}

#[test]
fn ranks_find_each_other_by_a_launcher_s_variables() {
    let jobs = [namespace(), namespace()];
    let ranks: Vec<Child> = (0..6).map(|rank| open_mpi(&jobs[rank % 2], rank / 2, 3, &[])).collect();
    for (rank, child) in ranks.into_iter().enumerate() {
        assert_eq!(finish(child).0, format!("openmpi: {} of 3, sum 3", rank / 2));
    }
}

#[test]
fn what_a_dead_rank_0_has_left_is_removed_by_who_gives_up() {
    let (namespace, timeout) = (namespace(), [("INTRANODE_JOIN_TIMEOUT", "30")]);
    let before = names();
    let mut first = open_mpi(&namespace, 0, 3, &timeout);
    let deadline = Instant::now() + LIMIT;
    let name = loop {
        // Other tests of this program make names too, and remove them at once.
        let new: Vec<String> = names().difference(&before).cloned().collect();
        let is_its = |name: &&String| {
            // In the mappings it has no name: it gets one only when it is complete.
            let maps = fs::read_to_string(format!("/proc/{}/maps", first.id())).unwrap_or_default();
            let inode = fs::metadata(format!("/dev/shm/{name}")).map_or(0, |file| file.ino());
            maps.split_ascii_whitespace().any(|field| field == inode.to_string())
        };
        if let Some(name) = new.iter().find(is_its) {
            break name.clone();
        }
        if Instant::now() > deadline {
            first.kill().expect("it runs");
            panic!("rank 0 has made no segment");
        }
        thread::sleep(Duration::from_millis(1));
    };
    first.kill().expect("it waits for the others");
    first.wait().expect("it has ended");
    assert!(names().contains(&name), "a rank that is killed removes nothing");
    // One that finds only what is left, and never anything else.
    let (line, _) = finish(open_mpi(&namespace, 1, 3, &[("INTRANODE_JOIN_TIMEOUT", "0.2")]));
    assert!(line.contains("rank 0 never joined") && line.contains("Open MPI has started here"), "{line}");
    assert!(!names().contains(&name), "{name}");
}

#[test]
fn a_missing_rank_is_named_with_what_may_be_wrong_on_every_rank() {
    let (namespace, timeout) = (namespace(), [("INTRANODE_JOIN_TIMEOUT", "1")]);
    let ranks = [0, 1].map(|rank| open_mpi(&namespace, rank, 3, &timeout));
    for child in ranks {
        let (line, _) = finish(child);
        assert!(line.contains("rank 2 never joined") && line.contains("share one /dev/shm"), "{line}");
    }
    // Nobody who could meet it, as in a container of its own.
    let (line, _) = finish(open_mpi(&namespace, 1, 3, &timeout));
    assert!(line.contains("rank 0 never joined") && line.contains("share one /dev/shm"), "{line}");
}

#[test]
fn without_a_launcher_a_program_runs_alone_on_request_only() {
    assert_eq!(finish(start("alone", &[])).0, "none: 0 of 1, sum 0");
    assert_eq!(
        finish(start("alone", &[("INTRANODE_LAUNCHER", "none"), ("SLURM_STEP_ID", "0")])).0,
        "none: 0 of 1, sum 0"
    );
    let (line, _) = finish(start("rank", &[]));
    assert!(line.contains("INTRANODE_NAME is not set") && line.contains("intranode run -n 4"), "{line}");
    for half in ["INTRANODE_RANK", "INTRANODE_SIZE"] {
        let (line, _) = finish(start("alone", &[(half, "1")]));
        assert!(line.starts_with("intranode: INTRANODE_NAME is not set"), "{line}");
    }
    let (line, _) = finish(start("alone", &[("OMPI_COMM_WORLD_LOCAL_RANK", "0")]));
    assert!(line.starts_with("openmpi: PMIX_NAMESPACE is not set"), "{line}");
}

#[test]
fn launchers_that_disagree_are_named_where_it_is_asked_for() {
    let step = [
        ("SLURM_STEP_ID", "0"),
        ("SLURM_JOB_ID", "7"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURM_NODEID", "0"),
        ("SLURM_STEP_NUM_TASKS", "1"),
        ("SLURM_GTIDS", "0"),
    ];
    let namespace = namespace();
    for debug in [false, true] {
        let ask: &[_] = if debug { &[("INTRANODE_DEBUG", "1")] } else { &[] };
        let ranks = [0, 1].map(|rank| open_mpi(&namespace, rank, 2, &[&step[..], ask].concat()));
        for (rank, child) in ranks.into_iter().enumerate() {
            let (line, stderr) = finish(child);
            assert_eq!(line, format!("openmpi: {rank} of 2, sum 1"));
            let told = format!(
                "rank {rank} of 2 by the variables of Open MPI, which are used, and rank 0 of 1 by those of Slurm"
            );
            assert_eq!(stderr.contains(&told), debug, "{stderr}");
        }
    }
}

#[test]
fn ranks_that_a_rank_of_another_launcher_starts_are_of_their_own_job() {
    let outer = [
        ("OMPI_COMM_WORLD_RANK", "0"),
        ("OMPI_COMM_WORLD_SIZE", "1"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "1"),
        ("PMIX_NAMESPACE", &namespace()),
    ];
    let job = std::process::id();
    let ranks = [0, 1].map(|rank| {
        // A shell that is a rank of the first, and goes on after what it starts.
        let step = format!(
            "export SLURM_STEP_ID=0 SLURM_JOB_ID={job} SLURM_LOCALID={rank} SLURM_PROCID={rank} SLURM_NODEID=0 \
             SLURM_STEP_NUM_TASKS=2 SLURM_GTIDS=0,1; \"$0\" \"$@\"; exit $?"
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &step]).arg(this_program());
        start_by(shell, "rank", &outer)
    });
    for (rank, child) in ranks.into_iter().enumerate() {
        assert_eq!(finish(child).0, format!("slurm: {rank} of 2, sum 1"));
    }
}
