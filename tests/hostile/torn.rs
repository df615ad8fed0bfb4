//! A fatal error that only one rank sees, of a round that was a success for the other: another program cuts the segment's
//! file short after the one has arrived, and before it can see that the other has.

use std::fs::File;
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use intranode::{Communicator, Config, Operation};
use libtest_mimic::{Failed, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::child::{Process, await_until, left_nothing};

/// The role of both ranks.
pub(crate) const ROLE: &str = "torn";

const LIMIT: Duration = Duration::from_secs(30);

/// How many values a rank sends.
const COUNT: usize = 512;

pub(crate) fn trials() -> Vec<Trial> {
    let test = || one_sees_the_end().map_err(|error| Failed::from(format!("{error:#}")));
    vec![Trial::test("torn::what_others_read_is_not_owned_after_an_error_that_they_do_not_see", test)]
}

fn one_sees_the_end() -> Result<()> {
    let name = format!("hostile-{}-torn", std::process::id());
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
    // Open still when the name has gone.
    let file = File::options().write(true).open(&path)?;
    let mut torn = start(1)?;
    for rank in [&mut reader, &mut torn] {
        rank.await_output("ready", LIMIT)?;
    }
    tell(&mut torn)?;
    tell(&mut reader)?;
    reader.await_output("the other has arrived", LIMIT)?;
    let pid = Pid::from_raw(torn.pid().try_into()?);
    kill(pid, Signal::SIGSTOP)?;
    await_until(LIMIT, || is_stopped(pid))?;
    tell(&mut reader)?;
    reader.await_output("shared", LIMIT)?;
    file.set_len(0)?;
    kill(pid, Signal::SIGCONT)?;
    torn.await_output("has written", LIMIT)?;
    tell(&mut reader)?;
    reader.await_output("has read", LIMIT)?;
    tell(&mut torn)?;
    for rank in [&mut reader, &mut torn] {
        await_until(LIMIT, || Ok(rank.status()?.is_some()))?;
        let (status, output) = (rank.status()?, rank.output()?);
        ensure!(status == Some(0), "{status:?}: {output}");
    }
    let (read, wrote) = (reader.output()?, torn.output()?);
    ensure!(read.contains("has read the same"), "what was read has changed; the other says: {wrote}");
    ensure!(wrote.contains("has written 0 values"), "{wrote}");
    left_nothing(&name)
}

fn tell(process: &mut Process) -> Result<()> {
    Ok(process.input().context("a pipe")?.write_all(b"go on\n")?)
}

/// Waits until the test says so.
fn await_word() -> Result<()> {
    ensure!(std::io::stdin().lock().read_line(&mut String::new())? > 0, "the test has gone");
    Ok(())
}

fn say(line: &str) -> Result<()> {
    let mut output = std::io::stdout();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}

fn is_stopped(pid: Pid) -> Result<bool> {
    // All threads: one that still runs may see the end of the round.
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = std::fs::read_to_string(thread?.path().join("stat"))?;
        let state = status.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if state != Some('T') {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What a rank does.
pub(crate) fn play() -> Result<()> {
    let comm = Config::from_env()?.fatal_signals(true).join()?;
    let mut exchange = comm.exchange::<u64>(&[COUNT; 2])?;
    exchange.own().fill(7);
    exchange.share()?;
    exchange.own().fill(8);
    say("ready")?;
    await_word()?;
    if comm.rank() == 0 {
        await_arrival(&comm)?;
        say("the other has arrived")?;
        await_word()?;
        let values = exchange.share()?;
        say("shared")?;
        await_word()?;
        let same = std::hint::black_box(values).iter().all(|value| *value == 8);
        return say(if same { "has read the same" } else { "has read something else" });
    }
    let Err(error) = exchange.share() else { bail!("the end of the segment was not noticed") };
    ensure!(error.is_fatal(), "{error}");
    let own = exchange.own();
    own.fill(9);
    say(&format!("has written {} values after {error}", own.len()))?;
    await_word()
}

/// Waits until rank 1 is in the exchange.
fn await_arrival(comm: &Communicator) -> Result<()> {
    await_until(LIMIT, || {
        let other = &comm.state()?.ranks[1];
        Ok(other.waits && other.operation == Some(Operation::Share))
    })
}
