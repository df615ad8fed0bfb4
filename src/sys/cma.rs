//! Cross-memory attach (CMA): the kernel copies from another process's memory.

/// Fills `target` from address `from` of `process`. Returns false where the system does not allow it, or nothing is mapped
/// there.
#[cfg(target_os = "linux")]
pub(crate) fn read(process: u32, from: u64, target: &mut [u8]) -> bool {
    let Ok(process) = libc::pid_t::try_from(process) else { return false };
    let mut done = 0;
    while done < target.len() {
        let rest = &mut target[done..];
        let Some(from) = usize::try_from(from).ok().and_then(|from| from.checked_add(done)) else {
            return false;
        };
        let remote = libc::iovec { iov_base: core::ptr::without_provenance_mut(from), iov_len: rest.len() };
        let local = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        // SAFETY: I7 and I14: each list has one entry, and the local one is an exclusive slice.
        let copied = unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
        match usize::try_from(copied) {
            Ok(copied) if copied > 0 => done += copied,
            _ => return false,
        }
    }
    true
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn read(_: u32, _: u64, _: &mut [u8]) -> bool {
    false
}
