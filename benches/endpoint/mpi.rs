//! The MPI libraries of the race, each with its settings there, by a program of ours (mpi_calls.c).

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::process::output;

/// How a library is started, or why it is left out: what mpi.py prints.
#[derive(Clone, Deserialize)]
pub(crate) struct Library {
    pub(crate) name: String,
    pub(crate) missing: Option<String>,
    #[serde(default)]
    version: String,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    environment: HashMap<String, String>,
}

/// The three of them.
pub(crate) fn libraries() -> Result<Vec<Library>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/endpoint/mpi.py");
    let text = output(Command::new("python3").arg(script)).context("benches/endpoint/mpi.py fails")?;
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

impl Library {
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    /// Microseconds of a call, with this number in flight.
    pub(crate) fn calls(&self, in_flight: u64, length: Duration) -> Result<f64> {
        self.run("calls", in_flight, length)
    }

    /// Gigabytes a second of messages that go to and fro, one at a time.
    pub(crate) fn messages(&self, bytes: usize, length: Duration) -> Result<f64> {
        self.run("message", bytes as u64, length)
    }

    fn run(&self, test: &str, number: u64, length: Duration) -> Result<f64> {
        let (program, args) = self.command.split_first().context("a command")?;
        // The launcher binds the ranks itself: to both processors, not to the one that this process has.
        let mut command = Command::new("taskset");
        command.args(["-c", &crate::process::list()?, program]).args(args).envs(&self.environment);
        let text = output(command.args([&length.as_secs_f64().to_string(), test, &number.to_string()]))?;
        text.trim().parse().with_context(|| format!("{}: {text:?}", self.name))
    }
}
