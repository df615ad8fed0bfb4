//! `intranode run --report` and `--trace` over real processes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use intranode::{Communicator, Error, ReduceOp, Signal as Write, Until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

use crate::support::{Directory, eventually, intranode, run, script, skipped};

const PROGRAM: &str = "INTRANODE_TEST_REPORT";

/// The calls of each kind in the program `counts`.
const BARRIERS: u64 = 50;
const REDUCTIONS: u64 = 40;

/// Not a test, unless it is started as a rank.
#[test]
fn rank() {
    let Ok(program) = std::env::var(PROGRAM) else { return };
    let comm = Communicator::from_env().unwrap();
    match program.as_str() {
        "counts" => counts(&comm).unwrap(),
        "one-sided" => one_sided(&comm).unwrap(),
        "started" => started(&comm).unwrap(),
        "late" => {
            for _ in 0..20 {
                if comm.rank() == 1 {
                    // However long it takes them to be scheduled.
                    let others_wait = || {
                        let ranks = comm.state().unwrap().ranks;
                        [0, 2].iter().all(|rank| ranks[*rank].round != ranks[1].round)
                    };
                    assert!(eventually(Duration::from_secs(60), others_wait));
                    std::thread::sleep(Duration::from_millis(100));
                }
                comm.barrier().unwrap();
            }
        }
        "killed" => {
            (0..3).for_each(|_| comm.barrier().unwrap());
            if comm.rank() == 0 {
                let _ = comm.barrier();
                return;
            }
            // Once rank 0 sleeps in its last barrier.
            let waits = || {
                let own = &comm.state().unwrap().ranks[0];
                let stat = fs::read_to_string(format!("/proc/{}/stat", own.pid.unwrap())).unwrap();
                own.waits && stat.rsplit(") ").next().unwrap().starts_with('S')
            };
            assert!(eventually(Duration::from_secs(60), waits));
            let pid = comm.state().unwrap().ranks[0].pid.unwrap();
            kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
            assert!(matches!(comm.barrier(), Err(Error::RankDied { rank: 0, .. })));
        }
        "killed-beside" => {
            let part = comm.split(0, comm.rank()).unwrap();
            std::thread::scope(|scope| {
                if comm.rank() == 0 {
                    scope.spawn(|| part.barrier());
                }
                // Once the thread is in its barrier, which never returns.
                let waits = || part.state().unwrap().ranks[0].waits;
                assert!(eventually(Duration::from_secs(60), waits));
                (0..3).for_each(|_| comm.barrier().unwrap());
                if comm.rank() == 0 {
                    kill(Pid::this(), Signal::SIGKILL).unwrap();
                }
                assert!(matches!(comm.barrier(), Err(Error::RankDied { rank: 0, .. })));
            });
        }
        "overwritten" => (0..70_000).for_each(|_| comm.barrier().unwrap()),
        other => panic!("no program {other}"),
    }
}

fn counts(comm: &Communicator) -> Result<(), Error> {
    for _ in 0..BARRIERS {
        comm.barrier()?;
    }
    for _ in 0..REDUCTIONS {
        let mut sums = [1.0; 100];
        comm.allreduce_in_place(&mut sums, ReduceOp::Sum)?;
    }
    let mut large = vec![1_u8; 300_000];
    comm.broadcast(&mut large, 1)?;
    let mut all = vec![0_u32; 3 * comm.size()];
    comm.allgather(&[7_u32; 3], &mut all)?;
    let counts: Vec<usize> = (1..=comm.size()).collect();
    let displs: Vec<usize> = (0..comm.size()).map(|rank| rank * (rank + 1) / 2).collect();
    let mut all = vec![0_u16; counts.iter().sum()];
    comm.allgatherv(&vec![1_u16; counts[comm.rank()]], &mut all, &counts, &displs)?;
    let mut vector = if comm.rank() == 0 { vec![1_u64; 500] } else { Vec::new() };
    comm.broadcast_vec(&mut vector, 0)?;
    let pending = comm.start_allreduce(vec![1_i64; 10], ReduceOp::Max)?;
    assert_eq!(pending.wait()?, [1; 10]);
    // Communicators are added up: of the even and the odd ranks, one after the other.
    for _ in 0..3 {
        let part = comm.split(comm.rank() % 2, 0)?;
        part.barrier()?;
        part.barrier()?;
    }
    Ok(())
}

