//! What the two sides of a connection ask of each other's memory: requests that wait for an answer, on either side.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};

use crate::endpoint::sender::Sender;
use crate::endpoint::short::Short;
use crate::endpoint::wire::Request;
use crate::protocol::message::Mask;

/// The most requests of a side that are under way. So the other side has room for all of them, and takes in what comes: if both left requests
/// in full channels, neither had room for its answers. Of a peer that makes more these stay in its channel.
const WAITING: usize = 64;

/// Memory that is kept for as long as the other side may read it.
pub(crate) type Kept = Box<dyn Any + Send + Sync>;

/// Bytes that have come to be written.
pub(crate) enum Body {
    /// A copy of what was in a cell, and how many bytes that is.
    Inline(Short, usize),
    Private(Vec<u8>),
    /// In a buffer of the channel from their sender, from this byte of it on.
    Buffer {
        mask: Mask,
        start: usize,
        len: usize,
    },
}

impl Body {
    /// In bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Body::Private(bytes) => bytes.len(),
            Body::Inline(_, len) | Body::Buffer { len, .. } => *len,
        }
    }
}

/// What the other side asks for.
pub(crate) enum Wanted {
    /// To answer this.
    Request(Request),
    /// To write this to the memory with a key, from an offset on.
    Write { place: [u64; 2], data: Body },
}

/// What has come to a request.
pub(crate) enum Reply {
    /// A status, with what was asked for behind it.
    Message(Vec<u8>),
    /// The bytes that were asked for.
    Data(Body),
}

impl Reply {
    /// The buffers that it keeps from their sender.
    fn buffers(&self) -> usize {
        match self {
            Reply::Data(Body::Buffer { mask, .. }) => mask.count_ones() as usize,
            _ => 0,
        }
    }
}

impl Asked {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Asked::Answered {
                    reply: Reply::Message(bytes) | Reply::Data(Body::Private(bytes)), ..
                } => bytes.capacity(),
                _ => 0,
            }
    }
}

/// A request of this side.
enum Asked {
    /// Somebody waits for the answer. If it is one that gives a lease, that has to be given back in any case.
    Waits { gives_lease: bool },
    /// Whether nobody has been told yet that it has come.
    Answered { reply: Reply, is_new: bool },
    /// Nobody waits any more. The answer gives a lease; or the other side may read this until it has answered.
    Abandoned { kept: Option<Kept> },
}

#[derive(Default)]
pub(crate) struct Calls {
    /// Of the other side: numbers, and what is asked.
    requests: VecDeque<(u64, Wanted)>,
    /// Of this side, by number: few at a time.
    asked: BTreeMap<u64, Asked>,
    /// Where requests are made.
    pub(crate) made: Vec<u8>,
    /// Memory of requests and answers that were dealt with.
    spare: Vec<Vec<u8>>,
    next: u64,
    /// The buffers that answers keep.
    buffers: usize,
    /// The answers of which nobody has been told.
    new: usize,
    /// Whether no answer comes any more.
    has_ended: bool,
    /// What nobody reads any more, to be dropped when nothing of the endpoint is being changed: that is code of the program's.
    over: Vec<Kept>,
    /// Whether the other side is asked to send what can be read without it.
    pub(crate) sender: Sender,
    /// How many requests of this side the other one has not answered. Nobody may wait for that any more.
    unanswered: usize,
    /// Whether there was no room for a request of this side.
    pub(crate) wants_room: bool,
    /// Whether the system lets this process not read the other's memory.
    pub(crate) cannot_read: bool,
    /// The same the other way.
    pub(crate) cannot_be_read: bool,
}

/// The most of such memory that is kept.
const SPARE: usize = 8;

impl Calls {
    /// Memory for a message of this length, with any content.
    pub(crate) fn memory(&mut self, len: usize) -> Vec<u8> {
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.resize(len, 0);
        memory
    }

    /// It is not used any more.
    pub(crate) fn keep_spare(&mut self, memory: Vec<u8>) {
        if self.spare.len() < SPARE {
            self.spare.push(memory);
        }
    }

    pub(crate) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// What waits to be written.
    pub(crate) fn writes(&mut self) -> impl Iterator<Item = &mut Body> {
        self.requests.iter_mut().filter_map(|(_, wanted)| match wanted {
            Wanted::Write { data, .. } => Some(data),
            Wanted::Request(_) => None,
        })
    }

    /// The bytes that were asked for, have come, and were not looked at.
    pub(crate) fn answers(&mut self) -> impl Iterator<Item = &mut Body> {
        self.asked.values_mut().filter_map(|asked| match asked {
            Asked::Answered { reply: Reply::Data(data), .. } => Some(data),
            _ => None,
        })
    }

    /// No answer is in buffers any more.
    pub(crate) fn has_no_buffers(&mut self) {
        self.buffers = 0;
    }

    /// Whether no more are taken in.
    pub(crate) fn is_full(&self) -> bool {
        self.requests.len() > WAITING
    }

    /// Whether one more request of this side may be under way.
    pub(crate) fn has_place(&self) -> bool {
        self.unanswered < WAITING
    }

    /// A request was sent.
    pub(crate) fn is_sent(&mut self) {
        self.unanswered += 1;
    }

