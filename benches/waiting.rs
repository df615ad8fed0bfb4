//! The cost of a long wait: the processor time of ranks that wait in a barrier for one that computes, and how soon they
//! resume after its arrival.
//!
//! ```text
//! cargo bench --bench waiting [-- SECONDS]
//! ```
//!
//! Ranks are processes. Their time includes that of all their threads, also the watcher's. It is compared with the pthread
//! wait, and with polling instead of sleeping.

use std::env;
use std::error::Error;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use intranode::Config;
use nix::time::{ClockId, clock_gettime};

const RANKS: usize = 8;
const NAME: &str = "INTRANODE_NAME";
const BUSY: &str = "WAITING_BUSY_SECONDS";

/// The settings, in addition to the defaults.
const SETTINGS: [(&str, &[(&str, &str)]); 3] = [
    ("default", &[]),
    ("INTRANODE_WAIT=pthread", &[("INTRANODE_WAIT", "pthread")]),
    ("INTRANODE_SPIN=100000000", &[("INTRANODE_SPIN", "100000000")]),
];

fn main() -> Result<(), Box<dyn Error>> {
    if env::var_os(BUSY).is_some() {
        return be_a_rank();
    }
    // Cargo adds flags.
    let seconds = env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(10);
    println!("{RANKS} ranks, one of which computes for {seconds} s while the others wait");
    println!("{:<26} {:>30} {:>26}", "", "the others' share of a core", "first and last resumed");
    for (name, variables) in SETTINGS {
        let (share, first, last) = job(seconds, variables)?;
        println!("{name:<26} {share:>28.3} % {first:>11.1?} {last:>11.1?}");
    }
    Ok(())
}

/// Runs one job. Returns the waiting ranks' share of a core, and the times from the busy rank's arrival until the first and
/// the last of them resumed.
fn job(seconds: u64, variables: &[(&str, &str)]) -> Result<(f64, Duration, Duration), Box<dyn Error>> {
    let name = format!("/intranode-waiting-{}", std::process::id());
    let start = |rank: usize| {
        Command::new(env::current_exe()?)
            .env(NAME, &name)
            .env("INTRANODE_RANK", rank.to_string())
            .env("INTRANODE_SIZE", RANKS.to_string())
            .env(BUSY, seconds.to_string())
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
    };
    let ranks = (0..RANKS).map(start).collect::<Result<Vec<_>, _>>()?;
    let mut arrived = Duration::ZERO;
    let (mut used, mut resumed) = (Duration::ZERO, Vec::new());
    for (rank, process) in ranks.into_iter().enumerate() {
        let output = process.wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        let times: Vec<Duration> = text
            .split_whitespace()
            .map(|time| Ok(Duration::from_nanos(time.parse()?)))
            .collect::<Result<_, Box<dyn Error>>>()?;
        let [cpu, before, after] = times[..] else {
            return Err(format!("rank {rank} printed {text:?}").into());
        };
        if rank == 0 {
            arrived = before;
        } else {
            used += cpu;
            resumed.push(after);
        }
    }
    resumed.sort();
    let share = used.as_secs_f64() / seconds as f64 * 100.0;
    let after = |time: Duration| time.saturating_sub(arrived);
    Ok((share, after(resumed[0]), after(resumed[resumed.len() - 1])))
}

/// Waits in a barrier; rank 0 computes before. Prints the processor time, and when the rank arrived and resumed.
fn be_a_rank() -> Result<(), Box<dyn Error>> {
    let busy = Duration::from_secs(env::var(BUSY)?.parse()?);
    let comm = Config::from_env()?.timeout(None).join()?;
    comm.barrier()?;
    let cpu = now(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    if comm.rank() == 0 {
        let start = Instant::now();
        while start.elapsed() < busy {
            std::hint::spin_loop();
        }
    }
    let before = now(ClockId::CLOCK_MONOTONIC)?;
    comm.barrier()?;
    let after = now(ClockId::CLOCK_MONOTONIC)?;
    let cpu = now(ClockId::CLOCK_PROCESS_CPUTIME_ID)? - cpu;
    println!("{} {} {}", cpu.as_nanos(), before.as_nanos(), after.as_nanos());
    Ok(())
}

fn now(clock: ClockId) -> Result<Duration, nix::Error> {
    Ok(clock_gettime(clock)?.into())
}
