//! The test's side of a job: processes that are its ranks, with a protocol of lines.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use super::rank;
use super::report::{self, Report};

/// The time limit of every step.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// The time limit for the report of a death, besides the time for which ranks wait for a processor. On an idle machine it takes
/// a thousandth of that.
pub(crate) const BOUND: Duration = Duration::from_secs(1);

/// The variable with the name of the program that a rank runs.
pub(crate) const PROGRAM: &str = "FAULTS_PROGRAM";

/// A violation of what every test asserts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Violation {
    #[error("it hangs: {0}")]
    Hang(String),
    #[error("wrong data: {0}")]
    WrongData(String),
    #[error("a wrong error: {0}")]
    WrongName(String),
    #[error("something is left: {0}")]
    Leftover(String),
}

/// A job, whose processes run this program.
pub(crate) struct Job {
    name: String,
    size: usize,
    ranks: BTreeMap<usize, Rank>,
    /// By rank: for how long it had waited for a processor when the last signal was sent.
    waited: BTreeMap<usize, Duration>,
}

struct Rank {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: File,
    status: Option<ExitStatus>,
}

impl Job {
    /// A job with a new name, without ranks.
    pub(crate) fn new(size: usize) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Job {
            name: format!("/faults-{}-{number}", std::process::id()),
            size,
            ranks: BTreeMap::new(),
            waited: BTreeMap::new(),
        }
    }

    /// A job of `size` ranks that run `program` and have joined.
    pub(crate) fn joined(size: usize, program: &str) -> Result<Self> {
        Self::joined_with(size, |_| program, |_| ())
    }

    /// The same with a program for each rank, and changes to the environment.
    pub(crate) fn joined_with<'p>(
        size: usize,
        program: impl Fn(usize) -> &'p str,
        change: impl Fn(&mut Command),
    ) -> Result<Self> {
        let mut job = Job::new(size);
        for rank in 0..size {
            job.start(rank, program(rank), &change)?;
        }
        job.await_joined(0..size)?;
        Ok(job)
    }

    pub(crate) fn await_joined(&mut self, ranks: impl IntoIterator<Item = usize>) -> Result<()> {
        ranks.into_iter().try_for_each(|rank| self.await_line(rank, "joined"))
    }

    /// Another job under the same name, without ranks.
    pub(crate) fn namesake(&self) -> Self {
        let mut job = Job::new(self.size);
        job.name.clone_from(&self.name);
        job
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Waits until the name exists.
    pub(crate) fn await_name(&self) -> Result<()> {
        let started = Instant::now();
        while !self.path().exists() {
            ensure!(started.elapsed() < LIMIT, "no {} appears", self.name);
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The path of the segment's file.
    pub(crate) fn path(&self) -> PathBuf {
        Path::new("/dev/shm").join(&self.name[1..])
    }

    pub(crate) fn ranks(&self) -> Vec<usize> {
        self.ranks.keys().copied().collect()
    }

    /// Starts a process as a rank.
    pub(crate) fn start(&mut self, rank: usize, program: &str, change: impl Fn(&mut Command)) -> Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .env(PROGRAM, program)
            .env("INTRANODE_NAME", &self.name)
            .env("INTRANODE_RANK", rank.to_string())
            .env("INTRANODE_SIZE", self.size.to_string())
            .env("INTRANODE_TIMEOUT", LIMIT.as_secs().to_string())
            .env("INTRANODE_JOIN_TIMEOUT", LIMIT.as_secs().to_string());
        change(&mut command);
        self.spawn(rank, command)
    }

    /// Starts a command as a rank.
    pub(crate) fn spawn(&mut self, rank: usize, mut command: Command) -> Result<()> {
        let stderr = tempfile::tempfile()?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr.try_clone()?);
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("a pipe")?);
        let (sender, lines) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        self.ranks.insert(rank, Rank { child, input, lines, stderr, status: None });
        Ok(())
    }

    fn rank(&mut self, rank: usize) -> Result<&mut Rank> {
        self.ranks.get_mut(&rank).context("such a rank was started")
    }

    pub(crate) fn pid(&mut self, rank: usize) -> Result<u32> {
        Ok(self.rank(rank)?.child.id())
    }

    /// The next line that a rank writes.
    pub(crate) fn line(&mut self, rank: usize) -> Result<String> {
        let process = self.rank(rank)?;
        match process.lines.recv_timeout(LIMIT) {
            Ok(line) => Ok(line),
            Err(error) => {
                let text = format!("rank {rank} wrote {:?}", process.stderr());
                match error {
                    RecvTimeoutError::Timeout => bail!(Violation::Hang(text)),
                    _ if text.contains(rank::WRONG_DATA) => bail!(Violation::WrongData(text)),
                    _ => bail!("ended without a word: {text}"),
                }
            }
        }
    }

    /// The next line that a rank has written by now.
    pub(crate) fn line_so_far(&mut self, rank: usize) -> Result<Option<String>> {
        match self.rank(rank)?.lines.try_recv() {
            Ok(line) => Ok(Some(line)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                let (status, stderr) = (self.status(rank)?, self.stderr(rank)?);
                bail!("rank {rank} ended with {status}; it wrote {stderr:?}")
            }
        }
    }

    /// The first line that any of these ranks writes, and which rank it is.
    pub(crate) fn first_line(&mut self, ranks: &[usize]) -> Result<(usize, String)> {
        let started = Instant::now();
        loop {
            for rank in ranks {
                if let Ok(line) = self.rank(*rank)?.lines.try_recv() {
                    return Ok((*rank, line));
                }
            }
            ensure!(started.elapsed() < LIMIT, Violation::Hang(format!("none of {ranks:?} writes a line")));
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn await_line(&mut self, rank: usize, expected: &str) -> Result<()> {
        let line = self.line(rank)?;
        ensure!(line == expected, "rank {rank} sent {line:?} in place of {expected:?}");
        Ok(())
    }

    /// Sends a line to a rank.
    pub(crate) fn send(&mut self, rank: usize, line: &str) -> Result<()> {
        let input = self.rank(rank)?.input.as_mut().context("its input is open")?;
        Ok(writeln!(input, "{line}")?)
    }

    /// The error that a rank reports.
    pub(crate) fn report(&mut self, rank: usize) -> Result<Report> {
        let line = self.line(rank)?;
        Report::parse(&line).with_context(|| format!("rank {rank} sent {line:?}"))
    }

    /// Sends a signal to a rank. Returns the time just before.
    pub(crate) fn signal(&mut self, rank: usize, signal: Signal) -> Result<Duration> {
        let pid = Pid::from_raw(self.pid(rank)?.try_into()?);
        self.waited = self.ranks.iter().map(|(rank, process)| (*rank, process.waited())).collect();
        let before = report::now();
        signal::kill(pid, signal)?;
        Ok(before)
    }

    pub(crate) fn kill(&mut self, rank: usize) -> Result<Duration> {
        self.signal(rank, Signal::SIGKILL)
    }

    /// Fails if this is more than [`BOUND`], and these ranks have not waited for a processor for the rest since the last signal.
    pub(crate) fn ensure_soon(&self, ranks: &[usize], time: Duration) -> Result<()> {
        let since = |rank: &usize| {
            let before = self.waited.get(rank).copied().unwrap_or_default();
            self.ranks.get(rank).map_or(Duration::ZERO, Rank::waited).saturating_sub(before)
        };
        let waited: Duration = ranks.iter().map(since).sum();
        ensure!(time < BOUND + waited, "known only after {time:?}, of which {waited:?} without a processor");
        Ok(())
    }

    /// Awaits that these ranks report the death of one of the victims, all the same one, within [`BOUND`]. Returns the time
    /// from `since` to the last report.
    pub(crate) fn all_report_death(
        &mut self,
        ranks: &[usize],
        victims: &[usize],
        since: Duration,
    ) -> Result<Duration> {
        let last = self.all_report_death_eventually(ranks, victims, since)?;
        self.ensure_soon(ranks, last)?;
        Ok(last)
    }

    /// The same without the bound.
    pub(crate) fn all_report_death_eventually(
        &mut self,
        ranks: &[usize],
        victims: &[usize],
        since: Duration,
    ) -> Result<Duration> {
        // The text has the call, the round and the reason.
        self.all_report_the_same_death(ranks, victims, since, |text| text)
    }

    /// Awaits the same within [`BOUND`] where the ranks may be in different calls of a round.
    pub(crate) fn all_report_death_in_any_call(
        &mut self,
        ranks: &[usize],
        victims: &[usize],
        since: Duration,
    ) -> Result<Duration> {
        let last = self.all_report_death_in_any_call_eventually(ranks, victims, since)?;
        self.ensure_soon(ranks, last)?;
        Ok(last)
    }

    /// The same without the bound.
    pub(crate) fn all_report_death_in_any_call_eventually(
        &mut self,
        ranks: &[usize],
        victims: &[usize],
        since: Duration,
    ) -> Result<Duration> {
        self.all_report_the_same_death(ranks, victims, since, |text| {
            text.split_once(", ").map_or(text, |(_, rest)| rest)
        })
    }

    /// `part`: of a report's text, what is the same on all ranks.
    fn all_report_the_same_death(
        &mut self,
        ranks: &[usize],
        victims: &[usize],
        since: Duration,
        part: fn(&str) -> &str,
    ) -> Result<Duration> {
        let mut pids = BTreeMap::new();
        for victim in victims {
            pids.insert(*victim, self.pid(*victim)?);
        }
        let mut last = Duration::ZERO;
        let mut named: Option<String> = None;
        for rank in ranks {
            let report = self.report(*rank)?;
            let died = |victim: &usize| {
                report.kind == "died" && report.ranks == [*victim] && report.pid == pids.get(victim).copied()
            };
            let text = part(&report.text);
            let same = *named.get_or_insert_with(|| text.to_owned()) == text;
            if !same || !victims.iter().any(died) || !report.text.contains(", round ") {
                bail!(Violation::WrongName(format!(
                    "rank {rank} reports {report:?}, the first {named:?}; the victims were {pids:?}"
                )));
            }
            last = last.max(report.at.saturating_sub(since));
        }
        Ok(last)
    }

    /// Waits until a process has ended. Returns its code, or minus its signal.
    pub(crate) fn status(&mut self, rank: usize) -> Result<i32> {
        let process = self.rank(rank)?;
        let started = Instant::now();
        while !process.ended()? {
            let hangs =
                || Violation::Hang(format!("rank {rank} does not end; it wrote {:?}", process.stderr()));
            ensure!(started.elapsed() < LIMIT, hangs());
            thread::sleep(Duration::from_millis(1));
        }
        let status = process.status.context("it has ended")?;
        Ok(status.code().or(status.signal().map(|signal| -signal)).unwrap_or(i32::MIN))
    }

    /// The standard error of a rank.
    pub(crate) fn stderr(&mut self, rank: usize) -> Result<String> {
        Ok(self.rank(rank)?.stderr())
    }

    pub(crate) fn has_ended(&mut self, rank: usize) -> Result<bool> {
        self.rank(rank)?.ended()
    }

    /// Closes all ranks' inputs. They must end with status 0, the victims by SIGKILL, and leave nothing.
    pub(crate) fn finish(&mut self, victims: &[usize]) -> Result<()> {
        self.finish_with(|rank| if victims.contains(&rank) { -(Signal::SIGKILL as i32) } else { 0 })
    }

    /// The same with a status for each rank.
    pub(crate) fn finish_with(&mut self, expected: impl Fn(usize) -> i32) -> Result<()> {
        self.release(expected)?;
        self.ensure_nothing_left()
    }

    /// Closes all ranks' inputs. They must end with these statuses.
    pub(crate) fn release(&mut self, expected: impl Fn(usize) -> i32) -> Result<()> {
        for process in self.ranks.values_mut() {
            process.input = None;
        }
        for rank in self.ranks() {
            let status = self.status(rank)?;
            let stderr = self.rank(rank)?.stderr();
            ensure!(status == expected(rank), "rank {rank} ended with {status}; it wrote {stderr:?}");
        }
        Ok(())
    }

    /// Fails if a file or a process of the job is left.
    pub(crate) fn ensure_nothing_left(&self) -> Result<()> {
        let own = &self.name[1..];
        for directory in ["/dev/shm", "/tmp"] {
            for entry in fs::read_dir(directory)? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                let rest = name.strip_prefix(own);
                let ours = rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
                ensure!(!ours, Violation::Leftover(format!("{directory}/{name}")));
            }
        }
        let mark = format!("INTRANODE_NAME={}\0", self.name).into_bytes();
        let started = Instant::now();
        // An orphan is reaped by init a moment later.
        while let Some(process) = running(&mark)? {
            ensure!(started.elapsed() < BOUND, Violation::Leftover(process.display().to_string()));
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// A process whose environment has this mark.
fn running(mark: &[u8]) -> Result<Option<PathBuf>> {
    for process in fs::read_dir("/proc")? {
        let path = process?.path();
        // Unreadable: it has ended, or belongs to another user.
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        if environment.windows(mark.len()).any(|window| window == mark) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

impl Drop for Job {
    fn drop(&mut self) {
        for process in self.ranks.values_mut().filter(|process| process.status.is_none()) {
            // An error means that the process has ended already.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
        // After a failed test.
        let _ = fs::remove_file(self.path());
    }
}

impl Rank {
    fn ended(&mut self) -> Result<bool> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status.is_some())
    }

    /// For how long its threads have been ready to run and have waited for a processor, which other programs had.
    fn waited(&self) -> Duration {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten();
        // Unreadable: the thread, or its process, has ended.
        let schedstat =
            threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
        let nanoseconds = schedstat.filter_map(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
        Duration::from_nanos(nanoseconds.sum())
    }

    fn stderr(&self) -> String {
        let read = || {
            let mut bytes = vec![0; usize::try_from(self.stderr.metadata()?.len())?];
            // The file position is shared with the writers.
            self.stderr.read_exact_at(&mut bytes, 0)?;
            Ok::<_, anyhow::Error>(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_else(|error| error.to_string())
    }
}