/// How often the program `started` makes its calls.
const STARTED: usize = 10;

/// Calls that are started while others are under way, and calls that complete them first.
fn started(comm: &Communicator) -> Result<(), Error> {
    for _ in 0..STARTED {
        let sum = comm.start_allreduce(vec![1_u64; 300_000], ReduceOp::Sum)?;
        let barrier = comm.start_barrier()?;
        let data = comm.start_broadcast(vec![1_u8; 50], 0)?;
        let all = comm.start_alltoall(vec![1_u32; 6], vec![0; 6])?;
        let mut sums = [1_u16; 7];
        comm.allreduce_in_place(&mut sums, ReduceOp::Sum)?;
        sum.wait()?;
        barrier.wait()?;
        data.wait()?;
        all.wait()?;
        comm.barrier()?;
    }
    Ok(())
}

/// Messages, and accesses to symmetric memory, of two ranks.
fn one_sided(comm: &Communicator) -> Result<(), Error> {
    let other = 1 - comm.rank();
    let mut messages = comm.messages()?;
    for _ in 0..30 {
        match comm.rank() {
            0 => messages.send(&[1_u64; 4], 1, 7)?,
            _ => _ = messages.recv(&mut [0_u64; 4], 0, 7)?,
        }
    }
    messages.sendrecv(&[0_u8; 100], other, &mut [0_u8; 100], other, 8)?;
    let mut received = [0_u64];
    let mut receiving = messages.start_recv(&mut received, other, 9)?;
    let mut sending = messages.start_send(&[1_u64], other, 9)?;
    messages.wait_all(&mut [&mut receiving, &mut sending])?;
    if comm.rank() == 0 {
        messages.send(&vec![1_u32; 250_000], 1, 10)?;
        messages.probe(1, 11)?;
        messages.recv(&mut [0_u8], 1, 11)?;
    } else {
        messages.recv_vec::<u32>(0, 10)?;
        // Rank 0 waits.
        std::thread::sleep(Duration::from_millis(50));
        messages.send(&[1_u8], 0, 11)?;
    }
    let (data, flags) = (comm.symmetric::<u64>(4096)?, comm.symmetric::<u64>(1)?);
    let remote = data.at(other)?;
    for _ in 0..25 {
        remote.put(0, &[1, 2]);
    }
    (0..5).for_each(|index| remote.store(index, 3));
    remote.put(0, &vec![4; 4096]);
    (0..3).for_each(|index| _ = remote.load(index));
    remote.get(0, &mut [0; 2]);
    (0..10).for_each(|index| _ = remote.fetch_add(index, 1));
    data.put_signal(other, 0, &[1, 2, 3], &flags, 0, Write::Add(1))?;
    flags.wait_until(0, Until::Eq(1))?;
    let lock = comm.lock()?;
    for _ in 0..20 {
        drop(lock.lock()?);
    }
    comm.barrier()
}

fn job<const N: usize>(options: [&str; N], program: &str) -> Command {
    let mut command = intranode(["run"]);
    command.args(options).arg("--").arg(std::env::current_exe().unwrap());
    command.args(["--exact", "report::rank", "--nocapture"]).env(PROGRAM, program);
    command
}

fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn names(directory: &Directory) -> Vec<String> {
    let entries = fs::read_dir(&directory.0).unwrap().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn operation<'a>(rank: &'a Value, name: &str) -> &'a Value {
    let all = rank["operations"].as_array().unwrap();
    all.iter().find(|one| one["operation"] == name).unwrap_or_else(|| panic!("no {name}: {rank}"))
}

