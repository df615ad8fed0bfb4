//! A segment from its first byte to the removal of its name.

use std::convert::Infallible;
use std::fs;
use std::process;
#[cfg(target_os = "linux")]
use std::process::Command;
use std::sync::atomic::Ordering;

use super::*;
#[cfg(target_os = "linux")]
use crate::sys::testing::{self, CHILD_LIMIT, command, prepare, spawning};
use crate::sys::testing::{Helper, skipped};

#[test]
fn a_created_segment_can_be_opened() {
    for mode in MODES {
        let name = name("open");
        let created = create_signed(&name, mode).unwrap();
        assert!(!created.reclaimed);
        assert_eq!(created.mapping.len(), LEN);
        let opened = open(&name, signed, in_time()).unwrap();
        assert_eq!(opened.len(), LEN);
        assert_eq!(word(&opened).load(Ordering::Acquire), process::id());
        word(&opened).store(77, Ordering::Relaxed);
        assert_eq!(word(&created.mapping).load(Ordering::Relaxed), 77);
        drop(created);
        assert!(!shm(&name).exists());
    }
}

#[test]
fn the_file_is_private_and_fully_allocated() {
    use std::os::unix::fs::MetadataExt;
    for mode in MODES {
        let name = name("allocated");
        let _created = create_signed(&name, mode).unwrap();
        let metadata = fs::metadata(shm(&name)).unwrap();
        assert_eq!(metadata.mode() & 0o777, 0o600);
        assert!(metadata.blocks() * 512 >= LEN as u64);
    }
}

/// Where the system has no call to allocate, zeros are written.
#[test]
fn what_is_allocated_is_signed() {
    for mode in MODES {
        let name = name("signed");
        let init = |mapping: &Mapping| {
            assert_eq!(word(mapping).load(Ordering::Relaxed).to_ne_bytes(), *request(&name).signature);
        };
        create_in(Path::new(file::DIRECTORY), &name, init, mode).unwrap();
    }
}

#[test]
fn the_name_never_refers_to_an_incomplete_segment() {
    for mode in MODES {
        let name = name("whole");
        let mut checked = false;
        let init = |mapping: &Mapping| {
            assert_eq!(last_seen(&name), LastSeen::Nothing);
            assert_eq!(other_files(&name).len(), usize::from(mode == CreateMode::Excl));
            checked = true;
            write_pid(mapping);
        };
        let created = create_in(Path::new(file::DIRECTORY), &name, init, mode).unwrap();
        assert!(shm(&name).exists());
        assert!(other_files(&name).is_empty());
        drop(created);
        assert!(checked);
    }
}

/// Its copy of the descriptor would keep the lock, and with it the name, after the creator's death.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn a_child_that_is_forked_meanwhile_does_not_keep_the_lock() {
    for mode in MODES {
        let name = name("forked");
        let _spawning = spawning();
        let mut child = 0;
        let fork = |mapping: &Mapping| {
            write_pid(mapping);
            child = testing::fork(|| {
                // SAFETY: touches no memory.
                unsafe { libc::pause() };
                false
            });
        };
        let created = create_in(Path::new(file::DIRECTORY), &name, fork, mode).unwrap();
        abandon(created);
        // Until the child has closed it.
        let limit = Instant::now() + CHILD_LIMIT / 2;
        let seen = loop {
            match open(&name, signed, soon()) {
                Ok(_) if Instant::now() < limit => {}
                seen => break seen,
            }
        };
        // SAFETY: touches no memory; the child is this test's own, which is waited for below only.
        unsafe { libc::kill(child, libc::SIGKILL) };
        testing::end_of(child);
        remove_leftover(&name, is_segment);
        assert!(matches!(seen, Err(OpenError::TimedOut { last: LastSeen::Stale, .. })), "{mode:?}: {seen:?}");
        assert!(!shm(&name).exists());
    }
}

#[test]
fn unlinking_frees_the_name_and_keeps_the_memory() {
    let name = name("unlink");
    let mut first = create_signed(&name, CreateMode::Tmpfile).unwrap();
    let joined = open(&name, signed, in_time()).unwrap();
    first.link.unlink().unwrap();
    assert!(!shm(&name).exists());
    let second = create_signed(&name, CreateMode::Tmpfile).unwrap();
    assert!(!second.reclaimed);
    word(&second.mapping).store(2, Ordering::Relaxed);
    word(&first.mapping).store(1, Ordering::Relaxed);
    assert_eq!(word(&joined).load(Ordering::Relaxed), 1);
    // The name belongs to the second one now.
    first.link.unlink().unwrap();
    drop(first);
    assert!(shm(&name).exists());
    drop(second);
    assert!(!shm(&name).exists());
}

