//! Control groups with a limit on memory, in which the processes of a test run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

/// The variable with the path of the group that a process enters.
const GROUP: &str = "TESTS_CONTROL_GROUP";

/// This process enters the group that it was told.
pub(crate) fn enter() -> Result<()> {
    let group = PathBuf::from(std::env::var(GROUP)?);
    Ok(fs::write(group.join("cgroup.procs"), std::process::id().to_string())?)
}

/// A control group below this process's own, with a limit on memory.
pub(crate) struct Group {
    path: PathBuf,
    version_1: bool,
}

impl Group {
    pub(crate) fn new(limit: usize) -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let path_of = |matches: fn(&str) -> bool| {
            let mut lines = own.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>());
            lines.find(|fields| fields.len() == 3 && matches(fields[1])).map(|fields| fields[2][1..].to_owned())
        };
        let first = path_of(|controllers| controllers.split(',').any(|controller| controller == "memory"));
        let (own, version_1) = match first {
            Some(path) => (Path::new("/sys/fs/cgroup/memory").join(path), true),
            None => {
                let path = path_of(str::is_empty).context("no control groups")?;
                (Path::new("/sys/fs/cgroup").join(path), false)
            }
        };
        let name = format!("tests-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let group = Group { path: own.join(name), version_1 };
        fs::create_dir(&group.path).with_context(|| group.path.display().to_string())?;
        let file = if version_1 { "memory.limit_in_bytes" } else { "memory.max" };
        fs::write(group.path.join(file), limit.to_string()).context(file)?;
        Ok(group)
    }

    /// Tells a process which group to enter.
    pub(crate) fn name_to<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env(GROUP, &self.path)
    }

    /// The peak of its memory usage.
    pub(crate) fn peak(&self) -> Result<u64> {
        let file = if self.version_1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        Ok(fs::read_to_string(self.path.join(file)).context(file)?.trim().parse()?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes have ended, but may not be reaped yet.
        for _ in 0..1000 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
