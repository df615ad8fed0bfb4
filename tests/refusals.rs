//! What the system refuses has an error of its own. A filter of system calls holds for the thread that sets it, and for
//! those that it starts.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::io;
use std::thread;

use intranode::{Communicator, Config, Error, Operation};
use nix::errno::Errno;
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// From now on these calls of this thread fail with EAGAIN.
fn refuse(calls: &[libc::c_long]) {
    let rules: BTreeMap<_, _> = calls.iter().map(|call| (*call, vec![])).collect();
    let target = std::env::consts::ARCH.try_into().expect("a known architecture");
    let refused = SeccompAction::Errno(Errno::EAGAIN as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, target).expect("a filter");
    apply_filter(&BpfProgram::try_from(filter).expect("a program")).expect("filters are allowed");
}

fn assert_refused(source: &io::Error, text: &str) {
    assert_eq!(source.raw_os_error(), Some(libc::EAGAIN));
    assert!(text.contains(&source.to_string()), "{text}");
}

/// The error of ranks that are to be threads, where no thread can be started.
fn without_threads(config: Config) -> Error {
    let ranks = move || {
        refuse(&[libc::SYS_clone, libc::SYS_clone3]);
        intranode::threads_with(&config, |_| ()).expect_err("a thread was started")
    };
    thread::spawn(ranks).join().expect("no panic")
}

#[test]
fn a_thread_that_is_not_started_is_named() {
    let config = Config::new("/threads", 0, 2);
    // The first is the one that wakes the ranks so that they look again.
    for config in [config.clone(), config.timeout(None)] {
        let error = without_threads(config);
        assert_eq!(error.operation(), Operation::Init);
        assert!(error.is_fatal());
        match &error {
            Error::ThreadNotStarted { thread, source, .. } => {
                assert_eq!(&**thread, "intranode ticker");
                assert_refused(source, &error.to_string());
            }
            other => panic!("{other:?}"),
        }
    }
}

/// What two ranks say, of which rank 1 cannot change the protection of memory while `call` runs.
fn where_rank_1_cannot_protect(
    prepare: fn(&Communicator) -> Result<(), Error>,
) -> Vec<(Result<(), Error>, Result<(), Error>)> {
    intranode::threads(2, |comm| {
        if comm.rank() == 1 {
            refuse(&[libc::SYS_mprotect]);
        }
        (prepare(&comm), comm.barrier())
    })
    .expect("threads")
}

fn assert_protection_failed(result: &Result<(), Error>, of: Operation, len: usize) {
    match result {
        Err(error @ Error::ProtectionFailed { operation, rank: 1, bytes, source }) => {
            assert_eq!((*operation, error.operation()), (of, of));
            assert!(*bytes >= len, "{bytes} bytes");
            assert!(!error.is_fatal());
            assert_refused(source, &error.to_string());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn memory_that_cannot_be_published_is_an_error_of_its_rank_and_the_others_go_on() {
    let said = where_rank_1_cannot_protect(|comm| comm.region::<u64>(1000)?.publish().map(drop));
    assert!(
        matches!(said[0].0, Err(Error::Refused { operation: Operation::Publish, rank: 1, .. })),
        "{said:?}"
    );
    assert_protection_failed(&said[1].0, Operation::Publish, 8000);
    assert!(said.iter().all(|(_, barrier)| barrier.is_ok()), "{said:?}");
}

#[test]
fn an_exchange_that_cannot_be_protected_is_the_same_error_on_every_rank() {
    let said = where_rank_1_cannot_protect(|comm| comm.exchange::<u64>(&[1000, 1000]).map(drop));
    for (result, barrier) in &said {
        assert_protection_failed(result, Operation::Exchange, 2 * 2 * 8000);
        assert!(barrier.is_ok(), "{said:?}");
    }
}

#[test]
fn a_notifier_without_its_thread_is_an_error_and_messages_go_on() {
    let said = intranode::threads(1, |comm| {
        let mut messages = comm.messages()?;
        refuse(&[libc::SYS_clone, libc::SYS_clone3]);
        let refused = messages.notifier().expect_err("a thread was started");
        messages.send(&[7u8], 0, 1)?;
        let mut received = [0u8];
        messages.recv(&mut received, 0, 1)?;
        Ok::<_, Error>((refused, received))
    })
    .expect("threads");
    let Ok((error, [7])) = &said[0] else { panic!("{said:?}") };
    assert!(!error.is_fatal());
    match error {
        Error::NotifierRefused { operation: Operation::Messages, what: "the thread", source } => {
            assert_refused(source, &error.to_string());
        }
        other => panic!("{other:?}"),
    }
}
