//! Each test in a process of its own: threads that share an address space hold up each other's searches, since loom maps
//! and unmaps a stack for each simulated thread of each execution. Two searches side by side took 2.6 times as long.

use std::env;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::harness::report;

/// What tells a process that it is to run one test.
const APART: &str = "INTRANODE_LOOM_APART";

/// Whether this process runs one test, for the process that started it.
pub(crate) fn is_apart() -> bool {
    env::var_os(APART).is_some()
}

/// Does not outlive the thread that has started this process.
#[cfg(target_os = "linux")]
pub(crate) fn ends_with_parent() {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).expect("a signal that exists");
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn ends_with_parent() {}

/// The same test, in a process of its own. What that one has found is found.
pub(crate) fn apart(trial: &Trial) -> Trial {
    let name = trial.name().to_owned();
    Trial::test(name.clone(), move || run(&name))
}

fn run(name: &str) -> Result<(), Failed> {
    let program = env::current_exe()?;
    let output =
        Command::new(program).args(["--exact", name, "--test-threads", "1"]).env(APART, "1").output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    report::take_over(&said);
    if output.status.success() {
        return Ok(());
    }
    // What libtest-mimic prints of the failure, and how the process ended if it did not come to that.
    let failure = said.split_once("failures:").map_or("", |(_, rest)| rest);
    let failure = failure.split_once("failures:").map_or(failure, |(first, _)| first);
    Err(format!("{}\n{}{}", output.status, failure.trim(), String::from_utf8_lossy(&output.stderr)).into())
}