/// Every tag is closed in its turn, and nothing comes from elsewhere.
fn check_page(page: &str) {
    for foreign in ["src=", "href=", "url(", "@import", "<script", "<link", "http"] {
        assert!(!page.contains(foreign), "{foreign}: {page}");
    }
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap_or_else(|| panic!("<{tag} has no end"));
        let name = tag.split_whitespace().next().unwrap().trim_end_matches('/');
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "</{name}>"),
            None if tag.ends_with('/') || name.starts_with('!') => {}
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<svg "), "{page}");
}

#[test]
fn what_is_started_while_other_calls_are_under_way_has_its_own_bytes() {
    let directory = Directory::new();
    let mut command = job(["-n", "2", "--report", "job.html"], "started");
    command.current_dir(&directory.0);
    run(command).succeeded();
    let report = json(&directory.0.join("job.json"));
    for rank in report["ranks"].as_array().unwrap() {
        for (name, bytes) in [
            ("start_allreduce", 2_400_000),
            ("start_barrier", 0),
            ("start_broadcast", 50),
            ("start_alltoall", 24),
            ("allreduce", 14),
        ] {
            let found = operation(rank, name);
            assert_eq!(found["calls"].as_u64(), Some(STARTED as u64), "{name}: {found}");
            assert_eq!(found["bytes"].as_u64(), Some(STARTED as u64 * bytes), "{name}: {found}");
        }
    }
}

#[test]
fn messages_and_one_sided_accesses_are_counted() {
    let directory = Directory::new();
    let mut command = job(["-n", "2", "--report", "job.html", "--trace", "trace.json"], "one-sided");
    command.current_dir(&directory.0);
    run(command).succeeded();
    let report = json(&directory.0.join("job.json"));
    let ranks = report["ranks"].as_array().unwrap();
    let (many, few) = ((33, 30 * 32 + 100 + 8 + 1_000_000), (3, 100 + 8 + 1));
    for (rank, sent, received) in [(&ranks[0], many, few), (&ranks[1], few, many)] {
        for (name, (calls, bytes)) in [
            ("send", sent),
            ("recv", received),
            ("put", (31, 25 * 16 + 5 * 8 + 32_768)),
            ("get", (4, 3 * 8 + 16)),
            ("atomic", (10, 80)),
            ("put_signal", (1, 24)),
            ("wait", (1, 0)),
            ("lock", (20, 0)),
            // Its cells.
            ("new lock", (1, 136)),
        ] {
            let one = operation(rank, name);
            assert_eq!(
                (one["calls"].as_u64(), one["bytes"].as_u64()),
                (Some(calls), Some(bytes)),
                "{name}: {rank}"
            );
        }
        // Of the accesses, only long ones are timed.
        let timed = |name| operation(rank, name)["timed_calls"].as_u64();
        assert_eq!([timed("put"), timed("get"), timed("atomic")], [Some(1), Some(0), Some(0)], "{rank}");
    }
    let probe = operation(&ranks[0], "probe");
    assert_eq!(probe["calls"], 1, "{probe}");
    let waited = probe["wait_seconds"].as_f64().unwrap();
    assert!((0.04..60.0).contains(&waited), "{probe}");
    let late = &ranks[0]["waited_for"].as_array().unwrap()[0];
    assert!(late["rank"] == 1 && late["seconds"].as_f64() >= Some(waited), "{late}");
    let trace = json(&directory.0.join("trace.json"));
    let events = trace["traceEvents"].as_array().unwrap();
    let slices = |name: &str, track: u64| {
        let is_one = |event: &&Value| event["name"] == name && event["tid"] == track && event["ph"] == "X";
        events.iter().filter(is_one).cloned().collect::<Vec<Value>>()
    };
    let [probe] = &slices("probe", 1)[..] else { panic!("{trace}") };
    assert!(probe["args"]["waited_for"] == 1 && probe["dur"].as_f64() >= Some(4e4), "{probe}");
    let [put] = &slices("put", 1)[..] else { panic!("{trace}") };
    assert_eq!(put["args"]["bytes"], 32_768, "{put}");
    assert!(slices("send", 1).len() >= 31 && slices("get", 1).is_empty(), "{trace}");
}

