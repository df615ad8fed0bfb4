//! What the machine itself can do: a line between two cores, a packet that wakes a thread, and a copy from another process.

use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::block::repeated;
use crate::process::{bind, processors};

/// A line for each direction, which no prefetch takes along.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

const END: u64 = u64::MAX;

/// Microseconds of a line to the other core, and of another one back.
pub(crate) fn round_trip(length: Duration) -> Result<f64> {
    let lines = Arc::new([Line::default(), Line::default()]);
    let [there, back] = &*lines;
    let (others, [_, processor]) = (Arc::clone(&lines), processors()?);
    let other = thread::spawn(move || -> Result<()> {
        bind(processor)?;
        let ([there, back], mut next) = (&*others, 1);
        loop {
            match there.0.load(Ordering::Acquire) {
                END => return Ok(()),
                seen if seen == next => {
                    back.0.store(next, Ordering::Release);
                    next += 1;
                }
                _ => std::hint::spin_loop(),
            }
        }
    });
    let mut number = 0;
    let seconds = repeated(length, || {
        // Many, so that the clock costs nothing.
        for _ in 0..100 {
            number += 1;
            there.0.store(number, Ordering::Release);
            while back.0.load(Ordering::Acquire) != number {
                ensure!(!other.is_finished(), "the other thread has failed");
                std::hint::spin_loop();
            }
        }
        Ok(())
    });
    there.0.store(END, Ordering::Release);
    other.join().expect("no panic")?;
    Ok(seconds? * 1e6 / 100.0)
}

/// Microseconds of a packet to a thread that sleeps until there is one, and of another one back, for which this one sleeps.
pub(crate) fn wake_ups(length: Duration) -> Result<f64> {
    let (own, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    let [_, processor] = processors()?;
    let echo = thread::spawn(move || -> Result<()> {
        bind(processor)?;
        let mut packet = [0];
        // Nothing once the other end is closed.
        while recv(other.as_raw_fd(), &mut packet, MsgFlags::empty())? > 0 {
            send(other.as_raw_fd(), &packet, MsgFlags::MSG_NOSIGNAL)?;
        }
        Ok(())
    });
    let seconds = repeated(length, || {
        send(own.as_raw_fd(), &[1], MsgFlags::MSG_NOSIGNAL)?;
        ensure!(recv(own.as_raw_fd(), &mut [0], MsgFlags::empty())? == 1, "the other thread has failed");
        Ok(())
    });
    drop(own);
    echo.join().expect("no panic")?;
    Ok(seconds? * 1e6)
}

/// Gigabytes a second of a copy from another process's memory.
pub(crate) fn remote_copy(process: u32, base: usize, target: &mut [u8], length: Duration) -> Result<f64> {
    let (pid, len) = (Pid::from_raw(i32::try_from(process)?), target.len());
    let seconds = repeated(length, || {
        let mut done = 0;
        while done < len {
            let remote = [RemoteIoVec { base: base + done, len: len - done }];
            let copied = process_vm_readv(pid, &mut [IoSliceMut::new(&mut target[done..])], &remote)?;
            ensure!(copied > 0, "nothing is copied");
            done += copied;
        }
        Ok(())
    })?;
    Ok(len as f64 / seconds / 1e9)
}
