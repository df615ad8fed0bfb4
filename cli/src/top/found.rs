//! The communicators of this machine, by the mappings of their ranks.

use std::collections::BTreeMap;
use std::io;

use anyhow::{Result, bail};
use intranode::job::observe::{Control, Seen};

use super::processes::{self, Mapping};

/// A communicator and the processes that have mapped its segment.
pub(super) struct Found {
    /// The device and the inode of its memory.
    pub(super) file: (String, u64),
    pub(super) name: String,
    /// Whether it was split from another.
    pub(super) is_split: bool,
    pub(super) control: Control,
    pub(super) members: Vec<Member>,
}

/// A process and where it has mapped the segment.
#[derive(Clone, Copy)]
pub(super) struct Member {
    pub(super) pid: u32,
    /// Its number in its own PID namespace, by which the segment knows it.
    pub(super) own_pid: u32,
    start: u64,
}

/// All that can be read.
///
/// # Errors
/// If there are segments, and none can be read.
pub(super) fn all() -> Result<Vec<Found>> {
    let mut by_file: BTreeMap<(String, u64), Found> = BTreeMap::new();
    let mut refused = Vec::new();
    for pid in processes::all()? {
        for mapping in processes::mappings(pid) {
            let member = Member { pid, own_pid: processes::own_pid(pid), start: mapping.start };
            if let Some(found) = by_file.get_mut(&mapping.file) {
                found.members.push(member);
                continue;
            }
            match control(pid, &mapping) {
                Ok(Some(control)) => {
                    let (name, is_split) = (name(pid), mapping.is_memfd);
                    let file = mapping.file.clone();
                    by_file
                        .insert(mapping.file, Found { file, name, is_split, control, members: vec![member] });
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused.push(pid),
                // It has ended, or unmapped it.
                Err(_) => {}
            }
        }
    }
    if let (true, [pid, ..]) = (by_file.is_empty(), refused.as_slice()) {
        bail!(
            "the kernel does not let this user read the memory of process {pid}, which may be a rank: run this command with \
             sudo, or allow it by sudo sysctl kernel.yama.ptrace_scope=0"
        );
    }
    let mut found: Vec<Found> = by_file.into_values().collect();
    // A job before what was split from it.
    found.sort_by(|one, other| (&one.name, one.is_split).cmp(&(&other.name, other.is_split)));
    Ok(found)
}

fn control(pid: u32, mapping: &Mapping) -> io::Result<Option<Control>> {
    let mut preamble = [0; Control::PREAMBLE_BYTES];
    processes::read_memory(pid, mapping.start, &mut preamble)?;
    Ok(Control::of(&preamble))
}

/// The name is in no segment; a launcher's jobs have none that a user has seen.
fn name(pid: u32) -> String {
    let given = ["INTRANODE_NAME", "COBRE_SHM_NAME"].iter().find_map(|name| processes::variable(pid, name));
    given.unwrap_or_else(|| "a job without a name".to_owned())
}

impl Found {
    /// Whether it is meant by a name, with or without its `/`, or by a process id.
    pub(super) fn is(&self, job: &str) -> bool {
        let named = self.name == job || self.name.strip_prefix('/') == Some(job);
        named || self.members.iter().any(|member| member.pid.to_string() == job)
    }

    /// What the segment says now, by the memory of the first member that is still there.
    pub(super) fn see(&self) -> Option<Seen> {
        let mut bytes = vec![0; self.control.bytes()];
        let read = |member: &Member| processes::read_memory(member.pid, member.start, &mut bytes).is_ok();
        self.members.iter().any(read).then(|| self.control.read(&bytes)).flatten()
    }

    /// Looks for processes that have mapped it since.
    pub(super) fn look_again(&mut self) {
        for pid in processes::all().unwrap_or_default() {
            let is_known = self.members.iter().any(|member| member.pid == pid);
            let mapping = processes::mappings(pid).into_iter().find(|mapping| mapping.file == self.file);
            if let (false, Some(Mapping { start, .. })) = (is_known, mapping) {
                self.members.push(Member { pid, own_pid: processes::own_pid(pid), start });
            }
        }
    }

    /// The process of a rank that calls itself `own_pid`.
    pub(super) fn member(&self, own_pid: u32) -> Option<&Member> {
        self.members.iter().find(|member| member.own_pid == own_pid)
    }
}
