//! Invalid settings: the message names the variable or the argument, its value, and the values that are allowed.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use intranode::{Config, Error, InvalidSetting, ReduceOp};
use libtest_mimic::Trial;

use crate::job::{Job, WAITS};
use crate::joining::ensure_told;
use crate::scenario::{Outcome, ensure_matches};

type Test = fn() -> Outcome;

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, Test); 3] = [
        ("bad_values_in_the_environment_are_named", bad_values_in_the_environment_are_named),
        ("missing_variables_are_named", missing_variables_are_named),
        ("bad_arguments_are_named", bad_arguments_are_named),
    ];
    let trial = |(name, test): (&str, Test)| {
        Trial::test(format!("settings::{name}"), move || test().map_err(|error| format!("{error:#}").into()))
    };
    tests.map(trial).into()
}

/// Runs a process with an environment with which it cannot join. Returns its message.
fn told_by(change: impl FnOnce(&mut Command)) -> anyhow::Result<String> {
    let mut job = Job::new(2, WAITS[0]);
    let process = job.start_with(0, "report", change)?;
    ensure_told(&mut job, &[process], &["told: "])?;
    job.output(process)
}

fn bad_values_in_the_environment_are_named() -> Outcome {
    let long = format!("/{}", "x".repeat(Config::MAX_NAME_BYTES + 1));
    let name_limit = format!("{} bytes", Config::MAX_NAME_BYTES);
    let cases = [
        ("NAME", "", "'/'"),
        ("NAME", "job", "'/'"),
        ("NAME", "/", "'/'"),
        ("NAME", "/a/b", "'/'"),
        ("NAME", &long, &name_limit),
        ("RANK", "2", "0 to 1"),
        ("RANK", "-1", "a number"),
        ("RANK", "one", "a number"),
        ("RANK", "", "a number"),
        ("SIZE", "0", "1 to 65536"),
        ("SIZE", "-2", "1 to 65536"),
        ("SIZE", "two", "1 to 65536"),
        ("SIZE", "65537", "1 to 65536"),
        ("TIMEOUT", "0", "positive"),
        ("TIMEOUT", "soon", "positive"),
        ("JOIN_TIMEOUT", "-1", "positive"),
        ("WAIT", "busy", "futex or pthread"),
    ];
    for (variable, value, allowed) in cases {
        let variable = format!("INTRANODE_{variable}");
        let told = told_by(|command| _ = command.env(&variable, value))?;
        let named = format!("InvalidConfiguration of {variable}");
        for part in [named.as_str(), value, allowed] {
            ensure!(told.contains(part), "{variable}={value} does not say {part}: {told}");
        }
    }
    Ok(())
}

fn missing_variables_are_named() -> Outcome {
    for variable in ["INTRANODE_NAME", "INTRANODE_RANK", "INTRANODE_SIZE"] {
        let told = told_by(|command| _ = command.env_remove(variable))?;
        let named = format!("InvalidConfiguration of {variable}");
        for part in [named.as_str(), "is not set; it must be"] {
            ensure!(told.contains(part), "without {variable} it does not say {part}: {told}");
        }
    }
    Ok(())
}

fn bad_arguments_are_named() -> Outcome {
    let (long, huge) = (format!("/{}", "x".repeat(300)), usize::MAX.to_string());
    let cases = [
        (Config::new("", 0, 1), "name", ""),
        (Config::new("job", 0, 1), "name", "job"),
        (Config::new("/", 0, 1), "name", "/"),
        (Config::new("/a/b", 0, 1), "name", "/a/b"),
        (Config::new(long.as_str(), 0, 1), "name", &long),
        (Config::new("/job", 2, 2), "rank", "2"),
        (Config::new("/job", usize::MAX, 2), "rank", &huge),
        (Config::new("/job", 0, 0), "size", "0"),
        (Config::new("/job", 0, 65_537), "size", "65537"),
        (Config::new("/job", 0, 1).timeout(Duration::ZERO), "timeout", "0"),
        (Config::new("/job", 0, 1).join_timeout(Duration::ZERO), "join_timeout", "0"),
        (Config::new("/job", 0, 1).chunk_bytes(0), "chunk_bytes", "0"),
        (Config::new("/job", 0, 1).chunk_bytes(100), "chunk_bytes", "100"),
    ];
    for (config, setting, value) in cases {
        let error = config.join().err().context("it joined")?;
        ensure!(error.to_string().contains(setting) && error.to_string().contains(value), "{error}");
        let Error::InvalidConfiguration(bad) = error else { anyhow::bail!("{error:?}") };
        let InvalidSetting { setting: named, value: shown, allowed, .. } = *bad;
        ensure!(named == setting && shown.as_deref() == Some(value) && !allowed.is_empty());
    }
    let error = intranode::threads(0, |_| ()).err().context("no ranks at all")?;
    ensure_matches!(error, Error::InvalidConfiguration(bad) if bad.setting == "size");
    let hasty = Config::new("/threads", 0, 2).timeout(Duration::ZERO);
    let error = intranode::threads_with(&hasty, |_| ()).err().context("no time at all")?;
    ensure_matches!(error, Error::InvalidConfiguration(bad) if bad.setting == "timeout");
    // The failed attempts do not affect later ones.
    let sums = intranode::threads(2, |comm| {
        let mut sum = [1];
        comm.allreduce_in_place(&mut sum, ReduceOp::Sum).map(|()| sum[0])
    })?;
    ensure!(sums.into_iter().collect::<Result<Vec<i32>, _>>()? == [2, 2]);
    Ok(())
}
