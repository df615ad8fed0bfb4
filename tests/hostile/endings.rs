//! Steps that end handles, threads and processes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;

use intranode::Error;

use crate::program::{Act, Handle, Program};
use crate::worker::{Comm, Deliberate, Worker};

type Done = Option<Result<(), Error>>;

/// The status of a process that exits.
pub(crate) const EXIT: i32 = 33;

/// The status of an aborted job.
const ABORT: i32 = 34;

/// The status of a process whose rank panics.
const PANIC: i32 = 101;

/// The status of a killed process.
const KILLED: i32 = -9;

/// Whether a process may end with this status, as rank `rank` of the program. The program may have several reasons, and steps
/// that find their slot empty.
pub(crate) fn may_end(program: &Program, rank: usize, status: i32) -> bool {
    let threads = &program.threads[rank];
    let any = |is: fn(&Act) -> bool| threads.iter().flatten().any(|step| is(&step.act));
    match status {
        0 => true,
        EXIT => any(|act| matches!(act, Act::Exit)),
        ABORT => any(|act| matches!(act, Act::Abort { .. })),
        KILLED => program.killed.is_some_and(|(killed, _)| killed == rank),
        PANIC => threads[0].iter().any(|step| matches!(step.act, Act::Panic { caught: false, .. })),
        _ => false,
    }
}

/// Whether a process that ended with this status may have been inside a call.
pub(crate) fn may_be_inside_a_call(status: i32) -> bool {
    matches!(status, EXIT | ABORT | KILLED)
}

impl Worker<'_> {
    /// Takes the contents of a slot.
    fn take(&self, handle: Handle) -> Option<Box<dyn Any>> {
        fn any<T: 'static>(value: T) -> Box<dyn Any> {
            Box::new(value)
        }
        match handle {
            Handle::Comm(slot) => self.rank.comms[slot].take().map(any),
            Handle::Region(slot) => self.rank.regions[slot].take().map(any),
            Handle::Exchange(slot) => self.rank.exchanges[slot].take().map(any),
            Handle::Buffer(slot) => self.rank.buffers[slot].take().map(any),
            Handle::Symmetric(slot) => self.rank.symmetrics[slot].take().map(any),
        }
    }

    /// Leaves, if this is the last thread that uses the communicator.
    pub(crate) fn leave(&self, slot: usize) -> Done {
        let Comm { comm, .. } = Arc::into_inner(self.rank.comms[slot].take()?)?;
        let result = comm.leave();
        self.ensure(result.is_ok(), || format!("{result:?}"));
        None
    }

    pub(crate) fn drop(&self, handle: Handle) -> Done {
        drop(self.take(handle)?);
        None
    }

    pub(crate) fn forget(&self, handle: Handle) -> Done {
        std::mem::forget(self.take(handle)?);
        None
    }

    /// Panics while it holds the contents of the slot.
    pub(crate) fn panic(&self, handle: Handle, caught: bool) -> Done {
        let held = self.take(handle);
        let panic = move || {
            let _held = held;
            panic_any(Deliberate);
        };
        if !caught {
            panic();
        }
        let panicked = catch_unwind(AssertUnwindSafe(panic));
        self.ensure(panicked.is_err(), || "a panic was swallowed".to_owned());
        None
    }

    pub(crate) fn abort(&self, slot: usize) -> Done {
        self.comm(slot)?.comm.abort(ABORT);
    }
}