#[test]
fn calls_and_bytes_are_those_of_the_program() {
    let directory = Directory::new();
    let mut command = job(["-n", "3", "--name", "/report-<b>&'", "--report", "job.html"], "counts");
    run({
        command.current_dir(&directory.0);
        command
    })
    .succeeded();
    assert_eq!(names(&directory), ["job.html", "job.json"]);
    let page = fs::read_to_string(directory.0.join("job.html")).unwrap();
    check_page(&page);
    assert!(page.contains("/report-&lt;b&gt;&amp;&#39;") && !page.contains("<b>"), "{page}");
    let report = json(&directory.0.join("job.json"));
    assert_eq!((report["status"].as_u64(), &report["failure"]), (Some(0), &Value::Null));
    let ranks = report["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 3);
    for rank in ranks {
        for (name, calls, bytes) in [
            ("barrier", BARRIERS + 6, 0),
            ("allreduce", REDUCTIONS, REDUCTIONS * 800),
            ("broadcast", 1, 300_000),
            ("allgather", 1, 12),
            ("allgatherv", 1, 12),
            ("broadcast_vec", 1, 4000),
            ("start_allreduce", 1, 80),
            ("split", 3, 0),
        ] {
            let found = operation(rank, name);
            assert_eq!(found["calls"].as_u64(), Some(calls), "{name}: {found}");
            assert_eq!(found["bytes"].as_u64(), Some(bytes), "{name}: {found}");
            let (time, waiting) = (&found["seconds"], &found["wait_seconds"]);
            assert!(time.as_f64() > Some(0.0) && time.as_f64() >= waiting.as_f64(), "{name}: {found}");
        }
        assert_eq!(rank["operations"].as_array().unwrap().len(), 8, "{rank}");
        let inside = rank["left_seconds"].as_f64().unwrap() - rank["joined_seconds"].as_f64().unwrap();
        assert!(rank["call_seconds"].as_f64().unwrap() <= inside * 1.01, "{rank}");
    }
}

#[test]
fn a_rank_that_is_late_is_named() {
    let directory = Directory::new();
    // The page is named after its JSON.
    let page = directory.0.join("late.html");
    let given = directory.0.join("late.json");
    let mut late = job(["-n", "3", "--report", given.to_str().unwrap()], "late");
    // With more ranks than processors only waits in which a rank sleeps are counted, and on a busy machine the 16 yields before that can
    // take longer than the wait.
    late.env("INTRANODE_SPIN", "0");
    run(late).succeeded();
    let report = json(&given);
    let rank = |rank: usize| &report["ranks"][rank];
    let late: Vec<u64> = (0..3).map(|number| rank(number)["late_rounds"].as_u64().unwrap()).collect();
    assert!(late[1] >= 18 && late[0] <= 5 && late[2] <= 5, "{late:?}: {report}");
    for number in [0, 2] {
        let waited = rank(number)["waited_for"].as_array().unwrap();
        let of_rank_1 = waited.iter().find(|waited| waited["rank"] == 1).unwrap();
        assert!(of_rank_1["seconds"].as_f64() > Some(0.2), "{report}");
        assert!(operation(rank(number), "barrier")["wait_seconds"].as_f64() > Some(0.2), "{report}");
        // A rank that waits for 100 ms sleeps.
        assert!(rank(number)["parks"].as_u64() >= Some(10), "{report}");
    }
    assert!(rank(1)["wakes"].as_u64() >= Some(10), "{report}");
    let page = fs::read_to_string(page).unwrap();
    check_page(&page);
    assert!(page.contains("Rank 1 was late most often"), "{page}");
}

#[test]
fn what_a_killed_rank_has_counted_is_there() {
    let directory = Directory::new();
    let (page, trace) = (directory.0.join("job"), directory.0.join("trace.json"));
    let files = ["-n", "2", "--report", page.to_str().unwrap(), "--trace", trace.to_str().unwrap()];
    let finished = run(job(files, "killed"));
    assert_eq!(finished.code(), 128 + Signal::SIGKILL as i32, "{}", finished.stderr);
    let report = json(&page.with_extension("json"));
    assert_eq!(report["status"].as_u64(), Some(137));
    assert!(report["failure"].as_str().unwrap().starts_with("rank 0 failed first"), "{report}");
    let killed = &report["ranks"][0];
    assert_eq!(
        (operation(killed, "barrier")["calls"].as_u64(), &killed["left_seconds"]),
        (Some(4), &Value::Null)
    );
    let unfinished = &killed["unfinished"][0];
    assert_eq!(
        (unfinished["operation"].as_str(), unfinished["waits_for"].as_u64()),
        (Some("barrier"), Some(1))
    );
    assert_eq!(operation(&report["ranks"][1], "barrier")["calls"].as_u64(), Some(4));
    let text = fs::read_to_string(&page).unwrap();
    check_page(&text);
    assert!(text.contains("Rank 0 ended in barrier, waiting for rank 1"), "{text}");
    let events = json(&trace);
    let is_last = |event: &&Value| event["args"]["unfinished"] == true;
    let last = events["traceEvents"].as_array().unwrap().iter().find(is_last).unwrap();
    assert_eq!((last["tid"].as_u64(), last["name"].as_str()), (Some(1), Some("barrier")));
}

/// The slices of each track in the order of the file: name, start and duration in µs.
fn tracks(trace: &Value) -> Vec<Vec<(String, f64, f64)>> {
    let mut tracks = Vec::new();
    for event in trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X") {
        let track = event["tid"].as_u64().unwrap() as usize;
        tracks.resize(tracks.len().max(track), Vec::new());
        let number = |key: &str| event[key].as_f64().unwrap();
        tracks[track - 1].push((event["name"].as_str().unwrap().to_owned(), number("ts"), number("dur")));
    }
    tracks
}

