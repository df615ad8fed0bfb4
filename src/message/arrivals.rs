//! The messages that have come and were not received yet, and the receives that wait: who gets what.
//!
//! As MPI says: a receive gets the message that came first of those that match, and a message goes to the receive that was
//! started first. A message stays in the sender's buffers until it is received, so nothing is copied for the matching.

use std::collections::VecDeque;

use crate::message::envelope::{Envelope, Pattern};
use crate::protocol::message::Mask;
use crate::protocol::message::channel::INLINE;
use crate::protocol::message::offer::Offer;

/// A message that has come.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) envelope: Envelope,
    pub(crate) content: Content,
    /// The receive that gets it.
    pub(crate) receive: Option<u64>,
}

/// Where its bytes are.
#[derive(Debug)]
pub(crate) enum Content {
    Inline([u8; INLINE]),
    /// In buffers of the channel from its sender, from this byte on.
    Buffers(Mask, usize),
    /// In private memory.
    Private(Box<[u8]>),
    /// In the sender's memory.
    Offer(Offer, Option<Staged>),
}

/// How far a message has come that is sent through buffers because it cannot be pulled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staged {
    pub(crate) attempt: u8,
    /// In bytes: what was copied to the receive buffer.
    pub(crate) received: usize,
    /// In bytes: the end of what was asked for. Not less.
    pub(crate) wanted: usize,
    /// How often this rank has looked since a part has come.
    pub(crate) idle: u32,
}

impl Staged {
    /// What was asked for and not copied yet, in buffers of this length.
    pub(crate) fn asked(&self, buffer_len: usize) -> usize {
        (self.wanted - self.received).div_ceil(buffer_len)
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
        let id = self.next;
        self.next += 1;
        self.assign(id, pattern);
        id
    }

    fn assign(&mut self, id: u64, pattern: Pattern) {
        match self
            .messages
            .iter_mut()
            .find(|message| message.receive.is_none() && pattern.matches(&message.envelope))
        {
            Some(message) => message.receive = Some(id),
            None => {
                let later = self.receives.partition_point(|(other, _)| *other < id);
                self.receives.insert(later, (id, pattern));
            }
        }
    }

    /// Withdraws a receive. Its message, if it has one, is there for others again, in its place.
    pub(crate) fn withdraw(&mut self, id: u64) {
        self.receives.retain(|(other, _)| *other != id);
        if let Some(index) = self.index_of(id) {
            self.unassign(index);
        }
    }

    /// The message goes to another receive, if one matches.
    fn unassign(&mut self, index: usize) {
        let message = &mut self.messages[index];
        if let Content::Offer(_, staged) = &mut message.content {
            // What was asked for was for the other receive.
            *staged = staged.filter(Staged::is_untouched);
        }
        message.receive = None;
        let envelope = message.envelope;
        if let Some(place) = self.receives.iter().position(|(_, pattern)| pattern.matches(&envelope)) {
            self.messages[index].receive = self.receives.remove(place).map(|(id, _)| id);
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
        self.messages.iter().position(|message| message.receive == Some(id))
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

    /// The message was withdrawn by its sender: its receive waits again, in its place.
    pub(crate) fn remove_withdrawn(&mut self, index: usize, id: u64, pattern: Pattern) {
        self.remove(index);
        self.assign(id, pattern);
    }

    /// The place of the first message that no receive has got and that matches.
    pub(crate) fn find(&self, pattern: Pattern) -> Option<usize> {
        let matches = |message: &Arrived| message.receive.is_none() && pattern.matches(&message.envelope);
        self.messages.iter().position(matches)
    }

    /// The oldest message of a sender's that is in buffers.
    pub(crate) fn oldest_in_buffers(&self, source: usize) -> Option<usize> {
        let in_buffers = |message: &Arrived| {
            message.envelope.source == source && matches!(message.content, Content::Buffers(..))
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

    /// Whether an attempt to get a message through buffers goes on.
    pub(crate) fn is_staged(&self, source: usize, number: u16, attempt: u8) -> bool {
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
        arrivals.remove_withdrawn(index, first, ANY);
        message(&mut arrivals, 0, 2);
        message(&mut arrivals, 0, 3);
        assert_eq!((tag_of(&mut arrivals, first), tag_of(&mut arrivals, second)), (Some(2), Some(3)));
    }
}
