//! Sleeping for ranks that are threads of one process: the `atomic-wait` crate.
//!
//! It has no time-out, so a ticker wakes the sleepers every 10 ms to check their deadlines. It uses private futexes where
//! the system has them, so it cannot cross processes.

use core::sync::atomic::AtomicU32;
use std::sync::{Arc, Condvar, Mutex};

use super::TimedOut;
use super::clock::Moment;
use crate::tuning::THREADS_TICK;

pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline: Option<Moment>) -> Result<(), TimedOut> {
    if deadline.is_some_and(Moment::has_passed) {
        return Err(TimedOut);
    }
    atomic_wait::wait(word, expected);
    Ok(())
}

pub(crate) fn wake_all(word: &AtomicU32) {
    atomic_wait::wake_all(word);
}

/// Wakes all sleepers on a set of words at every tick, until it is dropped.
pub(crate) struct Ticker {
    /// The process that has its thread.
    process: u32,
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Ticker {
    /// The name of its thread.
    pub(crate) const THREAD: &str = "intranode ticker";

    /// Starts the ticker; `words` visits the words that may have sleepers.
    pub(crate) fn start<W>(words: W) -> std::io::Result<Self>
    where
        W: Fn(&mut dyn FnMut(&AtomicU32)) + Send + 'static,
    {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stop_seen = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name(Self::THREAD.to_owned()).spawn(move || {
            let (stopped, changed) = &*stop_seen;
            let mut guard = stopped.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            while !*guard {
                let waited = changed.wait_timeout(guard, THREADS_TICK);
                guard = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
                words(&mut |word| atomic_wait::wake_all(word));
            }
        })?;
        Ok(Ticker { process: std::process::id(), stop, thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.process != std::process::id() {
            // The thread exists in the parent only, so a join would never return.
            std::mem::forget(thread);
            return;
        }
        let (stopped, changed) = &*self.stop;
        *stopped.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
        changed.notify_all();
        let _ = thread.join();
    }
}