#[test]
fn the_slices_of_a_trace_are_ordered_and_apart() {
    let directory = Directory::new();
    let trace = directory.0.join("trace.json");
    run(job(["-n", "3", "--trace", trace.to_str().unwrap()], "counts")).succeeded();
    assert_eq!(names(&directory), ["trace.json"]);
    let trace = json(&trace);
    assert_eq!(trace["otherData"]["calls_overwritten"], serde_json::json!([0, 0, 0]));
    let tracks = tracks(&trace);
    assert_eq!(tracks.len(), 3);
    for track in &tracks {
        let count = |name: &str| track.iter().filter(|(slice, ..)| slice == name).count() as u64;
        assert_eq!((count("barrier"), count("allreduce"), count("split")), (BARRIERS + 6, REDUCTIONS, 3));
        // The call; and the wait for it, if it was not complete by then.
        let started = count("start_allreduce");
        assert!((1..=2).contains(&started), "{started}");
        assert_eq!(track.len() as u64, BARRIERS + REDUCTIONS + 13 + started);
        for pair in track.windows(2) {
            let [(_, start, duration), (_, next, _)] = &pair else { unreachable!() };
            // In the nanoseconds that the numbers have.
            assert!(start + duration <= next + 1e-3, "{pair:?}");
        }
    }
    let names: Vec<&Value> = trace["traceEvents"].as_array().unwrap().iter().collect();
    assert!(names.iter().any(|event| event["name"] == "thread_name" && event["args"]["name"] == "rank 2"));
    let broadcast = names.iter().find(|event| event["name"] == "broadcast").unwrap();
    assert_eq!(broadcast["args"]["bytes"].as_u64(), Some(300_000));
}

#[test]
fn an_unfinished_call_of_a_trace_is_apart_from_those_of_other_threads() {
    let directory = Directory::new();
    let trace = directory.0.join("trace.json");
    let finished = run(job(["-n", "2", "--trace", trace.to_str().unwrap()], "killed-beside"));
    assert_eq!(finished.code(), 128 + Signal::SIGKILL as i32, "{}", finished.stderr);
    let trace = json(&trace);
    let is_unfinished = |event: &&Value| event["args"]["unfinished"] == true;
    let unfinished = trace["traceEvents"].as_array().unwrap().iter().find(is_unfinished).unwrap();
    let track = &tracks(&trace)[unfinished["tid"].as_u64().unwrap() as usize - 1];
    assert!(tracks(&trace).iter().flatten().filter(|(slice, ..)| slice == "barrier").count() >= 7, "{trace}");
    let since = unfinished["ts"].as_f64().unwrap();
    assert!(
        track.iter().all(|(_, start, duration)| *start == since || start + duration <= since + 1e-3),
        "{track:?}"
    );
}

