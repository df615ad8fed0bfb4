//! Kills or stops ranks at random, thousands of times, and measures when the others report it.
//!
//! ```text
//! cargo run --release --example chaos -- --kills 2000 --ranks 2,4,8
//! ```
//!
//! Each job runs random collectives, one-sided operations on symmetric memory, and messages, with checks of their results, until
//! one of its ranks is killed (or, in one job of twenty, stopped and continued). The operations, the victim, the moment and the
//! groups follow from the job's seed. A job that fails prints its seed, and `--seed SEED --kills 1 --ranks R` repeats its
//! choices.
//!
//! A delay is the time from the kill to the last survivor's error. A survivor that is not waiting at the kill first completes
//! its own work, which dominates with many ranks, few processors and large contributions.
//!
//! | argument | meaning |
//! | --- | --- |
//! | `--kills N` | the number of jobs for each number of ranks; default 100 |
//! | `--ranks A,B` | the numbers of ranks; default 2,4,8 |
//! | `--seconds S` | the time after which no more jobs start, shared among the numbers of ranks |
//! | `--most BYTES` | the largest contribution of a rank to a collective; default 64 KiB |
//! | `--victim-mib M` | the memory that the victim holds |
//! | `--seed S` | the seed of the first job; the next ones count up |

#[path = "job.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod job;
#[path = "one_sided.rs"]
mod one_sided;
#[path = "rank.rs"]
#[allow(dead_code, reason = "as above")]
mod rank;
#[path = "report.rs"]
mod report;
#[path = "traffic.rs"]
mod traffic;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};

use job::{Job, Violation};
use report::Report;

/// The variables that configure a rank.
const SEED: &str = "CHAOS_SEED";
const VICTIM: &str = "CHAOS_VICTIM";
const MEMORY: &str = "CHAOS_VICTIM_MIB";
const MOST: &str = "CHAOS_MOST";
const NOT_COLLECTIVE: &str = "CHAOS_NOT_COLLECTIVE";

/// The time-out of jobs in which a rank is stopped.
const TIMEOUT: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let result = if std::env::var_os(job::PROGRAM).is_some() { run_rank() } else { run() };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the same operations as the other ranks, until one fails.
fn run_rank() -> Result<()> {
    let mut random = Rng::with_seed(variable(SEED)?);
    let comm = rank::join()?;
    let mebibytes = if comm.rank() as u64 == variable(VICTIM)? { variable(MEMORY)? } else { 0 };
    let mut memory = vec![0u8; (mebibytes as usize) << 20];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    let limit = variable(MOST)?;
    // Touched in advance, so that page faults are not measured.
    let touched = |len| vec![1; len];
    let max_len = limit as usize;
    let mut buffers = rank::Buffers { send: touched(max_len), recv: touched(max_len * comm.size()) };
    let (one_sided_kinds, traffic_kinds) =
        if variable(NOT_COLLECTIVE)? == 1 { (one_sided::KINDS.len(), traffic::KINDS.len()) } else { (0, 0) };
    let mut objects = one_sided::OneSided::new(&comm, max_len)?;
    let mut messages = traffic::Traffic::new(&comm)?;
    let mut round = 0;
    rank::send("ready")?;
    let error = loop {
        round += 1;
        let kind = random.usize(0..rank::KINDS.len() + one_sided_kinds + traffic_kinds);
        // Small lengths are as frequent as large ones.
        let max_now = 1 << random.u32(0..=limit.ilog2());
        let len = random.usize(0..=max_now);
        let result = if let Some(kind) = rank::KINDS.get(kind) {
            rank::collective(&comm, *kind, len, round, &mut buffers)
        } else if let Some(kind) = one_sided::KINDS.get(kind - rank::KINDS.len()) {
            objects.operation(&comm, *kind, len)
        } else {
            let kind = traffic::KINDS[kind - rank::KINDS.len() - one_sided::KINDS.len()];
            messages.exchange(&comm, kind, len)
        };
        if let Err(error) = result {
            break error;
        }
    };
    let report = Report::of(&error);
    // Reported on request, so that it takes no processor time from ranks that have not noticed yet.
    rank::receive()?;
    rank::send(&report.line())?;
    while rank::receive()?.is_some() {}
    Ok(())
}

fn variable(name: &str) -> Result<u64> {
    Ok(std::env::var(name)?.parse()?)
}

/// The arguments.
struct Plan {
    kills: u64,
    ranks: Vec<usize>,
    seconds: Option<u64>,
    most: u64,
    victim_mib: u64,
    seed: u64,
}

impl Plan {
    fn from_arguments() -> Result<Self> {
        let seed = fastrand::u64(..1 << 32);
        let mut plan =
            Plan { kills: 100, ranks: vec![2, 4, 8], seconds: None, most: 64 << 10, victim_mib: 0, seed };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().with_context(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--kills" => plan.kills = value.parse()?,
                "--ranks" => plan.ranks = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
                "--seconds" => plan.seconds = Some(value.parse()?),
                "--most" => plan.most = value.parse()?,
                "--victim-mib" => plan.victim_mib = value.parse()?,
                "--seed" => plan.seed = value.parse()?,
                _ => bail!("{name} is not an argument; see the top of tests/faults/chaos.rs"),
            }
        }
        ensure!(plan.most > 0, "--most is at least 1");
        ensure!(plan.ranks.iter().all(|size| *size >= 2), "a job needs a survivor");
        Ok(plan)
    }
}

