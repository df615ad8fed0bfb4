//! This very program started again: as a rank of a job, or as the process whose threads are ranks.

use std::env;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

const ROLE: &str = "HOSTILE_ROLE";

/// Where shared memory has its names.
const DIRECTORY: &str = if cfg!(target_os = "linux") { "/dev/shm" } else { "/tmp" };

/// The role in which this process was started.
pub(crate) fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// What a process does that was started in a role.
pub(crate) fn run(role: &str) -> ExitCode {
    crate::threads::hush_deliberate_panics();
    let result = match role {
        crate::threads::ROLE => crate::threads::try_programs(),
        crate::processes::ROLE => crate::processes::play(),
        #[cfg(target_os = "linux")]
        crate::torn::ROLE => crate::torn::play(),
        other => panic!("there is no role {other}"),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A process that runs this program in a role. Killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    output: File,
    status: Option<ExitStatus>,
}

impl Process {
    pub(crate) fn start(role: &str, change: impl FnOnce(&mut Command)) -> Result<Self> {
        let output = tempfile::tempfile()?;
        let mut command = Command::new(env::current_exe()?);
        command.env(ROLE, role).stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        change(&mut command);
        Ok(Process { child: command.spawn()?, output, status: None })
    }

    /// An error means that it has ended already.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn input(&mut self) -> Option<&mut std::process::ChildStdin> {
        self.child.stdin.as_mut()
    }

    /// Its status, or minus its signal, as soon as it has ended.
    pub(crate) fn status(&mut self) -> Result<Option<i32>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        let code = |status: ExitStatus| status.code().or(status.signal().map(|signal| -signal));
        Ok(self.status.and_then(code))
    }

    /// What it has written so far.
    pub(crate) fn output(&self) -> Result<String> {
        let mut bytes = vec![0; usize::try_from(self.output.metadata()?.len())?];
        // The position belongs to the writer too.
        self.output.read_exact_at(&mut bytes, 0)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits until it has written this.
    pub(crate) fn await_output(&mut self, text: &str, limit: Duration) -> Result<()> {
        let mut ended = false;
        await_until(limit, || {
            if self.output()?.contains(text) {
                return Ok(true);
            }
            if ended {
                bail!("it has ended without {text:?}: {}", self.output()?);
            }
            // Once more: it may have written that last.
            ended = self.status()?.is_some();
            Ok(false)
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_none() {
            // An error means that it has ended already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Waits until the condition holds.
///
/// # Errors
/// It does not in this time.
pub(crate) fn await_until(limit: Duration, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !condition()? {
        if started.elapsed() > limit {
            bail!("it hangs: not after {limit:?}");
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The names in shared memory that begin like this.
pub(crate) fn left(prefix: &str) -> Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    for entry in std::fs::read_dir(DIRECTORY)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            left.push(entry.path());
        }
    }
    Ok(left)
}

/// Fails if there are any.
pub(crate) fn left_nothing(prefix: &str) -> Result<()> {
    let left = left(prefix)?;
    ensure!(left.is_empty(), "{left:?} is left");
    Ok(())
}
