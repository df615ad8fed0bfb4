//! What the other processes of these tests run.

use std::convert::Infallible;
use std::fs;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::SystemTime;

use super::*;
use crate::sys::testing::{self, LIMIT, next_line, role};

/// What the other processes of these tests run: one command a line, one answer a line.
#[test]
#[ignore = "other tests run it in a process of its own"]
fn helper() {
    match role().as_deref() {
        Some("rank") => serve(),
        Some("small") => match create_signed(&name("small"), CreateMode::Tmpfile) {
            Err(CreateError::NoSpace { requested, .. }) => {
                assert_eq!(fs::read_dir(file::DIRECTORY).unwrap().count(), 0);
                let exclusive = create_signed(&name("small"), CreateMode::Excl).unwrap_err();
                assert!(matches!(exclusive, CreateError::NoSpace { .. }));
                assert_eq!(fs::read_dir(file::DIRECTORY).unwrap().count(), 0);
                eprintln!("full: {requested}");
            }
            other => panic!("{other:?}"),
        },
        other => println!("not for running alone: {other:?}"),
    }
}

fn serve() {
    let mut kept = None;
    let mut joined = None;
    while let Some(line) = next_line() {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["ready"] => eprintln!("ready"),
            [verb @ ("create" | "exclusive"), name, start] => {
                await_start(start);
                match create_signed(name, if verb == "create" { CreateMode::Tmpfile } else { CreateMode::Excl })
                {
                    Ok(created) => {
                        kept = Some(created);
                        eprintln!("won {}", process::id());
                    }
                    Err(CreateError::Live { preamble }) => eprintln!("live {}", signature(&preamble)),
                    Err(error) => eprintln!("{error}"),
                }
            }
            ["open", name, start] => {
                await_start(start);
                match open(name, signed, in_time()) {
                    Ok(mapping) => {
                        eprintln!("joined {}", word(&mapping).load(Ordering::Acquire));
                        joined = Some(mapping);
                    }
                    Err(error) => eprintln!("{error}"),
                }
            }
            ["abandon"] => {
                if let Some(created) = kept.take() {
                    abandon(created);
                }
                joined = None;
                eprintln!("abandoned");
            }
            ["descriptors"] => eprintln!("{}", if has_descriptor() { "some" } else { "none" }),
            ["fork"] => eprintln!("forked {}", fork_sleeper()),
            ["alarmed", name, _] => eprintln!("{}", alarmed(name)),
            _ => eprintln!("unknown command {line:?}"),
        }
    }
    drop((kept, joined));
}

fn await_start(start: &str) {
    let start = SystemTime::UNIX_EPOCH + Duration::from_nanos(start.parse().unwrap());
    while SystemTime::now() < start {
        thread::yield_now();
    }
}

/// Whether a descriptor of this process refers to a file in the directory of segments.
fn has_descriptor() -> bool {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    descriptors
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .any(|target| target.starts_with(file::DIRECTORY))
}

/// A child that only sleeps, for the limit at most.
fn fork_sleeper() -> i32 {
    testing::fork(|| {
        // SAFETY: no memory is involved.
        unsafe { libc::sleep(LIMIT.as_secs() as u32) };
        true
    })
}

/// Creates large segments in a thread that gets a signal about every 100 µs.
fn alarmed(name: &str) -> String {
    static ALARMS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn count(_signal: libc::c_int) {
        ALARMS.fetch_add(1, Ordering::Relaxed);
    }
    let handler = count as extern "C" fn(libc::c_int);
    // SAFETY: a plain structure, for which zeros are valid: no flags, so that system calls are interrupted.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the handler only increments an atomic.
    assert_eq!(unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) }, 0);
    // SAFETY: no memory is involved.
    let thread = unsafe { libc::pthread_self() };
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: the scope's thread lives as long as this one.
                unsafe { libc::pthread_kill(thread, libc::SIGALRM) };
                thread::sleep(Duration::from_micros(100));
            }
        });
        let mut failures = (0..8).filter_map(|_| {
            let created = create(name, 64 << 20, write_pid);
            let opened = open(name, |_, _| Ok::<_, Infallible>(()), in_time());
            (created.is_err() || opened.is_err()).then(|| format!("{created:?} {opened:?}"))
        });
        let failure = failures.next();
        done.store(true, Ordering::Relaxed);
        failure.unwrap_or_else(|| format!("alarms {}", ALARMS.load(Ordering::Relaxed)))
    })
}
