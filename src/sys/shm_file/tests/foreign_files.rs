//! Files that are no segments of this library, or no longer.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;
use crate::sys::testing::{no_spawning, skipped, spawning};

#[test]
fn an_unsigned_file_is_not_touched() {
    let name = name("precious");
    let mut all_but_the_signature = vec![1; LEN];
    all_but_the_signature[..8].fill(0);
    for content in [b"precious".to_vec(), Vec::new(), vec![0; 100], vec![0; LEN], all_but_the_signature] {
        fs::write(shm(&name), &content).unwrap();
        let request = CreateRequest { is_segment: |bytes| bytes.starts_with(b"new!"), ..request(&name) };
        for mode in MODES {
            let _no_spawning = no_spawning();
            let error =
                super::super::create_in(Path::new(file::DIRECTORY), request, write_pid, &[mode]).unwrap_err();
            assert!(matches!(error, CreateError::Foreign { .. }), "{error:?}");
        }
        let error = super::super::open(&name, request.is_segment, signed, in_time(), None).unwrap_err();
        assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
        assert_eq!(fs::read(shm(&name)).unwrap(), content);
        fs::remove_file(shm(&name)).unwrap();
    }
}

/// The file begins like a segment, and another program has locked all of it.
#[test]
fn a_signed_file_that_another_program_has_locked_is_not_touched() {
    let name = name("locked");
    fs::write(shm(&name), b"new!").unwrap();
    let owner = File::options().write(true).open(shm(&name)).unwrap();
    let _no_spawning = no_spawning();
    assert!(lock::claim_all_for_tests(&owner));
    for mode in MODES {
        let error = create_in(Path::new(file::DIRECTORY), &name, write_pid, mode).unwrap_err();
        assert!(matches!(error, CreateError::Contended { .. }), "{error:?}");
    }
    assert_eq!(fs::read(shm(&name)).unwrap(), b"new!");
    drop(owner);
    drop(create_in(Path::new(file::DIRECTORY), &name, write_pid, CreateMode::Tmpfile).unwrap());
    assert!(!shm(&name).exists());
}

#[test]
fn other_kinds_of_files_are_refused_with_a_reason() {
    let name = name("odd");
    let path = shm(&name);
    let refusals = || {
        let created = create_signed(&name, CreateMode::Tmpfile).unwrap_err();
        let opened = open(&name, signed, in_time()).unwrap_err();
        match (created, opened) {
            (CreateError::Unusable(created), OpenError::Unusable(opened)) => [created, opened],
            other => panic!("{other:?}"),
        }
    };
    fs::create_dir(&path).unwrap();
    assert!(refusals().iter().all(|error| matches!(error, Unusable::NotRegular { .. })));
    fs::remove_dir(&path).unwrap();
    symlink("/etc/passwd", &path).unwrap();
    assert!(refusals().iter().all(|error| matches!(error, Unusable::NotRegular { .. })));
    fs::remove_file(&path).unwrap();
    let spawning = spawning();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    drop(spawning);
    assert!(refusals().iter().all(|error| matches!(error, Unusable::NotRegular { .. })));
    fs::remove_file(&path).unwrap();
    fs::write(&path, "x").unwrap();
    match std::os::unix::fs::chown(&path, Some(12345), None) {
        Ok(()) => {
            assert!(refusals().iter().all(|error| matches!(error, Unusable::Foreign { uid: 12345, .. })));
        }
        Err(error) => skipped(format_args!("another user's file: {error}")),
    }
    fs::remove_file(&path).unwrap();
}

/// FAULTS 27: what `validate` refuses is an error, without waiting.
#[test]
fn a_truncated_segment_is_refused() {
    let name = name("short");
    let created = create_signed(&name, CreateMode::Tmpfile).unwrap();
    File::options().write(true).open(shm(&name)).unwrap().set_len(100).unwrap();
    let error = open(&name, signed, in_time()).unwrap_err();
    assert!(matches!(error, OpenError::Rejected(100)), "{error:?}");
    drop(created);
}
