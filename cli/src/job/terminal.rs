//! The terminal's input for rank 0.
//!
//! The ranks are in process groups of their own, in the background of the terminal: the kernel stops a rank that reads from
//! it. So the launcher reads the input and forwards it, while it is in the foreground.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write, stdin};
use std::os::fd::AsFd;
use std::process::ChildStdin;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};

/// How often reading is tried again: a launcher in the background may have become the foreground.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Forwards the input to rank 0, in a thread that ends with the input, the rank or the launcher.
///
/// # Errors
/// Without a descriptor or a thread.
pub(crate) fn feed(mut rank: ChildStdin) -> io::Result<()> {
    let mut terminal = File::from(stdin().as_fd().try_clone_to_owned()?);
    let forward = move || {
        // With SIGTTIN blocked, a read from the background fails (EIO) and does not stop the launcher.
        let stop: SigSet = [Signal::SIGTTIN].into_iter().collect();
        if stop.thread_block().is_err() {
            return;
        }
        let mut bytes = [0; 4096];
        loop {
            match terminal.read(&mut bytes) {
                Ok(0) => return,
                Ok(count) => {
                    if rank.write_all(&bytes[..count]).is_err() {
                        return;
                    }
                }
                Err(error) if error.raw_os_error() == Some(Errno::EIO as i32) => thread::sleep(RETRY_INTERVAL),
                // A process that shares the terminal, as a rank does, has set it so that reading does not block.
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(RETRY_INTERVAL),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    };
    thread::Builder::new().spawn(forward).map(drop)
}
