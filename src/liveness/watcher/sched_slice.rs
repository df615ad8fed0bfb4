//! A short scheduler slice for the watcher's thread.
//!
//! A woken watcher should run at once: to poison, or, in a dying process, to end, since only then the kernel marks its
//! words. In an oversubscribed job it would wait until a computing rank's slice ends. EEVDF runs a thread with a short slice
//! earlier, without giving it more processor time in total; that needs no privilege.

use core::mem::size_of;

/// The shortest slice that the kernel grants, in nanoseconds.
const SHORTEST: u64 = 100_000;

/// Requests the shortest slice for the calling thread. Kernels before 6.12 ignore it.
pub(super) fn shorten() {
    // SAFETY: I7: a plain structure of integers, for which zeros are valid.
    let mut attributes: libc::sched_attr = unsafe { core::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: I7: it writes into a live structure of the stated size.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    // Another policy was chosen by the user: it stays.
    if read != 0 || attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.sched_runtime = SHORTEST;
    // SAFETY: I7: it reads a live structure, which states its size. A failure changes nothing.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> libc::sched_attr {
        // SAFETY: as in `shorten`.
        let mut attributes: libc::sched_attr = unsafe { core::mem::zeroed() };
        let size = size_of::<libc::sched_attr>() as u32;
        // SAFETY: as in `shorten`.
        unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
        attributes
    }

    #[test]
    fn only_the_slice_changes() {
        let compare = || {
            let before = attributes();
            shorten();
            let after = attributes();
            assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
            assert_eq!(after.sched_flags, before.sched_flags);
            // Older kernels report 0.
            assert!([0, SHORTEST].contains(&after.sched_runtime), "{}", after.sched_runtime);
        };
        std::thread::spawn(compare).join().unwrap();
    }
}
