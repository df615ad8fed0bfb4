//! membarrier(2): a fence of every thread of every process that has registered.

use core::sync::atomic::{AtomicBool, Ordering};

/// `MEMBARRIER_CMD_GLOBAL_EXPEDITED`: interrupts the processors on which registered processes run.
const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;

/// `MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED`.
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

/// Registers this process: from now on its threads are among those that [`all_registered`] fences. Returns whether the system
/// has the call, and allows it.
pub(crate) fn register() -> bool {
    call(REGISTER_GLOBAL_EXPEDITED) && call(GLOBAL_EXPEDITED)
}

/// Whether the system has refused a fence that it had promised.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Returns after every running thread of every registered process has executed a full fence.
pub(crate) fn all_registered() {
    // It has worked when the process registered. A rank of a process that has forbidden itself the call since may miss a wake-up,
    // and looks again at the end of its nap; who has no nap asks whether it was refused.
    if !call(GLOBAL_EXPEDITED) {
        REFUSED.store(true, Ordering::Relaxed);
    }
}

/// Whether [`all_registered`] was once refused: then it is no fence any more.
pub(crate) fn is_refused() -> bool {
    REFUSED.load(Ordering::Relaxed)
}

fn call(command: libc::c_int) -> bool {
    // SAFETY: I7: the call accesses no memory of the caller.
    let status = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    status == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_can_register_again() {
        assert_eq!(register(), register());
    }
}
