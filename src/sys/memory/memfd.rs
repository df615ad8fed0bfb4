//! Sealed memfds: unlinked shared files, which cannot be truncated.
//!
//! A memfd exists as long as a process has it open or mapped. Other processes of the same user open it through the
//! creator's `/proc/<pid>/fd`. It does not count against the size of `/dev/shm`.

use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use crate::sys::descriptors::beyond_standard;
use crate::sys::file_size::without_sigxfsz;

/// Seals against truncation, which would raise SIGBUS in every process that has mapped the file, against growth, and
/// against further sealing.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A sealed file of `len` bytes, none of them allocated.
pub(crate) fn make(len: u64) -> io::Result<File> {
    sealed(len, c"intranode")
}

/// The same under a name by which others [`find`] it.
pub(super) fn make_named(len: u64, name: &str) -> io::Result<File> {
    sealed(len, &CString::new(name)?)
}

/// The same under any name.
pub(crate) fn sealed(len: u64, name: &CStr) -> io::Result<File> {
    let file = create(name)?;
    without_sigxfsz(|| file.set_len(len))?;
    // SAFETY: I7: touches no memory.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) };
    if result == 0 { Ok(file) } else { Err(io::Error::last_os_error()) }
}

fn create(name: &CStr) -> io::Result<File> {
    let create = |flags| {
        // SAFETY: I7: the name ends in NUL.
        let descriptor = unsafe { libc::memfd_create(name.as_ptr(), flags) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: I7: a descriptor that was just opened, and that has no other owner.
        beyond_standard(File::from(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    };
    // Where vm.memfd_noexec is 2, the flag is required. Kernels before 6.3 refuse it.
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    create(flags | libc::MFD_NOEXEC_SEAL).or_else(|_| create(flags))
}

/// Opens the file behind a descriptor of a process. It may be any file: the caller checks its identity, its length and
/// [`is_sealed`].
pub(super) fn open(process: u32, descriptor: RawFd) -> io::Result<File> {
    open_path(format!("/proc/{process}/fd/{descriptor}").as_ref())
}

/// Opens the sealed memfd of this name of a process, whatever its descriptor.
pub(super) fn find(process: u32, name: &str) -> io::Result<File> {
    let target = format!("/memfd:{name} (deleted)");
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        let path = entry?.path();
        // Other threads of that process close descriptors meanwhile.
        if fs::read_link(&path).is_ok_and(|link| link.as_os_str() == target.as_str()) {
            return open_path(&path).and_then(|file| match is_sealed(&file) {
                true => Ok(file),
                false => Err(io::ErrorKind::InvalidData.into()),
            });
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// The rest of a name that begins like this, of a memfd that a process has open.
pub(super) fn rest_of_name(process: u32, beginning: &str) -> io::Result<String> {
    let beginning = format!("/memfd:{beginning}");
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        let link = fs::read_link(entry?.path()).unwrap_or_default();
        let rest = link.to_str().and_then(|link| link.strip_prefix(&beginning)?.strip_suffix(" (deleted)"));
        if let Some(rest) = rest {
            return Ok(rest.to_owned());
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn open_path(path: &Path) -> io::Result<File> {
    // O_NONBLOCK: the process id may have been reused, and the file be a fifo.
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .and_then(beyond_standard)
}

/// Whether the file is sealed against truncation.
pub(crate) fn is_sealed(file: &File) -> bool {
    // SAFETY: I7: touches no memory.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & SEALS == SEALS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    use crate::sys::testing::{in_forked_child, is_closed_by_exec};

    #[test]
    fn a_sealed_file_can_be_opened_and_not_resized() {
        let file = make(8192).unwrap();
        let again = open(std::process::id(), file.as_raw_fd()).unwrap();
        assert_eq!(again.metadata().unwrap().ino(), file.metadata().unwrap().ino());
        assert!(is_sealed(&again) && is_closed_by_exec(&file));
        for len in [0, 4096, 8193] {
            assert_eq!(again.set_len(len).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        assert_eq!(file.metadata().unwrap().len(), 8192);
    }

    #[test]
    fn a_file_without_seals_is_detected() {
        assert!(!is_sealed(&create(c"intranode").unwrap()));
        let file = File::open("/dev/null").unwrap();
        assert!(!is_sealed(&file));
    }

    #[test]
    fn files_leave_the_numbers_of_the_standard_streams_free() {
        assert!(in_forked_child(|| {
            (0..=2).for_each(|number| _ = nix::unistd::close(number));
            make(8192).is_ok_and(|file| file.as_raw_fd() > 2)
        }));
    }
}
