//! The limits of getrlimit(2). Under any limit a call succeeds on every rank, or is an error on every rank, and joined ranks
//! can go on. No rank ends by a signal or a panic, or hangs.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use intranode::{Communicator, Config, Error, Placement, RegionOptions};
use libtest_mimic::Completion;
use nix::sys::resource::{Resource, setrlimit};

use super::job::Job;
use super::{Program, Test, rank};

pub(crate) const TESTS: &[Test] = &[
    ("limit_on_descriptors", on_descriptors),
    ("limit_on_the_size_of_files", on_the_size_of_files),
    ("limit_on_the_size_of_files_and_messages", on_the_size_of_messages),
    ("limit_on_what_is_mapped", on_what_is_mapped),
    ("limit_on_data", on_data),
    ("limit_on_the_stack", || without_effect("STACK", &[0, 65_536, 1 << 20])),
    ("limit_on_processes", on_processes),
    ("limits_without_effect", limits_without_effect),
    ("limits_on_ranks_that_are_threads", on_threads),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("under a limit", under_a_limit),
    ("fills its stderr", fills_its_stderr),
    ("runs threads under a limit", runs_threads_under_a_limit),
];

/// The limit; its value, with '+' relative to the current usage; the rank that sets it, or both; and whether after joining.
const LIMIT: &str = "FAULTS_LIMIT";
const VALUE: &str = "FAULTS_LIMIT_VALUE";
const RANK: &str = "FAULTS_LIMIT_RANK";
const LATE: &str = "FAULTS_LIMIT_LATE";

/// The unprivileged user nobody, to whom RLIMIT_NPROC applies.
const NOBODY: u32 = 65534;

/// Which ranks of two set the limit.
const WHO: [&str; 3] = ["both", "0", "1"];

/// The values of INTRANODE_MEMORY: memfds, and named files.
const MEMORY: [&str; 2] = ["memfd", "named"];

/// A job of two under a limit.
#[derive(Clone, Copy, Debug)]
struct Case<'a> {
    limit: &'a str,
    value: &'a str,
    who: &'a str,
    late: bool,
    memory: &'a str,
    unprivileged: bool,
}

impl<'a> Case<'a> {
    fn new(limit: &'a str, value: &'a str) -> Self {
        Case { limit, value, who: WHO[0], late: false, memory: MEMORY[0], unprivileged: false }
    }

    /// All cases: both kinds of memory, either rank and both, before and after joining.
    fn all(self) -> impl Iterator<Item = Self> {
        let with_memory = MEMORY.into_iter().map(move |memory| Case { memory, ..self });
        let with_ranks = with_memory.flat_map(|case| WHO.map(|who| Case { who, ..case }));
        with_ranks.flat_map(|case| [false, true].map(|late| Case { late, ..case }))
    }

    fn run(self) -> Result<Outcome> {
        self.try_run().with_context(|| format!("{self:?}"))
    }

    fn try_run(self) -> Result<Outcome> {
        let change = |command: &mut Command| {
            command.env(LIMIT, self.limit).env(VALUE, self.value).env(RANK, self.who);
            command.env(LATE, self.late.to_string()).env("INTRANODE_MEMORY", self.memory);
            if self.unprivileged {
                command.uid(NOBODY).gid(NOBODY).current_dir("/");
            }
        };
        let mut job = Job::new(2);
        (0..2).try_for_each(|rank| job.start(rank, "under a limit", change))?;
        let (first, line) = job.first_line(&[0, 1])?;
        let mut calls = Vec::new();
        let mut failure = None;
        if line == "joined" {
            job.await_line(1 - first, "joined")?;
            for call in CALLS {
                let lines = [job.line(0)?, job.line(1)?];
                ensure!(lines[0] == lines[1], "{call}: not the same on all ranks: {lines:?}");
                calls.push(lines.into_iter().next().unwrap_or_default());
            }
            (0..2).try_for_each(|rank| job.await_line(rank, "works"))?;
        } else if is_about_the_other(&line) {
            failure = Some(job.line(1 - first)?);
        } else {
            // The other rank would wait until its time-out.
            job.kill(1 - first)?;
            failure = Some(line);
        }
        // A signal or a panic would change the exit status.
        for rank in 0..2 {
            let killed = failure.is_some() && rank != first;
            let status = job.status(rank)?;
            ensure!(status == 0 || killed && status == -9, "rank {rank}: {status}: {}", job.stderr(rank)?);
        }
        if failure.is_some() && first == 1 && job.path().exists() {
            fs::remove_file(job.path())?;
        }
        job.ensure_nothing_left()?;
        Ok(Outcome { failure, calls })
    }
}

