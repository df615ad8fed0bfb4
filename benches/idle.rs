//! The cost of sleeping: the processor time of all ranks of a job, with all their threads, while they wait in a barrier
//! that one rank does not enter.
//!
//! ```text
//! cargo bench --bench idle [-- SECONDS [RANKS...]]
//! ```
//!
//! Ranks are processes. The time that they use is their watchers'. It is compared with watchers that poll, as on kernels
//! that refuse `futex_waitv`.

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use intranode::{Config, Error as CallError};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

const NAME: &str = "INTRANODE_NAME";
const RANKS: [usize; 5] = [2, 8, 64, 128, 256];
const SETTINGS: [(&str, &[(&str, &str)]); 2] =
    [("default", &[]), ("INTRANODE_LIVENESS=scan", &[("INTRANODE_LIVENESS", "scan")])];

/// Ranks count as asleep when all of them together use less than this in [`STEP`], and at the latest after [`SETTLING`].
const ASLEEP: Duration = Duration::from_micros(100);
const STEP: Duration = Duration::from_millis(250);
const SETTLING: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    if env::var_os(NAME).is_some() {
        return be_a_rank();
    }
    // Cargo adds flags.
    let numbers: Vec<usize> = env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let (seconds, ranks) = numbers.split_first().map_or((10, &RANKS[..]), |(seconds, ranks)| {
        (*seconds, if ranks.is_empty() { &RANKS[..] } else { ranks })
    });
    println!("processor time of all ranks while they sleep for {seconds} s, in % of one processor");
    print!("{:>5}", "ranks");
    SETTINGS.iter().for_each(|(name, _)| print!(" {name:>24}"));
    println!();
    for size in ranks {
        print!("{size:>5}");
        for (_, variables) in SETTINGS {
            let share = job(*size, Duration::from_secs(seconds as u64), variables)?;
            print!(" {:>22.2} %", share * 100.0);
        }
        println!();
    }
    Ok(())
}

/// Runs one job. Returns the share of a processor that its ranks use while they sleep.
fn job(size: usize, span: Duration, variables: &[(&str, &str)]) -> Result<f64, Box<dyn Error>> {
    let name = format!("/intranode-idle-{}", std::process::id());
    let start = |rank: usize| {
        let mut command = Command::new(env::current_exe()?);
        command.env(NAME, &name).env("INTRANODE_RANK", rank.to_string());
        command.env("INTRANODE_SIZE", size.to_string()).envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    };
    let mut ranks = Ranks((0..size).map(start).collect::<Result<_, _>>()?);
    for rank in &mut ranks.0 {
        let output = rank.stdout.take().ok_or("its output is piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line != "joined\n" {
            return Err(format!("a rank printed {line:?}").into());
        }
    }
    let settling = Instant::now();
    loop {
        let before = ranks.used()?;
        thread::sleep(STEP);
        if ranks.used()? - before < ASLEEP || settling.elapsed() > SETTLING {
            break;
        }
    }
    let (started, before) = (Instant::now(), ranks.used()?);
    thread::sleep(span);
    let share = (ranks.used()? - before).as_secs_f64() / started.elapsed().as_secs_f64();
    let inputs: Vec<Option<ChildStdin>> = ranks.0.iter_mut().map(|rank| rank.stdin.take()).collect();
    drop(inputs);
    for rank in &mut ranks.0 {
        let status = rank.wait()?;
        if !status.success() {
            return Err(format!("a rank ended with {status}").into());
        }
    }
    Ok(share)
}

/// The processes. Drop kills those that still run.
struct Ranks(Vec<Child>);

impl Ranks {
    /// The processor time of all threads of all ranks so far.
    fn used(&self) -> Result<Duration, Box<dyn Error>> {
        let used = |rank: &Child| {
            let clock = clock_getcpuclockid(Pid::from_raw(rank.id().try_into()?))?;
            Ok(Duration::from(clock_gettime(clock)?))
        };
        self.0.iter().map(used).sum()
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in &mut self.0 {
            // An error means that it has ended already.
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

/// Waits in a barrier, which rank 0 enters when its standard input ends.
fn be_a_rank() -> Result<(), Box<dyn Error>> {
    let comm = Config::from_env()?.timeout(None).join()?;
    println!("joined");
    if comm.rank() == 0 {
        std::io::stdin().read_to_end(&mut Vec::new())?;
    }
    match comm.barrier() {
        Ok(()) | Err(CallError::RankLeft { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
