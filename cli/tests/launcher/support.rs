//! A launcher under test: started with a mark, ended within a time limit, and nothing left of it.

use std::fmt::Display;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// For anything that should take moments.
const LIMIT: Duration = Duration::from_secs(60);

/// The variable by which the processes of one test are found, whatever they are.
const MARK: &str = "INTRANODE_TEST_MARK";

/// Says why a test shows nothing here. Not by `println!`: the harness shows that of failed tests only.
pub(crate) fn skipped(reason: impl Display) {
    let name = thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(io::stderr(), "{name}: SKIPPED: {reason}");
}

/// A number that no other test on this machine has.
pub(crate) fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) struct Launcher {
    process: Child,
    /// Line by line, as it comes.
    stdout: Receiver<String>,
    stderr: JoinHandle<String>,
    mark: String,
}

pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A launcher's command, to be changed before [`start`].
pub(crate) fn intranode<const N: usize>(arguments: [&str; N]) -> Command {
    // Signals that are ignored where the tests run, as in the background, would stay ignored in the launcher.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT", env!("CARGO_BIN_EXE_intranode")]);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// `intranode run OPTIONS -- sh -c SCRIPT`
pub(crate) fn script<const N: usize>(options: [&str; N], script: &str) -> Command {
    let mut command = intranode(["run"]);
    command.args(options).args(["--", "sh", "-c", script]);
    command
}

pub(crate) fn run(command: Command) -> Finished {
    start(command).finish()
}

pub(crate) fn start(mut command: Command) -> Launcher {
    let mark = unique();
    // A process group like the one that a shell would give it.
    command.env(MARK, &mark).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut process = command.spawn().unwrap();
    let mut stderr = process.stderr.take().unwrap();
    Launcher {
        stdout: lines_of(process.stdout.take().unwrap()),
        stderr: thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        }),
        process,
        mark,
    }
}

fn lines_of(output: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = String::new();
        while output.read_line(&mut line).unwrap() > 0 {
            // The receiver is gone when a test has failed.
            let _ = sender.send(std::mem::take(&mut line));
        }
    });
    lines
}

impl Launcher {
    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// As a terminal does it.
    pub(crate) fn signal_group(&self, signal: Signal) {
        killpg(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }

    pub(crate) fn input(&mut self) -> impl Write + use<> {
        self.process.stdin.take().unwrap()
    }

    /// The next `count` lines, sorted: ranks write in any order.
    pub(crate) fn lines(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.len() < count {
            match self.stdout.recv_timeout(LIMIT) {
                Ok(line) => lines.push(line.trim_end_matches('\n').to_owned()),
                Err(error) => {
                    for pid in living(&self.mark) {
                        let _ = kill(pid, Signal::SIGKILL);
                    }
                    panic!("the output ended early, or did not come: {error}, after {lines:?}");
                }
            }
        }
        lines.sort();
        lines
    }

    /// Waits for the launcher and asserts that none of its processes and files is left.
    pub(crate) fn finish(mut self) -> Finished {
        let mut status = None;
        let ended = eventually(LIMIT, || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        if !ended {
            self.process.kill().unwrap();
            self.process.wait().unwrap();
        }
        // What was sent SIGKILL needs a moment to be gone.
        let left = || living(&self.mark);
        let segment = format!("intranode-{}-", self.process.id());
        let clean = eventually(Duration::from_secs(1), || left().is_empty() && segments(&segment).is_empty());
        let (left, segments) = (left(), segments(&segment));
        for &pid in &left {
            let _ = kill(pid, Signal::SIGKILL);
        }
        let (stdout, stderr): (String, _) = (self.stdout.iter().collect(), self.stderr.join().unwrap());
        assert!(ended, "the launcher did not end; stdout: {stdout} stderr: {stderr}");
        assert!(clean, "left behind: {left:?} {segments:?}; stdout: {stdout} stderr: {stderr}");
        Finished { status: status.unwrap(), stdout, stderr }
    }

    pub(crate) fn processes(&self) -> Vec<Pid> {
        living(&self.mark)
    }
}

impl Finished {
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by signal {:?}", self.status.signal()))
    }

    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code(), 0, "stdout: {} stderr: {}", self.stdout, self.stderr);
        self
    }

    pub(crate) fn sorted_lines(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.stdout.lines().collect();
        lines.sort();
        lines
    }

    pub(crate) fn last_error(&self) -> &str {
        self.stderr.lines().last().unwrap_or_default()
    }
}

/// The processes that have the mark in their environment; those that have ended and are not collected do not count.
fn living(mark: &str) -> Vec<Pid> {
    let mark = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Not readable: another user's, or gone.
        let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
        if environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes()) {
            found.push(Pid::from_raw(pid));
        }
    }
    found
}

/// The shared memory of jobs whose name, made up by a launcher, begins like this.
fn segments(prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev/shm").unwrap().flatten();
    let matching = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()));
    matching.map(|entry| entry.path()).collect()
}

/// Whether `condition` came true in time.
pub(crate) fn eventually(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// An empty directory for one test, removed at its end.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(unique());
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