/// Whether a rank could not join because the other has failed after claiming its rank.
fn is_about_the_other(line: &str) -> bool {
    line.contains("has left")
}

/// The calls of a rank, in this order.
const CALLS: [&str; 3] = ["region", "split", "exchange"];

/// The error of joining under the limit, if there was one, and the result of each call.
#[derive(Debug)]
struct Outcome {
    failure: Option<String>,
    calls: Vec<String>,
}

impl Outcome {
    fn works(&self) -> bool {
        self.failure.is_none() && self.calls.iter().all(|line| line == "ok")
    }

    /// The errors.
    fn errors(&self) -> impl Iterator<Item = &String> {
        self.failure.iter().chain(self.calls.iter().filter(|line| *line != "ok"))
    }

    /// Fails unless each error has this reason.
    fn ensure_reason(&self, reason: &str) -> Result<()> {
        ensure!(self.errors().all(|line| line.contains(reason)), "{self:?}");
        Ok(())
    }
}

/// A watcher keeps one descriptor for each watched rank, after the three of the standard streams. One more is enough for all
/// calls.
fn on_descriptors() -> Result<Completion> {
    let mut failed = 0;
    for descriptors in 3..=20 {
        for case in Case::new("NOFILE", &descriptors.to_string()).all() {
            let outcome = case.run()?;
            outcome.ensure_reason("Too many open files")?;
            ensure!(outcome.works() || descriptors < 5, "{case:?}: {outcome:?}");
            failed += usize::from(!outcome.works());
        }
    }
    ensure!(failed > 0, "no descriptor is needed");
    Ok(Completion::Completed)
}

/// The limit concerns the rank that creates a file, and not one that opens it.
fn on_the_size_of_files() -> Result<Completion> {
    // 3 MiB are enough for a region, and not for a segment; 16 MiB for both.
    for (value, is_enough) in [(0, false), (1, false), (4096, false), (3 << 20, false), (16 << 20, true)] {
        for case in Case::new("FSIZE", &u64::to_string(&value)).all() {
            let outcome = case.run()?;
            outcome.ensure_reason("RLIMIT_FSIZE")?;
            ensure!(outcome.works() == (is_enough || case.who == "1"), "{case:?}: {outcome:?}");
            ensure!(outcome.errors().all(|error| error.contains(" bytes ")), "{outcome:?}");
            let region = outcome.calls.first().is_some_and(|line| line == "ok");
            ensure!(!case.late || case.who == "1" || region == (value >= 3 << 20), "{case:?}: {outcome:?}");
        }
    }
    Ok(Completion::Completed)
}

/// The library's messages where standard error is a file of the largest allowed size.
fn on_the_size_of_messages() -> Result<Completion> {
    let mut job = Job::new(1);
    job.start(0, "fills its stderr", |command| {
        command.env("INTRANODE_DEBUG", "1");
    })?;
    job.await_line(0, "works")?;
    job.finish(&[])?;
    Ok(Completion::Completed)
}

fn fills_its_stderr() -> Result<()> {
    const LIMIT: usize = 4 << 20;
    setrlimit(Resource::RLIMIT_FSIZE, LIMIT as u64, LIMIT as u64)?;
    io::stderr().write_all(&vec![b'\n'; LIMIT])?;
    let comm = Config::from_env()?.chunk_bytes(4096).join()?;
    // With one NUMA node there is a message about the placement, and about huge pages on every machine.
    let options = RegionOptions::new().placement(Placement::Interleaved).huge_pages(true);
    comm.region_with::<u8>(1 << 20, &options)?;
    rank::send("works")
}

