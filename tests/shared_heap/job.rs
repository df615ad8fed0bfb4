//! The processes of a test. They are killed when it ends, however it ends.

use std::fmt;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use libtest_mimic::Completion;
use nix::sys::signal::Signal;

use super::Program;

/// The program that a process runs.
pub(super) const PROGRAM: &str = "SHARED_HEAP_PROGRAM";

/// How long a test takes on a machine that is busy, beside the stress test's seconds.
const LIMIT: Duration = Duration::from_secs(180);

/// The variable with the seconds of the stress test.
pub(super) const STRESS: &str = "INTRANODE_HEAP_STRESS";

/// The variable with the number that its random choices follow from.
pub(super) const SEED: &str = "INTRANODE_HEAP_SEED";

/// The stress test's time.
pub(super) fn stress() -> Duration {
    let seconds = std::env::var(STRESS).ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(2))
}

/// Why a program does nothing: the machine does not let it set something up.
#[derive(Debug)]
pub(super) struct NotAllowed(pub(super) String);

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not allowed: {}", self.0)
    }
}

impl std::error::Error for NotAllowed {}

/// The exit code of a program that was not allowed.
const NOT_ALLOWED: u8 = 77;

/// Runs a program in this process.
pub(super) fn run(name: &str, programs: &[Program]) -> ExitCode {
    // Its parent is the thread of a test: a test that is given up takes its processes along.
    let tied = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    let program = programs.iter().find(|(other, ..)| *other == name);
    let result = match (tied, program) {
        (Ok(()), Some((_, _, program))) => program(),
        (tied, _) => Err(anyhow::anyhow!("{tied:?}, no program {name}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:?}");
            if error.is::<NotAllowed>() { ExitCode::from(NOT_ALLOWED) } else { ExitCode::FAILURE }
        }
    }
}

struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts a test's processes, of which `prepare` may set up the one of a rank, and waits for their success; or for the kernel's
/// signal in a rank that it has to kill.
pub(super) fn play(
    name: &'static str,
    ranks: usize,
    killed: Option<usize>,
    prepare: impl Fn(usize, &mut Command),
) -> Result<Completion> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let job = format!("/shared-heap-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut running = Running(Vec::new());
    for rank in 0..ranks.max(1) {
        let mut command = Command::new(std::env::current_exe()?);
        // Whatever the processors' caches would decide.
        command.env("INTRANODE_IN_PLACE", "1");
        command.env(PROGRAM, name).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        if ranks > 0 {
            let numbers = [("INTRANODE_RANK", rank.to_string()), ("INTRANODE_SIZE", ranks.to_string())];
            command.env("INTRANODE_NAME", &job).envs(numbers);
        }
        prepare(rank, &mut command);
        running.0.push(command.spawn()?);
    }
    let (sender, ends) = channel();
    for (rank, child) in running.0.iter_mut().enumerate() {
        let (mut errors, sender) = (child.stderr.take().context("a pipe")?, sender.clone());
        thread::spawn(move || {
            let mut text = String::new();
            let read = errors.read_to_string(&mut text);
            sender.send((rank, read.map(|_| text)))
        });
    }
    let mut failures = Vec::new();
    for _ in 0..running.0.len() {
        let Ok((rank, text)) = ends.recv_timeout(LIMIT + stress()) else {
            bail!("it takes too long: {failures:?}")
        };
        let status = running.0[rank].wait()?;
        if status.code() == Some(i32::from(NOT_ALLOWED)) {
            return Ok(Completion::ignored_with(text?));
        }
        let expected = match killed == Some(rank) {
            true => status.signal() == Some(Signal::SIGKILL as i32),
            false => status.success(),
        };
        if !expected {
            failures.push(format!("rank {rank}: {status}: {}", text?));
        }
    }
    match failures.is_empty() {
        true => Ok(Completion::Completed),
        false => bail!("{}", failures.join("\n")),
    }
}
