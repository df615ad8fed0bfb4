//! The blocks beside a plain list of pages.

use proptest::prelude::*;

use super::*;

/// The most steps and pages of a case.
const STEPS: usize = if cfg!(miri) { 60 } else { 200 };
const ROOM: usize = if cfg!(miri) { 150 } else { 600 };

/// What each page is, one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Model {
    Live(usize),
    Free(Free),
}

fn entries(pages: usize) -> Vec<Page> {
    vec![Page::default(); pages]
}

#[derive(Clone, Debug)]
enum Step {
    Extend(u32),
    Take(u32, u32),
    /// Of one of the blocks.
    Release(usize, bool),
    Grow(usize, u32),
    Split(usize, u32),
    Clean(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => (0u32..80).prop_map(Step::Extend),
        4 => (1u32..40, 0u32..5).prop_map(|(pages, align)| Step::Take(pages, 1 << align)),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(block, clean)| Step::Release(block, clean)),
        2 => (any::<usize>(), 1u32..60).prop_map(|(block, pages)| Step::Grow(block, pages)),
        2 => (any::<usize>(), 0u32..40).prop_map(|(block, pages)| Step::Split(block, pages)),
        1 => (1u32..60).prop_map(Step::Clean),
    ];
    proptest::collection::vec(step, 0..STEPS)
}

/// The heap beside a plain list of pages.
struct Pair<'t> {
    ranges: Ranges<'t>,
    model: Vec<Model>,
    /// Starts, by number.
    blocks: Vec<(usize, u32)>,
    number: usize,
}

impl Pair<'_> {
    fn give(&mut self, start: u32, len: u32) {
        self.number += 1;
        self.model[start as usize..][..len as usize].fill(Model::Live(self.number));
        self.blocks.push((self.number, start));
    }

    fn block(&self, index: usize) -> Option<(usize, usize, u32, u32)> {
        let index = index.checked_rem(self.blocks.len())?;
        let (number, start) = self.blocks[index];
        let len = self.model.iter().filter(|page| **page == Model::Live(number)).count();
        Some((index, number, start, len as u32))
    }

    fn play(&mut self, step: Step, room: usize) {
        match step {
            Step::Extend(pages) => {
                let fits = self.model.len() + pages as usize <= room;
                assert_eq!(self.ranges.extend(pages), fits);
                if fits {
                    self.model.resize(self.model.len() + pages as usize, Model::Free(Free::Clean));
                }
            }
            Step::Take(pages, align) => self.take(pages, align, room),
            Step::Release(block, clean) => {
                let Some((index, number, start, _)) = self.block(block) else { return };
                let kind = if clean { Free::Clean } else { Free::Dirty };
                assert_eq!(self.ranges.release(start, kind), Some(()));
                assert_eq!(self.ranges.release(start, kind), None, "twice");
                let of_it = self.model.iter_mut().filter(|page| **page == Model::Live(number));
                of_it.for_each(|page| *page = Model::Free(kind));
                self.blocks.remove(index);
            }
            Step::Grow(block, pages) => {
                let Some((_, number, start, len)) = self.block(block) else { return };
                let behind = &self.model[(start + len) as usize..];
                let same =
                    behind.iter().take_while(|page| matches!(page, Model::Free(_)) && **page == behind[0]);
                let possible = pages <= len || same.count() >= (pages - len) as usize;
                assert_eq!(self.ranges.grow(start, pages), possible);
                if possible && pages > len {
                    self.model[start as usize..][..pages as usize].fill(Model::Live(number));
                } else if let Some(missing) = self.ranges.missing_behind(start, pages) {
                    let end = self.model.len() - (start + len) as usize;
                    assert_eq!(missing as usize, (pages.saturating_sub(len) as usize).saturating_sub(end));
                }
            }
            Step::Split(block, pages) => {
                let Some((_, _, start, len)) = self.block(block) else { return };
                let rest = self.ranges.split(start, pages);
                assert_eq!(rest, (pages > 0 && pages < len).then_some(start + pages));
                if let Some(rest) = rest {
                    self.give(rest, len - pages);
                }
            }
            Step::Clean(most) => {
                let Some((start, len)) = self.ranges.any_dirty() else {
                    assert!(!self.model.contains(&Model::Free(Free::Dirty)));
                    return;
                };
                let pages = &mut self.model[start as usize..][..len as usize];
                assert!(pages.iter().all(|page| *page == Model::Free(Free::Dirty)));
                let part = len.min(most);
                pages[..part as usize].fill(Model::Free(Free::Clean));
                self.ranges.clean(start, part);
            }
        }
    }

    fn take(&mut self, pages: u32, align: u32, room: usize) {
        let missing = self.ranges.missing(pages, align).expect("no overflow");
        if let Some(taken) = self.ranges.take(pages, align) {
            let kind = if taken.clean { Free::Clean } else { Free::Dirty };
            let found = &self.model[taken.start as usize..][..pages as usize];
            assert!(found.iter().all(|page| *page == Model::Free(kind)), "{found:?}");
            assert_eq!(taken.start % align, 0);
            self.give(taken.start, pages);
        } else if self.model.len() + missing as usize <= room {
            // With the pages that it asks for there is room.
            assert!(missing > 0 && self.ranges.extend(missing));
            self.model.resize(self.model.len() + missing as usize, Model::Free(Free::Clean));
            let before = self.blocks.len();
            self.take(pages, align, 0);
            assert_eq!(self.blocks.len(), before + 1);
        }
    }

    /// The blocks of the table are those of the model, and free neighbours of one kind are one block.
    fn check(&self) {
        let mut next = 0;
        let mut last = None;
        while next < self.model.len() {
            let (kind, len) = (self.model[next], self.ranges.table[next].len as usize);
            let tag = match kind {
                Model::Live(_) => LIVE,
                Model::Free(free) => free.tag(),
            };
            assert!(self.model[next..][..len].iter().all(|page| *page == kind), "at {next}");
            assert_eq!((self.ranges.table[next].tag, self.ranges.table[next + len - 1].tag), (tag, tag));
            assert_eq!(self.ranges.table[next + len - 1].len as usize, len);
            assert_ne!(last, Some(kind), "two blocks in place of one at {next}");
            (last, next) = (Some(kind), next + len);
        }
        assert_eq!(self.ranges.end() as usize, self.model.len());
        let dirty = self.model.iter().filter(|page| **page == Model::Free(Free::Dirty)).count();
        assert_eq!(self.ranges.dirty_pages() as usize, dirty);
        let mut live: Vec<u32> = self.blocks.iter().map(|(_, start)| *start).collect();
        live.sort_unstable();
        assert_eq!(self.ranges.live().map(|(start, _)| start).collect::<Vec<_>>(), live);
    }
}