/// Values around what a segment and a thread need, and smaller and larger ones.
fn on_what_is_mapped() -> Result<Completion> {
    let around = (6_200_000..8_000_000).step_by(65_536);
    relative_to_usage("AS", "RLIMIT_AS", &[0, 4096, 1 << 20, 4 << 20], around, 64 << 20)
}

fn on_data() -> Result<Completion> {
    relative_to_usage("DATA", "RLIMIT_DATA", &[0, 4096], (120_000..300_000).step_by(8192), 16 << 20)
}

/// `scarce` is not enough to join; `around` may be enough or not; `plenty` is enough for everything.
fn relative_to_usage(
    limit: &str,
    reason: &str,
    scarce: &[u64],
    around: impl Iterator<Item = u64>,
    plenty: u64,
) -> Result<Completion> {
    let value = |value: u64| format!("+{value}");
    for scarce in scarce {
        for case in Case::new(limit, &value(*scarce)).all() {
            let outcome = case.run()?;
            outcome.ensure_reason(reason)?;
            ensure!(case.late || outcome.failure.is_some(), "{case:?}: {outcome:?}");
        }
    }
    for around in around {
        let value = value(around);
        for who in ["0", "1"] {
            Case { who, ..Case::new(limit, &value) }.run()?.ensure_reason(reason)?;
        }
    }
    for case in Case::new(limit, &value(plenty)).all() {
        let outcome = case.run()?;
        ensure!(outcome.works(), "{case:?}: {outcome:?}");
    }
    Ok(Completion::Completed)
}

fn without_effect(limit: &str, values: &[u64]) -> Result<Completion> {
    for value in values {
        for case in Case::new(limit, &value.to_string()).all() {
            let outcome = case.run()?;
            ensure!(outcome.works(), "{case:?}: {outcome:?}");
        }
    }
    Ok(Completion::Completed)
}

fn limits_without_effect() -> Result<Completion> {
    const LIMITS: [&str; 8] = ["CORE", "LOCKS", "MEMLOCK", "MSGQUEUE", "RSS", "RTPRIO", "RTTIME", "SIGPENDING"];
    for limit in LIMITS.into_iter().chain(["NICE"]) {
        without_effect(limit, &[0])?;
    }
    Ok(Completion::Completed)
}

/// The limit counts threads, of which the watcher is one, for unprivileged users only.
fn on_processes() -> Result<Completion> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(Completion::ignored_with("only root can start ranks as another user"));
    }
    for late in [false, true] {
        for who in WHO {
            let case = Case { late, who, unprivileged: true, ..Case::new("NPROC", "0") };
            let outcome = match case.run() {
                Err(error) if format!("{error:#}").contains("os error 13") => {
                    let reason = format!("this program cannot be run as another user: {error:#}");
                    return Ok(Completion::ignored_with(reason));
                }
                outcome => outcome?,
            };
            outcome.ensure_reason("Resource temporarily unavailable")?;
            ensure!(outcome.works() == late, "{case:?}: {outcome:?}");
        }
    }
    Ok(Completion::Completed)
}

fn on_threads() -> Result<Completion> {
    for (limit, reason) in [("AS", "RLIMIT_AS"), ("DATA", "RLIMIT_DATA")] {
        for (value, works) in [("+0", false), ("+65536", false), ("+4000000", false), ("+256000000", true)] {
            let mut job = Job::new(1);
            job.start(0, "runs threads under a limit", |command| {
                command.env(LIMIT, limit).env(VALUE, value).env(RANK, "both");
            })?;
            let line = job.line(0)?;
            ensure!(if works { line == "ok" } else { line.contains(reason) }, "{limit} {value}: {line}");
            job.finish(&[])?;
        }
    }
    Ok(Completion::Completed)
}

