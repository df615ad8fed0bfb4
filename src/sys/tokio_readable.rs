//! A descriptor in the event loop of a tokio runtime.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Another descriptor of the same file, which one task waits for. The runtime learns by edges when it becomes readable.
pub(crate) struct TokioReadable(AsyncFd<OwnedFd>);

impl TokioReadable {
    /// # Panics
    /// Outside of a runtime, or in one that has not enabled its input and output.
    pub(crate) fn new(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        let own = descriptor.try_clone_to_owned()?;
        // SAFETY: I7: it owns the descriptor, and nothing here gives it away, or puts another in its place.
        let registered = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) };
        Ok(TokioReadable(registered?))
    }

    /// Whether it has become readable since that was cleared; if not, the task is woken when it does. An error: the runtime ends.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(context).map_ok(drop)
    }

    /// The same, and clears it: what makes it readable from now on is noticed.
    pub(crate) fn poll_and_clear(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(context).map_ok(|mut ready| ready.clear_ready())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[tokio::test]
    async fn each_edge_is_noticed_once() {
        let (own, mut other) = UnixStream::pair().unwrap();
        let readable = TokioReadable::new(own.as_fd()).unwrap();
        for _ in 0..3 {
            other.write_all(b"x").unwrap();
            std::future::poll_fn(|context| readable.poll(context)).await.unwrap();
            std::future::poll_fn(|context| readable.poll_and_clear(context)).await.unwrap();
            let waker = std::task::Waker::noop();
            assert!(readable.poll(&mut Context::from_waker(waker)).is_pending());
        }
    }
}
