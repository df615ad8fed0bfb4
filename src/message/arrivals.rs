//! The messages that have come and were not received yet, and the receives that wait: who gets what.
//!
//! As MPI says: a receive gets the message that came first of those that match, and a message goes to the receive that was
//! started first. A message stays in the sender's buffers until it is received, so nothing is copied for the matching.

use std::collections::VecDeque;

use crate::message::envelope::{Envelope, Pattern};
use crate::message::in_buffers::InBuffers;
use crate::protocol::message::channel::INLINE;
use crate::protocol::message::offer::Offer;

/// A message that has come.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) envelope: Envelope,
    pub(crate) content: Content,
    receive: Option<Matched>,
}

/// The receive that gets a message.
#[derive(Clone, Copy, Debug)]
struct Matched {
    id: u64,
    /// What it asks for. `None`: it has taken this message, and gets no other.
    pattern: Option<Pattern>,
}

impl Arrived {
    /// Whether no receive has got it.
    fn is_free(&self) -> bool {
        self.receive.is_none()
    }

    /// The receive that has got it, and what that asks for, if it may get another one: nothing of this one has been received.
    fn movable(&self) -> Option<(u64, Pattern)> {
        let Matched { id, pattern } = self.receive?;
        let has_begun = matches!(&self.content, Content::Offer(_, Some(staged)) if staged.is_touched());
        pattern.filter(|_| !has_begun).map(|pattern| (id, pattern))
    }
}

/// Where its bytes are.
#[derive(Debug)]
pub(crate) enum Content {
    Inline([u8; INLINE]),
    /// In buffers.
    Buffers(InBuffers),
    /// In private memory.
    Private(Box<[u8]>),
    /// In the sender's memory.
    Offer(Offer, Option<Staged>),
}

/// How far a message has come that is sent through buffers because it cannot be pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Staged {
    pub(crate) attempt: u16,
    /// In bytes: what was copied to the receive buffer.
    pub(crate) received: usize,
    /// In bytes: the end of what was asked for. Not less.
    pub(crate) wanted: usize,
    /// How often this rank has looked since a part has come.
    pub(crate) idle: u32,
    /// Whether no receive has begun with it since another one was withdrawn.
    pub(crate) is_new: bool,
}

impl Staged {
    /// What was asked for and not copied yet, in buffers of this length.
    pub(crate) fn asked(&self, buffer_len: usize) -> usize {
        self.asked_bytes().div_ceil(buffer_len)
    }

    /// The same in bytes.
    pub(crate) fn asked_bytes(&self) -> usize {
        self.wanted - self.received
    }
}

/// The private memory that each message takes which nobody has asked for, in bytes.
const EACH: usize = size_of::<Arrived>();

/// Messages and receives of one rank.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// In the order in which they came.
    messages: VecDeque<Arrived>,
    /// The receives without a message, in the order in which they were started.
    receives: VecDeque<(u64, Pattern)>,
    next: u64,
    /// The bytes of contents in private memory.
    private: usize,
    /// How many messages are in their senders' memory.
    offers: usize,
}

impl Arrivals {
    /// Starts a receive. It gets the first message that matches, at once or later.
    pub(crate) fn start(&mut self, pattern: Pattern) -> u64 {
        let id = self.next_id();
        self.assign(id, pattern);
        id
    }

    /// Takes a message that no receive has got: as a receive of it alone.
    pub(crate) fn take(&mut self, index: usize) -> u64 {
        let id = self.next_id();
        self.messages[index].receive = Some(Matched { id, pattern: None });
        id
    }

    fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The receive gets the first message that matches and that no earlier one has got. From a later one it takes it away, which then
    /// gets the next.
    fn assign(&mut self, mut id: u64, mut pattern: Pattern) {
        let gets = |message: &Arrived, id: u64, pattern: &Pattern| {
            let is_there = message.is_free() || message.movable().is_some_and(|(other, _)| other > id);
            is_there && pattern.matches(&message.envelope)
        };
        while let Some(message) = self.messages.iter_mut().find(|message| gets(message, id, &pattern)) {
            let later = message.movable();
            message.receive = Some(Matched { id, pattern: Some(pattern) });
            let Some(later) = later else { return };
            (id, pattern) = later;
        }
        let later = self.receives.partition_point(|(other, _)| *other < id);
        self.receives.insert(later, (id, pattern));
    }

