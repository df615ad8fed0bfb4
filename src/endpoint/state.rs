//! What goes on at an endpoint, in its calls only: what has come is taken in, connections begin and end.
//!
//! A peer is *awake* or *parked*. The channels of those that are awake are polled, which takes no system call. Before the endpoint
//! sleeps it parks all of them: it marks its bell in each channel and looks once more. A parked peer sends a packet over its
//! socket after its next message, and is awake again. So peers from which nothing comes cost nothing, however many they are.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::endpoint::ended::Ended;
use crate::endpoint::error::{EndpointError, system};
use crate::endpoint::key::Key;
use crate::endpoint::left::{Left, Unanswered};
use crate::endpoint::link::{Link, Stage, TakenIn};
use crate::endpoint::links::Links;
use crate::endpoint::listener::{Greeting, Listener};
use crate::endpoint::over::Over;
use crate::endpoint::peer::Peer;
use crate::endpoint::shares::Shares;
use crate::protocol::message::channel::{LINE_SLOTS, MOST, SLOTS};
use crate::protocol::message::{Attention, Envelope};
use crate::segment::pair_memory::PairMemory;
use crate::sys::epoll::{BATCH, Epoll};
use crate::sys::memory::fork::ForkGuard;
use crate::sys::socket;
use crate::sys::wait::spin::SpinPolicy;
use crate::tuning::{
    ENDPOINT_CALLS_OF_CHANNELS, ENDPOINT_POLLS_PER_CALL, ENDPOINT_SPIN_FOR_ANSWERS, ENDPOINT_TIME_OF_CHANNELS,
    MESSAGE_BATCH,
};

/// How often a call looks behind the messages of peers before it is somebody else's turn: one that never stops sending holds up nobody. A
/// channel holds less. So a call that finds something each time finds what was published during it, and of a peer that is parked a packet waits.
pub(super) const BATCHES_BEHIND: usize = (MOST * SLOTS + LINE_SLOTS) / MESSAGE_BATCH + 1;

/// An endpoint.
pub struct State {
    pub(crate) epoll: Epoll,
    guard: ForkGuard,
    pub(crate) listener: Option<Listener>,
    pub(super) greetings: Vec<Greeting>,
    pub(super) greeted: u32,
    pub(crate) links: Links,
    pub(crate) shares: Shares,
    /// By which requests know the endpoint, too.
    pub(super) left: Arc<Left>,
    pub(super) over: Over,
    /// Those whose channels are polled.
    pub(super) awake: Vec<Peer>,
    /// By message that was not expected, in the order in which they were taken in: its sender.
    pub(crate) unexpected: VecDeque<Peer>,
    /// Peers with as many messages that are not received as are taken in: others may be behind them.
    pub(crate) full: BTreeSet<Peer>,
    /// Whose turn it is to be the first.
    pub(super) turn: usize,
    /// The polls since it was last thought of asking the system; those of a call that finds something at once count for several.
    pub(super) polls: u32,
    /// Whether something has come since then.
    pub(super) is_busy: bool,
    /// Whether answers may have come of which nobody has been told.
    pub(super) has_answers: bool,
    /// Whether it may be that a transfer that was started can go on without another answer.
    pub(super) goes_on: bool,
    /// How often something was taken in that is not received at once, wrapping.
    pub(super) taken_in: u32,
    /// When the system was last asked.
    looked: Instant,
    pub(super) spin: SpinPolicy,
    pub(super) max_peers: usize,
}

impl State {
    pub(crate) fn new(
        listener: Option<Listener>,
        spin: SpinPolicy,
        max_peers: usize,
    ) -> Result<Self, EndpointError> {
        let operation = if listener.is_some() { "listen" } else { "client" };
        let epoll = Epoll::new().map_err(system(operation, "a descriptor"))?;
        if let Some(listener) = &listener {
            for (fd, key) in [(listener.as_fd(), Key::Listener), (listener.timer.as_fd(), Key::Timer)] {
                epoll.add(fd, key.encode()).map_err(system(operation, "a descriptor"))?;
            }
        }
        let guard = ForkGuard::new().map_err(system(operation, "a page of memory"))?;
        let (greetings, links, left, over, awake, unexpected, full) = Default::default();
        Ok(State {
            epoll,
            guard,
            listener,
            greetings,
            greeted: 0,
            links,
            shares: Shares::new(),
            left,
            over,
            awake,
            unexpected,
            full,
            turn: 0,
            polls: 0,
            is_busy: false,
            has_answers: false,
            goes_on: false,
            taken_in: 0,
            looked: Instant::now(),
            spin,
            max_peers,
        })
    }

