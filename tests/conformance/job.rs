//! A job: processes that are its ranks, each with a time limit and its output kept.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::scenario::{LIMIT, Outcome, seed_variable};

/// The waits that are tested.
pub(crate) const WAITS: &[Wait] =
    if cfg!(target_os = "linux") { &[Wait("futex"), Wait("pthread")] } else { &[Wait("pthread")] };

/// The directory of named segments.
const DIRECTORY: &str = if cfg!(target_os = "linux") { "/dev/shm" } else { "/tmp" };

/// A value of `INTRANODE_WAIT`.
#[derive(Clone, Copy)]
pub(crate) struct Wait(&'static str);

impl Wait {
    pub(crate) fn name(self) -> &'static str {
        self.0
    }
}

const ROLE: &str = "CONFORMANCE_ROLE";

/// The role in which a driver has started this process.
pub(crate) fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// Runs in a rank: waits for a word from the driver.
pub(crate) fn await_word() -> Outcome {
    let mut line = String::new();
    ensure!(std::io::stdin().read_line(&mut line)? > 0, "the driver has gone");
    Ok(())
}

/// The processes of one job. Drop kills those that still run.
pub(crate) struct Job {
    name: String,
    size: usize,
    wait: Wait,
    processes: Vec<Process>,
}

struct Process {
    rank: usize,
    child: Child,
    output: File,
    status: Option<ExitStatus>,
}

