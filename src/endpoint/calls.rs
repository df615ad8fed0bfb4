//! What the two sides of a connection ask of each other's memory: requests that wait for an answer, on either side.

use std::collections::{HashMap, VecDeque};

/// The most requests of a peer that wait. Further ones stay in its channel.
const WAITING: usize = 64;

#[derive(Default)]
pub(crate) struct Calls {
    /// Of the other side: numbers, and what is asked.
    requests: VecDeque<(u64, Vec<u8>)>,
    /// Of this side, by number: the answer, once it is there.
    asked: HashMap<u64, Option<Vec<u8>>>,
    next: u64,
    /// Whether there was no room for a request of this side.
    pub(crate) wants_room: bool,
    /// Whether the system lets this process not read the other's memory.
    pub(crate) cannot_read: bool,
    /// The same the other way.
    pub(crate) cannot_be_read: bool,
}

impl Calls {
    pub(crate) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Whether no more are taken in.
    pub(crate) fn is_full(&self) -> bool {
        self.requests.len() >= WAITING
    }

    pub(crate) fn push_request(&mut self, number: u64, request: Vec<u8>) {
        self.requests.push_back((number, request));
    }

    pub(crate) fn next_request(&mut self) -> Option<(u64, Vec<u8>)> {
        self.requests.pop_front()
    }

    /// The number of a request that this side makes, and for whose answer it waits.
    pub(crate) fn ask(&mut self) -> u64 {
        self.next += 1;
        self.asked.insert(self.next, None);
        self.next
    }

    /// An answer has come. It may be one for which nobody waits any more.
    pub(crate) fn push_reply(&mut self, number: u64, reply: Vec<u8>) {
        if let Some(asked @ None) = self.asked.get_mut(&number) {
            *asked = Some(reply);
        }
    }

    /// The answer to a request, once it is there.
    pub(crate) fn take_reply(&mut self, number: u64) -> Option<Vec<u8>> {
        let reply = self.asked.get_mut(&number)?.take()?;
        self.asked.remove(&number);
        Some(reply)
    }

    /// Nobody waits for answers any more.
    pub(crate) fn forget(&mut self) {
        self.asked.clear();
        self.wants_room = false;
    }
}