    /// Whether it polls for a while before it sleeps, so that what a peer answers finds it awake.
    pub(super) fn polls(&self) -> bool {
        self.spin.spins_for(ENDPOINT_SPIN_FOR_ANSWERS)
    }

    /// That this is the process that has made the endpoint.
    pub(crate) fn check(&self) -> Result<(), EndpointError> {
        if self.guard.forked() { Err(EndpointError::Forked) } else { Ok(()) }
    }

    /// Adds a connection.
    pub(crate) fn add(
        &mut self,
        stage: Stage,
        socket: OwnedFd,
        process: (Option<OwnedFd>, u32),
        memory: PairMemory,
    ) -> io::Result<Peer> {
        memory.show(self.shares.cookie.token());
        // Nothing that this library sends from here on has descriptors.
        socket::refuse_descriptors(socket.as_fd());
        let peer = self.links.add(|peer| Link::new(peer, stage, socket, process, memory));
        let link = self.links.get(peer).expect("it was just added");
        let keys = [Key::Socket(peer), Key::Process(peer)];
        let added = link.descriptors().zip(keys).try_for_each(|(fd, key)| self.epoll.add(fd, key.encode()));
        if let Err(error) = added {
            self.give_up(peer);
            return Err(error);
        }
        self.awake.push(peer);
        self.links.has_news_of(peer);
        Ok(peer)
    }

    /// Takes in what has come from those that are awake, and now and then from all, without waiting.
    #[inline]
    pub(crate) fn progress(&mut self) -> Result<(), EndpointError> {
        self.poll(ENDPOINT_POLLS_PER_CALL)
    }

    /// The same, for this number of polls of those after which it looks at all.
    pub(super) fn poll(&mut self, polls: u32) -> Result<(), EndpointError> {
        let is_due = self.is_due(polls);
        self.polls += polls;
        self.take_in_awake(is_due)
    }

    /// Whether it is time to look at all, with this number of polls.
    #[inline]
    pub(super) fn is_due(&mut self, polls: u32) -> bool {
        let is_many = self.polls + polls >= ENDPOINT_CALLS_OF_CHANNELS * ENDPOINT_POLLS_PER_CALL;
        self.awake.is_empty() || is_many && self.is_time_to_look()
    }

    /// After many polls: whether the system was last asked some time ago, or there is nothing else to do. If not, they are counted from
    /// here on.
    #[cold]
    fn is_time_to_look(&mut self) -> bool {
        let is_due = !self.is_busy || self.looked.elapsed() >= ENDPOINT_TIME_OF_CHANNELS;
        if !is_due {
            (self.polls, self.is_busy) = (0, false);
        }
        is_due
    }

    /// Takes in what has come from those that are awake, and then looks at all, if that is due.
    pub(super) fn take_in_awake(&mut self, is_due: bool) -> Result<(), EndpointError> {
        self.check()?;
        match self.awake[..] {
            [peer] => self.take_in(peer),
            _ => self.take_in_all(),
        }
        if is_due {
            self.look(Some(Duration::ZERO))?;
            (self.polls, self.is_busy, self.looked) = (0, false, Instant::now());
        }
        Ok(())
    }

    fn take_in_all(&mut self) {
        let count = self.awake.len();
        // Each is the first in its turn. Who ends meanwhile leaves the list, so that one may be left out.
        self.turn = if self.turn + 1 < count { self.turn + 1 } else { 0 };
        for index in (self.turn..count).chain(0..self.turn) {
            if let Some(peer) = self.awake.get(index).copied() {
                self.take_in(peer);
            }
        }
    }

