//! Which pages of the heap's window are whose: numbers only, no memory.
//!
//! The pages that are in use are a row of blocks without gaps. The table has an entry for each page, of which those of a block's first
//! and last page say what it is (boundary tags, as in Knuth's *The Art of Computer Programming*, volume 1, 2.5), so that a block
//! finds its neighbours at once. Free blocks are in lists by length, eight to each power of two, with a bit for each list that is not
//! empty (TLSF: Masmano, Ripoll, Crespo, Real: *TLSF: a new dynamic memory allocator for real-time systems*, ECRTS 2004).
//!
//! Free pages are *dirty*, with what was stored there last, or *clean*: known to be zeros, and not allocated. They never share a block.

/// The unit of all numbers here is the page.
type Pages = u32;

/// What a block is. Zero is no block's, so that a table of zeros is empty.
const LIVE: u32 = 1;
const DIRTY: u32 = 2;
const CLEAN: u32 = 3;

/// Lists for each power of two, and in all.
const STEPS: u32 = 8;
const LISTS: usize = (Pages::BITS * STEPS) as usize;

/// How many blocks of a list are looked at, of which not all are long enough.
const TRIED: usize = 32;

/// Free pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Free {
    Dirty,
    Clean,
}

impl Free {
    fn tag(self) -> u32 {
        if self == Free::Dirty { DIRTY } else { CLEAN }
    }
}

/// A page in the table: what block begins or ends here, and the neighbours in its list, as numbers from one; zero is none.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Page {
    tag: u32,
    len: Pages,
    before: Pages,
    after: Pages,
}

/// A block that was given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) start: Pages,
    /// Whether all of it is zeros.
    pub(super) clean: bool,
}

/// The lists of free blocks of one kind.
#[derive(Debug)]
struct Lists {
    /// The first block of each, as a number from one.
    first: [Pages; LISTS],
    /// A bit for each list that is not empty.
    filled: [u64; LISTS / 64],
}

impl Lists {
    const EMPTY: Lists = Lists { first: [0; LISTS], filled: [0; LISTS / 64] };

    /// The first list from this one on that is not empty.
    fn filled_from(&self, list: usize) -> Option<usize> {
        (list / 64..LISTS / 64).find_map(|word| {
            let mask = if word == list / 64 { u64::MAX << (list % 64) } else { u64::MAX };
            let bits = self.filled[word] & mask;
            (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
        })
    }
}

/// The list of blocks of a length.
fn list_of(len: Pages) -> usize {
    if len < STEPS {
        return len as usize;
    }
    let power = len.ilog2();
    let step = len >> (power - STEPS.ilog2()) & (STEPS - 1);
    (power * STEPS + step) as usize
}

/// All blocks of a window.
#[derive(Debug)]
pub(super) struct Ranges<'t> {
    table: &'t mut [Page],
    dirty: Lists,
    clean: Lists,
    /// Behind the last block.
    end: Pages,
    dirty_pages: Pages,
}

impl<'t> Ranges<'t> {
    /// No blocks. `table`: zeros, for all pages that there may ever be.
    pub(super) fn new(table: &'t mut [Page]) -> Self {
        Ranges { table, dirty: Lists::EMPTY, clean: Lists::EMPTY, end: 0, dirty_pages: 0 }
    }

    /// Behind the last page that is in use.
    #[cfg(test)]
    pub(super) fn end(&self) -> Pages {
        self.end
    }

    pub(super) fn dirty_pages(&self) -> Pages {
        self.dirty_pages
    }

    /// How many clean pages more there have to be at the end so that a block of this length and alignment fits there.
    pub(super) fn missing(&self, pages: Pages, align: Pages) -> Option<Pages> {
        let clean =
            if self.end > 0 && self.at(self.end - 1).tag == CLEAN { self.at(self.end - 1).len } else { 0 };
        pages.checked_add(align - 1).map(|needed| needed.saturating_sub(clean))
    }

