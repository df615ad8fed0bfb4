//! The heap's blocks in its window: what is under the lock.

use super::ranges::{Free, Ranges};
use super::window::Window;
use crate::sys::memory::huge;
use crate::tuning::HEAP_KEPT_BYTES;

#[derive(Debug)]
pub(super) struct State {
    pub(super) ranges: Ranges<'static>,
    pub(super) window: Window,
}

// SAFETY: I20: the window's range belongs to the process, not to a thread.
unsafe impl Send for State {}

impl State {
    pub(super) fn new() -> Option<Self> {
        let (window, table) = Window::new()?;
        Some(State { ranges: Ranges::new(table), window })
    }

    fn pages(&self, bytes: usize) -> Option<u32> {
        u32::try_from(bytes.div_ceil(self.window.page)).ok()
    }

    fn page_at(&self, address: usize) -> Option<u32> {
        let offset = address - self.window.start().addr();
        offset.is_multiple_of(self.window.page).then(|| self.pages(offset))?
    }

    /// Takes a block, and reports whether it is zeros. `None`: there is no room.
    pub(super) fn take(&mut self, bytes: usize, align: usize) -> Option<(*mut u8, bool)> {
        // The range itself is not aligned further.
        let align = Some(align).filter(|align| *align <= huge::ALIGN)?;
        let (pages, align) = (self.pages(bytes)?, self.pages(align)?);
        let taken = match self.ranges.take(pages, align) {
            Some(taken) => taken,
            None => {
                let missing = self.ranges.missing(pages, align)?;
                if !self.extend(missing) {
                    // Neighbours become one block then.
                    self.clean(u32::MAX);
                }
                self.ranges.take(pages, align)?
            }
        };
        if taken.clean {
            self.clean(pages);
        }
        let offset = taken.start as usize * self.window.page;
        Some((self.window.start().wrapping_add(offset), taken.clean))
    }

    /// A block is free. `None`: there is none at this address.
    pub(super) fn release(&mut self, address: usize) -> Option<()> {
        let start = self.page_at(address)?;
        let len = self.ranges.len_of(start)?;
        let kind = self.kept(start, len);
        self.ranges.release(start, kind)
    }

    /// Makes a block longer or shorter where it is. Reports whether it could.
    pub(super) fn resize(&mut self, address: usize, bytes: usize) -> bool {
        let (Some(start), Some(pages)) = (self.page_at(address), self.pages(bytes)) else { return false };
        if let Some(rest) = self.ranges.split(start, pages) {
            let len = self.ranges.len_of(rest).unwrap_or(0);
            let kind = self.kept(rest, len);
            return self.ranges.release(rest, kind).is_some();
        }
        let more = pages - self.ranges.len_of(start).unwrap_or(pages).min(pages);
        let kept = self.ranges.dirty_pages();
        if !self.ranges.grow(start, pages) {
            let missing = self.ranges.missing_behind(start, pages);
            if !missing.is_some_and(|missing| self.extend(missing)) || !self.ranges.grow(start, pages) {
                return false;
            }
        }
        if self.ranges.dirty_pages() == kept {
            self.clean(more);
        }
        true
    }

    /// What becomes of pages that are free now. A bounded number keeps what was stored there, so that a program which allocates and
    /// frees again and again neither calls the system each time nor faults all pages in again.
    fn kept(&self, start: u32, len: u32) -> Free {
        let page = self.window.page;
        if (self.ranges.dirty_pages() as usize + len as usize) * page <= HEAP_KEPT_BYTES {
            return Free::Dirty;
        }
        let given_back = self.window.give_back(start as usize * page, len as usize * page);
        if given_back { Free::Clean } else { Free::Dirty }
    }

    /// Gives back up to this number of the free pages that were kept: as many as a call takes that have no memory yet. So the heap never
    /// holds more than what was live at one time.
    fn clean(&mut self, mut pages: u32) {
        let page = self.window.page;
        while pages > 0
            && let Some((start, len)) = self.ranges.any_dirty()
        {
            let part = len.min(pages);
            if !self.window.give_back(start as usize * page, part as usize * page) {
                return;
            }
            self.ranges.clean(start, part);
            pages -= part;
        }
    }

    fn extend(&mut self, pages: u32) -> bool {
        let Some(bytes) = (pages as usize).checked_mul(self.window.page) else { return false };
        let more = self.window.extend(bytes);
        // Whole pages, of which the table has an entry each.
        more > 0 && self.ranges.extend((more / self.window.page) as u32)
    }
}