#[test]
fn a_name_that_refers_to_another_file_by_now_is_not_removed() {
    for mode in MODES {
        let name = name("replaced");
        let mut created = create_signed(&name, mode).unwrap();
        fs::remove_file(shm(&name)).unwrap();
        fs::write(shm(&name), "something else").unwrap();
        created.link.unlink().unwrap();
        assert_eq!(fs::read(shm(&name)).unwrap(), b"something else");
        drop(created);
        fs::remove_file(shm(&name)).unwrap();
    }
}

/// FAULTS 28.
#[test]
fn signals_do_not_disturb_the_allocation() {
    let name = name("signals");
    let mut helper = Helper::start(HELPER, "rank");
    helper.send(&format!("alarmed {name} 0"));
    let answer = helper.answer();
    let alarms: u32 = answer.strip_prefix("alarms ").unwrap_or_else(|| panic!("{answer}")).parse().unwrap();
    assert!(alarms > 10, "{alarms} alarms");
    assert!(!shm(&name).exists());
}

/// Some kernels undo an allocation that a signal interrupts; then only short steps succeed.
#[test]
#[cfg(target_os = "linux")]
fn steps_shrink_until_they_fit_between_two_signals() {
    let len = (40 << 20) + 12345;
    let (mut done, mut refused) = (0, 0);
    let result = file::in_steps(len, |offset, size| {
        assert_eq!(offset, done);
        if size > 100 << 10 {
            refused += 1;
            assert!(refused < 1000, "no progress");
            return Err(io::ErrorKind::Interrupted.into());
        }
        done += size;
        Ok(())
    });
    result.unwrap();
    assert_eq!(done, len);
    assert!(refused > 8);
}

/// FAULTS 19, in a mount namespace with a /dev/shm of its own.
#[test]
#[cfg(target_os = "linux")]
fn a_full_dev_shm_is_an_error_with_the_requested_size() {
    const UNABLE: i32 = 77;
    let script = format!("mount -t tmpfs -o size=64k none /dev/shm || exit {UNABLE}; exec \"$@\"");
    let test = command(HELPER, "small");
    let run = |flags: &str| {
        let mut command = Command::new("unshare");
        command.arg(flags).args(["sh", "-c", &script, "sh"]).arg(test.get_program());
        prepare(&mut command, HELPER, "small");
        let _spawning = spawning();
        command.output()
    };
    let output = match (run("-m"), run("-rm")) {
        (Ok(output), _) | (_, Ok(output)) if output.status.success() => output,
        (Ok(privileged), Ok(output)) if output.status.code() != Some(101) => {
            let reason = String::from_utf8_lossy(&privileged.stderr);
            return skipped(format_args!("no mount namespace: {reason}"));
        }
        (Ok(_), Ok(output)) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        (Err(error), _) | (_, Err(error)) => return skipped(format_args!("unshare: {error}")),
    };
    assert!(String::from_utf8_lossy(&output.stderr).contains("full: 262144"), "{output:?}");
}

/// FAULTS 21.
#[test]
fn more_than_the_memory_limit_is_refused_before_anything_is_allocated() {
    let name = name("limit");
    let Some(headroom) = headroom::min_headroom() else {
        return skipped("no memory limit is known (the arithmetic has tests of its own)");
    };
    let len = headroom.bytes as usize + (4 << 30);
    let error = create(&name, len, |_| panic!("was allocated")).unwrap_err();
    assert!(matches!(error, CreateError::Memory { requested, .. } if requested == len), "{error:?}");
    assert!(!shm(&name).exists());
}

#[test]
fn invalid_names_are_refused() {
    let long = format!("/{}", "x".repeat(255));
    for name in ["", "x", "/", "/a/b", "//", "/.", "/..", "/a\0b", "../x", &long] {
        assert!(
            matches!(create_signed(name, CreateMode::Tmpfile), Err(CreateError::Unusable(Unusable::Name))),
            "{name}"
        );
        let opened = open(name, |_, _| Ok::<_, Infallible>(()), in_time());
        assert!(matches!(opened, Err(OpenError::Unusable(Unusable::Name))), "{name}");
    }
}
