//! What it costs to wait long: the processor time of ranks that wait in a barrier for one that computes, and how soon
//! they go on when it comes.
//!
//! ```text
//! cargo bench --bench waiting [-- SECONDS]
//! ```
//!
//! Ranks are processes. Their time includes that of all their threads, the one that watches the other ranks too. The
//! other way to wait, and looking instead of sleeping, stand beside it for comparison.

use std::env;
use std::error::Error;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use intranode::Config;
use nix::time::{ClockId, clock_gettime};

const RANKS: usize = 8;
const NAME: &str = "INTRANODE_NAME";
const BUSY: &str = "WAITING_BUSY_SECONDS";

/// What is set, beside the defaults.
const SETTINGS: [(&str, &[(&str, &str)]); 3] = [
    ("as it is", &[]),
    ("INTRANODE_WAIT=pthread", &[("INTRANODE_WAIT", "pthread")]),
    ("INTRANODE_SPIN=100000000", &[("INTRANODE_SPIN", "100000000")]),
];

fn main() -> Result<(), Box<dyn Error>> {
    if env::var_os(BUSY).is_some() {
        return be_a_rank();
    }
    // Cargo adds flags of its own.
    let seconds = env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(10);
    println!("{RANKS} ranks, one of which computes for {seconds} s while the others wait");
    println!("{:<26} {:>30} {:>26}", "", "the others' share of a core", "first to last on again");
    for (name, variables) in SETTINGS {
        let (share, first, last) = job(seconds, variables)?;
        println!("{name:<26} {share:>28.3} % {first:>11.1?} {last:>11.1?}");
    }
    Ok(())
}

/// Runs one job: the waiting ranks' share of a core, and how long after the busy rank's coming the first and the last of
/// them went on.
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
    let mut came = Duration::ZERO;
    let (mut used, mut on) = (Duration::ZERO, Vec::new());
    for (rank, process) in ranks.into_iter().enumerate() {
        let output = process.wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        let times: Vec<Duration> = text
            .split_whitespace()
            .map(|time| Ok(Duration::from_nanos(time.parse()?)))
            .collect::<Result<_, Box<dyn Error>>>()?;
        let [cpu, before, after] = times[..] else { return Err(format!("rank {rank} says {text:?}").into()) };
        if rank == 0 {
            came = before;
        } else {
            used += cpu;
            on.push(after);
        }
    }
    on.sort();
    let share = used.as_secs_f64() / seconds as f64 * 100.0;
    Ok((share, on[0].saturating_sub(came), on[on.len() - 1].saturating_sub(came)))
}

/// Waits, or computes and then comes: prints the processor time that it took, and when it came and went on.
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
