//! Random programs over ranks that are processes. Each process generates the program from the seed.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use intranode::Config;
use libtest_mimic::{Failed, Trial};

use crate::agreement::Record;
use crate::child::{Process, await_until, ensure_nothing_left, files_with_prefix};
use crate::endings::{may_be_inside_a_call, may_end};
use crate::generator::{Ranks, program};
use crate::journal::{Journal, read};
use crate::settings::{LIMIT, seed, share};
use crate::tally::Tally;
use crate::threads::{check_records, finish, is_over};
use crate::worker;

/// The role of a process that is a rank.
pub(crate) const ROLE: &str = "rank";

const SEED: &str = "HOSTILE_SEED";

/// The file of a rank's journal.
const JOURNAL: &str = "HOSTILE_JOURNAL";

/// The values of INTRANODE_WAIT and INTRANODE_MEMORY.
const KINDS: [(&str, &str, &str); 3] = [
    ("processes::futex::random_programs", "futex", ""),
    ("processes::futex::named::random_programs", "futex", "named"),
    ("processes::pthread::random_programs", "pthread", ""),
];

pub(crate) fn trials() -> Vec<Trial> {
    let kinds = KINDS.into_iter().filter(|(_, wait, _)| cfg!(target_os = "linux") || *wait == "pthread");
    kinds.map(|(name, wait, memory)| Trial::test(name, move || run(wait, memory))).collect()
}

fn run(wait: &str, memory: &str) -> Result<(), Failed> {
    let (started, time) = (Instant::now(), share(1, 6));
    let mut tally = Tally::default();
    for number in 0.. {
        let seed = seed().unwrap_or_else(|| fastrand::u64(..));
        let name = format!("hostile-{}-{wait}{memory}-{number}", std::process::id());
        let result = try_program(seed, &name, wait, memory, &mut tally);
        result.map_err(|error| format!("HOSTILE_SEED={seed}: {error:#}"))?;
        if is_over(&tally, started, time) {
            break;
        }
    }
    finish(&tally)
}

fn try_program(seed: u64, name: &str, wait: &str, memory: &str, tally: &mut Tally) -> Result<()> {
    let program = program(seed, Ranks::Processes);
    let size = program.threads.len();
    let journals = tempfile::tempdir()?;
    let journal = |rank: usize| journals.path().join(rank.to_string());
    let start = |rank: usize| {
        Process::start(ROLE, |command| {
            command
                .env("INTRANODE_NAME", format!("/{name}"))
                .env("INTRANODE_RANK", rank.to_string())
                .env("INTRANODE_SIZE", size.to_string())
                .env("INTRANODE_WAIT", wait)
                .env("INTRANODE_MEMORY", memory)
                .env(SEED, seed.to_string())
                .env(JOURNAL, journal(rank));
        })
    };
    let mut processes = (0..size).map(start).collect::<Result<Vec<_>>>()?;
    if let Some((rank, micros)) = program.killed {
        await_until(LIMIT, || Ok(!read(&journal(rank)).is_empty() || processes[rank].status()?.is_some()))?;
        thread::sleep(Duration::from_micros(micros));
        processes[rank].kill();
    }
    let all_ended = await_until(LIMIT, || {
        let mut all = true;
        for process in &mut processes {
            all &= process.status()?.is_some();
        }
        Ok(all)
    });
    let mut records = Vec::new();
    let mut ends = String::new();
    let mut as_expected = true;
    for (rank, process) in processes.iter_mut().enumerate() {
        let status = process.status()?;
        as_expected &= status.is_some_and(|status| may_end(&program, rank, status));
        ends += &format!("rank {rank} ended with {status:?}; it wrote: {}\n", process.output()?);
        let incomplete = status.is_none_or(may_be_inside_a_call);
        records.push(Record { events: read(&journal(rank)), incomplete });
    }
    // Kills those that hang.
    drop(processes);
    let checked = check_records(&program, &records);
    if !as_expected || all_ended.is_err() {
        return all_ended
            .and(checked)
            .context(ends.clone())
            .and_then(|()| anyhow::bail!("a rank did not end as it should:\n{ends}\n{program}"));
    }
    checked?;
    tally.add(&records);
    if memory == "named" && records.iter().any(|record| record.incomplete) {
        // A rank that ended while it created a named region leaves the file, which the next job of the name would remove.
        for path in files_with_prefix(&format!("{name}_region_"))? {
            std::fs::remove_file(path)?;
        }
    }
    ensure_nothing_left(name).with_context(|| format!("{ends}\n{program}"))
}

/// Runs a rank.
pub(crate) fn play() -> Result<()> {
    let seed = crate::settings::seed().context("the driver gives a seed")?;
    let program = program(seed, Ranks::Processes);
    let journal = Journal::in_file(&PathBuf::from(std::env::var_os(JOURNAL).context("a journal")?))?;
    let mut config = worker::configure(&program, Config::from_env()?);
    if let Some(single_copy) = program.single_copy {
        config = config.single_copy(single_copy);
    }
    let comm = config.join()?;
    ensure!(comm.size() == program.threads.len());
    worker::play(&program, comm, &journal);
    Ok(())
}
