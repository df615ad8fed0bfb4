//! Running a row over processes and over threads.

use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use intranode::{Hierarchical, NodeMap};
use intranode_cobre::ShmBackend;
use libtest_mimic::{Failed, Trial};

use crate::{Outcome, Row};

/// No row takes longer than this, or it has hung.
const LIMIT: Duration = Duration::from_secs(60);

/// Gives a process the name of the row that it runs.
const ROLE: &str = "SEMANTICS_ROW";

pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// What a process does that was started as a rank.
pub(crate) fn run_as_rank(name: &str, rows: &[Row]) -> ExitCode {
    let play = || {
        let row = rows.iter().find(|row| row.name == name).context("there is no such row")?;
        (row.body)(&ShmBackend::from_env()?)
    };
    match play() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn trials(rows: &[Row]) -> Vec<Trial> {
    let mut trials = Vec::new();
    for row in rows.iter().copied() {
        for ranks in row.ranks.iter().copied() {
            let name = |driver| format!("{driver}::{ranks}::{}", row.name);
            trials.push(Trial::test(name("processes"), move || verdict(over_processes(row, ranks))));
            trials.push(Trial::test(name("threads"), move || verdict(over_threads(row, ranks, 1))));
            if ranks > 1 {
                trials.push(Trial::test(name("nodes"), move || verdict(over_threads(row, ranks, 2))));
            }
        }
    }
    trials
}

fn verdict(outcome: Outcome) -> Result<(), Failed> {
    outcome.map_err(|error| format!("{error:?}").into())
}

/// Over threads, of one node or of simulated ones.
fn over_threads(row: Row, ranks: usize, nodes: usize) -> Outcome {
    let (sender, receiver) = mpsc::channel();
    // Not scoped: threads that hang are left behind, and the trial still ends.
    thread::spawn(move || {
        let config = intranode::Config::new("/threads", 0, ranks).timeout(row.timeout);
        let outcomes = intranode::threads_with(&config, |comm| {
            let rank = comm.rank();
            let backend = || {
                Ok::<_, intranode::Error>(match nodes {
                    1 => ShmBackend::from_communicator(comm),
                    _ => ShmBackend::over(Hierarchical::simulated(comm, &NodeMap::even(ranks, nodes)?)?)?,
                })
            };
            (row.body)(&backend()?).with_context(|| format!("rank {rank}"))
        });
        // Nobody listens any more if the limit has passed.
        let _ = sender.send(outcomes);
    });
    let outcomes = receiver.recv_timeout(LIMIT).context("a rank panicked, or hangs")??;
    outcomes.into_iter().collect()
}

/// The processes of a row. What still runs when they are dropped is killed.
struct Job(Vec<Child>);

impl Drop for Job {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn over_processes(row: Row, ranks: usize) -> Outcome {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("/semantics-{}-{number}", std::process::id());
    let mut job = Job(Vec::new());
    for rank in 0..ranks {
        let child = Command::new(std::env::current_exe()?)
            .env(ROLE, row.name)
            .env("COBRE_SHM_NAME", &name)
            .env("COBRE_SHM_RANK", rank.to_string())
            .env("COBRE_SHM_SIZE", ranks.to_string())
            .env("COBRE_SHM_TIMEOUT", row.timeout.as_secs().to_string())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        job.0.push(child);
    }
    let started = Instant::now();
    while !ended(&mut job)? {
        ensure!(started.elapsed() < LIMIT, "hung, and killed after {LIMIT:?}");
        thread::sleep(Duration::from_millis(1));
    }
    for (rank, child) in std::mem::take(&mut job.0).into_iter().enumerate() {
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "rank {rank}: {}: {said}", output.status);
    }
    let left = std::path::Path::new("/dev/shm").join(&name[1..]);
    ensure!(!left.exists(), "{} is left", left.display());
    Ok(())
}

fn ended(job: &mut Job) -> anyhow::Result<bool> {
    let mut all = true;
    for child in &mut job.0 {
        all &= child.try_wait()?.is_some();
    }
    Ok(all)
}
