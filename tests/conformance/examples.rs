//! The example programs, over processes.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use libtest_mimic::Trial;

use crate::job::{Job, WAITS};
use crate::scenario::Outcome;

/// The programs, and the combined output of their ranks.
const EXAMPLES: [(&str, &str); 10] = [
    ("hello", "the ranks' numbers add up to 6\n"),
    ("pi", "3.14159265358"),
    ("primes", "78498 primes below 1000000, the last is 999983\n"),
    ("halo", "the same values as in one process, to the last bit\n"),
    ("work_queue", "837799 takes the most steps below 1000000: 524\n"),
    ("pipeline", "all items have come through, in order\n"),
    ("buffers", "the greatest eigenvalue is 4.0000\n"),
    ("ring", "the ranks add up to 6\n"),
    ("halo_messages", "the same values as in one process, to the last bit\n"),
    ("task_farm", "steps in all\n"),
];

/// One trial for each; ignored if the example has not been built.
pub(crate) fn trials() -> Vec<Trial> {
    let trial = |(example, prints): (&'static str, &'static str)| {
        let built = program(example).is_ok_and(|program| program.exists());
        let run = move || run(example, prints).map_err(|error| format!("{error:#}").into());
        Trial::test(format!("processes::example_{example}"), run).with_ignored_flag(!built)
    };
    EXAMPLES.map(trial).into()
}

fn program(example: &str) -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe()?;
    let profile = this.ancestors().nth(2).context("tests are two levels below the target directory")?;
    Ok(profile.join("examples").join(example))
}

fn run(example: &str, prints: &str) -> Outcome {
    let mut job = Job::new(4, WAITS[0]);
    for rank in 0..4 {
        job.start_program(rank, &program(example)?, |_| ())?;
    }
    job.finish(&[0; 4])?;
    let all = (0..4).map(|process| job.output(process)).collect::<Result<String, _>>()?;
    ensure!(all.contains(prints), "no {prints:?}: {all}");
    Ok(())
}
