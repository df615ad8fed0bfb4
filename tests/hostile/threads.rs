//! Random programs over ranks that are threads, in a process of their own: what ends it is a failure, and not the end of
//! the tests.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use intranode::{Communicator, Config};
use libtest_mimic::{Failed, Trial};

use crate::agreement::{self, Record};
use crate::child::{Process, await_until, left_nothing};
use crate::generator::{Ranks, program};
use crate::journal::Journal;
use crate::ownership;
use crate::program::Program;
use crate::settings::{LIMIT, allowed, seed, share};
use crate::tally::Tally;
use crate::worker::{Deliberate, configure, play};

/// The role of the process.
pub(crate) const ROLE: &str = "threads";

/// How many programs a process runs. What they forget stays until it ends.
const MOST: usize = 300;

/// How long a process has; the part of the time that one kind of memory gets.
const TIME: &str = "HOSTILE_MILLIS";

/// How the line begins that says what has happened.
const TALLY: &str = "what has happened: ";

pub(crate) fn trials() -> Vec<Trial> {
    [("threads::random_programs", ""), ("threads::named::random_programs", "named")]
        .map(|(name, memory)| Trial::test(name, move || run(memory)))
        .into()
}

/// Panics that belong to a program are not shown.
pub(crate) fn hush_deliberate_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<Deliberate>() {
            usual(info);
        }
    }));
}

fn run(memory: &str) -> Result<(), Failed> {
    let until = Instant::now() + share(1, 4);
    let mut tally = Tally::default();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let ran = run_process(memory, left).map_err(|error| format!("{error:#}"))?;
        tally.add_all(&ran);
        if Instant::now() >= until {
            break;
        }
    }
    finish(&tally)
}

/// Says what has happened.
///
/// # Errors
/// Not enough.
pub(crate) fn finish(tally: &Tally) -> Result<(), Failed> {
    eprintln!("{tally}");
    // The choices of one program are what they are.
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

/// What the process does.
pub(crate) fn try_programs() -> Result<()> {
    let time = Duration::from_millis(std::env::var(TIME)?.parse()?);
    let started = Instant::now();
    let mut tally = Tally::default();
    for _ in 0..MOST {
        let seed = seed().unwrap_or_else(|| fastrand::u64(..));
        // Said before: there may be no time afterwards.
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
    // Not scoped: threads that hang are left behind, and the process still ends.
    thread::spawn(move || {
        let config = configure(&played, Config::new("/threads", 0, size));
        let rank = |comm: Communicator| {
            let rank = comm.rank();
            play(&played, comm, &recorded[rank]);
        };
        let result = catch_unwind(AssertUnwindSafe(|| intranode::threads_with(&config, rank)));
        drop(recorded);
        // If a rank has panicked: each panic has been looked at.
        let result = result.map_or(Ok(()), |ranks| ranks.map(drop));
        // Nobody listens any more if the limit has passed.
        let _ = ended.send(result);
    });
    let Ok(result) = end.recv_timeout(LIMIT) else {
        bail!("it hangs after {LIMIT:?}: {program}");
    };
    result?;
    let journals = Arc::into_inner(journals).expect("all ranks have ended");
    let record = |journal: Journal| Record { events: journal.into_events(), cut: false };
    let records: Vec<Record> = journals.into_iter().map(record).collect();
    judge(&program, &records)?;
    tally.add(&records);

    left_nothing(&format!("intranode-threads-{}", std::process::id()))
}

/// What the oracle says.
///
/// # Errors
/// What is wrong, with the program.
pub(crate) fn judge(program: &Program, records: &[Record]) -> Result<()> {
    let mut broken = agreement::check(records);
    broken.extend(ownership::check(records));
    broken.retain(|what| !allowed().is_some_and(|part| what.contains(&part)));
    if broken.is_empty() {
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
    bail!("HOSTILE_SEED={seed} breaks what must hold:\n{}\n{program}\n{events}", broken.join("\n"))
}
