//! A fatal error of one rank in a round that succeeds on the other: another program truncates the segment's file after the
//! rank has arrived, and before it can see the other's arrival.

use std::fs::File;
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use intranode::{Communicator, Config, Operation};
use libtest_mimic::{Failed, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::child::{Process, await_until, ensure_nothing_left};

/// The role of both ranks.
pub(crate) const ROLE: &str = "truncated";

const LIMIT: Duration = Duration::from_secs(30);

/// The number of values of each rank.
const COUNT: usize = 512;

pub(crate) fn trials() -> Vec<Trial> {
    let test = || one_rank_fails().map_err(|error| Failed::from(format!("{error:#}")));
    vec![Trial::test("truncated::a_block_that_another_rank_reads_is_not_owned_after_a_fatal_error", test)]
}

fn one_rank_fails() -> Result<()> {
    let name = format!("hostile-{}-truncated", std::process::id());
    let path = Path::new("/dev/shm").join(&name);
    let start = |rank: usize| {
        Process::start(ROLE, |command| {
            command
                .env("INTRANODE_NAME", format!("/{name}"))
                .env("INTRANODE_RANK", rank.to_string())
                .env("INTRANODE_SIZE", "2");
        })
    };
    let mut reader = start(0)?;
    await_until(LIMIT, || Ok(path.exists()))?;
    // Stays open when the name is removed.
    let file = File::options().write(true).open(&path)?;
    let mut truncated = start(1)?;
    for rank in [&mut reader, &mut truncated] {
        rank.await_output("ready", LIMIT)?;
    }
    resume(&mut truncated)?;
    resume(&mut reader)?;
    reader.await_output("the other has arrived", LIMIT)?;
    let pid = Pid::from_raw(truncated.pid().try_into()?);
    kill(pid, Signal::SIGSTOP)?;
    await_until(LIMIT, || is_stopped(pid))?;
    resume(&mut reader)?;
    reader.await_output("shared", LIMIT)?;
    file.set_len(0)?;
    kill(pid, Signal::SIGCONT)?;
    truncated.await_output("has written", LIMIT)?;
    resume(&mut reader)?;
    reader.await_output("has read", LIMIT)?;
    resume(&mut truncated)?;
    for rank in [&mut reader, &mut truncated] {
        await_until(LIMIT, || Ok(rank.status()?.is_some()))?;
        let (status, output) = (rank.status()?, rank.output()?);
        ensure!(status == Some(0), "{status:?}: {output}");
    }
    let (read, wrote) = (reader.output()?, truncated.output()?);
    ensure!(read.contains("has read the same"), "the values have changed; the other rank: {wrote}");
    ensure!(wrote.contains("has written 0 values"), "{wrote}");
    ensure_nothing_left(&name)
}

fn resume(process: &mut Process) -> Result<()> {
    Ok(process.input().context("a pipe")?.write_all(b"go on\n")?)
}

/// Waits for a line from the test.
fn await_line() -> Result<()> {
    ensure!(std::io::stdin().lock().read_line(&mut String::new())? > 0, "the test has ended");
    Ok(())
}

fn send(line: &str) -> Result<()> {
    let mut output = std::io::stdout();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}

fn is_stopped(pid: Pid) -> Result<bool> {
    // All threads, since one that still runs could complete the round.
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = std::fs::read_to_string(thread?.path().join("stat"))?;
        let state = status.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if state != Some('T') {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Runs a rank.
pub(crate) fn play() -> Result<()> {
    let comm = Config::from_env()?.fatal_signals(true).join()?;
    let mut exchange = comm.exchange::<u64>(&[COUNT; 2])?;
    exchange.own().fill(7);
    exchange.share()?;
    exchange.own().fill(8);
    send("ready")?;
    await_line()?;
    if comm.rank() == 0 {
        await_arrival(&comm)?;
        send("the other has arrived")?;
        await_line()?;
        let values = exchange.share()?;
        send("shared")?;
        await_line()?;
        let same = std::hint::black_box(values).iter().all(|value| *value == 8);
        return send(if same { "has read the same" } else { "has read something else" });
    }
    let Err(error) = exchange.share() else { bail!("the truncation was not noticed") };
    ensure!(error.is_fatal(), "{error}");
    let own = exchange.own();
    own.fill(9);
    send(&format!("has written {} values after {error}", own.len()))?;
    await_line()
}

/// Waits until rank 1 is in the exchange.
fn await_arrival(comm: &Communicator) -> Result<()> {
    await_until(LIMIT, || {
        let other = &comm.state()?.ranks[1];
        Ok(other.waits && other.operation == Some(Operation::Share))
    })
}