#[test]
fn a_trace_says_how_many_calls_were_overwritten() {
    let directory = Directory::new();
    let trace = directory.0.join("trace.json");
    run(job(["-n", "1", "--trace", trace.to_str().unwrap()], "overwritten")).succeeded();
    let trace = json(&trace);
    let lost = trace["otherData"]["calls_overwritten"][0].as_u64().unwrap();
    let kept = tracks(&trace)[0].len() as u64;
    assert_eq!((kept, kept + lost), (1 << 16, 70_000));
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_job_begins() {
    let directory = Directory::new();
    fs::create_dir(directory.0.join("folder")).unwrap();
    fs::write(directory.0.join("file"), "").unwrap();
    let long = "x".repeat(250) + ".html";
    let refused: [(&[&str], &str); 10] = [
        (&["--report", "new/"], "new/ is a directory: name a file"),
        (&["--report", "new.json/"], "new.json/ is a directory: name a file"),
        (&["--trace", "new/."], "is a directory: name a file"),
        (&["--report", "x", "--trace", "./x.json"], "name another file"),
        (&["--trace", &long], "File name too long"),
        (&["--report", "no/such/job.html"], "there is no directory no/such"),
        (&["--trace", "none/trace.json"], "there is no directory none"),
        (&["--report", "folder"], "is a directory"),
        (&["--report", "file/job.html"], "there is no directory file"),
        (&["--report", "x", "--trace", "x.json"], "name another file"),
    ];
    for (options, reason) in refused {
        let mut command = intranode(["run", "-n", "2"]);
        command.args(options).args(["--", "touch", "begun"]).current_dir(&directory.0);
        let finished = run(command);
        assert_eq!(finished.code(), 125, "{options:?}: {}", finished.stderr);
        assert!(finished.last_error().contains(reason), "{options:?}: {}", finished.stderr);
    }
    assert_eq!(names(&directory), ["file", "folder"]);
}

#[test]
fn nothing_is_counted_unless_it_is_asked_for() {
    let directory = Directory::new();
    let shown = "echo ${INTRANODE_REPORT-unset}";
    let mut command = script(["-n", "1"], shown);
    command.env("INTRANODE_REPORT", "/proc/1/fd/1").current_dir(&directory.0);
    assert_eq!(run(command).succeeded().stdout, "unset\n");
    let maps = |options: &[&str]| {
        let mut command = intranode(["run", "-n", "2"]);
        command.args(options).arg("--").arg(std::env::current_exe().unwrap());
        command.args(["--exact", "report::maps", "--nocapture"]).env(PROGRAM, "maps");
        command.current_dir(&directory.0);
        run(command).succeeded().stdout.matches("intranode-report").count()
    };
    assert_eq!((maps(&[]), names(&directory)), (0, vec![]));
    assert_eq!(
        (maps(&["--report", "job"]), names(&directory)),
        (2, vec!["job".to_owned(), "job.json".to_owned()])
    );
}

/// Not a test, unless it is started as a rank: shows the mappings with which it counts.
#[test]
fn maps() {
    if std::env::var_os(PROGRAM).is_none() {
        return;
    }
    let comm = Communicator::from_env().unwrap();
    comm.barrier().unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("intranode-report")).for_each(|line| println!("{line}"));
}

