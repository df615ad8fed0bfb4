//! Huge pages.

use std::io;

use super::mapping::Mapping;

/// What a huge page's addresses are multiples of, where they have the usual size. Others are not asked for.
pub(crate) const ALIGN: usize = 2 << 20;

/// What glibc calls `MADV_COLLAPSE`.
#[cfg(target_os = "linux")]
const COLLAPSE: libc::c_int = 25;

/// How often a stretch is tried for which there was no huge page at once.
#[cfg(target_os = "linux")]
const ATTEMPTS: usize = 4;

/// Asks for huge pages where memory is allocated from now on, or mapped.
#[cfg(target_os = "linux")]
pub(crate) fn advise(mapping: &Mapping) -> io::Result<()> {
    // SAFETY: I7: a mapping of ours; the advice does not change what is there.
    let result = unsafe { libc::madvise(mapping.start().cast(), mapping.len(), libc::MADV_HUGEPAGE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts huge pages in place of allocated ones, as far as the system has any. Returns how many bytes they hold now.
#[cfg(target_os = "linux")]
pub(crate) fn collapse(mapping: &Mapping) -> io::Result<usize> {
    let (mut held, mut last) = (0, io::Error::from_raw_os_error(libc::EINVAL));
    for offset in (0..mapping.len() / ALIGN).map(|page| page * ALIGN) {
        let stretch = mapping.start().wrapping_add(offset);
        for _ in 0..ATTEMPTS {
            // SAFETY: I7: a part of a mapping of ours; the bytes stay what they are.
            if unsafe { libc::madvise(stretch.cast(), ALIGN, COLLAPSE) } == 0 {
                held += ALIGN;
                break;
            }
            last = io::Error::last_os_error();
            if last.kind() != io::ErrorKind::WouldBlock {
                break;
            }
        }
        if held == 0 {
            // The first stretch decides whether it is possible at all.
            return Err(last);
        }
    }
    Ok(held)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn advise(_mapping: &Mapping) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn collapse(_mapping: &Mapping) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}