    /// Withdraws a receive. Its message, if it has one, is there for others again, in its place.
    pub(crate) fn withdraw(&mut self, id: u64) {
        self.receives.retain(|(other, _)| *other != id);
        if let Some(index) = self.index_of(id) {
            self.unassign(index);
        }
    }

    /// The message goes to the first other receive that matches and that waits, or has got a later message: that one goes to another
    /// then, likewise.
    fn unassign(&mut self, mut index: usize) {
        loop {
            let message = &mut self.messages[index];
            if let Content::Offer(_, staged) = &mut message.content {
                // What was asked for was for the other receive.
                *staged = staged.map(Staged::for_another);
            }
            message.receive = None;
            let envelope = message.envelope;
            let waiting = self.receives.iter().position(|(_, pattern)| pattern.matches(&envelope));
            let behind = index + 1;
            let later = self.messages.range(behind..).enumerate().filter_map(|(place, message)| {
                let (id, pattern) = message.movable()?;
                pattern.matches(&envelope).then_some((id, behind + place, pattern))
            });
            let first = later.min_by_key(|(id, ..)| *id);
            match (waiting, first) {
                (Some(place), first) if first.is_none_or(|(id, ..)| self.receives[place].0 < id) => {
                    let waiting = self.receives.remove(place);
                    self.messages[index].receive =
                        waiting.map(|(id, pattern)| Matched { id, pattern: Some(pattern) });
                    return;
                }
                (_, Some((id, place, pattern))) => {
                    self.messages[index].receive = Some(Matched { id, pattern: Some(pattern) });
                    index = place;
                }
                (_, None) => return,
            }
        }
    }

    /// A message has come. Whether a receive has waited for it.
    pub(crate) fn push(&mut self, envelope: Envelope, content: Content) -> bool {
        self.offers += usize::from(matches!(content, Content::Offer(..)));
        self.messages.push_back(Arrived { envelope, content, receive: None });
        let waits = self.receives.len();
        if waits > 0 {
            self.unassign(self.messages.len() - 1);
        }
        self.receives.len() < waits
    }