    /// Adds clean pages at the end. Reports whether the table has room for them.
    pub(super) fn extend(&mut self, pages: Pages) -> bool {
        let room = self.table.len() - self.end as usize;
        if pages == 0 || pages as usize > room {
            return pages == 0;
        }
        self.end += pages;
        self.put_free(self.end - pages, pages, Free::Clean);
        true
    }

    /// Takes a block that begins at a multiple of `align`, a power of two. Dirty pages come first: they are memory already.
    pub(super) fn take(&mut self, pages: Pages, align: Pages) -> Option<Taken> {
        let kinds = [Free::Dirty, Free::Clean];
        let needed = pages.checked_add(align - 1).filter(|_| pages > 0)?;
        let (kind, found) = kinds.into_iter().find_map(|kind| Some((kind, self.find(kind, needed)?)))?;
        let len = self.at(found).len;
        self.unlink(found, kind);
        let start = found.next_multiple_of(align);
        let behind = start + pages;
        self.mark(start, pages, LIVE);
        if start > found {
            self.put_free(found, start - found, kind);
        }
        if found + len > behind {
            self.put_free(behind, found + len - behind, kind);
        }
        Some(Taken { start, clean: kind == Free::Clean })
    }

    /// The length of the block that begins here and was given out.
    pub(super) fn len_of(&self, start: Pages) -> Option<Pages> {
        let page = self.table.get(start as usize)?;
        (start < self.end && page.tag == LIVE).then_some(page.len)
    }

    /// A block that begins here is free from now on. `None`: there is none.
    pub(super) fn release(&mut self, start: Pages, kind: Free) -> Option<()> {
        let len = self.len_of(start)?;
        self.at_mut(start).tag = 0;
        self.put_free(start, len, kind);
        Some(())
    }

    /// Makes a block longer where it is. Reports whether there was room.
    pub(super) fn grow(&mut self, start: Pages, pages: Pages) -> bool {
        let Some(len) = self.len_of(start) else { return false };
        let (behind, more) = (start + len, pages.saturating_sub(len));
        if more == 0 {
            return true;
        }
        if behind >= self.end {
            return false;
        }
        let kind = match self.at(behind).tag {
            DIRTY => Free::Dirty,
            CLEAN => Free::Clean,
            _ => return false,
        };
        let room = self.at(behind).len;
        if room < more {
            return false;
        }
        self.unlink(behind, kind);
        self.mark(start, pages, LIVE);
        if room > more {
            self.put_free(behind + more, room - more, kind);
        }
        true
    }

    /// How many pages at the end have to be added so that a block can become this long. `None`: something is behind it.
    pub(super) fn missing_behind(&self, start: Pages, pages: Pages) -> Option<Pages> {
        let len = self.len_of(start)?;
        let behind = start + len;
        let free = match behind == self.end {
            true => 0,
            false => {
                Some(self.at(behind)).filter(|next| next.tag == CLEAN && behind + next.len == self.end)?.len
            }
        };
        Some(pages.saturating_sub(len).saturating_sub(free))
    }

    /// Cuts a block off: the pages from `pages` on become a block of their own, which can be released. Its start; `None`: there are none.
    pub(super) fn split(&mut self, start: Pages, pages: Pages) -> Option<Pages> {
        let len = self.len_of(start).filter(|len| pages > 0 && *len > pages)?;
        self.mark(start, pages, LIVE);
        self.mark(start + pages, len - pages, LIVE);
        Some(start + pages)
    }

    /// A block of dirty pages, and its length; `None`: there is none.
    pub(super) fn any_dirty(&self) -> Option<(Pages, Pages)> {
        let start = self.dirty.first[self.dirty.filled_from(0)?] - 1;
        Some((start, self.at(start).len))
    }

