//! UCX, by its own `ucx_perftest`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::process::{Server, output, processors};

/// The program. `None`: it is left out.
pub(crate) fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("UCX_PERFTEST") {
        return Some(named.into());
    }
    let environment = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/race/venv-ucx/lib");
    let versions = std::fs::read_dir(environment).ok()?;
    let programs =
        versions.flatten().map(|version| version.path().join("site-packages/libucx/bin/ucx_perftest"));
    programs.into_iter().find(|program| program.exists())
}

/// Whether a process of this machine waits for connections to this port.
fn is_listening(port: u16) -> Result<bool> {
    let end = format!(":{port:04X}");
    let connections = std::fs::read_to_string("/proc/net/tcp")?;
    let mut rows = connections.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    Ok(rows.any(|row| row.get(3) == Some(&"0A") && row.get(1).is_some_and(|local| local.ends_with(&end))))
}

/// One of its tests: half a round trip, in microseconds, on average over the run as the other rows are.
fn test(program: &Path, test: &str, bytes: usize, count: u64) -> Result<f64> {
    let libraries = program.parent().and_then(Path::parent).context("its folder")?.join("lib");
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let [own, other] = processors()?.map(|processor| processor.to_string());
    let run = |processor: &str| {
        let mut command = Command::new("taskset");
        command.args(["-c", processor]).arg(program).args(["-p", &port.to_string()]);
        command.env("LD_LIBRARY_PATH", &libraries).env("UCX_MODULE_DIR", libraries.join("ucx"));
        command.env("UCX_TLS", "posix,cma,self").stderr(Stdio::null());
        command
    };
    let mut server = Server::start(&mut run(&other))?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_listening(port)? {
        ensure!(server.process.try_wait()?.is_none() && Instant::now() < deadline, "it does not listen");
        // There is no event for what another process listens to.
        thread::sleep(Duration::from_millis(5));
    }
    let (bytes, count, warm_up) = (bytes.to_string(), count.to_string(), (count / 10 + 1).to_string());
    let options = ["127.0.0.1", "-t", test, "-s", &bytes, "-n", &count, "-w", &warm_up, "-f", "-v"];
    let text = output(run(&own).args(options))?;
    let last = text.lines().last().context("it prints nothing")?;
    // After the count, the median, and the average since the last report.
    last.split(',').nth(3).context("its columns")?.parse().with_context(|| last.to_owned())
}

/// Microseconds of a message and its answer.
pub(crate) fn round_trip(program: &Path, length: Duration) -> Result<f64> {
    let count = (length.as_secs_f64() / 0.4e-6) as u64;
    Ok(2.0 * test(program, "tag_lat", 8, count.max(100))?)
}

/// Gigabytes a second of messages that go to and fro, one at a time.
pub(crate) fn messages(program: &Path, bytes: usize, length: Duration) -> Result<f64> {
    let count = (length.as_secs_f64() / (bytes as f64 / 5e9).max(1e-6)) as u64;
    Ok(bytes as f64 / test(program, "tag_lat", bytes, count.max(10))? / 1e3)
}
