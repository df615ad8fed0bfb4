//! `intranode top` over real jobs.

use std::os::unix::fs::symlink;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Directory, Launcher, eventually, intranode, run, start, unique};

/// A job of three ranks that does the same again and again.
fn busy_job() -> (Launcher, String) {
    busy_job_of(env!("CARGO_BIN_EXE_intranode"))
}

/// The same by this name of the program.
fn busy_job_of(itself: &str) -> (Launcher, String) {
    let name = format!("/top-{}", unique());
    let bench = ["__bench", "--op", "allreduce", "--bytes", "8192", "--repetitions", "1000000000"];
    let mut command = intranode(["run", "-n", "3", "--kill-after", "0", "--name", &name, "--", itself]);
    command.args(bench);
    (start(command), name)
}

/// The line of JSON of a job, once all its ranks have made a round. A process that joins while others are looked for is known by
/// what it has written, and has no number yet.
pub(crate) fn seen(name: &str) -> String {
    let mut line = String::new();
    let all_run = eventually(Duration::from_secs(60), || {
        line = run(intranode(["top", "--json", "--interval", "0.2", name])).stdout;
        let unknown = ["\"joining\"", "\"operation\":null", "\"pid\":null"];
        !line.is_empty() && !unknown.iter().any(|unknown| line.contains(unknown))
    });
    assert!(all_run, "{line}");
    line
}

/// The numbers behind a key, one for each rank.
fn numbers(json: &str, key: &str) -> Vec<f64> {
    let key = format!("\"{key}\":");
    let values = json.split(&key).skip(1);
    values.map(|rest| rest.split([',', '}']).next().unwrap().parse().unwrap()).collect()
}

fn end(job: Launcher) {
    job.signal(Signal::SIGTERM);
    job.finish();
}

#[test]
fn a_name_that_the_kernel_cuts_within_a_character_is_none_of_a_dead_rank() {
    let directory = Directory::new();
    // 15 bytes are kept of it, the last of which is half of a letter.
    let program = directory.0.join("fünfzehnbytesü");
    symlink(env!("CARGO_BIN_EXE_intranode"), &program).unwrap();
    let (job, name) = busy_job_of(program.to_str().unwrap());
    let json = seen(&name);
    assert!(!json.contains("\"dead\"") && numbers(&json, "memory_bytes").len() == 3, "{json}");
    end(job);
}

#[test]
fn a_running_job_is_seen_and_not_disturbed() {
    let (job, name) = busy_job();
    let json = seen(&name);
    assert!(json.starts_with(&format!("{{\"name\":\"{name}\",\"split\":false")), "{json}");
    let pids = numbers(&json, "pid");
    assert_eq!((pids.len(), numbers(&json, "rank")), (3, vec![0.0, 1.0, 2.0]), "{json}");
    // Without its `/`, and by a rank's process.
    let shown = run(intranode(["top", "--once", "--interval", "0.2", &name[1..]])).succeeded().stdout;
    assert!(shown.starts_with(&format!("{name}: 3 ranks, segment ")) && shown.contains("rounds/s"), "{shown}");
    let by_pid = run(intranode(["top", "--once", "--interval", "0.2", &format!("{}", pids[2])])).succeeded();
    assert!(by_pid.stdout.contains(&name), "{}", by_pid.stdout);
    // It goes on.
    let advances = eventually(Duration::from_secs(60), || numbers(&seen(&name), "rounds_per_second")[0] > 0.0);
    assert!(advances);
    end(job);
}

#[test]
fn a_frozen_rank_is_named_by_those_that_wait_for_it() {
    let (job, name) = busy_job();
    let pid = Pid::from_raw(numbers(&seen(&name), "pid")[1] as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    let mut json = String::new();
    let is_told = eventually(Duration::from_secs(60), || {
        json = seen(&name);
        json.contains("\"state\":\"frozen\"") && json.matches("\"waits_for\":[1]").count() == 2
    });
    kill(pid, Signal::SIGCONT).unwrap();
    assert!(is_told, "{json}");
    // Only that rank is behind.
    assert_eq!(json.matches("\"slowest\":true").count(), 1, "{json}");
    end(job);
}

#[test]
fn without_a_job_it_says_so() {
    let name = format!("/top-{}", unique());
    let finished = run(intranode(["top", "--once", "--interval", "0.01", &name]));
    assert_eq!(finished.code(), 1, "{}", finished.stderr);
    assert!(finished.stdout.contains(&format!("no job {name} is running")), "{}", finished.stdout);
    assert_eq!(run(intranode(["top", "--interval", "0"])).code(), 2);
}

#[test]
fn hosts_are_refused_with_the_way_to_several_machines() {
    for option in
        [["--host", "a,b"], ["-H", "a"], ["--hosts", "a"], ["--hostfile", "f"], ["--machinefile", "f"]]
    {
        let finished = run(intranode(["run", option[0], option[1], "-n", "2", "--", "true"]));
        assert_eq!(finished.code(), 125, "{option:?}: {}", finished.stderr);
        assert!(finished.last_error().contains("INTRANODE_SCOPE=node"), "{}", finished.stderr);
    }
}

#[test]
fn there_is_a_rank_for_each_processor_unless_told_otherwise() {
    let processors = std::thread::available_parallelism().unwrap().get();
    let finished = run(intranode(["run", "--", "sh", "-c", "echo $INTRANODE_SIZE"])).succeeded();
    assert_eq!(finished.sorted_lines(), vec![processors.to_string(); processors]);
}

#[test]
fn a_name_does_not_reach_the_terminal_as_it_is() {
    let name = format!("/top-\x1b[2J\n{}", unique());
    let bench = ["__bench", "--op", "barrier", "--repetitions", "1000000000"];
    let mut command = intranode(["run", "-n", "1", "--kill-after", "0", "--name", &name, "--"]);
    command.arg(env!("CARGO_BIN_EXE_intranode")).args(bench);
    let job = start(command);
    seen(&name);
    let table = run(intranode(["top", "--once", "--interval", "0.1", &name])).succeeded().stdout;
    assert!(table.starts_with("/top-\\u{1b}[2J\\n") && !table.contains('\x1b'), "{table:?}");
    end(job);
}

#[test]
fn what_cannot_be_written_is_a_failure() {
    let (job, name) = busy_job();
    seen(&name);
    for how in ["--json", "--once"] {
        let mut command = intranode(["top", how, "--interval", "0.1", &name]);
        command.stdout(std::fs::File::options().write(true).open("/dev/full").unwrap());
        let ended = command.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(125) && said.contains("No space left on device"), "{how}: {said}");
    }
    end(job);
}
