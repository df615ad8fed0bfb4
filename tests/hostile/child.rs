//! Processes that run this program in a role: as a rank of a job, or as a process whose threads are ranks.

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

/// The directory of the names of shared memory.
const DIRECTORY: &str = if cfg!(target_os = "linux") { "/dev/shm" } else { "/tmp" };

/// The role in which this process was started.
pub(crate) fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// Runs this process in its role.
pub(crate) fn run(role: &str) -> ExitCode {
    crate::threads::silence_deliberate_panics();
    let result = match role {
        crate::threads::ROLE => crate::threads::try_programs(),
        crate::processes::ROLE => crate::processes::play(),
        #[cfg(target_os = "linux")]
        crate::truncated::ROLE => crate::truncated::play(),
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

/// A process in a role. Killed on drop.
pub(crate) struct Process {
    child: Child,
    output: File,
    status: Option<ExitStatus>,
}

impl Process {
    pub(crate) fn start(role: &str, change: impl FnOnce(&mut Command)) -> Result<Self> {
        let output = tempfile::tempfile()?;
        let mut command = Command::new(env::current_exe()?);
        // Whatever that costs here, what lies in regions and buffers is read there.
        command.env("INTRANODE_IN_PLACE", "1");
        command.env(ROLE, role).stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        change(&mut command);
        Ok(Process { child: command.spawn()?, output, status: None })
    }

    pub(crate) fn kill(&mut self) {
        // An error means that the process has ended already.
        let _ = self.child.kill();
    }

    /// Its code, or minus its signal, if it has ended.
    pub(crate) fn status(&mut self) -> Result<Option<i32>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        let code = |status: ExitStatus| status.code().or(status.signal().map(|signal| -signal));
        Ok(self.status.and_then(code))
    }

    /// Its output so far.
    pub(crate) fn output(&self) -> Result<String> {
        let mut bytes = vec![0; usize::try_from(self.output.metadata()?.len())?];
        // The file position is shared with the writer.
        self.output.read_exact_at(&mut bytes, 0)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// For processes that are told what to do.
#[cfg(target_os = "linux")]
impl Process {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn input(&mut self) -> Option<&mut std::process::ChildStdin> {
        self.child.stdin.as_mut()
    }

    /// Waits until its output contains a text.
    pub(crate) fn await_output(&mut self, text: &str, limit: Duration) -> Result<()> {
        let mut ended = false;
        await_until(limit, || {
            if self.output()?.contains(text) {
                return Ok(true);
            }
            if ended {
                bail!("it has ended without {text:?}: {}", self.output()?);
            }
            // Checked once more after it has ended: it may have written the text last.
            ended = self.status()?.is_some();
            Ok(false)
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_none() {
            // An error means that the process has ended already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Waits until the condition holds.
///
/// # Errors
/// When it does not within the limit.
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

/// The files of shared memory whose names begin with a prefix.
pub(crate) fn files_with_prefix(prefix: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(DIRECTORY)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// Fails if there are such files.
pub(crate) fn ensure_nothing_left(prefix: &str) -> Result<()> {
    let files = files_with_prefix(prefix)?;
    ensure!(files.is_empty(), "{files:?} are left");
    Ok(())
}
