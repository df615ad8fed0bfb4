//! Processes as the system describes them: who started this one, and who is at the other end of a socket.

use std::fs;

#[cfg(target_os = "linux")]
use std::mem::MaybeUninit;

/// The effective user of this process.
pub(crate) fn user() -> u32 {
    // SAFETY: I7: always succeeds, and touches no memory.
    unsafe { libc::geteuid() }
}

/// Whether this number of a user, which the system has told of another process, can only be that of this process's own user. In a
/// user namespace all users without a number of their own there are shown by the same one; where this process's user is one of
/// them, anybody else may be meant.
#[cfg(target_os = "linux")]
pub(crate) fn is_own_user(other: u32) -> bool {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let stands_for_many = || {
        let shown = read("/proc/sys/kernel/overflowuid").trim().parse().unwrap_or(NOBODY);
        other == shown && !has_all_users(&read("/proc/self/uid_map"))
    };
    other == user() && !stands_for_many()
}

/// The usual number for users without one.
#[cfg(target_os = "linux")]
const NOBODY: u32 = 65_534;

/// Whether each user has a number, by the table of a user namespace: in the first one, and in others like it.
#[cfg(target_os = "linux")]
fn has_all_users(table: &str) -> bool {
    let lengths = table.lines().filter_map(|line| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok());
    lengths.sum::<u64>() >= u32::MAX.into()
}

/// The process that has made the socket pair that this descriptor is an end of, or that listened at it. `None` if the
/// descriptor is no such socket, or that process has no number in this PID namespace.
#[cfg(target_os = "linux")]
pub(crate) fn peer(descriptor: i32) -> Option<u32> {
    let mut credentials = MaybeUninit::<libc::ucred>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).ok()?;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: I7: the system writes `length` bytes at most, which is the size of the structure.
    let result = unsafe {
        libc::getsockopt(descriptor, level, option, credentials.as_mut_ptr().cast(), &raw mut length)
    };
    if result != 0 {
        return None;
    }
    // SAFETY: I7: integers, which were zeros before the call.
    let credentials = unsafe { credentials.assume_init() };
    u32::try_from(credentials.pid).ok().filter(|pid| *pid != 0)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn peer(_descriptor: i32) -> Option<u32> {
    None
}

/// When a process started, in the system's ticks since it was booted: with its number it identifies a process. `None` if
/// there is none, or the system does not tell.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    stat_field(&stat(pid)?, START_TIME)
}

/// The nearest ancestor of this process that was not started with this variable, which its descendants have: the process
/// that has set it, and how many generations above this one it is, 1 for the parent. `None` if the system does not tell.
pub(crate) fn setter_of(variable: &str) -> Option<(u32, usize)> {
    let mut pid = std::process::id();
    let mut generations = 0;
    loop {
        generations += 1;
        pid = stat_field(&stat(pid)?, PARENT).and_then(|parent| u32::try_from(parent).ok())?;
        // 0: of another PID namespace.
        if pid == 0 {
            return None;
        }
        // What cannot be read belongs to another user, who is no rank of this job.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if !has_variable(&environment, variable) {
            return Some((pid, generations));
        }
    }
}

/// The fields of `/proc/PID/stat`, counted from 1 as in proc(5).
const PARENT: usize = 4;
const START_TIME: usize = 22;

fn stat(pid: u32) -> Option<String> {
    // Not UTF-8 if the program's name was cut within a character.
    fs::read(format!("/proc/{pid}/stat")).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The second field is the program's name in parentheses, which may contain anything.
fn stat_field(stat: &str, field: usize) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(field - 3)?.parse().ok()
}

fn has_variable(environment: &[u8], name: &str) -> bool {
    let is_it =
        |entry: &[u8]| entry.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='));
    environment.split(|byte| *byte == 0).any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "42 (a) 7 (b)) S 17 42 42 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 12345 9 9";
        assert_eq!((stat_field(stat, PARENT), stat_field(stat, START_TIME)), (Some(17), Some(12345)));
        assert_eq!(stat_field("42 (a", PARENT), None);
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let environment = b"RANKS=2\0LOCAL_RANK=1\0EMPTY=\0";
        assert!(has_variable(environment, "LOCAL_RANK") && has_variable(environment, "EMPTY"));
        assert!(!has_variable(environment, "RANK") && !has_variable(environment, "LOCAL"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_user_is_ones_own_by_its_number_where_all_have_one() {
        assert!(has_all_users("         0          0 4294967295\n"));
        for some in ["", "0 1000 1\n", "0 1000 1\n1 100000 65536\n", "nonsense"] {
            assert!(!has_all_users(some), "{some:?}");
        }
        assert!(user() == NOBODY || is_own_user(user()));
        assert!(!is_own_user(user() ^ 1));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_peer_of_a_socket_pair_is_its_maker() {
        use std::os::fd::AsRawFd;
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
        assert_eq!(peer(one.as_raw_fd()), Some(std::process::id()));
        let file = fs::File::open("/dev/null").expect("/dev/null");
        assert_eq!((peer(file.as_raw_fd()), peer(-1)), (None, None));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_is_described_whatever_its_name() {
        let name = fs::read("/proc/self/comm").expect("its own name");
        // As the kernel cuts a name after 15 bytes.
        fs::write("/proc/self/comm", "fünfzehnbytesü".as_bytes().split_at(15).0).expect("its own name");
        let own = start_time(std::process::id());
        fs::write("/proc/self/comm", &name[..name.len() - 1]).expect("its own name");
        assert!(own.is_some());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn processes_have_start_times_and_ancestors() {
        let own = start_time(std::process::id()).expect("this process is alive");
        let (parent, generations) = setter_of("INTRANODE_NOBODY_SETS_THIS").expect("it has a parent");
        assert_eq!(generations, 1);
        assert!(start_time(parent).expect("the parent is alive") <= own);
        assert_eq!(start_time(u32::MAX), None);
    }
}
