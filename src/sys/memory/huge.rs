//! Transparent huge pages.

use std::io;

use super::mapping::Mapping;

/// The size and alignment of a huge page on x86-64, and on AArch64 with 4 KiB pages.
pub(crate) const ALIGN: usize = 2 << 20;

/// `MADV_COLLAPSE`, which the libc crate defines for glibc only.
#[cfg(target_os = "linux")]
const COLLAPSE: libc::c_int = 25;

/// Attempts to collapse a page range after EAGAIN.
#[cfg(target_os = "linux")]
const ATTEMPTS: usize = 4;

/// Requests huge pages for memory that is allocated or faulted in from now on.
#[cfg(target_os = "linux")]
pub(crate) fn advise(mapping: &Mapping) -> io::Result<()> {
    // SAFETY: I7: our own mapping; the advice does not change its contents.
    let result = unsafe { libc::madvise(mapping.start().cast(), mapping.len(), libc::MADV_HUGEPAGE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Replaces allocated pages by huge ones, as far as the system has any. Returns the bytes in huge pages.
#[cfg(target_os = "linux")]
pub(crate) fn collapse(mapping: &Mapping) -> io::Result<usize> {
    let (mut collapsed, mut last) = (0, io::Error::from_raw_os_error(libc::EINVAL));
    for offset in (0..mapping.len() / ALIGN).map(|page| page * ALIGN) {
        let start = mapping.start().wrapping_add(offset);
        for _ in 0..ATTEMPTS {
            // SAFETY: I7: a part of our own mapping; its contents do not change.
            if unsafe { libc::madvise(start.cast(), ALIGN, COLLAPSE) } == 0 {
                collapsed += ALIGN;
                break;
            }
            last = io::Error::last_os_error();
            if last.kind() != io::ErrorKind::WouldBlock {
                break;
            }
        }
        if collapsed == 0 {
            // If the first one fails, the system does not support it.
            return Err(last);
        }
    }
    Ok(collapsed)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn advise(_mapping: &Mapping) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn collapse(_mapping: &Mapping) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}
