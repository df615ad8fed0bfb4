//! How much memory this process may still use.
//!
//! Exceeding the memory limit of a control group is no error: the kernel kills the process. So the limits are read before
//! each large allocation.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::codes::codes;

codes! {
    /// What limits an allocation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Limit: u32 {
        /// The memory limit of the control group.
        ControlGroup = 1,
        /// The machine's memory.
        Machine = 2,
        /// The file system of named shared memory.
        FileSystem = 3,
        /// The address space of a process.
        AddressSpace = 4,
        /// RLIMIT_FSIZE.
        FileSize = 5,
        /// RLIMIT_AS.
        Mapped = 6,
        /// RLIMIT_DATA.
        Data = 7,
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::ControlGroup => "the control group's memory limit",
            Limit::Machine => "the machine's memory",
            Limit::FileSystem => "the file system of shared memory",
            Limit::AddressSpace => "a process's address space",
            Limit::FileSize => "the limit on the size of files (RLIMIT_FSIZE, ulimit -f)",
            Limit::Mapped => "the limit on what a process maps (RLIMIT_AS, ulimit -v)",
            Limit::Data => "the limit on a process's data (RLIMIT_DATA, ulimit -d)",
        })
    }
}

/// The number of bytes that a limit leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headroom {
    pub(crate) bytes: u64,
    pub(crate) limit: Limit,
}

/// The smallest headroom, among the limits that hold for all memory.
pub(crate) fn min_headroom() -> Option<Headroom> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine(&text));
    let group = available().map(|bytes| Headroom { bytes, limit: Limit::ControlGroup });
    let machine = machine.map(|bytes| Headroom { bytes, limit: Limit::Machine });
    group.into_iter().chain(machine).min_by_key(|headroom| headroom.bytes)
}

/// `MemAvailable` of `/proc/meminfo`: what can be allocated without swapping.
fn machine(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Whether the system promises no more memory than it has. Then a page may be refused, by SIGBUS, when it is first used. If the file
/// cannot be read: it does not.
#[cfg(target_os = "linux")]
pub(crate) fn overcommit_is_strict() -> bool {
    fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() == "2")
}

/// Limits above this mean "none": cgroup v1 writes the largest number of pages.
const NO_LIMIT: u64 = 1 << 60;

/// The names of the files and statistics, which differ between cgroup v1 and v2.
struct CgroupFiles {
    limit: &'static str,
    usage: &'static str,
    /// The reclaimable part of the usage: file pages. Shared memory is not among them.
    cache: [&'static str; 2],
}

const V2: CgroupFiles =
    CgroupFiles { limit: "memory.max", usage: "memory.current", cache: ["inactive_file", "active_file"] };
const V1: CgroupFiles = CgroupFiles {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: ["total_inactive_file", "total_active_file"],
};

/// The headroom of this process's control groups, in bytes. None: no limit is known.
///
/// Swap does not count: shared memory that fits only by swapping is useless.
fn available() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    available_under(Path::new("/sys/fs/cgroup"), &groups)
}

/// As [`available`], for control groups that are mounted at `root`, and a text of `/proc/self/cgroup`.
fn available_under(root: &Path, proc_self_cgroup: &str) -> Option<u64> {
    proc_self_cgroup
        .lines()
        .filter_map(|line| group(root, line))
        .filter_map(|(mount, path, files)| {
            // Each level of the hierarchy has a limit. In a container the group may be mounted as the root, so that the
            // path in /proc does not exist below the mount: then only the root is read.
            mount
                .join(&path)
                .ancestors()
                .take_while(|level| level.starts_with(&mount))
                .filter_map(|level| remaining(level, files))
                .min()
        })
        .min()
}

