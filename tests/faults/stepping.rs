//! A rank that is killed between any two of its instructions or system calls, under ptrace(2).

use anyhow::{Context, Result, bail, ensure};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// Why nothing can be shown where a rank does not stop in [`begin`].
pub(crate) const NOT_TRACED: &str = "the system does not let this process be traced";

/// The status of a rank that the system does not let be traced.
const REFUSED: i32 = 77;

/// What is stepped through begins after this. It ends with [`stop`]. Called by the rank, on its main thread.
pub(crate) fn begin() -> Result<()> {
    if let Err(error) = ptrace::traceme() {
        eprintln!("ptrace: {error}");
        std::process::exit(REFUSED);
    }
    stop()
}

pub(crate) fn stop() -> Result<()> {
    Ok(raise(Signal::SIGSTOP)?)
}

/// Waits until a rank has stopped in [`begin`], from where on it is killed when this process ends. `false`: the system does not
/// let it be traced.
///
/// # Errors
/// When it has failed, or has been killed, before.
pub(crate) fn has_begun(pid: Pid) -> Result<bool> {
    match waitpid(pid, None)? {
        WaitStatus::Stopped(_, Signal::SIGSTOP) => {}
        WaitStatus::Exited(_, REFUSED) => return Ok(false),
        other => bail!("{other:?} before it has begun"),
    }
    ptrace::setoptions(pid, ptrace::Options::PTRACE_O_EXITKILL | ptrace::Options::PTRACE_O_TRACESYSGOOD)?;
    Ok(true)
}

/// Waits for the next stop of a rank that goes on. Returns whether it is that of [`stop`].
///
/// # Errors
/// When it has crashed, or ended.
pub(crate) fn is_at_stop(pid: Pid) -> Result<bool> {
    match waitpid(pid, None)? {
        // A container's manager may continue all of its processes at any time.
        WaitStatus::PtraceSyscall(_) | WaitStatus::Stopped(_, Signal::SIGTRAP | Signal::SIGCONT) => Ok(false),
        WaitStatus::Stopped(_, Signal::SIGSTOP) => Ok(true),
        other => bail!("{other:?} on its way"),
    }
}

/// Lets a rank that has called [`begin`] make up to `limit` steps, at most up to its [`stop`]. Returns how many it has made.
/// `None`: the system does not let it be traced.
///
/// # Errors
/// When it has crashed, or ended.
pub(crate) fn step(pid: u32, limit: usize) -> Result<Option<usize>> {
    go_on(Pid::from_raw(pid.try_into().context("a process ID")?), limit, |pid| ptrace::step(pid, None))
}

/// The same with what resumes the rank until its next step.
fn go_on(pid: Pid, limit: usize, resume: impl Fn(Pid) -> nix::Result<()>) -> Result<Option<usize>> {
    if !has_begun(pid)? {
        return Ok(None);
    }
    for steps in 0..limit {
        resume(pid)?;
        if is_at_stop(pid)? {
            return Ok(Some(steps));
        }
    }
    Ok(Some(limit))
}

/// Lets a rank that has called [`begin`] make `calls` system calls, then kills it. Returns whether it has reached its [`stop`] before.
/// `None`: the system does not let it be traced.
///
/// # Errors
/// When it has crashed, or ended.
pub(crate) fn run_until(pid: Pid, calls: usize) -> Result<Option<bool>> {
    let Some(made) = go_on(pid, calls, |pid| ptrace::syscall(pid, None))? else { return Ok(None) };
    if made == calls {
        kill(pid, Signal::SIGKILL)?;
    }
    Ok(Some(made < calls))
}

/// At which of its steps a rank is killed: at the last, at the first, and then in turns anywhere and where it is decided whether
/// what it does counts.
#[derive(Default)]
pub(crate) struct Moments {
    turn: usize,
    /// How many steps there are.
    pub(crate) all: usize,
    /// The most steps after which it did not count, and the fewest after which it did.
    between: (usize, usize),
    /// How often it did not count, and how often it did.
    pub(crate) counts: [usize; 2],
}

impl Moments {
    /// The steps that the rank makes before it is killed.
    pub(crate) fn next(&mut self) -> usize {
        const NEAR: usize = 12;
        let (before, after) = self.between;
        self.turn += 1;
        match self.turn {
            1 => usize::MAX,
            2 => 0,
            turn if turn % 2 == 1 => fastrand::usize(..self.all),
            _ if after > before + NEAR => usize::midpoint(before, after),
            _ => after.saturating_sub(NEAR) + fastrand::usize(..2 * NEAR),
        }
    }

    /// Whether the rank makes all its steps.
    pub(crate) fn is_whole(&self) -> bool {
        self.turn == 1
    }

    /// Whether what it did counted, when it was killed after this number of steps.
    ///
    /// # Errors
    /// When it counted without a step, or not after all.
    pub(crate) fn record(&mut self, steps: usize, counted: bool) -> Result<()> {
        self.counts[usize::from(counted)] += 1;
        match self.turn {
            1 => {
                ensure!(counted, "it did not count after all steps");
                (self.all, self.between) = (steps, (0, steps));
            }
            2 => ensure!(!counted, "it counted before the first step"),
            _ if counted => self.between.1 = self.between.1.min(steps),
            _ if steps < self.between.1 => self.between.0 = self.between.0.max(steps),
            _ => {}
        }
        Ok(())
    }
}
