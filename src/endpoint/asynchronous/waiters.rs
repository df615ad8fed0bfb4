//! The tasks that wait at an endpoint, and what each of them waits for.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::endpoint::link::{Link, Stage};
use crate::endpoint::peer::Peer;
use crate::endpoint::state::State;

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    /// Anything that is reported.
    Event,
    /// A message of any peer.
    Unexpected,
    /// A message of this peer with this tag.
    Expected(Peer, u64),
    /// An answer of this peer to a request of a transfer.
    Answer(Peer),
    /// Room for a message of this number of bytes to this peer.
    Room(Peer, usize),
    /// Room for a request to this peer.
    Place(Peer),
    /// That this peer accepts, or refuses.
    Accepted(Peer),
}

/// Those who wait, in the order in which they have come.
#[derive(Default)]
pub(super) struct Waiters {
    waiting: BTreeMap<u64, (Interest, Waker)>,
    next: u64,
    /// The changes of the endpoint up to which it is known who has to be woken.
    seen: u64,
}

impl Waiters {
    /// Notes who waits, in place of who was noted by this number before. What is returned is to be dropped without the lock: with a
    /// waker a task may be dropped that waits here itself.
    #[must_use]
    pub(super) fn put(&mut self, number: &mut Option<u64>, interest: Interest, waker: &Waker) -> Option<Waker> {
        let number = *number.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        self.waiting.insert(number, (interest, waker.clone())).map(|(_, old)| old)
    }

    /// The same holds for what this returns.
    #[must_use]
    pub(super) fn remove(&mut self, number: u64) -> Option<Waker> {
        self.waiting.remove(&number).map(|(_, old)| old)
    }

    /// Those who have something to do, if anything has happened since this was asked.
    pub(super) fn take_ready(&mut self, state: &mut State) -> Vec<Waker> {
        let changes = state.links.changes;
        // In a forked child there are no channels, and all calls fail.
        if core::mem::replace(&mut self.seen, changes) == changes || state.check().is_err() {
            return Vec::new();
        }
        self.take_if(|interest| is_there(interest, state))
    }

    /// Those who have to look themselves once the endpoint has parked its peers, which then ring: a message may be behind others
    /// that nobody has received; and there may be room that is not reported, since it is not for any message.
    pub(super) fn take_parked(&mut self, state: &mut State) -> Vec<Waker> {
        self.take_if(|interest| match interest {
            Interest::Expected(peer, _) | Interest::Answer(peer) => {
                state.links.get(peer).is_some_and(|link| link.is_full())
            }
            Interest::Room(..) => is_there(interest, state),
            Interest::Place(peer) => {
                state.links.get(peer).is_some_and(|link| link.is_full()) || is_there(interest, state)
            }
            Interest::Unexpected => !state.full.is_empty(),
            Interest::Event | Interest::Accepted(_) => false,
        })
    }

    pub(super) fn take_all(&mut self) -> Vec<Waker> {
        self.take_if(|_| true)
    }

    /// A task that is woken and finds nothing waits again.
    fn take_if(&mut self, mut is_woken: impl FnMut(Interest) -> bool) -> Vec<Waker> {
        let mut woken = Vec::new();
        self.waiting.retain(|_, (interest, waker)| {
            let is_woken = is_woken(*interest);
            if is_woken {
                woken.push(waker.clone());
            }
            !is_woken
        });
        woken
    }
}

/// Whether a call would not have to wait.
fn is_there(interest: Interest, state: &mut State) -> bool {
    let is_open = |link: &Link| !matches!(link.stage, Stage::Ended(_));
    match interest {
        Interest::Event => state.links.has_news(),
        Interest::Unexpected => !state.unexpected.is_empty(),
        // Of a peer that is gone an error is there.
        Interest::Expected(peer, tag) => {
            state.links.get(peer).is_none_or(|link| !is_open(link) || link.expected(tag, 0).is_some())
        }
        Interest::Answer(peer) => {
            state.links.get(peer).is_none_or(|link| !is_open(link) || link.calls.has_replies())
        }
        Interest::Room(peer, bytes) => {
            state.links.get(peer).is_none_or(|link| !is_open(link) || link.finds_room(bytes))
        }
        Interest::Place(peer) => state.links.get(peer).is_none_or(|link| !is_open(link) || link.finds_place()),
        Interest::Accepted(peer) => state.links.get(peer).is_none_or(|link| link.stage != Stage::Asked),
    }
}