    /// One was answered. A peer that answers what was not asked may be asked too often.
    pub(crate) fn is_answered(&mut self, number: u64) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.sender.has_answered(number);
    }

    pub(crate) fn push_request(&mut self, number: u64, wanted: Wanted) {
        self.requests.push_back((number, wanted));
    }

    pub(crate) fn next_request(&mut self) -> Option<(u64, Wanted)> {
        self.requests.pop_front()
    }

    /// How many requests this side has made.
    #[cfg(test)]
    pub(crate) fn asked(&self) -> u64 {
        self.next
    }

    /// The number of a request that this side makes, and for whose answer it waits.
    pub(crate) fn ask(&mut self, gives_lease: bool) -> u64 {
        let number = self.number();
        self.waits_for(number, gives_lease);
        number
    }

    /// The number of the next request.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Somebody waits for the answer to this request.
    pub(crate) fn waits_for(&mut self, number: u64, gives_lease: bool) {
        self.asked.insert(number, Asked::Waits { gives_lease });
    }

    /// An answer has come. It may be one for which nobody waits any more: it is returned, so that a lease or buffers are given back.
    pub(crate) fn push_reply(&mut self, number: u64, reply: Reply) -> Option<Reply> {
        self.is_answered(number);
        match self.asked.get_mut(&number) {
            Some(asked @ Asked::Waits { .. }) => {
                self.buffers += reply.buffers();
                self.new += 1;
                *asked = Asked::Answered { reply, is_new: true };
                None
            }
            Some(Asked::Abandoned { kept }) => {
                self.over.extend(kept.take());
                self.asked.remove(&number);
                Some(reply)
            }
            // A lease that was not asked for is none.
            Some(Asked::Answered { .. }) | None => Some(reply).filter(|reply| matches!(reply, Reply::Data(_))),
        }
    }

    /// The buffers that answers keep.
    pub(crate) fn buffers(&self) -> usize {
        self.buffers
    }

    /// The answer to a request, once it is there.
    pub(crate) fn take_reply(&mut self, number: u64) -> Option<Reply> {
        let Some(Asked::Answered { .. }) = self.asked.get(&number) else { return None };
        match self.asked.remove(&number) {
            Some(Asked::Answered { reply, is_new }) => Some(self.is_taken(reply, is_new)),
            _ => None,
        }
    }

    /// An answer is kept here no longer.
    fn is_taken(&mut self, reply: Reply, is_new: bool) -> Reply {
        self.buffers -= reply.buffers();
        self.new -= usize::from(is_new);
        reply
    }

    /// Whether answers are there of which nobody has been told.
    pub(crate) fn has_new(&self) -> bool {
        self.new > 0
    }

    /// The same; somebody is told of them now.
    pub(crate) fn take_new(&mut self) -> bool {
        if core::mem::take(&mut self.new) == 0 {
            return false;
        }
        for asked in self.asked.values_mut() {
            if let Asked::Answered { is_new, .. } = asked {
                *is_new = false;
            }
        }
        true
    }

    /// Whether somebody waits for an answer that has not come.
    pub(crate) fn awaits_answers(&self) -> bool {
        self.asked.values().any(|asked| matches!(asked, Asked::Waits { .. }))
    }

    /// Whether an answer is there that nobody has taken yet.
    pub(crate) fn has_replies(&self) -> bool {
        self.asked.values().any(|asked| matches!(asked, Asked::Answered { .. }))
    }

    /// Nobody waits for this answer any more; until it comes, if it can, the other side may read what is kept, which is taken for that. If it is there
    /// already, it is returned, so that a lease or buffers are given back.
    pub(crate) fn abandon(&mut self, number: u64, kept: &mut Option<Kept>) -> Option<Reply> {
        match self.asked.remove(&number)? {
            Asked::Answered { reply, is_new } => Some(self.is_taken(reply, is_new)),
            Asked::Waits { gives_lease } => {
                if !self.has_ended && (gives_lease || kept.is_some()) {
                    self.asked.insert(number, Asked::Abandoned { kept: kept.take() });
                }
                None
            }
            abandoned @ Asked::Abandoned { .. } => {
                self.asked.insert(number, abandoned);
                None
            }
        }
    }

    /// The connection has ended: no answer comes any more, what was kept is given up, and nobody waits for what was asked for.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
        let over = &mut self.over;
        self.asked.retain(|_, asked| match asked {
            Asked::Abandoned { kept } => {
                over.extend(kept.take());
                false
            }
            _ => true,
        });
        self.requests.clear();
        self.spare.clear();
    }

    /// What nobody reads any more.
    pub(crate) fn take_over(&mut self) -> Vec<Kept> {
        core::mem::take(&mut self.over)
    }

    /// The memory that answers take which nobody has looked at.
    pub(crate) fn bytes(&self) -> usize {
        self.asked.values().map(Asked::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_for_answers_that_do_not_come() {
        let mut calls = Calls::default();
        let mut kept = [(); 2].map(|()| Some(Box::new(()) as Kept));
        let numbers = [calls.ask(false), calls.ask(false)];
        assert!(calls.abandon(numbers[0], &mut kept[0]).is_none() && kept[0].is_none());
        calls.end();
        assert_eq!(calls.take_over().len(), 1);
        assert!(calls.abandon(numbers[1], &mut kept[1]).is_none() && kept[1].is_some());
        assert!(calls.asked.is_empty());
    }

    #[test]
    fn not_much_memory_is_kept_to_be_used_again() {
        let mut calls = Calls::default();
        (0..100).for_each(|_| calls.keep_spare(vec![0; 100]));
        assert_eq!(calls.spare.len(), SPARE);
        calls.end();
        assert!(calls.spare.is_empty());
    }
}
