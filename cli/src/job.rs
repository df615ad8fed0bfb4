//! The life of a job: its name, its processes, its exit status.

mod cleanup;
mod descriptors;
mod failure;
pub(crate) mod guard;
mod output;
mod panic_message;
mod processors;
pub(crate) mod program;
pub(crate) mod rank;
mod signals;
mod supervisor;
mod terminal;

use std::ffi::OsString;
use std::io::{IsTerminal, stdin};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use failure::Failure;
use guard::Guard;
use output::Output;
use signals::Signals;
use supervisor::Supervisor;

use crate::report::{Ended, Files, Record};
use crate::say;

/// The exit status of the launcher's own failures, as in `env` and `timeout`: programs rarely use it.
pub(crate) const LAUNCHER_FAILED: u8 = 125;

/// The default time between SIGTERM and SIGKILL.
pub(crate) const KILL_AFTER: Duration = Duration::from_secs(5);

pub(crate) struct Job {
    /// The program, then its arguments.
    pub(crate) program: Vec<OsString>,
    pub(crate) ranks: u32,
    pub(crate) name: Option<String>,
    pub(crate) timeout: Option<String>,
    pub(crate) tag: bool,
    pub(crate) bind: bool,
    pub(crate) state: bool,
    pub(crate) kill_after: Duration,
    /// What is written at the end.
    pub(crate) files: Files,
}

impl Job {
    pub(crate) fn new(program: Vec<OsString>, ranks: u32) -> Self {
        Self {
            program,
            ranks,
            name: None,
            timeout: None,
            tag: false,
            bind: false,
            state: false,
            kill_after: KILL_AFTER,
            files: Files::default(),
        }
    }
}

/// Runs the job and returns its exit status: 0, or that of the rank that failed first.
pub(crate) fn run(job: &Job) -> Result<u8> {
    program::check(&job.program[0])?;
    let name = job.name.clone().unwrap_or_else(new_name);
    // Before the first file, and before the first rank is started, so that a signal during the start reaches all ranks.
    let signals = Signals::block()?;
    let record = Record::create(&job.files, &name, job.ranks)?;
    // Files under a name that the user chose are not removed: they may belong to another job.
    let own_name = job.name.is_none().then_some(name.as_str());

    let own_limit = descriptors::raise();
    let guard = Guard::start(own_name)?;
    let guarded_by = guard.descriptor().context("the guard has no pipe")?;
    let mut output = Output::new(job.tag);
    let mut supervisor = Supervisor::new(guard, job.kill_after);

    for rank in 0..job.ranks {
        let arguments = rank_arguments(job, rank, guarded_by, own_limit);
        let started = start(job, &name, rank, record.as_ref(), &arguments, &mut output);
        let mut child = started.with_context(|| format!("cannot start rank {rank}"))?;
        let input = child.stdin.take();
        supervisor.add(child)?;
        if let Some(input) = input {
            terminal::feed(input).context("cannot start a thread that reads the terminal")?;
        }
    }

    let printing = output.start()?;
    let failure = supervisor.until_all_ended(&signals)?;
    let (end_of_stderr, mut unwritten) = printing.finish(failure.as_ref().map(Failure::rank));
    if let Some(own_name) = own_name {
        cleanup::remove(own_name);
    }
    let told = failure.as_ref().map(|failure| {
        let panic = failure.may_be_a_panic().then(|| panic_message::find(&end_of_stderr)).flatten();
        format!("{failure}{}", panic.map_or(String::new(), |panic| format!(": {panic}")))
    });
    let status = failure.as_ref().map_or(0, Failure::status);
    if let Some(record) = record {
        let ended = Ended { program: &job.program, failure: told.as_deref(), status };
        unwritten.extend(record.write(&job.files, &ended));
    }
    // The last line says why the job has failed.
    let last = if told.is_none() { unwritten.pop() } else { None };
    unwritten.into_iter().for_each(|error| say::error(format_args!("{error:#}")));
    told.into_iter().for_each(say::error);
    last.map_or(Ok(status), Err)
}

/// What [`rank::become_program`] gets.
fn rank_arguments(job: &Job, rank: u32, guarded_by: i32, own_limit: Option<u64>) -> Vec<String> {
    let mut arguments = vec!["__rank".to_owned()];
    let mut add = |values: &[&dyn ToString]| arguments.extend(values.iter().map(|value| value.to_string()));
    add(&[&"--launcher", &std::process::id(), &"--guard", &guarded_by]);
    if job.bind {
        add(&[&"--bind", &rank, &job.ranks]);
    }
    if let Some(limit) = own_limit {
        add(&[&"--descriptors", &limit]);
    }
    arguments
}

/// Starts this program again as rank `rank`; [`rank::become_program`] makes the job's program out of it.
fn start(
    job: &Job,
    name: &str,
    rank: u32,
    record: Option<&Record>,
    arguments: &[String],
    output: &mut Output,
) -> Result<Child> {
    let itself = std::env::current_exe().context("cannot find the launcher's own file")?;
    let mut command = Command::new(itself);
    command.args(arguments).arg("--").args(&job.program);

    for prefix in ["INTRANODE", "COBRE_SHM"] {
        command.env(format!("{prefix}_NAME"), name);
        command.env(format!("{prefix}_RANK"), rank.to_string());
        command.env(format!("{prefix}_SIZE"), job.ranks.to_string());
        if let Some(seconds) = &job.timeout {
            command.env(format!("{prefix}_TIMEOUT"), seconds);
        }
    }
    // A choice among launchers, as of a user who mostly uses another one, does not hold for these ranks.
    command.env_remove("INTRANODE_LAUNCHER");
    match record {
        Some(record) => command.env("INTRANODE_REPORT", record.path()),
        // That of another job.
        None => command.env_remove("INTRANODE_REPORT"),
    };
    if job.state {
        command.env("INTRANODE_STATE", "1");
    }
    command.env("COBRE_COMM_BACKEND", "shm");
    for variable in ["RAYON_NUM_THREADS", "OMP_NUM_THREADS"] {
        if std::env::var_os(variable).is_none() {
            command.env(variable, processors::threads_per_rank(job.ranks).to_string());
        }
    }

    // A process group of its own: what a terminal or a shell sends to the launcher's group reaches the rank
    // once, through the launcher, and what the rank starts can be ended together with it.
    command.process_group(0);
    if rank != 0 {
        command.stdin(Stdio::null());
    } else if stdin().is_terminal() {
        // A process group in the background is stopped when it reads from the terminal.
        command.stdin(Stdio::piped());
    }
    let terminal = output.prepare(&mut command)?;
    let mut child = command.spawn().context("cannot start a process")?;
    output.add(rank, &mut child, terminal);
    Ok(child)
}

/// A name that no other job on this machine has, within the limit of every system (31 bytes).
fn new_name() -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The time tells apart jobs whose process ids are equal: after a wrap, or in two PID namespaces.
    let moment = since_epoch.as_nanos() as u32;
    format!("/intranode-{}-{moment:08x}", std::process::id())
}