    /// The first pages of a block of dirty ones have become clean.
    pub(super) fn clean(&mut self, start: Pages, pages: Pages) {
        let len = self.at(start).len;
        self.unlink(start, Free::Dirty);
        if len > pages {
            self.link(start + pages, len - pages, Free::Dirty);
        }
        self.put_free(start, pages, Free::Clean);
    }

    /// All blocks that were given out, in their order: where they begin, and their lengths.
    pub(super) fn live(&self) -> impl Iterator<Item = (Pages, Pages)> + '_ {
        let mut next = 0;
        std::iter::from_fn(move || {
            while next < self.end {
                let (start, page) = (next, self.at(next));
                next += page.len;
                if page.tag == LIVE {
                    return Some((start, page.len));
                }
            }
            None
        })
    }

    fn at(&self, page: Pages) -> Page {
        self.table[page as usize]
    }

    fn at_mut(&mut self, page: Pages) -> &mut Page {
        &mut self.table[page as usize]
    }

    fn lists(&mut self, kind: Free) -> &mut Lists {
        if kind == Free::Dirty { &mut self.dirty } else { &mut self.clean }
    }

    /// Writes a block's two tags.
    fn mark(&mut self, start: Pages, len: Pages, tag: u32) {
        for page in [start, start + len - 1] {
            *self.at_mut(page) = Page { tag, len, before: 0, after: 0 };
        }
    }

    /// The shortest block of the list of this length that is long enough, of those that are tried; or else one of a longer list.
    fn find(&self, kind: Free, needed: Pages) -> Option<Pages> {
        let lists = if kind == Free::Dirty { &self.dirty } else { &self.clean };
        let list = list_of(needed);
        let mut next = lists.first[list];
        let of_the_list = std::iter::from_fn(|| {
            let start = next.checked_sub(1)?;
            next = self.at(start).after;
            Some(start)
        });
        let fitting = of_the_list.take(TRIED).filter(|start| self.at(*start).len >= needed);
        let best = fitting.min_by_key(|start| self.at(*start).len);
        best.or_else(|| Some(lists.first[lists.filled_from(list + 1)?] - 1))
    }

    /// A free block between its neighbours: those of its kind become one with it.
    fn put_free(&mut self, mut start: Pages, mut len: Pages, kind: Free) {
        let tag = kind.tag();
        if start > 0 && self.at(start - 1).tag == tag {
            let before = start - self.at(start - 1).len;
            self.unlink(before, kind);
            self.at_mut(start - 1).tag = 0;
            len += start - before;
            start = before;
        }
        let behind = start + len;
        if behind < self.end && self.at(behind).tag == tag {
            let more = self.at(behind).len;
            self.unlink(behind, kind);
            self.at_mut(behind).tag = 0;
            len += more;
        }
        self.link(start, len, kind);
    }

    fn link(&mut self, start: Pages, len: Pages, kind: Free) {
        self.mark(start, len, kind.tag());
        let list = list_of(len);
        let lists = self.lists(kind);
        let after = std::mem::replace(&mut lists.first[list], start + 1);
        lists.filled[list / 64] |= 1 << (list % 64);
        self.at_mut(start).after = after;
        if let Some(after) = after.checked_sub(1) {
            self.at_mut(after).before = start + 1;
        }
        if kind == Free::Dirty {
            self.dirty_pages += len;
        }
    }

    fn unlink(&mut self, start: Pages, kind: Free) {
        let Page { len, before, after, .. } = self.at(start);
        let list = list_of(len);
        match before.checked_sub(1) {
            Some(before) => self.at_mut(before).after = after,
            None => {
                let lists = self.lists(kind);
                lists.first[list] = after;
                if after == 0 {
                    lists.filled[list / 64] &= !(1 << (list % 64));
                }
            }
        }
        if let Some(after) = after.checked_sub(1) {
            self.at_mut(after).before = before;
        }
        if kind == Free::Dirty {
            self.dirty_pages -= len;
        }
    }
}

#[cfg(test)]
mod tests;