#[test]
fn a_record_that_is_none_is_no_error_of_the_job() {
    let directory = Directory::new();
    fs::write(directory.0.join("other"), "another file").unwrap();
    let mut command = script(["-n", "1"], "INTRANODE_REPORT=other exec \"$0\" --exact report::maps");
    command.arg(std::env::current_exe().unwrap()).env(PROGRAM, "maps").current_dir(&directory.0);
    let finished = run(command).succeeded();
    assert!(
        finished.stderr.contains("rank 0 is not in the report: INTRANODE_REPORT=other"),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_file_in_a_directory_that_cannot_be_written_is_refused_at_once() {
    let directory = Directory::new();
    let page = directory.0.join("job.html");
    for file in [&page, &page.with_extension("json")] {
        fs::write(file, "").unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o666)).unwrap();
    }
    fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_intranode"));
    if geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    command.args(["run", "-n", "1", "--report"]).arg(&page).args(["--", "echo", "started"]).current_dir("/");
    let Ok(output) = command.output() else {
        return skipped("another user cannot run this program");
    };
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.stdout.is_empty() && error.contains(" cannot be written: "), "{error}");
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn a_limit_on_the_length_of_files_is_an_error_and_no_signal() {
    let directory = Directory::new();
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -f 8; exec \"$0\" run -n 2 --report job.html -- echo started"]);
    command.arg(env!("CARGO_BIN_EXE_intranode")).current_dir(&directory.0);
    let finished = run(command);
    assert_eq!(finished.code(), 125, "{}", finished.stderr);
    assert!(finished.stdout.is_empty() && finished.stderr.contains("File too large"), "{}", finished.stderr);
    assert!(names(&directory).is_empty(), "{:?}", names(&directory));
}

#[test]
fn what_a_link_leads_to_is_replaced_and_not_the_link() {
    let directory = Directory::new();
    fs::create_dir(directory.0.join("kept")).unwrap();
    fs::write(directory.0.join("kept/job.html"), "old").unwrap();
    for (link, target) in [("job.html", "kept/job.html"), ("job.json", "kept/new.json")] {
        symlink(target, directory.0.join(link)).unwrap();
    }
    let mut command = intranode(["run", "-n", "1", "--report", "job.html", "--", "true"]);
    run({
        command.current_dir(&directory.0);
        command
    })
    .succeeded();
    for link in ["job.html", "job.json"] {
        assert!(directory.0.join(link).is_symlink(), "{link}");
    }
    check_page(&fs::read_to_string(directory.0.join("kept/job.html")).unwrap());
    assert_eq!(json(&directory.0.join("kept/new.json"))["ranks"].as_array().unwrap().len(), 1);
}

#[test]
fn a_name_of_the_launcher_s_own_output_is_written_behind_what_is_there() {
    let directory = Directory::new();
    // As /dev/stdout, which leads to a file here.
    symlink("/proc/self/fd/1", directory.0.join("stdout")).unwrap();
    let file = directory.0.join("file");
    let mut command = intranode(["run", "-n", "1", "--trace", "stdout", "--", "echo", "first"]);
    command.current_dir(&directory.0).stdout(fs::File::create(&file).unwrap());
    assert!(command.status().unwrap().success());
    assert!(directory.0.join("stdout").is_symlink(), "{:?}", names(&directory));
    let text = fs::read_to_string(&file).unwrap();
    let trace = text.strip_prefix("first\n").unwrap_or_else(|| panic!("{text}"));
    assert!(serde_json::from_str::<Value>(trace).unwrap()["traceEvents"].is_array(), "{text}");
}

#[test]
fn a_file_that_cannot_be_written_leaves_the_others() {
    let directory = Directory::new();
    // The JSON lies where it cannot be written either: it has become a directory meanwhile.
    let mut command =
        script(["-n", "1", "--report", "job.html", "--trace", "trace.json"], "mkdir job.html job.json");
    command.current_dir(&directory.0);
    let finished = run(command);
    assert_eq!(finished.code(), 125, "{}", finished.stderr);
    for file in ["job.html", "job.json"] {
        assert!(finished.stderr.contains(&format!("cannot write {file}: ")), "{}", finished.stderr);
    }
    assert!(json(&directory.0.join("trace.json"))["traceEvents"].is_array());
    assert_eq!(names(&directory), ["job.html", "job.json", "trace.json"]);
}