impl Job {
    /// A job under a name of its own.
    pub(crate) fn new(size: usize, wait: Wait) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("/conformance-{}-{number}", std::process::id());
        Job { name, size, wait, processes: Vec::new() }
    }

    /// Another job under the same name.
    pub(crate) fn namesake(&self) -> Self {
        Job { name: self.name.clone(), size: self.size, wait: self.wait, processes: Vec::new() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Starts a process as a rank.
    pub(crate) fn start(&mut self, rank: usize, role: &str) -> anyhow::Result<usize> {
        self.start_with(rank, role, |_| ())
    }

    /// The same, with changes to its environment. Returns the process's index in this job.
    pub(crate) fn start_with(
        &mut self,
        rank: usize,
        role: &str,
        change: impl FnOnce(&mut Command),
    ) -> anyhow::Result<usize> {
        self.start_program(rank, &env::current_exe()?, |command| change(command.env(ROLE, role)))
    }

    /// Starts any program as a rank.
    pub(crate) fn start_program(
        &mut self,
        rank: usize,
        program: &Path,
        change: impl FnOnce(&mut Command),
    ) -> anyhow::Result<usize> {
        let output = tempfile::tempfile()?;
        let mut command = Command::new(program);
        command
            .env("INTRANODE_NAME", &self.name)
            .env("INTRANODE_RANK", rank.to_string())
            .env("INTRANODE_SIZE", self.size.to_string())
            .env("INTRANODE_WAIT", self.wait.name())
            // Whatever this machine's caches are like. Ranks that are threads decide for themselves.
            .env("INTRANODE_IN_PLACE", "1")
            .envs([seed_variable()])
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?);
        change(&mut command);
        let child = command.spawn()?;
        self.processes.push(Process { rank, child, output, status: None });
        Ok(self.processes.len() - 1)
    }

    /// Starts every rank in the same role. Each job starts with another rank.
    pub(crate) fn start_all(&mut self, role: &str) -> Outcome {
        static FIRST: AtomicUsize = AtomicUsize::new(0);
        let first = FIRST.fetch_add(1, Ordering::Relaxed);
        for rank in 0..self.size {
            self.start((first + rank) % self.size, role)?;
        }
        Ok(())
    }

    pub(crate) fn pid(&self, process: usize) -> u32 {
        self.processes[process].child.id()
    }

    /// What a process has written so far, to stdout and stderr.
    pub(crate) fn output(&self, process: usize) -> anyhow::Result<String> {
        self.processes[process].output()
    }

    /// Waits until a process has written `text`.
    pub(crate) fn await_output(&mut self, process: usize, text: &str) -> Outcome {
        let there = poll(|| {
            // In this order: if the process has ended, its output is complete.
            let ended = self.processes[process].ended()?;
            if self.output(process)?.contains(text) {
                return Ok(true);
            }
            ensure!(!ended, "it ended without {text:?}: {}", self.output(process)?);
            Ok(false)
        })?;
        ensure!(there, "no {text:?} in {LIMIT:?}: {}", self.output(process)?);
        Ok(())
    }

    /// Waits until the name exists.
    pub(crate) fn await_name(&self) -> Outcome {
        ensure!(poll(|| Ok(self.path().exists()))?, "no {} in {LIMIT:?}", self.name);
        Ok(())
    }

    /// The path of the name's file.
    pub(crate) fn path(&self) -> std::path::PathBuf {
        Path::new(DIRECTORY).join(&self.name[1..])
    }

    /// Lets all processes continue: see [`await_word`].
    pub(crate) fn tell_all(&mut self) -> Outcome {
        for process in &mut self.processes {
            let mut input = process.child.stdin.take().context("told before")?;
            input.write_all(b"go on\n")?;
        }
        Ok(())
    }

    /// Kills a process.
    pub(crate) fn kill(&mut self, process: usize) -> Outcome {
        let process = &mut self.processes[process];
        process.child.kill()?;
        process.status = Some(process.child.wait()?);
        Ok(())
    }

    /// The status of a process that has ended: its code, or minus its signal.
    pub(crate) fn code(&self, process: usize) -> Option<i32> {
        self.processes[process].status.map(code)
    }

    /// Waits until one of these processes has ended. Returns its index.
    pub(crate) fn first_to_end(&mut self, processes: &[usize]) -> anyhow::Result<usize> {
        let mut first = None;
        poll(|| {
            for process in processes {
                if self.processes[*process].ended()? {
                    first = Some(*process);
                }
            }
            Ok(first.is_some())
        })?;
        first.with_context(|| format!("none has ended in {LIMIT:?}"))
    }

    /// Waits for all processes. It kills those that do not end, and fails with their ranks.
    pub(crate) fn wait_all(&mut self) -> Outcome {
        let all = poll(|| {
            let mut all = true;
            for process in &mut self.processes {
                all &= process.ended()?;
            }
            Ok(all)
        })?;
        if all {
            return Ok(());
        }
        let mut report = format!("killed after {LIMIT:?}:");
        for process in &mut self.processes {
            let end = match process.status.map(code) {
                Some(code) => format!("ended with {code}"),
                None => {
                    // An error means that it has ended meanwhile.
                    let _ = process.child.kill();
                    process.status = Some(process.child.wait()?);
                    "hung".to_owned()
                }
            };
            report += &format!("\nrank {} {end}; it wrote: {}", process.rank, process.output()?);
        }
        bail!(report)
    }

    /// Waits for all processes. They must end with these statuses, by rank, and leave no files.
    pub(crate) fn finish(&mut self, ends: &[i32]) -> Outcome {
        self.wait_all()?;
        let mut report = String::new();
        for process in &self.processes {
            let expected = ends[process.rank];
            let actual = process.status.map(code);
            if actual != Some(expected) {
                let (rank, output) = (process.rank, process.output()?);
                report += &format!("rank {rank} ended with {actual:?}, not {expected}; it wrote: {output}\n");
            }
        }
        ensure!(report.is_empty(), "{report}");
        self.left_nothing()
    }

    /// Fails if a file or a process of the job is left.
    pub(crate) fn left_nothing(&self) -> Outcome {
        let own = &self.name[1..];
        let parts = format!("{own}_");
        for entry in fs::read_dir(DIRECTORY).into_iter().flatten() {
            let name = entry?.file_name().to_string_lossy().into_owned();
            ensure!(name != own && !name.starts_with(&parts), "{DIRECTORY}/{name} is left");
        }
        let mark = format!("INTRANODE_NAME={}\0", self.name).into_bytes();
        // Without /proc only files are checked.
        for process in fs::read_dir("/proc").into_iter().flatten() {
            let path = process?.path();
            // Unreadable: it has ended, or belongs to another user.
            let environment = fs::read(path.join("environ")).unwrap_or_default();
            let marked = environment.windows(mark.len()).any(|window| window == mark);
            ensure!(!marked, "a process is left: {}", path.display());
        }
        Ok(())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().filter(|process| process.status.is_none()) {
            // An error means that it has ended already.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
        // A failed test may leave it; the next one has another name.
        let _ = fs::remove_file(self.path());
    }
}

impl Process {
    fn ended(&mut self) -> anyhow::Result<bool> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status.is_some())
    }

    fn output(&self) -> anyhow::Result<String> {
        let mut bytes = vec![0; usize::try_from(self.output.metadata()?.len())?];
        // The file position is shared with the writers.
        self.output.read_exact_at(&mut bytes, 0)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or(status.signal().map(|signal| -signal)).unwrap_or(i32::MIN)
}

/// Waits until the condition holds; false if it never does.
fn poll(mut condition: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<bool> {
    let started = Instant::now();
    while !condition()? {
        if started.elapsed() > LIMIT {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(true)
}
