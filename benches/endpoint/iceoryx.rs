//! iceoryx2, by a program of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process::{Server, output, processors};

/// Builds the program. `Err`: why it is left out.
pub(crate) fn program() -> Result<PathBuf> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (manifest, target) = (home.join("benches/iceoryx2/Cargo.toml"), home.join("target/iceoryx2"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--quiet", "--manifest-path"]).arg(manifest);
    output(cargo.env("CARGO_TARGET_DIR", &target)).context("benches/iceoryx2 cannot be built")?;
    Ok(target.join("release/intranode-bench-iceoryx2"))
}

/// Microseconds of a call.
pub(crate) fn calls(program: &Path, asleep: bool, in_flight: u64, length: Duration) -> Result<f64> {
    let [own, other] = processors()?.map(|processor| processor.to_string());
    let mode = if asleep { "asleep" } else { "awake" };
    // A service of its own for each run: what a server leaves that is killed is in nobody's way.
    let name = format!("intranode-bench-{}-{}", std::process::id(), fastrand::u64(..));
    let bound = |processor: &str| {
        let mut command = Command::new("taskset");
        command.args(["-c", processor]).arg(program);
        command
    };
    let mut server = Server::start(bound(&other).args(["serve", &name, mode]))?;
    ensure!(server.line()? == "serves");
    let seconds = length.as_secs_f64().to_string();
    let time = output(bound(&own).args(["call", &name, mode, &in_flight.to_string(), &seconds]))?;
    // It ends when its input is closed, and removes its service.
    drop(server.process.stdin.take());
    server.process.wait()?;
    Ok(time.trim().parse()?)
}