proptest! {
    #[test]
    fn blocks_are_those_of_a_list_of_pages(steps in steps(), room in 1..ROOM) {
        let mut table = entries(room);
        let ranges = Ranges::new(&mut table);
        let mut pair = Pair { ranges, model: Vec::new(), blocks: Vec::new(), number: 0 };
        for step in steps {
            pair.play(step, room);
            pair.check();
        }
        // When all is free and clean, it is one block.
        for (_, start) in pair.blocks.drain(..) {
            pair.ranges.release(start, Free::Dirty);
        }
        while let Some((start, len)) = pair.ranges.any_dirty() {
            pair.ranges.clean(start, len);
        }
        let all = pair.ranges.end();
        let whole = Some(Taken { start: 0, clean: true });
        prop_assert!(all == 0 || pair.ranges.take(all, 1) == whole);
    }

    #[test]
    fn lists_are_in_the_order_of_lengths(one in 1u32.., other in 1u32..) {
        let (short, long) = (one.min(other), one.max(other));
        prop_assert!(list_of(short) <= list_of(long) && list_of(long) < LISTS);
    }
}

#[test]
fn a_block_that_was_freed_is_given_out_again_without_being_zeros() {
    let mut table = entries(100);
    let mut ranges = Ranges::new(&mut table);
    assert!(ranges.take(10, 1).is_none() && ranges.extend(100) && !ranges.extend(1));
    let first = ranges.take(10, 1).unwrap();
    assert_eq!(first, Taken { start: 0, clean: true });
    ranges.release(0, Free::Dirty).unwrap();
    assert_eq!(ranges.take(10, 1), Some(Taken { start: 0, clean: false }));
    assert_eq!(ranges.take(10, 1), Some(Taken { start: 10, clean: true }));
    assert_eq!((ranges.len_of(0), ranges.len_of(5), ranges.len_of(100)), (Some(10), None, None));
}

#[test]
fn impossible_lengths_are_refused() {
    let mut table = entries(100);
    let mut ranges = Ranges::new(&mut table);
    assert!(ranges.extend(100));
    assert!(ranges.take(0, 1).is_none() && ranges.take(101, 1).is_none());
    assert!(ranges.take(u32::MAX, 2).is_none() && ranges.missing(u32::MAX, 2).is_none());
    assert!(ranges.release(0, Free::Clean).is_none() && !ranges.grow(0, 2) && ranges.split(0, 1).is_none());
}