/// The results of the jobs with one number of ranks.
#[derive(Default)]
struct Tally {
    /// The times from each kill to the last survivor's error.
    delays: Vec<Duration>,
    frozen: usize,
    hangs: usize,
    wrong_names: usize,
    wrong_data: usize,
    leftovers: usize,
    others: usize,
}

fn run() -> Result<()> {
    let plan = Plan::from_arguments()?;
    println!("seed {}", plan.seed);
    println!(
        "{:>5} {:>6} {:>6} {:>9} {:>9} {:>9} {:>6} {:>11} {:>10} {:>9} {:>6}",
        "ranks",
        "kills",
        "frozen",
        "median",
        "99 %",
        "worst",
        "hangs",
        "wrong names",
        "wrong data",
        "leftovers",
        "others"
    );
    let mut no_violation = true;
    for size in &plan.ranks {
        let mut tally = Tally::default();
        let started = Instant::now();
        let share = plan.seconds.map(|seconds| Duration::from_secs(seconds) / plan.ranks.len() as u32);
        for seed in plan.seed..plan.seed + plan.kills {
            if share.is_some_and(|share| started.elapsed() >= share) {
                break;
            }
            if let Err(error) = one_job(*size, seed, &plan, &mut tally) {
                eprintln!("ranks {size}, seed {seed}: {error:#}");
                tally.count(&error);
            }
        }
        tally.print(*size);
        no_violation &= tally.has_no_violation();
    }
    ensure!(no_violation, "there are violations");
    Ok(())
}

fn one_job(size: usize, seed: u64, plan: &Plan, tally: &mut Tally) -> Result<()> {
    let mut random = Rng::with_seed(seed);
    let victim = random.usize(0..size);
    let freeze = random.u32(0..20) == 0;
    let moment = Duration::from_micros(random.u64(0..5000));
    // Half of the jobs have hierarchical barriers.
    let group = if random.bool() { 0 } else { random.usize(1..=size) };
    let mut job = Job::joined_with(
        size,
        |_| "chaos",
        |command| {
            command
                .env(SEED, seed.to_string())
                .env(VICTIM, victim.to_string())
                .env(MEMORY, plan.victim_mib.to_string())
                .env(MOST, plan.most.to_string())
                // A wait for a stopped rank times out without ending anything; that of symmetric memory names an element and
                // no rank, and that of messages the ranks that the caller waits for.
                .env(NOT_COLLECTIVE, u8::from(!freeze).to_string())
                .env("INTRANODE_GROUP", group.to_string());
            if freeze {
                command.env("INTRANODE_TIMEOUT", TIMEOUT.as_secs_f64().to_string());
            }
        },
    )?;
    (0..size).try_for_each(|rank| job.await_line(rank, "ready"))?;
    thread::sleep(moment);
    let survivors: Vec<usize> = (0..size).filter(|rank| *rank != victim).collect();
    if freeze {
        job.signal(victim, SIGSTOP)?;
        (0..size).try_for_each(|rank| job.send(rank, "report"))?;
        survivors.iter().try_for_each(|rank| ensure_time_out(&mut job, *rank, victim))?;
        job.signal(victim, SIGCONT)?;
        ensure_time_out(&mut job, victim, victim)?;
        tally.frozen += 1;
        return job.finish(&[]);
    }
    let since = job.kill(victim)?;
    job.status(victim)?;
    survivors.iter().try_for_each(|rank| job.send(*rank, "report"))?;
    tally.delays.push(job.all_report_death_in_any_call_eventually(&survivors, &[victim], since)?);
    job.finish(&[victim])
}

/// The rank reports a time-out that names the victim.
fn ensure_time_out(job: &mut Job, rank: usize, victim: usize) -> Result<()> {
    let report = job.report(rank)?;
    let right = report.kind == "timed-out" && report.ranks == [victim];
    ensure!(right, Violation::WrongName(format!("rank {rank} reports {report:?}; rank {victim} was stopped")));
    Ok(())
}

impl Tally {
    fn count(&mut self, error: &anyhow::Error) {
        let counter = match error.downcast_ref() {
            Some(Violation::Hang(_)) => &mut self.hangs,
            Some(Violation::WrongName(_)) => &mut self.wrong_names,
            Some(Violation::WrongData(_)) => &mut self.wrong_data,
            Some(Violation::Leftover(_)) => &mut self.leftovers,
            None => &mut self.others,
        };
        *counter += 1;
    }

    fn has_no_violation(&self) -> bool {
        self.hangs + self.wrong_names + self.wrong_data + self.leftovers + self.others == 0
    }

    fn print(&mut self, size: usize) {
        self.delays.sort();
        let at = |share: usize| {
            let index = (self.delays.len() * share / 100).min(self.delays.len().saturating_sub(1));
            self.delays
                .get(index)
                .map_or("-".to_owned(), |delay| format!("{:.3} ms", delay.as_secs_f64() * 1e3))
        };
        println!(
            "{size:>5} {:>6} {:>6} {:>9} {:>9} {:>9} {:>6} {:>11} {:>10} {:>9} {:>6}",
            self.delays.len(),
            self.frozen,
            at(50),
            at(99),
            at(100),
            self.hangs,
            self.wrong_names,
            self.wrong_data,
            self.leftovers,
            self.others
        );
    }
}
