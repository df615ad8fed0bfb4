//! All connections of an endpoint, by peer.

use std::collections::VecDeque;

use crate::endpoint::ended::Ended;
use crate::endpoint::error::EndpointError;
use crate::endpoint::kept::Kept;
use crate::endpoint::link::{Known, Link, Stage};
use crate::endpoint::peer::{Event, Peer};
use crate::tuning::ENDPOINT_GONE_BYTES;

#[derive(Default)]
struct Slot {
    generation: u32,
    link: Option<Link>,
    /// Why the one before has ended.
    ended: Option<Ended>,
}

/// A connection that is not there any more, of which the end is to be reported.
struct Gone {
    peer: Peer,
    ended: Ended,
    /// Whether its beginning is to be reported first.
    connected: bool,
    known: Known,
}

/// The connections, and those of which something is to be reported.
#[derive(Default)]
pub(crate) struct Links {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Whose connections have not ended.
    alive: usize,
    /// Whose connections have ended, and who have sent what nobody has received.
    kept: Kept,
    news: VecDeque<Peer>,
    closed: VecDeque<Gone>,
    /// Whether these had their turn to be reported last.
    closed_had_turn: bool,
    /// How often something has happened.
    #[cfg(feature = "tokio")]
    pub(super) changes: u64,
}

/// The most connections that are not there any more of which the end is kept to be reported, beside those that were reported as connected.
const CLOSED: usize = 4096;

impl Links {
    /// How many have not ended.
    pub(crate) fn alive(&self) -> usize {
        self.alive
    }

    /// Adds a connection, which learns its peer.
    pub(crate) fn add(&mut self, make: impl FnOnce(Peer) -> Link) -> Peer {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        let peer = Peer { slot, generation: place.generation };
        place.link = Some(make(peer));
        self.alive += 1;
        peer
    }

    #[inline]
    pub(crate) fn get(&mut self, peer: Peer) -> Option<&mut Link> {
        let slot = self.slots.get_mut(peer.slot as usize).filter(|slot| slot.generation == peer.generation)?;
        slot.link.as_mut()
    }

    /// The connection, even if it has ended.
    #[inline]
    pub(crate) fn find(&mut self, peer: Peer) -> Result<&mut Link, EndpointError> {
        match self.slots.get_mut(peer.slot as usize) {
            Some(Slot { generation, link: Some(link), .. }) if *generation == peer.generation => Ok(link),
            Some(Slot { generation, ended: Some(ended), .. })
                if *generation == peer.generation.wrapping_add(1) =>
            {
                Err(EndpointError::PeerGone { peer, ended: *ended })
            }
            _ => Err(EndpointError::UnknownPeer { peer }),
        }
    }

    /// The connection, if it has not ended.
    #[inline]
    pub(crate) fn find_open(&mut self, peer: Peer) -> Result<&mut Link, EndpointError> {
        let link = self.find(peer)?;
        match link.stage {
            Stage::Ended(ended) => Err(EndpointError::PeerGone { peer, ended }),
            Stage::Asked | Stage::Open => Ok(link),
        }
    }

    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Link> {
        self.slots.iter_mut().filter_map(|slot| slot.link.as_mut())
    }

    /// Something has happened that a task may wait for.
    pub(crate) fn has_changed(&mut self) {
        #[cfg(feature = "tokio")]
        {
            self.changes += 1;
        }
    }

    /// Something is to be reported of this connection.
    pub(crate) fn has_news_of(&mut self, peer: Peer) {
        self.has_changed();
        if let Some(link) = self.get(peer)
            && !core::mem::replace(&mut link.in_news, true)
        {
            self.news.push_back(peer);
        }
    }

    /// A connection has ended: not to be called twice. Returns whose messages are not kept any more for that.
    pub(crate) fn has_ended(&mut self, peer: Peer) -> Vec<Peer> {
        self.alive -= 1;
        self.has_news_of(peer);
        self.remove_if_done(peer);
        // What nobody receives is not kept for ever.
        let mut forgotten = Vec::new();
        while self.kept.bytes() > ENDPOINT_GONE_BYTES
            && let Some(first) = self.kept.first_of_the_most()
        {
            self.remove(first);
            forgotten.push(first);
        }
        forgotten
    }

    /// Removes a connection that has ended, if all that it has sent is received. Otherwise some of it may be.
    pub(crate) fn remove_if_done(&mut self, peer: Peer) {
        let Some(link) = self.get(peer) else { return };
        if link.is_done() {
            self.remove(peer);
        } else if matches!(link.stage, Stage::Ended(_)) {
            let (process, bytes) = (link.process_number(), link.bytes());
            self.kept.keep(peer, process, bytes);
        }
    }

    /// Removes a connection that has ended. That it began and has ended is reported, and nothing else.
    pub(crate) fn remove(&mut self, peer: Peer) {
        self.kept.forget(peer);
        let Some(mut link) =
            self.get(peer).is_some().then(|| self.slots[peer.slot as usize].link.take()).flatten()
        else {
            return;
        };
        if link.in_news {
            self.news.retain(|news| *news != peer);
        }
        let (known, mut connected) = (link.known, false);
        while let Some(event) = link.next_event() {
            match event {
                Event::Connected { .. } => connected = true,
                Event::Closed { ended, .. } => self.closed.push_back(Gone { peer, ended, connected, known }),
                _ => {}
            }
        }
        self.limit_closed();
        let slot = &mut self.slots[peer.slot as usize];
        if let Stage::Ended(ended) = link.stage {
            slot.ended = Some(ended);
        }
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(peer.slot);
    }

