//! What `/proc` says of processes. Whatever has ended meanwhile is `None`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// Shared memory that a process has mapped from its beginning.
pub(super) struct Mapping {
    pub(super) start: u64,
    /// The device and the inode of its file.
    pub(super) file: (String, u64),
    /// A communicator that was split from a job has memory without a name.
    pub(super) is_memfd: bool,
}

/// A process at a moment.
#[derive(Clone, Copy)]
pub(super) struct Stat {
    /// `R`, `S`, `T`, …, as in proc(5).
    pub(super) state: char,
    /// Processor time, in clock ticks.
    pub(super) ticks: u64,
    /// The processor that it ran on last.
    pub(super) processor: u32,
}

pub(super) fn all() -> io::Result<Vec<u32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// A file about a process. Names in it need not be UTF-8: that of a process is cut after 15 bytes, also within a character.
fn text(pid: u32, file: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The shared mappings that may be segments.
pub(super) fn mappings(pid: u32) -> Vec<Mapping> {
    // Those of another user's process cannot be read.
    let maps = text(pid, "maps").unwrap_or_default();
    maps.lines().filter_map(mapping).collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.split_ascii_whitespace();
    let (range, permissions, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let (device, inode, path) = (fields.next()?, fields.next()?, fields.next()?);
    let is_memfd = path.starts_with("/memfd:intranode");
    let is_shared = permissions.ends_with('s') && (is_memfd || path.starts_with("/dev/shm/"));
    if !is_shared || offset.bytes().any(|digit| digit != b'0') {
        return None;
    }
    let start = u64::from_str_radix(range.split('-').next()?, 16).ok()?;
    Some(Mapping { start, file: (device.to_owned(), inode.parse().ok()?), is_memfd })
}

/// Copies from a process's memory.
pub(super) fn read_memory(pid: u32, from: u64, target: &mut [u8]) -> io::Result<()> {
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(target, from)
}

pub(super) fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&text(pid, "stat")?)
}

/// The fields, counted from 1 as in proc(5), begin with the third behind the program's name.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    let ticks = |number| field(number).and_then(|text| text.parse::<u64>().ok());
    Some(Stat {
        state: field(3)?.chars().next()?,
        ticks: ticks(14)? + ticks(15)?,
        processor: field(39)?.parse().ok()?,
    })
}

/// A value of `/proc/PID/status`.
fn status(pid: u32, name: &str) -> Option<String> {
    let text = text(pid, "status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// The memory that a process has in use, in bytes, with what it shares.
pub(super) fn memory(pid: u32) -> Option<u64> {
    let kib: u64 = status(pid, "VmRSS")?.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// The number of a process in its own PID namespace.
pub(super) fn own_pid(pid: u32) -> u32 {
    let all = status(pid, "NSpid");
    all.and_then(|all| all.split_ascii_whitespace().next_back()?.parse().ok()).unwrap_or(pid)
}

/// A variable with which a process was started.
pub(super) fn variable(pid: u32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut values = environment.split(|byte| *byte == 0).filter_map(|entry| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    });
    values.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_found_among_mappings() {
        let line =
            "7f1200000000-7f1200c03000 rw-s 00000000 00:18 4711                       /dev/shm/#4711 (deleted)";
        let found = mapping(line).expect("a segment");
        assert_eq!(
            (found.start, found.file, found.is_memfd),
            (0x7f12_0000_0000, ("00:18".to_owned(), 4711), false)
        );
        assert!(
            mapping(&line.replace("/dev/shm/#4711", "/memfd:intranode")).is_some_and(|found| found.is_memfd)
        );
        for (what, other) in [("rw-s", "rw-p"), ("s 00000000", "s 00001000"), ("/dev/shm/", "/tmp/")] {
            assert!(mapping(&line.replace(what, other)).is_none(), "{other}");
        }
    }

    #[test]
    fn this_process_is_described() {
        let own = std::process::id();
        // The state is that of its first thread, which waits for the one that runs the test, or runs it.
        assert!(matches!(stat(own).expect("it is alive").state, 'R' | 'S'));
        assert!(memory(own).expect("it has memory") > 1 << 16 && own_pid(own) > 0);
        let known = 42_u64;
        let mut copy = [0; 8];
        read_memory(own, (&raw const known).addr() as u64, &mut copy).expect("the own memory can be read");
        assert_eq!(u64::from_ne_bytes(copy), known);
        assert!(stat(u32::MAX).is_none() && parse_stat("1 (a) S 1").is_none());
    }
}
