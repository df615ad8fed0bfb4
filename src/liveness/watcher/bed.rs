//! Where a watcher's thread sleeps.

use core::sync::atomic::{AtomicU32, Ordering};

use super::ticks::Ticks;
use super::waitv::{Refused, WaitList};
use crate::protocol::Sleeper;
use crate::segment::layout::WATCHERS;
use crate::segment::platform::ShmPlatform;
use crate::sys::wait::clock::Moment;
use crate::sys::wait::futex;

/// The most words that the system lets a thread sleep on at once; those of the segment are [`WATCHERS`] and one.
const MOST: usize = 128;
const _: () = assert!(WATCHERS + 3 <= MOST);

/// What the word on which a watcher sleeps besides those of its segment holds until the watcher shall end.
pub(super) const RUNNING: u32 = 0;
pub(super) const ENDING: u32 = 1;

/// A thread's way to sleep: on many words, or on one, so as to look at the others every now and then.
pub(super) struct Bed<'a> {
    list: WaitList,
    end: &'a AtomicU32,
    /// How often this process was asked, and how often that was noticed.
    asked: Option<(&'a AtomicU32, u32)>,
    /// When to look at the words where sleeping on them is refused.
    scans: Option<Ticks>,
    refused: bool,
    /// When to end the sleep.
    pub(super) until: Option<Moment>,
}

impl<'a> Bed<'a> {
    /// `refused`: there is no need to try whether many words are possible.
    pub(super) fn new(
        end: &'a AtomicU32,
        asked: Option<(&'a AtomicU32, u32)>,
        scans: Option<Ticks>,
        refused: bool,
    ) -> Self {
        Bed { list: WaitList::default(), end, asked, scans, refused, until: None }
    }

    pub(super) fn is_over(&self) -> bool {
        self.end.load(Ordering::Acquire) != RUNNING
    }

    /// Whether this process was asked since the last time.
    pub(super) fn was_asked(&mut self) -> bool {
        let Some((count, noticed)) = &mut self.asked else { return false };
        let now = count.load(Ordering::Acquire);
        std::mem::replace(noticed, now) != now
    }
}

impl Sleeper<ShmPlatform> for Bed<'_> {
    fn wait_any(&mut self, _: &'static str, words: &[(&AtomicU32, u32)]) {
        if !self.refused {
            self.list.clear();
            self.list.push(self.end, RUNNING);
            self.asked.iter().chain(words).for_each(|(word, seen)| self.list.push(word, *seen));
            match self.list.wait(self.until) {
                Ok(()) => return,
                Err(Refused) => self.refused = true,
            }
        }
        let scan = self.scans.map(|scans| scans.after(Moment::now()));
        let _ = futex::wait(self.end, RUNNING, scan.into_iter().chain(self.until).min());
    }
}
