//! mmap(2), munmap(2) and the size of a page.

use std::io;
use std::os::fd::RawFd;
use std::ptr;

/// The size of a page.
pub(crate) fn page_size() -> usize {
    // SAFETY: I7: touches no memory.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Maps `len` bytes, readable and writable, at an address of the kernel's choice.
pub(super) fn map(len: usize, flags: libc::c_int, fd: RawFd) -> io::Result<*mut u8> {
    map_from(0, len, flags, fd)
}

/// The same from an offset on, which is a multiple of the page size.
pub(super) fn map_from(offset: libc::off_t, len: usize, flags: libc::c_int, fd: RawFd) -> io::Result<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: I7: a new mapping at an address of the kernel's choice replaces nothing.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, fd, offset) };
    if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(start.cast()) }
}

/// Maps `len` bytes of which only a part is to have memory.
///
/// A process that locks all that it maps from now on (mlockall) would be given memory for all of it, also for holes in a file. So nobody can
/// access it at first, for which the system allocates nothing, and it is not locked.
pub(crate) fn map_sparse(
    len: usize,
    access: libc::c_int,
    flags: libc::c_int,
    fd: RawFd,
) -> io::Result<*mut u8> {
    // SAFETY: I7: a new mapping at an address of the kernel's choice replaces nothing.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, fd, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // An error changes nothing: then it stays locked, which is the wish of the process.
    // SAFETY: I7: just mapped; its contents do not change.
    let _ = unsafe { libc::munlock(start, len) };
    // SAFETY: I7: just mapped, and nothing refers to it.
    if unsafe { libc::mprotect(start, len, access) } == 0 {
        return Ok(start.cast());
    }
    let error = io::Error::last_os_error();
    // SAFETY: I7: just mapped, and nothing refers to it.
    unsafe { unmap(start.cast(), len) };
    Err(error)
}

/// Unmaps what [`map`] mapped.
///
/// # Safety
/// `start` and `len` are those of one mapping of this process, which nothing uses any more.
pub(super) unsafe fn unmap(start: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    let result = unsafe { libc::munmap(start.cast(), len) };
    debug_assert_eq!(result, 0, "munmap: {}", io::Error::last_os_error());
}