    fn take_in(&mut self, peer: Peer) {
        let Some(link) = self.links.get(peer) else { return };
        if link.is_quiet() {
            return;
        }
        let taken = link.take_in();
        self.is_taken_in(peer, taken);
    }

    /// Keeps a cell that was taken from a channel, and takes in what is behind it.
    #[inline(never)]
    pub(super) fn keep(&mut self, peer: Peer, cell: Envelope) {
        let Some(link) = self.links.get(peer) else { return };
        let taken = link.take_in_with(cell);
        self.is_taken_in(peer, taken);
    }

    /// Goes on with what was taken in.
    fn is_taken_in(&mut self, peer: Peer, taken: TakenIn) {
        let Some(link) = self.links.get(peer) else { return };
        self.shares.serve(link);
        self.notices_room(peer);
        self.has_come(peer, taken);
        self.over.drop_now();
    }

    /// Notices that there is room again for what this side has wanted to send to a peer.
    fn notices_room(&mut self, peer: Peer) {
        let Some(link) = self.links.get(peer) else { return };
        let wanted_room = link.calls.wants_room;
        if link.notices_room() {
            self.goes_on |= wanted_room && !link.calls.wants_room;
            self.links.has_news_of(peer);
        }
    }

    /// Looks behind messages of a peer that nobody has received, if they may be in the way. Returns whether
    /// something has come.
    pub(crate) fn take_in_behind(&mut self, peer: Peer) -> Result<bool, EndpointError> {
        let link = self.links.find(peer)?;
        if !link.is_full() || matches!(link.stage, Stage::Ended(_)) {
            return Ok(false);
        }
        let taken = link.take_in_behind()?;
        self.shares.serve(link);
        // Answers make room for further requests.
        self.notices_room(peer);
        let has_come = taken.cells > 0 || taken.violated;
        self.has_come(peer, taken);
        Ok(has_come)
    }

    /// The same for all peers, for a message that may be any's. One that has sent too many is in nobody's way.
    pub(crate) fn take_in_behind_all(&mut self) -> bool {
        let mut has_come = false;
        for peer in core::mem::take(&mut self.full) {
            has_come |= self.take_in_behind(peer).unwrap_or(false);
            if self.links.find_open(peer).is_ok_and(|link| link.is_full()) {
                self.full.insert(peer);
            }
        }
        has_come
    }

    /// Notes what has come, and ends a peer behind what it has sent before it violated the protocol.
    pub(crate) fn has_come(&mut self, peer: Peer, taken: TakenIn) {
        if taken.cells > 0 || taken.violated {
            self.is_busy = true;
            self.taken_in = self.taken_in.wrapping_add(1);
        }
        if taken.cells > taken.messages {
            self.have_come(peer);
        }
        match taken {
            TakenIn { cells: 0, .. } => {}
            TakenIn { messages: 0, .. } => self.links.has_changed(),
            TakenIn { unexpected, .. } => {
                (0..unexpected).for_each(|_| self.unexpected.push_back(peer));
                self.links.has_news_of(peer);
            }
        }
        // An answer may hold the last buffer.
        if taken.cells > 0 && self.links.get(peer).is_some_and(|link| link.is_full()) {
            self.full.insert(peer);
        }
        if taken.violated {
            self.end(peer, Ended::Violated);
        }
    }

    /// Notes that requests or answers have come.
    fn have_come(&mut self, peer: Peer) {
        if let Some(link) = self.links.get(peer) {
            self.has_answers |= link.calls.has_new();
            self.over.add(link.calls.take_over());
        }
    }