    /// Forgets the first of those that nobody knows of, if there are too many; if the program knows of all, one that it has connected to
    /// itself. The ends of those that were reported are not forgotten: they are few, since each report lets one of these be reported.
    fn limit_closed(&mut self) {
        if self.closed.len() > CLOSED {
            let first = |known| self.closed.iter().position(|gone| gone.known == known);
            let first = first(Known::Unknown).or_else(|| first(Known::Dialled));
            first.map(|first| self.closed.remove(first));
        }
    }

    /// Reports nothing more of a connection that is not there any more.
    pub(crate) fn forget(&mut self, peer: Peer) {
        self.closed.retain(|gone| gone.peer != peer);
    }

    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty() || !self.closed.is_empty()
    }

    /// The next that is to be reported: of those that are not there any more, and of the others, each in turn.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.closed_had_turn = !self.closed_had_turn;
        if self.closed_had_turn {
            self.next_closed().or_else(|| self.next_news())
        } else {
            self.next_news().or_else(|| self.next_closed())
        }
    }

    fn next_closed(&mut self) -> Option<Event> {
        let gone = self.closed.front_mut()?;
        let peer = gone.peer;
        if core::mem::take(&mut gone.connected) {
            gone.known = Known::Reported;
            return Some(Event::Connected { peer });
        }
        self.closed.pop_front().map(|Gone { ended, .. }| Event::Closed { peer, ended })
    }

    /// Each peer in its turn.
    fn next_news(&mut self) -> Option<Event> {
        while let Some(peer) = self.news.pop_front() {
            let Some(link) = self.get(peer) else { continue };
            link.in_news = false;
            let event = link.next_event();
            match event {
                None => {}
                // Its end is reported, and perhaps nothing is left of it to be received.
                Some(Event::Closed { .. }) => {
                    self.remove_if_done(peer);
                    return event;
                }
                Some(_) => {
                    self.has_news_of(peer);
                    return event;
                }
            }
        }
        None
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::endpoint::link::{Arrived, Content, MEASURED, connected};

    fn add(links: &mut Links, stage: Stage) -> Peer {
        let peer = links.add(|peer| {
            let [link, _] = connected(peer, stage).expect("a connection");
            link
        });
        links.has_news_of(peer);
        peer
    }

    fn end(links: &mut Links, peer: Peer) {
        links.get(peer).expect("it is there").end(Ended::Left);
        links.has_ended(peer);
    }

    /// However many connect and leave meanwhile.
    #[test]
    fn the_end_of_who_was_reported_is_reported() {
        let mut links = Links::default();
        let connected = |event| matches!(event, Some(Event::Connected { .. }));
        let reported = add(&mut links, Stage::Open);
        assert!(connected(links.next_event()));
        // Its program knows of it.
        let dialled = add(&mut links, Stage::Asked);
        // Half of what there is to report of this one is.
        let half = add(&mut links, Stage::Open);
        end(&mut links, half);
        assert!(connected(links.next_event()));
        end(&mut links, reported);
        end(&mut links, dialled);
        for _ in 0..2 * CLOSED {
            let peer = add(&mut links, Stage::Open);
            end(&mut links, peer);
        }
        assert!(links.news.is_empty(), "no connection is there of which there is news");
        let (mut begun, mut ended) = (HashSet::from([reported, dialled, half]), 0);
        while let Some(event) = links.next_event() {
            match event {
                Event::Connected { peer } => assert!(begun.insert(peer), "{peer} twice"),
                Event::Closed { peer, .. } => {
                    assert!(begun.remove(&peer), "the end of {peer} alone");
                    ended += 1;
                }
                event => panic!("{event:?}"),
            }
        }
        assert!(begun.is_empty(), "no ends of {begun:?}");
        // What nobody asks for does not grow.
        assert_eq!(ended, CLOSED);
    }

    /// Very many may be gone: those that have sent what nobody receives.
    #[test]
    fn when_a_peer_ends_those_that_are_gone_are_not_looked_at() {
        let mut links = Links::default();
        for ended in 1..=40 {
            let peer = add(&mut links, Stage::Open);
            let message =
                Arrived { expected: true, tag: 0, bytes: 0, content: Content::Private(Box::default()) };
            links.get(peer).expect("it is there").arrived.push_back(message);
            let before = MEASURED.get();
            end(&mut links, peer);
            assert!(
                MEASURED.get() - before <= 1,
                "{} were, by the end number {ended}",
                MEASURED.get() - before
            );
        }
        // No more than are kept of these.
        assert!((1..40).contains(&links.all().count()));
    }

    /// What is meant for a peer that is gone does not reach the next one in its place.
    #[test]
    fn a_peer_that_is_gone_names_no_other() {
        let mut links = Links::default();
        let first = add(&mut links, Stage::Open);
        // What it has sent is kept, until it is disconnected.
        let content = Content::Private(Box::default());
        let message = Arrived { expected: true, tag: 0, bytes: 0, content };
        links.get(first).expect("it is there").arrived.push_back(message);
        end(&mut links, first);
        assert_eq!(links.kept.first_of_the_most(), Some(first));
        links.remove(first);
        assert_eq!(links.kept.first_of_the_most(), None);
        let second = add(&mut links, Stage::Open);
        assert_eq!((second.slot, second.generation), (first.slot, first.generation + 1));
        assert!(links.get(first).is_none() && links.get(second).is_some());
        let gone = |error| matches!(error, Err(EndpointError::PeerGone { ended: Ended::Left, .. }));
        assert!(gone(links.find(first).map(drop)) && links.find(second).is_ok());
        end(&mut links, second);
        // Only of the last is it known why.
        let error = links.find(first).map(drop);
        assert!(matches!(error, Err(EndpointError::UnknownPeer { .. })), "{error:?}");
        assert!(gone(links.find(second).map(drop)));
    }
}