    /// Whether there is no message, and no receive that waits for one.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.receives.is_empty()
    }

    /// How many messages are in their senders' memory.
    pub(crate) fn offers(&self) -> usize {
        self.offers
    }

    /// How many messages there are.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// The place of a receive's message.
    #[inline]
    pub(crate) fn index_of(&self, id: u64) -> Option<usize> {
        self.messages.iter().position(|message| message.receive.is_some_and(|receive| receive.id == id))
    }

    pub(crate) fn at(&mut self, index: usize) -> &mut Arrived {
        &mut self.messages[index]
    }

    /// The message is received.
    pub(crate) fn remove(&mut self, index: usize) {
        match self.messages.remove(index).map(|message| message.content) {
            Some(Content::Private(bytes)) => self.private -= bytes.len(),
            Some(Content::Offer(..)) => self.offers -= 1,
            _ => {}
        }
    }

    /// The message was withdrawn by its sender: its receive waits again, in its place, unless it has taken this message.
    pub(crate) fn remove_withdrawn(&mut self, index: usize) {
        let receive = self.messages[index].receive;
        self.remove(index);
        if let Some(Matched { id, pattern: Some(pattern) }) = receive {
            self.assign(id, pattern);
        }
    }

    /// The place of the first message that no receive has got and that matches.
    pub(crate) fn find(&self, pattern: Pattern) -> Option<usize> {
        let matches = |message: &Arrived| message.is_free() && pattern.matches(&message.envelope);
        self.messages.iter().position(matches)
    }

    /// The oldest message of a sender's that is in its buffers.
    pub(crate) fn oldest_in_buffers(&self, source: usize) -> Option<usize> {
        let in_buffers = |message: &Arrived| {
            message.envelope.source == source
                && matches!(message.content, Content::Buffers(InBuffers { returned: false, .. }))
        };
        self.messages.iter().position(in_buffers)
    }

    /// The message is in private memory from now on.
    pub(crate) fn move_to_private(&mut self, index: usize, bytes: Box<[u8]>) {
        self.private += bytes.len();
        self.messages[index].content = Content::Private(bytes);
    }

    /// The private memory that messages take, in bytes.
    pub(crate) fn private(&self) -> usize {
        self.private + self.messages.len() * EACH
    }

    /// Who has sent the message of a receive, if it has got one, and has not received it.
    pub(crate) fn source_of(&self, id: u64) -> Option<usize> {
        self.index_of(id).map(|index| self.messages[index].envelope.source)
    }

    /// Whether an attempt to get a message through buffers goes on.
    pub(crate) fn is_staged(&self, source: usize, number: u16, attempt: u16) -> bool {
        self.messages.iter().any(|message| match &message.content {
            Content::Offer(offer, Some(staged)) => {
                message.envelope.source == source && offer.number as u16 == number && staged.attempt == attempt
            }
            _ => false,
        })
    }

    /// The other messages of this sender that come through buffers.
    pub(crate) fn others_staged(
        &mut self,
        source: usize,
        except: usize,
    ) -> impl Iterator<Item = &mut Staged> + use<'_> {
        self.messages.iter_mut().enumerate().filter_map(move |(index, message)| match &mut message.content {
            Content::Offer(_, Some(staged)) if index != except && message.envelope.source == source => {
                Some(staged)
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::envelope::{Source, Tag};

    fn message(arrivals: &mut Arrivals, source: usize, tag: u64) {
        arrivals.push(Envelope { source, tag, bytes: 0 }, Content::Inline([0; INLINE]));
    }

    const ANY: Pattern = Pattern { source: Source::Any, tag: Tag::Any };

    fn tagged(tag: u64) -> Pattern {
        Pattern { source: Source::Any, tag: Tag::Is(tag) }
    }

    fn tag_of(arrivals: &mut Arrivals, id: u64) -> Option<u64> {
        arrivals.index_of(id).map(|index| arrivals.at(index).envelope.tag)
    }

    #[test]
    fn the_first_message_goes_to_the_first_receive_that_matches() {
        let mut arrivals = Arrivals::default();
        let (first, second) = (arrivals.start(tagged(2)), arrivals.start(ANY));
        message(&mut arrivals, 0, 1);
        message(&mut arrivals, 0, 2);
        message(&mut arrivals, 0, 3);
        assert_eq!((tag_of(&mut arrivals, first), tag_of(&mut arrivals, second)), (Some(2), Some(1)));
        assert_eq!(arrivals.find(ANY), Some(2));
    }

    #[test]
    fn a_receive_that_is_withdrawn_gives_its_message_to_the_next() {
        let mut arrivals = Arrivals::default();
        let (first, second) = (arrivals.start(ANY), arrivals.start(tagged(1)));
        message(&mut arrivals, 0, 1);
        assert_eq!((tag_of(&mut arrivals, first), tag_of(&mut arrivals, second)), (Some(1), None));
        arrivals.withdraw(first);
        assert_eq!((tag_of(&mut arrivals, first), tag_of(&mut arrivals, second)), (None, Some(1)));
        arrivals.withdraw(second);
        let third = arrivals.start(ANY);
        assert_eq!(tag_of(&mut arrivals, third), Some(1));
    }

    #[test]
    fn a_receive_whose_message_was_withdrawn_keeps_its_place() {
        let mut arrivals = Arrivals::default();
        let (first, second) = (arrivals.start(ANY), arrivals.start(ANY));
        message(&mut arrivals, 0, 1);
        let index = arrivals.index_of(first).unwrap();
        arrivals.remove_withdrawn(index);
        message(&mut arrivals, 0, 2);
        message(&mut arrivals, 0, 3);
        assert_eq!((tag_of(&mut arrivals, first), tag_of(&mut arrivals, second)), (Some(2), Some(3)));
    }

    #[test]
    fn a_receive_whose_message_was_withdrawn_gets_the_next_before_later_receives() {
        let mut arrivals = Arrivals::default();
        let ids = [ANY, tagged(2), ANY, ANY].map(|pattern| arrivals.start(pattern));
        [1, 2, 3].into_iter().for_each(|tag| message(&mut arrivals, 0, tag));
        let index = arrivals.index_of(ids[0]).unwrap();
        arrivals.remove_withdrawn(index);
        assert_eq!(ids.map(|id| tag_of(&mut arrivals, id)), [Some(2), None, Some(3), None]);
        message(&mut arrivals, 0, 2);
        assert_eq!(ids.map(|id| tag_of(&mut arrivals, id)), [Some(2), Some(2), Some(3), None]);
    }

    #[test]
    fn messages_do_not_overtake_one_whose_receive_is_withdrawn() {
        let mut arrivals = Arrivals::default();
        let ids = [ANY, tagged(2), ANY, ANY].map(|pattern| arrivals.start(pattern));
        [1, 2, 3].into_iter().for_each(|tag| message(&mut arrivals, 0, tag));
        assert_eq!(ids.map(|id| tag_of(&mut arrivals, id)), [Some(1), Some(2), Some(3), None]);
        arrivals.withdraw(ids[0]);
        assert_eq!(ids.map(|id| tag_of(&mut arrivals, id)), [None, Some(2), Some(1), Some(3)]);
    }

    /// Whatever is received, taken back or dropped: each receive has the first message that matches and that no earlier one has.
    #[test]
    fn all_receives_have_what_is_theirs_after_any_change() {
        for seed in 0..if cfg!(miri) { 16 } else { 2000 } {
            let (mut random, mut arrivals, mut started) =
                (fastrand::Rng::with_seed(seed), Arrivals::default(), Vec::new());
            for _ in 0..40 {
                let (source, tag) = (random.usize(..2), random.u64(..2));
                let index = random.choice(0..arrivals.len()).unwrap_or(usize::MAX);
                match random.usize(..8) {
                    0..3 => message(&mut arrivals, source, tag),
                    3..5 => {
                        let source = if random.bool() { Source::Any } else { Source::Rank(source) };
                        let tag = if random.bool() { Tag::Any } else { Tag::Is(tag) };
                        let pattern = Pattern { source, tag };
                        started.push((arrivals.start(pattern), pattern));
                    }
                    5 if !started.is_empty() => {
                        let (id, _) = started.remove(random.usize(..started.len()));
                        // It is dropped, or it is complete.
                        match arrivals.index_of(id) {
                            Some(index) if random.bool() => arrivals.remove(index),
                            _ => arrivals.withdraw(id),
                        }
                    }
                    6.. if index < usize::MAX => arrivals.remove_withdrawn(index),
                    _ => {}
                }
                let mut free: Vec<bool> = vec![true; arrivals.len()];
                for (id, pattern) in &started {
                    let mut there = arrivals.messages.iter().zip(&free);
                    let first = there.position(|(message, free)| *free && pattern.matches(&message.envelope));
                    assert_eq!(arrivals.index_of(*id), first, "seed {seed}: {arrivals:?}");
                    first.map(|index| std::mem::replace(&mut free[index], false));
                }
            }
        }
    }

    #[test]
    fn a_message_that_was_taken_is_that_one_or_none() {
        let mut arrivals = Arrivals::default();
        [1, 1].into_iter().for_each(|tag| message(&mut arrivals, 0, tag));
        let taken = arrivals.take(0);
        let index = arrivals.index_of(taken).unwrap();
        arrivals.remove_withdrawn(index);
        assert_eq!((tag_of(&mut arrivals, taken), arrivals.find(ANY)), (None, Some(0)));
    }
}