    /// Looks at the descriptors; waits for one to be ready at most for so long, or without limit. Returns whether some may be left
    /// that are ready, for which nobody is woken who waits for an edge.
    pub(crate) fn look(&mut self, timeout: Option<Duration>) -> Result<bool, EndpointError> {
        for unanswered in self.left.take() {
            self.abandon(unanswered);
        }
        let ready = self.epoll.wait(timeout).map_err(system("wait", "to wait for descriptors"))?;
        let (mut is_left, mut connects) = (ready.len() == BATCH, false);
        for key in ready {
            match Key::decode(key) {
                Key::Listener => connects = true,
                Key::Timer => {
                    self.go_on_accepting();
                    is_left = true;
                }
                Key::Greeting(number) => self.greet(number),
                Key::Socket(peer) => is_left |= self.hear(peer),
                // What it has sent before is in its channel.
                Key::Process(peer) => self.end(peer, Ended::Died),
            }
        }
        // Last: who has left before takes no place any more.
        if connects {
            is_left |= self.accept();
        }
        self.over.drop_now();
        Ok(is_left)
    }

    /// Nobody waits for these answers any more. What the peer may still read is kept until it has answered.
    pub(super) fn abandon(&mut self, Unanswered { peer, numbers, mut kept }: Unanswered) {
        // In a forked child the channels are not there.
        if self.check().is_ok()
            && let Some(link) = self.links.get(peer)
        {
            for number in numbers {
                if let Some(reply) = link.calls.abandon(number, &mut kept) {
                    link.give_back(reply);
                }
            }
            self.links.remove_if_done(peer);
        }
        // It was asked for nothing that is not answered, or no answer comes any more.
        self.over.add(kept);
    }

    /// From now on this peer's channel is polled.
    pub(crate) fn wake(&mut self, peer: Peer) {
        if let Some(link) = self.links.get(peer)
            && link.is_parked()
        {
            link.attention = Attention::Awake;
            self.awake.push(peer);
        }
    }

    /// A message of this peer was received: there is room for more, or nothing is left.
    pub(crate) fn received(&mut self, peer: Peer) {
        let Some(link) = self.links.get(peer) else { return };
        if matches!(link.stage, Stage::Ended(_)) {
            self.links.remove_if_done(peer);
        } else if link.is_parked() && link.has_work() {
            self.wake(peer);
        }
    }

    /// A peer is gone: what it has sent is taken in, and its descriptors are closed.
    pub(crate) fn end(&mut self, peer: Peer, ended: Ended) {
        let Some(link) = self.links.get(peer) else { return };
        if matches!(link.stage, Stage::Ended(_)) {
            return;
        }
        // First: what it has sent before it closed can be seen then.
        let ended = if ended == Ended::Died { link.died_or_left() } else { ended };
        // What follows a violation is not believed either.
        let rest = if ended == Ended::Violated { TakenIn::default() } else { link.take_in_rest() };
        let ended = if rest.violated { Ended::Violated } else { ended };
        link.descriptors().for_each(|descriptor| self.epoll.remove(descriptor));
        // Who waits for answers is told that none come.
        self.goes_on |= link.calls.awaits_answers() || link.calls.wants_room;
        link.end(ended);
        self.over.add(link.calls.take_over());
        if !link.is_done() {
            link.keep_privately();
        }
        self.shares.forget(peer);
        self.awake.retain(|awake| *awake != peer);
        self.has_come(peer, rest);
        // Nothing comes behind what has come.
        self.full.remove(&peer);
        for forgotten in self.links.has_ended(peer) {
            self.forget_unexpected(forgotten);
        }
    }

    /// Nobody receives what this peer has sent.
    fn forget_unexpected(&mut self, peer: Peer) {
        self.unexpected.retain(|sender| *sender != peer);
    }

    /// Ends a connection from this side. What has come of it is thrown away.
    pub(crate) fn disconnect(&mut self, peer: Peer) {
        if let Some(link) = self.links.get(peer) {
            link.close();
            self.end(peer, Ended::Disconnected);
            self.links.remove(peer);
            self.forget_unexpected(peer);
        }
        self.over.drop_now();
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if !self.guard.forked() {
            // First: a peer that finds its lease withdrawn sees why.
            self.links.all().for_each(|link| link.close());
            // What peers read meanwhile will not be there any more.
            self.links.all().for_each(|link| link.withdraw_all());
            self.turn_away();
            self.links.all().for_each(|link| link.hang_up());
        }
    }
}
