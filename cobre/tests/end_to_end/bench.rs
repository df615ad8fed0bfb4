//! The program in a directory of its own, with a time limit.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// No run takes longer than this, or it has hung.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// A directory of its own for a test, and the program in it.
pub(crate) struct Bench(TempDir);

impl Bench {
    pub(crate) fn new() -> Self {
        Bench(TempDir::new().expect("a temporary directory"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program, with no launcher's variables around it.
    pub(crate) fn program(&self, arguments: &[&str]) -> Command {
        // Signals that are ignored where the tests run, as in the background, would stay ignored.
        self.program_with("--default-signal=HUP,INT,TERM", arguments)
    }

    /// The same with an option of `env`, which becomes the program.
    pub(crate) fn program_with(&self, signals: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("env");
        command.args([signals, env!("CARGO_BIN_EXE_cobre-shm")]);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if ["COBRE_", "INTRANODE_", "RAYON_"].iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        finish(start(self.program(arguments)))
    }

    /// The same where it has to succeed; what it printed.
    #[track_caller]
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        succeeded(self.run(arguments))
    }

    /// Writes a small case: 6 stages and 7 forward passes, so that 8 ranks have some with nothing to do.
    pub(crate) fn case(&self, more: &[&str]) {
        let shape = ["--stages=6", "--forward-passes=7", "--hydros=4", "--openings=5", "--scenarios=6"];
        self.succeed(&[&["case", "case"], &shape[..], &["--check-frequency=2"], more].concat());
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(name)).expect(name)).expect(name)
    }
}

pub(crate) fn start(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Waits for the end, and kills what has hung.
#[track_caller]
pub(crate) fn finish(mut child: Child) -> Output {
    let deadline = Instant::now() + LIMIT;
    // What it prints fits into a pipe.
    while child.try_wait().expect("its status").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("it is there");
            let output = child.wait_with_output().expect("its output");
            panic!("hung: {}", String::from_utf8_lossy(&output.stderr));
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("its output")
}

#[track_caller]
pub(crate) fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, said(&output));
    String::from_utf8(output.stdout).expect("text")
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// All files below a directory, with their bytes.
pub(crate) fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap_or_else(|_| panic!("{}", directory.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below the root").to_path_buf();
                found.insert(name, fs::read(&path).expect("its bytes"));
            }
        }
    }
    found
}
