//! Starting the ranks of a run on this machine, and ending them together.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::driver::failure::{Failure, Kind, Outcome};
use crate::driver::rank_stderr::RankStderr;
use crate::driver::stop::{STOPPED_ON_REQUEST, is_ignored};

/// The time for the other ranks to end by themselves after one has failed.
const GRACE: Duration = Duration::from_secs(2);

/// The variable with the launcher's process id.
const LAUNCHER: &str = "COBRE_SHM_LAUNCHER";

/// A name that is unique on this machine.
pub(crate) fn unique_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("/cobre-shm-{}-{:x}", std::process::id(), now.as_nanos())
}

/// Whether this program's launcher has started this process as a rank.
pub(crate) fn is_rank() -> bool {
    std::env::var_os(LAUNCHER).is_some()
}

/// Makes this rank end with its launcher, also when that is killed.
pub(crate) fn end_with_launcher() -> Outcome<()> {
    let Some(launcher) = std::env::var(LAUNCHER).ok().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw)
    else {
        return Ok(());
    };
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| Failure::new(Kind::Internal, error))?;
    // The launcher may have ended before the call above.
    if getppid() == Some(launcher) {
        Ok(())
    } else {
        Err(Failure::new(Kind::Internal, "the launcher has ended"))
    }
}

/// Makes this process, and its ranks with it, end with the one that has started it, also when that is killed.
pub(crate) fn end_with_parent() -> Outcome<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| Failure::new(Kind::Internal, error))
}

/// Runs this command line as `ranks` processes. Returns the status of the first that fails.
pub(crate) fn start(ranks: usize) -> Outcome<ExitCode> {
    let signals = listen()?;
    let name = unique_name();
    let mut job = Job::default();
    let mut stderr = RankStderr::new();
    for rank in 0..ranks {
        match spawn(&name, rank, ranks) {
            Ok(mut child) => {
                if let Some(pipe) = child.stderr.take() {
                    stderr.read(rank, pipe);
                }
                job.children.push(Some(child));
            }
            Err(error) => {
                job.kill(Signal::KILL);
                job.first_failure = Some(Kind::Internal as u8);
                job.errors.push(format!("rank {rank} cannot be started: {error}"));
                break;
            }
        }
    }
    job.wait(&signals);
    // The name is removed already unless a rank ended while the ranks were joining.
    let _ = rustix::shm::unlink(&name);
    job.errors.extend(stderr.errors());
    if !job.errors.is_empty() {
        tell!("cobre-shm: {}", job.errors.join("; "));
    }
    Ok(job.first_failure.map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// The signals that concern the launcher, as a channel.
fn listen() -> Outcome<Receiver<i32>> {
    // A handler would end that they are ignored, in the ranks too.
    let ends = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals =
        Signals::new(ends.chain([SIGCHLD, SIGUSR1])).map_err(|error| Failure::new(Kind::Internal, error))?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if sender.send(signal).is_err() {
                break;
            }
        }
    });
    Ok(receiver)
}

fn spawn(name: &str, rank: usize, ranks: usize) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env("COBRE_COMM_BACKEND", "shm")
        .env("COBRE_SHM_NAME", name)
        .env("COBRE_SHM_RANK", rank.to_string())
        .env("COBRE_SHM_SIZE", ranks.to_string())
        .env(LAUNCHER, std::process::id().to_string())
        .stderr(Stdio::piped())
        .spawn()
}

#[derive(Default)]
struct Job {
    /// By rank; none where the rank has ended.
    children: Vec<Option<Child>>,
    first_failure: Option<u8>,
    /// Errors that the ranks cannot print themselves.
    errors: Vec<String>,
    /// When the ranks that still run are killed.
    deadline: Option<Instant>,
    stop_requested: bool,
    /// Whether a rank that is ended by a signal may have been ended by this launcher.
    sent_signals: bool,
}

impl Job {
    fn wait(&mut self, signals: &Receiver<i32>) {
        self.reap();
        while self.children.iter().any(Option::is_some) {
            let signal = match self.deadline {
                None => signals.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(deadline) => signals.recv_timeout(deadline.saturating_duration_since(Instant::now())),
            };
            match signal {
                Ok(SIGCHLD) => {}
                Ok(SIGUSR1) => self.ask(),
                Ok(signal) => self.pass_on(signal),
                Err(_) => {
                    self.kill(Signal::KILL);
                    self.deadline = Some(Instant::now() + GRACE);
                }
            }
            self.reap();
        }
    }

    /// Forwards a first signal to the ranks, which may still write their results. A second signal kills them.
    fn pass_on(&mut self, signal: i32) {
        let signal = match Signal::from_named_raw(signal) {
            Some(signal) if !self.stop_requested => signal,
            _ => Signal::KILL,
        };
        self.stop_requested = true;
        self.kill(signal);
    }

    /// Asks the ranks to stop after the iteration.
    fn ask(&self) {
        self.send(Signal::USR1);
    }

    /// Signals all children that have not been waited for, so that their process ids cannot be reused.
    fn kill(&mut self, signal: Signal) {
        self.sent_signals = true;
        self.send(signal);
    }

    fn send(&self, signal: Signal) {
        for child in self.children.iter().flatten() {
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if let Some(pid) = pid {
                // An error means that it has ended.
                let _ = kill_process(pid, signal);
            }
        }
    }

    fn reap(&mut self) {
        for rank in 0..self.children.len() {
            let Some(child) = &mut self.children[rank] else { continue };
            match child.try_wait() {
                Ok(None) => continue,
                Ok(Some(status)) => self.ended(rank, status),
                Err(error) => {
                    self.errors.push(format!("rank {rank} cannot be waited for: {error}"));
                    self.failed(Kind::Internal as u8);
                }
            }
            self.children[rank] = None;
        }
    }

    fn ended(&mut self, rank: usize, status: ExitStatus) {
        if let Some(signal) = status.signal() {
            let code = u8::try_from(128 + signal).unwrap_or(u8::MAX);
            if !self.sent_signals {
                // Others may have ended earlier, because of this one.
                self.errors.push(format!("rank {rank} was ended by signal {signal}"));
                self.first_failure = Some(code);
            }
            self.failed(code);
        } else {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            match code.unwrap_or(Kind::Internal as u8) {
                0 => {}
                // All ranks stop together on request, so there is no deadline.
                STOPPED_ON_REQUEST => drop(self.first_failure.get_or_insert(STOPPED_ON_REQUEST)),
                code => self.failed(code),
            }
        }
    }

    fn failed(&mut self, code: u8) {
        self.first_failure.get_or_insert(code);
        self.deadline.get_or_insert_with(|| Instant::now() + GRACE);
    }
}