fn runs_threads_under_a_limit() -> Result<()> {
    let _own = preallocated();
    limit_this_process()?;
    match intranode::threads(4, |comm| comm.barrier()) {
        Ok(results) => {
            results.into_iter().collect::<Result<Vec<()>, Error>>()?;
            rank::send("ok")
        }
        Err(error) => rank::send(&error.to_string()),
    }
}

fn under_a_limit() -> Result<()> {
    let late = std::env::var(LATE)? == "true";
    let _own = preallocated();
    if !late {
        limit_this_process()?;
    }
    let comm = match Config::from_env()?.join() {
        Ok(comm) => comm,
        Err(error @ (Error::AllocationFailed { .. } | Error::InitializationFailed(_))) => {
            return rank::send(&error.to_string());
        }
        Err(error) => return Err(error.into()),
    };
    rank::send("joined")?;
    if late {
        comm.barrier()?;
        limit_this_process()?;
    }
    for call in CALLS {
        let result = match call {
            "region" => use_a_region(&comm),
            "split" => comm.split(0, 0).and_then(|half| half.barrier()),
            _ => comm.exchange::<u64>(&[1000, 1000]).map(drop),
        };
        match result {
            Ok(()) => rank::send("ok")?,
            Err(error @ Error::AllocationFailed { .. }) => rank::send(&error.to_string())?,
            Err(error) => bail!("{call}: {error}"),
        }
    }
    rank::ensure_works(&comm, 8)?;
    rank::send("works")
}

fn use_a_region(comm: &Communicator) -> Result<(), Error> {
    let mut region = comm.region::<u64>(1 << 17)?;
    region.as_mut_slice().fill(7);
    assert!(region.publish()?.iter().all(|value| *value == 7), "{}", rank::WRONG_DATA);
    Ok(())
}

/// Allocates and frees 1 MiB of heap for the test and the C library, whose small allocations would otherwise fail too. The
/// returned allocation at the end of the heap keeps the C library from returning the memory to the system.
fn preallocated() -> Box<[u8; 64]> {
    let blocks: Vec<Box<[u8; 4096]>> = (0..256).map(|_| Box::new([1; 4096])).collect();
    let last = Box::new([1; 64]);
    drop(blocks);
    last
}

fn limit_this_process() -> Result<()> {
    let (limit, value, rank) = (std::env::var(LIMIT)?, std::env::var(VALUE)?, std::env::var(RANK)?);
    if rank != "both" && rank != std::env::var("INTRANODE_RANK")? {
        return Ok(());
    }
    let resource = match limit.as_str() {
        "AS" => Resource::RLIMIT_AS,
        "CORE" => Resource::RLIMIT_CORE,
        "DATA" => Resource::RLIMIT_DATA,
        "FSIZE" => Resource::RLIMIT_FSIZE,
        "LOCKS" => Resource::RLIMIT_LOCKS,
        "MEMLOCK" => Resource::RLIMIT_MEMLOCK,
        "MSGQUEUE" => Resource::RLIMIT_MSGQUEUE,
        "NICE" => Resource::RLIMIT_NICE,
        "NOFILE" => Resource::RLIMIT_NOFILE,
        "NPROC" => Resource::RLIMIT_NPROC,
        "RSS" => Resource::RLIMIT_RSS,
        "RTPRIO" => Resource::RLIMIT_RTPRIO,
        "RTTIME" => Resource::RLIMIT_RTTIME,
        "SIGPENDING" => Resource::RLIMIT_SIGPENDING,
        "STACK" => Resource::RLIMIT_STACK,
        other => bail!("no limit {other}"),
    };
    let value = match value.strip_prefix('+') {
        Some(more) => used(&limit)? + more.parse::<u64>()?,
        None => value.parse()?,
    };
    Ok(setrlimit(resource, value, value)?)
}

/// This process's usage of a resource.
pub(crate) fn used(limit: &str) -> Result<u64> {
    let field = if limit == "AS" { "VmSize:" } else { "VmData:" };
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("a field")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
