//! Running soon after having been woken.
//!
//! A watcher sleeps nearly always, and when it is woken nobody should wait for it: neither for those who watch to poison,
//! nor for those who die, whose watcher has to run in order to end. With more ranks than processors it may have to queue
//! behind ranks that compute, for as long as their slices last. Whoever asks for short slices is let in sooner, and gets
//! no more of the processor in all; that needs no privilege.

use core::mem::size_of;

/// The shortest slice that the kernel grants.
const SHORTEST: u64 = 100_000;

/// Asks for short slices for the calling thread. Kernels before 6.12 take no notice.
pub(super) fn shorten() {
    // SAFETY: I7: a plain structure of integers, for which zeros are valid.
    let mut attributes: libc::sched_attr = unsafe { core::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: I7: it writes into a live structure of the size that is stated.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    // Whoever has another policy has chosen it.
    if read != 0 || attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.sched_runtime = SHORTEST;
    // SAFETY: I7: it reads a live structure, which states its size. Where it is refused, nothing has changed.
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
    fn nothing_else_about_the_thread_changes() {
        let compare = || {
            let before = attributes();
            shorten();
            let after = attributes();
            assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
            assert_eq!(after.sched_flags, before.sched_flags);
            // Older kernels show none.
            assert!([0, SHORTEST].contains(&after.sched_runtime), "{}", after.sched_runtime);
        };
        std::thread::spawn(compare).join().unwrap();
    }
}
