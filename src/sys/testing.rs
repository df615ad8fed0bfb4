//! Processes for the tests of this module's siblings.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::Duration;

/// No answer of a helper process takes longer than this, or the test fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

const ROLE: &str = "INTRANODE_TEST_ROLE";

/// A process that starts has copies of all descriptors, and with them of all locks, for a moment. Tests in which that
/// matters exclude it.
static STARTING: RwLock<()> = RwLock::new(());

/// While this is held, no other test starts a process.
pub(crate) fn nothing_starts() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// To be held while a process starts.
pub(crate) fn starting() -> RwLockWriteGuard<'static, ()> {
    STARTING.write().unwrap_or_else(PoisonError::into_inner)
}

/// Whether `check` holds in a forked child, which does nothing else. `check` must not allocate, lock or panic: the
/// other threads of this process do not exist in the child.
pub(crate) fn in_forked_child(check: impl FnOnce() -> bool) -> bool {
    let _starting = starting();
    // SAFETY: the child only runs `check`, which keeps to what a child may do, and ends without running destructors.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let status = i32::from(!check());
        // SAFETY: ends the child.
        unsafe { libc::_exit(status) };
    }
    assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
    let mut status = -1;
    // SAFETY: our own child, and a status of our own.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "waitpid: {error}");
    }
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

/// The role in which a test asked this process to run its test.
pub(crate) fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// A command that runs one ignored test of this very program in a role.
pub(crate) fn command(test: &str, role: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("the test program's path"));
    prepare(&mut command, test, role);
    command
}

/// Adds what makes a test program run one ignored test in a role.
pub(crate) fn prepare(command: &mut Command, test: &str, role: &str) {
    command.args(["--ignored", "--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
}

/// Another process that runs a test in a role, told what to do line by line. Killed on drop.
pub(crate) struct Helper {
    child: Child,
    answers: Receiver<String>,
}

impl Helper {
    /// Starts one ignored test of this program in a role.
    pub(crate) fn start(test: &str, role: &str) -> Self {
        let starting = starting();
        let mut child = command(test, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a helper process");
        drop(starting);
        let output = BufReader::new(child.stderr.take().expect("a pipe"));
        let (sender, answers) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Helper { child, answers }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn tell(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{line}").expect("the helper listens");
    }

    pub(crate) fn answer(&self) -> String {
        self.answers.recv_timeout(LIMIT).expect("an answer in time")
    }

    pub(crate) fn kill(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.kill();
    }
}

/// In a helper: what the test tells next. None when the test has ended.
pub(crate) fn told() -> Option<String> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).expect("a pipe");
    (read > 0).then(|| line.trim_end().to_owned())
}
