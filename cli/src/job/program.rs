//! The check that the program can be started, before the first rank.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

/// The program cannot be started. The status is that of shells.
#[derive(Debug)]
pub(crate) struct CannotStart {
    program: OsString,
    reason: String,
    not_found: bool,
}

impl CannotStart {
    pub(crate) fn new(program: &OsStr, error: &io::Error) -> Self {
        Self {
            program: program.to_owned(),
            reason: error.to_string(),
            not_found: error.kind() == io::ErrorKind::NotFound,
        }
    }

    pub(crate) fn status(&self) -> u8 {
        if self.not_found { 127 } else { 126 }
    }
}

impl fmt::Display for CannotStart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cannot start {}: {}", self.program.display(), self.reason)
    }
}

impl std::error::Error for CannotStart {}

/// Searches as exec does, so that a wrong name is one message and not one from every rank.
pub(crate) fn check(program: &OsStr) -> Result<(), CannotStart> {
    match find(program, std::env::var_os("PATH").as_deref()) {
        Ok(()) => Ok(()),
        Err(error) => Err(CannotStart::new(program, &error.into())),
    }
}

fn find(program: &OsStr, path: Option<&OsStr>) -> Result<(), Errno> {
    if program.as_encoded_bytes().contains(&b'/') {
        return executable(Path::new(program));
    }
    // Not the directories of PATH.
    if program.is_empty() {
        return Err(Errno::ENOENT);
    }
    // Without PATH exec uses the system's default path.
    let Some(path) = path else { return Ok(()) };
    let mut outcome = Err(Errno::ENOENT);
    for directory in std::env::split_paths(path) {
        match executable(&candidate(&directory, program)) {
            Ok(()) => return Ok(()),
            Err(Errno::EACCES) => outcome = Err(Errno::EACCES),
            Err(_) => {}
        }
    }
    outcome
}

fn candidate(directory: &Path, program: &OsStr) -> PathBuf {
    // An empty entry of PATH is the working directory.
    if directory.as_os_str().is_empty() { Path::new(".").join(program) } else { directory.join(program) }
}

fn executable(file: &Path) -> Result<(), Errno> {
    access(file, AccessFlags::X_OK)?;
    if file.is_dir() { Err(Errno::EACCES) } else { Ok(()) }
}
