//! How a watcher's thread sleeps: on many words by `futex_waitv`, or on one with periodic polling of the others.

use core::sync::atomic::{AtomicU32, Ordering};

use super::ticks::Ticks;
use super::waitv::{Refused, WaitList};
use crate::protocol::Sleeper;
use crate::segment::layout::WATCHERS;
use crate::segment::platform::ShmPlatform;
use crate::sys::wait::clock::Moment;
use crate::sys::wait::futex;

/// The limit of `futex_waitv`. A watcher sleeps on [`WATCHERS`] liveness words, and on those of deaths, its own end, and
/// report requests.
const MAX_WORDS: usize = 128;
const _: () = assert!(WATCHERS + 3 <= MAX_WORDS);

/// The values of the word that ends the watcher.
pub(super) const RUNNING: u32 = 0;
pub(super) const ENDING: u32 = 1;

/// The sleeper of a watcher.
pub(super) struct WatchSleeper<'a> {
    list: WaitList,
    end: &'a AtomicU32,
    /// The number of report requests, and how many of them were noticed.
    report_requests: Option<(&'a AtomicU32, u32)>,
    /// When to poll the words where `futex_waitv` is refused.
    scans: Option<Ticks>,
    refused: bool,
    /// When to end the sleep.
    pub(super) until: Option<Moment>,
}

impl<'a> WatchSleeper<'a> {
    /// `refused`: poll without trying `futex_waitv`.
    pub(super) fn new(
        end: &'a AtomicU32,
        report_requests: Option<(&'a AtomicU32, u32)>,
        scans: Option<Ticks>,
        refused: bool,
    ) -> Self {
        WatchSleeper { list: WaitList::default(), end, report_requests, scans, refused, until: None }
    }

    pub(super) fn is_over(&self) -> bool {
        self.end.load(Ordering::Acquire) != RUNNING
    }

    /// Whether a report was requested since the last call.
    pub(super) fn report_requested(&mut self) -> bool {
        let Some((count, noticed)) = &mut self.report_requests else { return false };
        let current = count.load(Ordering::Acquire);
        std::mem::replace(noticed, current) != current
    }
}

impl Sleeper<ShmPlatform> for WatchSleeper<'_> {
    fn wait_any(&mut self, _: &'static str, words: &[(&AtomicU32, u32)]) {
        if !self.refused {
            self.list.clear();
            self.list.push(self.end, RUNNING);
            self.report_requests.iter().chain(words).for_each(|(word, seen)| self.list.push(word, *seen));
            match self.list.wait(self.until) {
                Ok(()) => return,
                Err(Refused) => self.refused = true,
            }
        }
        let scan = self.scans.map(|scans| scans.after(Moment::now()));
        let _ = futex::wait(self.end, RUNNING, scan.into_iter().chain(self.until).min());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_often_it_sleeps_it_sleeps_on_these_words_only() {
        let (end, word) = (AtomicU32::new(RUNNING), AtomicU32::new(7));
        let mut list = WaitList::default();
        list.push(&end, RUNNING);
        if list.wait(Some(Moment::now())).is_err() {
            return println!("SKIPPED: the system refuses futex_waitv");
        }
        let mut sleeper = WatchSleeper::new(&end, None, None, false);
        for _ in 0..2 * MAX_WORDS {
            sleeper.until = Some(Moment::now());
            sleeper.wait_any("", &[(&word, 7)]);
        }
        assert!(!sleeper.refused, "too many words");
    }
}