/// For a line of `/proc/self/cgroup`: the mount of the memory controller, the group's path in it, and the files' names.
fn group(root: &Path, line: &str) -> Option<(PathBuf, PathBuf, &'static CgroupFiles)> {
    let mut fields = line.splitn(3, ':');
    let (hierarchy, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let path: PathBuf =
        Path::new(path).components().filter(|part| matches!(part, std::path::Component::Normal(_))).collect();
    if controllers.split(',').any(|controller| controller == "memory") {
        Some((root.join("memory"), path, &V1))
    } else if hierarchy == "0" && controllers.is_empty() {
        let unified = root.join("unified");
        Some((if unified.is_dir() { unified } else { root.to_owned() }, path, &V2))
    } else {
        None
    }
}

/// The headroom of one level of the hierarchy.
fn remaining(level: &Path, files: &CgroupFiles) -> Option<u64> {
    let number = |name| fs::read_to_string(level.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number(files.limit).filter(|limit| *limit < NO_LIMIT)?;
    let statistics = fs::read_to_string(level.join("memory.stat")).unwrap_or_default();
    let cache = statistics
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(key, _)| files.cache.contains(key))
        .filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok())
        .fold(0u64, u64::saturating_add);
    let usage = number(files.usage).unwrap_or(0).saturating_sub(cache);
    Some(limit.saturating_sub(usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory like /sys/fs/cgroup, removed on drop.
    struct FakeCgroups(PathBuf);

    impl FakeCgroups {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("cgroup-{}-{name}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            FakeCgroups(root)
        }
    }

    impl Drop for FakeCgroups {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn available_memory_is_read_from_meminfo() {
        let text =
            "MemTotal:       32768000 kB\nMemFree:          100 kB\nMemAvailable:   20480 kB\nBuffers: 1 kB\n";
        assert_eq!(machine(text), Some(20480 * 1024));
        for text in ["", "MemAvailable:", "MemAvailable: many kB", "MemAvailable: 5", "MemFree: 5 kB"] {
            assert_eq!(machine(text), None, "{text:?}");
        }
        assert_eq!(machine(&format!("MemAvailable: {} kB", u64::MAX)), None);
    }

    #[test]
    fn version_2_takes_the_smallest_headroom_of_all_levels() {
        let fake = FakeCgroups::new(
            "v2",
            &[
                ("a/memory.max", "1000\n"),
                ("a/memory.current", "900\n"),
                ("a/b/memory.max", "500\n"),
                ("a/b/memory.current", "100\n"),
                ("a/b/c/memory.max", "max\n"),
                ("a/b/c/memory.current", "50\n"),
            ],
        );
        assert_eq!(available_under(&fake.0, "0::/a/b/c\n"), Some(100));
        assert_eq!(available_under(&fake.0, "0::/a\n"), Some(100));
        assert_eq!(available_under(&fake.0, "0::/\n"), None);
    }

    #[test]
    fn file_pages_count_as_free() {
        let fake = FakeCgroups::new(
            "cache",
            &[
                ("memory.max", "1000\n"),
                ("memory.current", "990\n"),
                ("memory.stat", "anon 500\nfile 400\nshmem 90\ninactive_file 300\nactive_file 100\nslab 7\n"),
            ],
        );
        assert_eq!(available_under(&fake.0, "0::/\n"), Some(1000 - 990 + 400));
    }

    #[test]
    fn version_1_takes_the_memory_hierarchy() {
        let fake = FakeCgroups::new(
            "v1",
            &[
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/memory.usage_in_bytes", "123456\n"),
                ("memory/job/memory.limit_in_bytes", "4096\n"),
                ("memory/job/memory.usage_in_bytes", "4000\n"),
                (
                    "memory/job/memory.stat",
                    "inactive_file 1\nactive_file 2\ntotal_inactive_file 10\ntotal_active_file 20\n",
                ),
                ("unified/cgroup.procs", ""),
            ],
        );
        let groups = "5:devices:/\n4:cpu,memory:/job\n1:name=systemd:/x\n0::/\n";
        assert_eq!(available_under(&fake.0, groups), Some(4096 - 4000 + 30));
        assert_eq!(available_under(&fake.0, "4:memory:/\n0::/\n"), None);
    }

    #[test]
    fn a_group_that_is_mounted_as_the_root_is_found() {
        let fake = FakeCgroups::new("container", &[("memory.max", "800\n"), ("memory.current", "300\n")]);
        assert_eq!(available_under(&fake.0, "0::/system.slice/docker-0123.scope\n"), Some(500));
        assert_eq!(available_under(&fake.0, "0::/../other\n"), Some(500));
    }

    #[test]
    fn a_group_over_its_limit_has_no_headroom() {
        let fake = FakeCgroups::new("over", &[("memory.max", "100\n"), ("memory.current", "300\n")]);
        assert_eq!(available_under(&fake.0, "0::/\n"), Some(0));
    }

    #[test]
    fn an_unreadable_limit_is_no_limit() {
        let fake = FakeCgroups::new("odd", &[("memory.max", "plenty\n"), ("x", "")]);
        for groups in ["", "\n", "0::", "0::/\n", "::::\n", "4:memory\n", "1:memory:/nowhere\n"] {
            assert_eq!(available_under(&fake.0, groups), None, "{groups:?}");
        }
        assert_eq!(available_under(Path::new("/nowhere at all"), "0::/\n"), None);
    }

    #[test]
    fn arithmetic_saturates() {
        let fake = FakeCgroups::new(
            "huge",
            &[
                ("memory.max", "5000"),
                ("memory.current", "18446744073709551615"),
                ("memory.stat", "inactive_file 18446744073709551615\nactive_file 18446744073709551615\n"),
            ],
        );
        assert_eq!(available_under(&fake.0, "0::/\n"), Some(5000));
    }
}
