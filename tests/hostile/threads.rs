//! Random programs over ranks that are threads, in a child process, so that a crash is a failed test.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use intranode::{Communicator, Config};
use libtest_mimic::{Failed, Trial};

use crate::agreement::{self, Record};
use crate::child::{Process, await_until, ensure_nothing_left};
use crate::generator::{Ranks, program};
use crate::journal::Journal;
use crate::ownership;
use crate::program::Program;
use crate::settings::{LIMIT, allowed_violation, seed, share};
use crate::tally::Tally;
use crate::worker::{Deliberate, configure, play};

/// The role of the process.
pub(crate) const ROLE: &str = "threads";

/// The largest number of programs of a process: what they leak stays until it ends.
const MAX_PROGRAMS: usize = 300;

/// The time of a process.
const TIME: &str = "HOSTILE_MILLIS";

/// The start of the line with the tally.
const TALLY: &str = "tally: ";

pub(crate) fn trials() -> Vec<Trial> {
    [("threads::random_programs", ""), ("threads::named::random_programs", "named")]
        .map(|(name, memory)| Trial::test(name, move || run(memory)))
        .into()
}

/// Does not print the panics of programs.
pub(crate) fn silence_deliberate_panics() {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<Deliberate>() {
            default_hook(info);
        }
    }));
}

fn run(memory: &str) -> Result<(), Failed> {
    let (started, time) = (Instant::now(), share(1, 4));
    let mut tally = Tally::default();
    loop {
        let left = time.saturating_sub(started.elapsed());
        let counted = run_process(memory, left).map_err(|error| format!("{error:#}"))?;
        tally.add_all(&counted);
        if is_over(&tally, started, time) {
            break;
        }
    }
    finish(&tally)
}

/// Whether enough programs have run: the time is over, and the tally lacks nothing. Few programs have some kinds of events, so it may take
/// longer, up to four times.
pub(crate) fn is_over(tally: &Tally, started: Instant, time: Duration) -> bool {
    let elapsed = started.elapsed();
    elapsed >= 4 * time || elapsed >= time && (seed().is_some() || tally.check().is_ok())
}

/// Prints the tally and checks it.
///
/// # Errors
/// When a kind of event has never occurred.
pub(crate) fn finish(tally: &Tally) -> Result<(), Failed> {
    eprintln!("{tally}");
    // A single repeated program need not have all kinds.
    if seed().is_some() { Ok(()) } else { tally.check().map_err(|error| error.to_string().into()) }
}

fn run_process(memory: &str, time: Duration) -> Result<Tally> {
    let mut process = Process::start(ROLE, |command| {
        command.env(TIME, time.as_millis().to_string()).env("INTRANODE_MEMORY", memory);
    })?;
    let ended = await_until(time + 2 * LIMIT, || Ok(process.status()?.is_some()));
    let output = process.output()?;
    ended.map_err(|error| error.context(output.clone()))?;
    let status = process.status()?;
    ensure!(status == Some(0), "the process ended with {status:?} (a signal if negative): {output}");
    let tally = output.lines().find_map(|line| line.strip_prefix(TALLY)).context("a tally")?;
    Ok(serde_json::from_str(tally)?)
}

/// Runs the child process.
pub(crate) fn try_programs() -> Result<()> {
    let time = Duration::from_millis(std::env::var(TIME)?.parse()?);
    let started = Instant::now();
    let mut tally = Tally::default();
    for _ in 0..MAX_PROGRAMS {
        let seed = seed().unwrap_or_else(|| fastrand::u64(..));
        // Printed first, in case the program ends the process.
        println!("HOSTILE_SEED={seed}");
        std::io::stdout().flush()?;
        try_program(program(seed, Ranks::Threads), &mut tally)?;
        if started.elapsed() >= time {
            break;
        }
    }
    println!("{TALLY}{}", serde_json::to_string(&tally)?);
    Ok(())
}

fn try_program(program: Program, tally: &mut Tally) -> Result<()> {
    let size = program.threads.len();
    let program = Arc::new(program);
    let journals: Arc<Vec<Journal>> = Arc::new((0..size).map(|_| Journal::in_memory()).collect());
    let (ended, end) = mpsc::channel();
    let (played, recorded) = (Arc::clone(&program), Arc::clone(&journals));
    // Not scoped: threads that hang must not keep the process from ending.
    thread::spawn(move || {
        let config = configure(&played, Config::new("/threads", 0, size));
        let rank = |comm: Communicator| {
            let rank = comm.rank();
            play(&played, comm, &recorded[rank]);
        };
        let result = catch_unwind(AssertUnwindSafe(|| intranode::threads_with(&config, rank)));
        drop(recorded);
        // After a panic of a rank: it was checked and recorded.
        let result = result.map_or(Ok(()), |ranks| ranks.map(drop));
        // An error means that the limit has passed.
        let _ = ended.send(result);
    });
    let Ok(result) = end.recv_timeout(LIMIT) else {
        bail!("it hangs after {LIMIT:?}: {program}");
    };
    result?;
    let journals = Arc::into_inner(journals).expect("all ranks have ended");
    let record = |journal: Journal| Record { events: journal.into_events(), incomplete: false };
    let records: Vec<Record> = journals.into_iter().map(record).collect();
    check_records(&program, &records)?;
    tally.add(&records);

    ensure_nothing_left(&format!("intranode-threads-{}", std::process::id()))
}

/// Applies the oracle.
///
/// # Errors
/// The violations, with the program.
pub(crate) fn check_records(program: &Program, records: &[Record]) -> Result<()> {
    let mut violations = agreement::check(records);
    violations.extend(ownership::check(records));
    violations.retain(|what| !allowed_violation().is_some_and(|part| what.contains(&part)));
    if violations.is_empty() {
        return Ok(());
    }
    let mut events = String::new();
    if std::env::var_os("HOSTILE_EVENTS").is_some() {
        for (rank, record) in records.iter().enumerate() {
            for event in &record.events {
                events += &format!("rank {rank}: {event:?}\n");
            }
        }
    }
    let seed = program.seed;
    bail!("HOSTILE_SEED={seed}: violations:\n{}\n{program}\n{events}", violations.join("\n"))
}
