//! A rank that is killed between any two of its instructions, under ptrace(2).

use anyhow::{Result, ensure};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// What is stepped through begins after this. It ends with [`stop`]. Called by the rank, on its main thread.
pub(crate) fn begin() -> Result<()> {
    // After an error the process ends without stopping, which the test detects.
    ptrace::traceme()?;
    stop()
}

pub(crate) fn stop() -> Result<()> {
    Ok(raise(Signal::SIGSTOP)?)
}

/// Lets a rank that has called [`begin`] make up to `limit` steps, at most up to its [`stop`]. Returns how many it has made.
///
/// # Errors
/// Where the system does not permit it.
pub(crate) fn step(pid: u32, limit: usize) -> Result<usize, nix::Error> {
    let pid = Pid::from_raw(pid.try_into().map_err(|_| nix::Error::ESRCH)?);
    let WaitStatus::Stopped(_, Signal::SIGSTOP) = waitpid(pid, None)? else { return Err(nix::Error::EPERM) };
    ptrace::setoptions(pid, ptrace::Options::PTRACE_O_EXITKILL)?;
    for steps in 0..limit {
        ptrace::step(pid, None)?;
        match waitpid(pid, None)? {
            // A container's manager may continue all of its processes at any time.
            WaitStatus::Stopped(_, Signal::SIGTRAP | Signal::SIGCONT) => {}
            WaitStatus::Stopped(_, Signal::SIGSTOP) => return Ok(steps),
            _ => return Err(nix::Error::EINVAL),
        }
    }
    Ok(limit)
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
