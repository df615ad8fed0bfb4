//! Helper processes for unit tests.

use std::env;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::Duration;

/// The time limit for an answer of a helper process.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The time after which a forked child is ended.
pub(crate) const CHILD_LIMIT: Duration = Duration::from_secs(20);

/// Says why a test shows nothing here. Not by `println!`: the harness shows that of failed tests only.
pub(crate) fn skipped(reason: impl Display) {
    let name = thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(io::stderr(), "{name}: SKIPPED: {reason}");
}

const ROLE: &str = "INTRANODE_TEST_ROLE";

/// Between fork and exec, a new process holds copies of all descriptors, and with them all open file description locks.
/// Tests of those locks exclude that.
static SPAWNING: RwLock<()> = RwLock::new(());

/// While this guard lives, no other test starts a process.
pub(crate) fn no_spawning() -> RwLockReadGuard<'static, ()> {
    SPAWNING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test while it starts a process.
pub(crate) fn spawning() -> RwLockWriteGuard<'static, ()> {
    SPAWNING.write().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a program that this process executes does not have the descriptor.
#[cfg(target_os = "linux")]
pub(crate) fn is_closed_by_exec(descriptor: impl std::os::fd::AsFd) -> bool {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};

    fcntl(descriptor, FcntlArg::F_GETFD).is_ok_and(|flags| flags & FdFlag::FD_CLOEXEC.bits() != 0)
}

/// Runs `check` in a forked child and returns its result; false if that takes longer than [`CHILD_LIMIT`]. `check` must not allocate, lock or panic:
/// the other threads of this process do not exist in the child.
pub(crate) fn in_forked_child(check: impl FnOnce() -> bool) -> bool {
    let _spawning = spawning();
    end_of(fork(check))
}

/// Starts a forked child that runs `check`, under the same conditions: for who holds [`spawning`], or is such a child.
pub(crate) fn fork(check: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child runs only `check`, which is async-signal-safe, and ends without running destructors.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: touches no memory: its signal ends the child.
        unsafe { libc::alarm(CHILD_LIMIT.as_secs() as u32) };
        let status = i32::from(!check());
        // SAFETY: ends the child.
        unsafe { libc::_exit(status) };
    }
    assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
    pid
}

/// Waits for a forked child, and returns its result.
pub(crate) fn end_of(pid: libc::pid_t) -> bool {
    let mut status = -1;
    // SAFETY: our own child, and a live status.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "waitpid: {error}");
    }
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

/// The role of this process, if it is a helper.
pub(crate) fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// A command that runs one ignored test of this program in a role.
pub(crate) fn command(test: &str, role: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("the test program's path"));
    prepare(&mut command, test, role);
    command
}

/// Adds the arguments and the variable with which a test program runs one ignored test in a role.
pub(crate) fn prepare(command: &mut Command, test: &str, role: &str) {
    command.args(["--ignored", "--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
}

/// A process that runs a test in a role, with a protocol of lines: commands on its standard input, answers on its standard
/// error. Killed on drop.
pub(crate) struct Helper {
    child: Child,
    answers: Receiver<String>,
}

impl Helper {
    /// Starts one ignored test of this program in a role.
    pub(crate) fn start(test: &str, role: &str) -> Self {
        let spawning = spawning();
        let mut child = command(test, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a helper process");
        drop(spawning);
        let output = BufReader::new(child.stderr.take().expect("a pipe"));
        let (sender, answers) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Helper { child, answers }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn send(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{line}").expect("the helper reads its input");
    }

    pub(crate) fn answer(&self) -> String {
        self.answers.recv_timeout(LIMIT).expect("an answer in time")
    }

    pub(crate) fn kill(&mut self) {
        // An error means that the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.kill();
    }
}

/// In a helper: the next line from the test. None after the test has closed the pipe.
pub(crate) fn next_line() -> Option<String> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).expect("a pipe");
    (read > 0).then(|| line.trim_end().to_owned())
}
