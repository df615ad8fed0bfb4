//! A descriptor that becomes readable when a rank's messages need it: for event loops.
//!
//! Ranks are woken by a word in shared memory, the bell, and no descriptor can be shared without a connection between the
//! processes. So a thread of this rank sleeps on the bell, in the way in which this communicator's ranks sleep, and writes a
//! byte to a pair of sockets. It does so only while the notifier is armed. A thread of its own, and not the watcher's: there is
//! one wherever ranks can sleep, between threads and without futexes too, and a death is noticed however much comes.

use std::fmt;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::error::{Error, Operation};
use crate::message::core::Core;
use crate::segment::platform::Fences;
use crate::sys::thread_signals;

/// It sleeps and makes system calls.
const STACK: usize = 64 << 10;

/// A descriptor that becomes readable when something has happened to a rank's [`Messages`](crate::Messages): for event loops
/// that wait for other things too. [`Messages::notifier`](crate::Messages::notifier) makes it.
///
/// What has happened may be that a message has come, that a long one was received, that a channel has room again, that a receive
/// was dropped whose message others may get, or that a rank has left or died: whatever could let a call succeed, or fail, that
/// would have waited before. The descriptor says that *something* may have happened, perhaps also when nothing has. A loop goes
/// through these steps:
///
/// 1. [`arm`](Notifier::arm): the descriptor is not readable any more, until something happens from now on.
/// 2. Look at everything that is waited for, without waiting: [`test`](crate::Messages::test),
///    [`try_probe`](crate::Messages::try_probe), [`take`](crate::Messages::take), [`try_send`](crate::Messages::try_send). If
///    there was something to do, go back to 1. What has happened before `arm` is found here.
/// 3. Wait for the descriptor by `poll` or its like, level-triggered or edge-triggered, and go back to 1.
///
/// A loop that is busy can look first, and arm only when it finds nothing; then it has to look once more. While a notifier is
/// armed, the next rank that sends makes one system call, as for a receiver that sleeps; then none until it is armed again.
///
/// Where ranks rely on membarrier(2), which may leave out one of them, the first look after something has happened may miss that. So the
/// descriptor becomes readable once more 10 ms after it was armed, unless it was armed before and nothing has happened since.
///
/// It takes a thread with a stack of 64 KiB, and two descriptors. It may be dropped before or after the messages.
///
/// ```
/// use intranode::{Communicator, Error, Source, Tag};
/// use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
/// use std::os::fd::AsFd;
///
/// fn await_one(comm: &Communicator) -> Result<u64, Error> {
///     let mut messages = comm.messages()?;
///     if comm.rank() == 0 {
///         messages.send(&[42u64], 1, 7)?;
///         return Ok(42);
///     }
///     let notifier = messages.notifier()?;
///     loop {
///         notifier.arm()?;
///         if let Some(message) = messages.take(Source::Any, Tag::Any)? {
///             let mut data = [0u64];
///             messages.recv_taken(message, &mut data)?;
///             return Ok(data[0]);
///         }
///         // Here with whatever else the loop waits for.
///         poll(&mut [PollFd::new(notifier.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE).expect("a descriptor");
///     }
/// }
///
/// let received = intranode::threads(2, |comm| await_one(&comm))?;
/// assert!(received.into_iter().all(|data| matches!(data, Ok(42))));
/// # Ok::<(), intranode::Error>(())
/// ```
pub struct Notifier {
    bridge: Arc<Bridge>,
    readable: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// What the thread shares with the notifier.
struct Bridge {
    core: Arc<Core>,
    order: Mutex<Order>,
    changed: Condvar,
    writable: UnixStream,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// It is not armed.
    Idle,
    /// To say when the bell is not this any more.
    Await(u32),
    End,
}

impl Notifier {
    pub(crate) fn start(core: &Arc<Core>) -> Result<Self, Error> {
        let refused =
            |what| move |source| Error::NotifierRefused { operation: Operation::Messages, what, source };
        let (readable, writable) = UnixStream::pair().map_err(refused("the descriptors"))?;
        for end in [&readable, &writable] {
            end.set_nonblocking(true).map_err(refused("the descriptors"))?;
        }
        let (core, order, changed) = (Arc::clone(core), Mutex::new(Order::Idle), Condvar::new());
        let bridge = Arc::new(Bridge { core, order, changed, writable });
        // The kernel truncates names to 15 bytes.
        let builder = Builder::new().name("intranode-notify".to_owned()).stack_size(STACK);
        let of_thread = Arc::clone(&bridge);
        let thread = thread_signals::blocked(|| builder.spawn(move || of_thread.run()));
        let thread = Some(thread.map_err(refused("the thread"))?);
        Ok(Notifier { bridge, readable, thread })
    }

    /// From now on the descriptor is readable only once something has happened. What has happened before is to be looked for
    /// afterwards. Not collective. Example: [`Notifier`].
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn arm(&self) -> Result<(), Error> {
        let core = &self.bridge.core;
        core.check_rank(Operation::Messages, None)?;
        // First: what is written from the mark on must stay.
        self.drain();
        let seen = core.post().mark();
        *self.bridge.order() = Order::Await(seen);
        self.bridge.changed.notify_one();
        Ok(())
    }

    fn drain(&self) {
        let mut bytes = [0; 64];
        // An end, or an error, means that there is nothing to be read.
        while matches!((&self.readable).read(&mut bytes), Ok(64..)) {}
    }
}

impl Bridge {
    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut order = self.order();
        // A bell whose mark every other rank sees by now. The fence may not have reached all of them (I3), and the look behind it may have
        // missed what such a rank has sent: so the program looks once more after a nap.
        let mut seen_by_all = None;
        loop {
            match *order {
                Order::End => return,
                Order::Idle => order = self.changed.wait(order).unwrap_or_else(PoisonError::into_inner),
                Order::Await(seen) => {
                    drop(order);
                    let post = self.core.post();
                    let is_sure = seen_by_all == Some(seen) || self.core.platform.fences == Fences::Symmetric;
                    let rung = if is_sure { post.is_rung(seen) } else { post.is_rung_soon(seen) };
                    order = self.order();
                    if rung || !is_sure {
                        seen_by_all = (!rung).then_some(seen);
                        // Armed again meanwhile, it goes on: to write once too often does no harm.
                        if *order == Order::Await(seen) {
                            *order = Order::Idle;
                        }
                        // Full, it is readable too.
                        let _ = (&self.writable).write(&[1]);
                    }
                }
            }
        }
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

impl AsRawFd for Notifier {
    fn as_raw_fd(&self) -> RawFd {
        self.readable.as_raw_fd()
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.bridge.core.rank_state.mapped.forked() {
            // The thread exists in the parent only.
            std::mem::forget(thread);
            return;
        }
        *self.bridge.order() = Order::End;
        self.bridge.changed.notify_one();
        // It sleeps on a bell that was marked, or that has changed. An error occurs in tests only.
        let _ = self.bridge.core.post().ring(self.bridge.core.rank());
        let _ = thread.join();
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").field("descriptor", &self.as_raw_fd()).finish_non_exhaustive()
    }
}
