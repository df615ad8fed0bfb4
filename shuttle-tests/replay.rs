//! The suite finds mistakes: on a machine that is broken in one way, a test that otherwise passes must fail, for the right
//! reason, and fail the same way again when its seed or its schedule is given back to it.

use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::harness::breakage;
use crate::harness::schedules::{ITERATIONS, SCHEDULE, SEED};

/// How the machine is broken, the test that must fail, and with which message.
const BROKEN: [(&str, &str, &str); 36] = [
    ("drop:arrive-wake", "8 ranks make mixed calls, random", "deadlock!"),
    ("drop:arrive-wake", "8 ranks make mixed calls, pct", "deadlock!"),
    ("drop:poison-wake", "some leave, some abort, some go on, random", "deadlock!"),
    ("timid:poison-wake", "a rank or watcher ends at arrived-unwoken, random", "deadlock!"),
    ("blind:sleep", "8 ranks make mixed calls, random", "deadlock!"),
    ("skip:poison", "poisoners race with each other, random", "unpoisoned"),
    ("weaken:arrive", "8 ranks make mixed calls, random", "data race"),
    ("weaken:arrive-waiter", "8 ranks make mixed calls, random", "data race"),
    ("weaken:spin", "8 ranks make mixed calls, random", "data race"),
    ("weaken:poll-arrival", "8 ranks make mixed calls, random", "data race"),
    ("weaken:waiter", "8 ranks make mixed calls, random", "data race"),
    ("weaken:woken", "8 ranks make mixed calls, random", "data race"),
    ("weaken:poison", "some leave, some abort, some go on, random", "not ordered"),
    ("swap:arrive", "poisoners race with each other, random", "unpoisoned"),
    ("swap:cause", "poisoners race with each other, random", "disagreement"),
    ("stale:late", "time-outs race with arrivals, random", "disagreement"),
    ("one-buffer", "8 ranks make mixed calls, random", "data race"),
    ("drop:announce-wake", "watchers are told of every death, random", "deadlock!"),
    ("drop:depart-wake", "watchers take over from those that leave, random", "deadlock!"),
    ("blind:watch", "watchers are told of every death, random", "deadlock!"),
    ("swap:announce", "watchers are told of every death, random", "deadlock!"),
    ("drop:ring-wake", "8 ranks use each other's memory, random", "deadlock!"),
    ("blind:wait-sleep", "8 ranks use each other's memory, pct", "deadlock!"),
    ("swap:lock-try", "8 ranks use each other's memory, random", "deadlock!"),
    ("swap:lock-leave", "8 ranks use each other's memory, random", "deadlock!"),
    ("swap:ring-take", "8 ranks use each other's memory and one dies, random", "deadlock!"),
    ("swap:compare-swap", "8 ranks use each other's memory, random", "wrong sum"),
    ("drop:ring-wake", "8 ranks send messages, random", "deadlock!"),
    ("blind:message-sleep", "8 ranks send messages, pct", "deadlock!"),
    ("weaken:publish-cell", "8 ranks send messages, random", "data race"),
    ("weaken:take-cell", "8 ranks send messages, random", "data race"),
    ("weaken:release", "8 ranks send messages, random", "data race"),
    ("weaken:settle", "8 ranks send messages, random", "data race"),
    ("swap:settle", "8 ranks send messages, random", "withdrawn"),
    ("swap:withdraw", "8 ranks send messages, random", "deadlock!"),
    ("weaken:publish-line", "8 ranks send messages, random", "data race"),
];

/// No run of one test takes this long.
const LIMIT: Duration = Duration::from_secs(300);

pub fn trials() -> Vec<Trial> {
    let trial = |(broken, test, reason)| {
        Trial::test(format!("broken machine, {broken}: {test}"), move || must_fail(broken, test, reason))
    };
    BROKEN.into_iter().map(trial).collect()
}

fn must_fail(broken: &str, test: &str, reason: &str) -> Result<(), Failed> {
    let first = run(broken, test, None)?;
    let message = panic_message(&first)?;
    if !message.contains(reason) {
        return Err(format!("fails, but not with {reason}: {message}").into());
    }
    let schedule = value_of(SCHEDULE, &first)?;
    for (variable, value) in [(SEED, value_of(SEED, &first)?), (SCHEDULE, schedule)] {
        let again = run(broken, test, Some((variable, value)))?;
        let again_message = panic_message(&again)?;
        if again_message != message {
            return Err(format!("{variable}={value} brings something else: {again_message}").into());
        }
        if variable == SEED {
            remove(value_of(SCHEDULE, &again)?)?;
        }
    }
    remove(schedule)
}

/// Runs the test in a process of its own, and returns what it printed. It is an error if it passes.
fn run(broken: &str, test: &str, replay: Option<(&str, &str)>) -> Result<String, Failed> {
    let (mut output, input) = std::io::pipe()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", test]).stdout(input.try_clone()?).stderr(input);
    command.env_remove(SEED).env_remove(SCHEDULE).env_remove(ITERATIONS);
    command.env(breakage::VARIABLE, broken).env("RUST_BACKTRACE", "0").envs(replay);
    let mut child = command.spawn()?;
    // The pipe ends when its last writer is gone.
    drop(command);
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let read = output.read_to_string(&mut text);
        // After the time limit the receiver is gone.
        let _ = sender.send(read.map(|_| text));
    });
    let text = receiver.recv_timeout(LIMIT);
    if text.is_err() {
        child.kill()?;
    }
    let status = child.wait()?;
    reader.join().map_err(|_| Failed::from("the reader panicked"))?;
    let text = text.map_err(|_| format!("no end after {LIMIT:?}"))??;
    if status.success() { Err("it passes".into()) } else { Ok(text) }
}

/// The message of the first panic.
fn panic_message(text: &str) -> Result<&str, Failed> {
    let mut lines = text.lines().skip_while(|line| !line.contains("panicked at")).skip(1);
    lines.next().ok_or_else(|| format!("fails without a panic: {text}").into())
}

/// What a failing test prints as the variable's value.
fn value_of<'a>(variable: &str, text: &'a str) -> Result<&'a str, Failed> {
    let (_, rest) = text.split_once(&format!("{variable}=")).ok_or_else(|| format!("no {variable}: {text}"))?;
    rest.split_whitespace().next().ok_or_else(|| format!("no {variable}: {text}").into())
}

/// Removes what a test that was meant to fail has left.
fn remove(schedule: &str) -> Result<(), Failed> {
    let folder = Path::new(schedule).parent().ok_or("a schedule lies in a folder")?;
    assert!(folder.starts_with(env!("CARGO_TARGET_TMPDIR")));
    std::fs::remove_file(schedule)?;
    std::fs::remove_dir(folder)?;
    Ok(folder.parent().map_or(Ok(()), std::fs::remove_dir)?)
}
