//! Receives that were started: which message is whose.
//!
//! A posting is a place in a queue, and no pointer: the buffer stays with the request. The first posting of a tag has the first
//! message with this tag, the second the second, whichever is asked for first; messages stay where they are meanwhile. A posting
//! is there as long as its request is. So one that is dropped leaves the queue, without a call of the endpoint.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// A request's place among the receives of its tag.
#[derive(Debug)]
pub(crate) struct Posting(());

/// The receives of a peer's messages that have not ended, by tag.
#[derive(Default)]
pub(crate) struct Postings {
    by_tag: HashMap<u64, VecDeque<Weak<Posting>>>,
    count: usize,
    /// From this number on, those are looked for whose requests were dropped.
    limit: usize,
}

impl Postings {
    /// The last one of this tag from now on.
    pub(crate) fn add(&mut self, tag: u64) -> Arc<Posting> {
        if self.count >= self.limit {
            self.purge();
            self.limit = 2 * self.count + 64;
        }
        let posting = Arc::new(Posting(()));
        self.by_tag.entry(tag).or_default().push_back(Arc::downgrade(&posting));
        self.count += 1;
        posting
    }

    /// Those of this tag, whose messages come before that of a receive which is not started.
    #[inline]
    pub(crate) fn of(&mut self, tag: u64) -> usize {
        if self.by_tag.is_empty() { 0 } else { self.count_of(tag) }
    }

    fn count_of(&mut self, tag: u64) -> usize {
        self.purge_tag(tag);
        self.by_tag.get(&tag).map_or(0, VecDeque::len)
    }

    /// Those before this one. `None`: it is not one of these.
    pub(crate) fn before(&mut self, tag: u64, posting: &Arc<Posting>) -> Option<usize> {
        self.purge_tag(tag);
        self.by_tag.get(&tag)?.iter().position(|other| other.as_ptr() == Arc::as_ptr(posting))
    }

    fn purge_tag(&mut self, tag: u64) {
        let Some(queue) = self.by_tag.get_mut(&tag) else { return };
        let before = queue.len();
        queue.retain(is_there);
        self.count -= before - queue.len();
        if queue.is_empty() {
            self.by_tag.remove(&tag);
        }
    }

    fn purge(&mut self) {
        self.by_tag.retain(|_, queue| {
            queue.retain(is_there);
            !queue.is_empty()
        });
        self.count = self.by_tag.values().map(VecDeque::len).sum();
    }
}

fn is_there(posting: &Weak<Posting>) -> bool {
    posting.strong_count() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_posting_leaves_the_queue_and_a_forgotten_one_stays() {
        let mut postings = Postings::default();
        let [first, second, third] = [7, 7, 7].map(|tag| postings.add(tag));
        let other = postings.add(8);
        assert_eq!((postings.before(7, &third), postings.of(7), postings.of(9)), (Some(2), 3, 0));
        drop(second);
        assert_eq!((postings.before(7, &third), postings.of(7)), (Some(1), 2));
        let forgotten = std::mem::ManuallyDrop::new(first);
        assert_eq!(postings.before(7, &third), Some(1));
        assert_eq!((postings.before(8, &third), postings.before(8, &other)), (None, Some(0)));
        drop((third, other));
        assert_eq!((postings.of(7), postings.of(8)), (1, 0));
        drop(std::mem::ManuallyDrop::into_inner(forgotten));
        assert_eq!(postings.of(7), 0);
    }

    #[test]
    fn dropped_postings_of_many_tags_take_no_memory() {
        let mut postings = Postings::default();
        for tag in 0..if cfg!(miri) { 200 } else { 10_000 } {
            drop(postings.add(tag));
        }
        assert!(postings.count <= 64 && postings.by_tag.len() <= 64);
    }
}
