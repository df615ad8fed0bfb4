//! What comes over an endpoint's sockets: connections, hellos, and what wakes.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use crate::endpoint::ended::{Ended, Refusal};
use crate::endpoint::error::EndpointError;
use crate::endpoint::hello::{PACKET, Packet};
use crate::endpoint::key::Key;
use crate::endpoint::link::Stage;
use crate::endpoint::listener::{Accepted, Greeted, Greeting, Listener, Newcomer, end, refuse};
use crate::endpoint::peer::Peer;
use crate::endpoint::state::State;
use crate::sys::socket;
use crate::tuning::{ENDPOINT_BATCH, ENDPOINT_PAUSE};

impl State {
    /// Accepts connections, as far as there is room for them. Returns whether more may wait.
    pub(super) fn accept(&mut self) -> bool {
        self.remove_late();
        self.listener.iter_mut().for_each(Listener::find_spare);
        for _ in 0..ENDPOINT_BATCH {
            self.greeted = self.greeted.wrapping_add(1);
            let number = self.greeted;
            let accepted = self.listener.as_mut().map_or(Accepted::None, |listener| listener.accept(number));
            let greeting = match accepted {
                Accepted::Greeting(greeting) => greeting,
                Accepted::Refused => continue,
                Accepted::None => return false,
                Accepted::NotNow => {
                    self.pause_accepting();
                    return false;
                }
            };
            if self.places_taken() >= self.max_peers {
                refuse(greeting.socket, Refusal::Full);
            } else if self.epoll.add(greeting.socket.as_fd(), Key::Greeting(number).encode()).is_err() {
                refuse(greeting.socket, Refusal::Resources);
            } else {
                self.greetings.push(greeting);
                self.greet(number);
            }
        }
        true
    }

    /// For some time nobody looks at who connects: as long as none can be accepted, the descriptor would say that there is work.
    fn pause_accepting(&self) {
        let Some(listener) = &self.listener else { return };
        self.epoll.heed(listener.as_fd(), Key::Listener.encode(), false);
        listener.timer.set(ENDPOINT_PAUSE);
    }

    /// The time is over. The next look at the descriptors tells whether somebody waits.
    pub(super) fn go_on_accepting(&self) {
        let Some(listener) = &self.listener else { return };
        listener.timer.set(Duration::ZERO);
        self.epoll.heed(listener.as_fd(), Key::Listener.encode(), true);
    }

    fn find_greeting(&self, number: u32) -> Option<usize> {
        self.greetings.iter().position(|greeting| greeting.number == number)
    }

    /// Reads the hello of a connection, if it has come.
    pub(super) fn greet(&mut self, number: u32) {
        let Some(index) = self.find_greeting(number) else { return };
        match self.greetings[index].hear() {
            Greeted::NotYet => {}
            Greeted::Gone => socket::close(self.remove_greeting(index).socket),
            Greeted::Refused(why) => refuse(self.remove_greeting(index).socket, why),
            Greeted::Accepted(newcomer) => {
                let Newcomer { memory, process, is_gone } = *newcomer;
                let socket = self.remove_greeting(index).socket;
                // Before the connection is there: what it sends comes after this. An error means that the other side is gone.
                let _ = socket::send(socket.as_raw_fd(), &Packet::Accepted.encode());
                // Without room in the set of descriptors the connection is closed.
                let added = self.add(Stage::Open, socket, process, memory);
                // A forked child of its may keep the connection.
                if is_gone && let Ok(peer) = added {
                    self.end(peer, Ended::Died);
                }
            }
        }
    }

    /// Tells those who have not been accepted yet that nobody will, as they could not tell that from a death. Accepts nothing any more.
    pub(super) fn turn_away(&mut self) {
        let Some(mut listener) = self.listener.take() else { return };
        // Another thread that is just looking at the endpoint's descriptor would keep the listener, and with it the name, until it has looked.
        // From here on nobody looks at the listener: both take the instance's lock.
        self.epoll.remove(listener.as_fd());
        self.epoll.remove(listener.timer.as_fd());
        // First: who connects from now on finds that nobody listens.
        listener.shut();
        // As many as were waiting.
        let waiting = core::iter::from_fn(|| match listener.accept(0) {
            Accepted::Greeting(greeting) => Some(Some(greeting)),
            Accepted::Refused => Some(None),
            Accepted::None | Accepted::NotNow => None,
        });
        for greeting in self.greetings.drain(..).chain(waiting.flatten()) {
            end(greeting.socket, Packet::Left);
        }
    }

    /// How many peers there are, with those that have connected and may be accepted.
    fn places_taken(&self) -> usize {
        self.links.alive() + self.greetings.len()
    }

    /// Whether this endpoint can have one peer more.
    pub(crate) fn check_room_for_peer(&mut self) -> Result<(), EndpointError> {
        self.remove_late();
        let peers = self.places_taken();
        if peers < self.max_peers { Ok(()) } else { Err(EndpointError::TooManyPeers { peers }) }
    }

    /// Those that have said nothing for too long hold no places.
    fn remove_late(&mut self) {
        let late = self.greetings.iter().filter(|greeting| greeting.is_late());
        for number in late.map(|greeting| greeting.number).collect::<Vec<_>>() {
            // It may have come since this side has last looked.
            self.greet(number);
            if let Some(index) = self.find_greeting(number) {
                refuse(self.remove_greeting(index).socket, Refusal::Hello);
            }
        }
    }

    fn remove_greeting(&mut self, index: usize) -> Greeting {
        let greeting = self.greetings.swap_remove(index);
        self.epoll.remove(greeting.socket.as_fd());
        greeting
    }

    /// Reads what has come over a connection besides the channel. Returns whether there may be more.
    pub(super) fn hear(&mut self, peer: Peer) -> bool {
        let mut bytes = [0; PACKET];
        for _ in 0..ENDPOINT_BATCH {
            let Some(link) = self.links.get(peer) else { return false };
            let Some(socket) = link.socket() else { return false };
            let len = match socket::receive(socket, &mut bytes) {
                Ok(0) => return self.ends(peer, Ended::Died),
                Ok(len) => len,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return false,
                    // Said once by a side that has closed without having read all; what it has sent follows.
                    io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted => continue,
                    _ => return self.ends(peer, Ended::Died),
                },
            };
            match (Packet::decode(&bytes[..len]), link.stage) {
                (Some(Packet::Ring), _) => {
                    self.wake(peer);
                    // To see that there are none would take a system call more. The next look finds them.
                    return true;
                }
                (Some(Packet::Accepted), Stage::Asked) => {
                    link.accept();
                    self.wake(peer);
                    self.links.has_news_of(peer);
                }
                (Some(Packet::Left), Stage::Asked) => return self.ends(peer, Ended::Left),
                (Some(Packet::Refused(why)), Stage::Asked) => return self.ends(peer, Ended::Refused(why)),
                _ => return self.ends(peer, Ended::Violated),
            }
        }
        true
    }

    /// There is nothing more to read of this peer.
    fn ends(&mut self, peer: Peer, ended: Ended) -> bool {
        self.end(peer, ended);
        false
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::endpoint::api::Endpoint;
    use crate::endpoint::dialling::dial;
    use crate::endpoint::error::system;
    use crate::endpoint::peer::Event;
    use crate::segment::pair_memory::PairMemory;
    use crate::tuning::ENDPOINT_HELLO;

    /// A server with room for this number of peers, and as many connections to it over which nothing is said.
    fn silent(name: &str, count: usize) -> Result<(Endpoint, Vec<OwnedFd>), EndpointError> {
        let name = format!("silent-{name}-{}", std::process::id());
        let mut server = Endpoint::builder().max_peers(count).listen(&name)?;
        let socket_name = server.address().expect("it listens").socket_name();
        let connect = |_| socket::connect(&socket_name, None).map_err(system("test", "a connection"));
        let silent = (0..count).map(connect).collect::<Result<_, _>>()?;
        while server.state.greetings.len() < count {
            server.poll()?;
        }
        Ok((server, silent))
    }

    /// Time passes.
    fn are_late(server: &mut Endpoint) {
        for greeting in &mut server.state.greetings {
            greeting.since = greeting.since.checked_sub(ENDPOINT_HELLO).expect("the machine was just booted");
        }
    }

    #[test]
    fn connections_over_which_nothing_is_said_hold_no_places_for_long() -> Result<(), EndpointError> {
        const COUNT: usize = 8;
        let (mut server, _silent) = silent("late", COUNT)?;
        are_late(&mut server);
        let address = server.address().expect("it listens").clone();
        let mut clients = (0..COUNT).map(|_| Endpoint::client()).collect::<Result<Vec<_>, _>>()?;
        clients.iter_mut().try_for_each(|client| client.connect(&address).map(drop))?;
        while server.poll()?.is_some() || server.state.links.alive() + server.state.greetings.len() < COUNT {}
        for mut client in clients {
            let event = client.wait(Some(Duration::from_secs(10)))?;
            assert!(matches!(event, Some(Event::Connected { .. })), "{event:?}");
        }
        Ok(())
    }

    #[test]
    fn who_may_be_accepted_has_a_place_among_the_peers() -> Result<(), EndpointError> {
        let (mut server, _silent) = silent("counted", 1)?;
        let other = Endpoint::listen(&format!("silent-other-{}", std::process::id()))?;
        let address = other.address().expect("it listens");
        let error = server.connect(address);
        assert!(matches!(error, Err(EndpointError::TooManyPeers { peers: 1 })), "{error:?}");
        are_late(&mut server);
        server.connect(address)?;
        Ok(())
    }

    /// The server has computed while the hello came.
    #[test]
    fn whose_hello_came_before_anybody_looked_is_accepted() -> Result<(), EndpointError> {
        let mut server = Endpoint::listen(&format!("late-hello-{}", std::process::id()))?;
        let other = Endpoint::listen(&format!("late-hello-other-{}", std::process::id()))?;
        let address = server.address().expect("it listens").clone();
        let mut client = Endpoint::client()?;
        let dialled = dial(&address, None)?;
        while server.state.greetings.is_empty() {
            server.poll()?;
        }
        client.state.introduce(dialled)?;
        are_late(&mut server);
        server.connect(other.address().expect("it listens"))?;
        let event = client.wait(Some(Duration::from_secs(10)))?;
        assert!(matches!(event, Some(Event::Connected { .. })), "{event:?}");
        Ok(())
    }

    #[test]
    fn who_says_no_hello_in_time_is_told() -> Result<(), EndpointError> {
        let (mut server, silent) = silent("told", 1)?;
        are_late(&mut server);
        server.state.check_room_for_peer()?;
        let mut packet = [0; PACKET];
        let len = socket::receive(silent[0].as_fd(), &mut packet).map_err(system("test", "what it says"))?;
        assert_eq!(Packet::decode(&packet[..len]), Some(Packet::Refused(Refusal::Hello)));
        Ok(())
    }

    /// Their ends would be readable as long as they are kept.
    #[test]
    fn connections_that_end_before_anything_is_said_are_closed() -> Result<(), EndpointError> {
        let (mut server, silent) = silent("gone", 3)?;
        drop(silent);
        for _ in 0..10_000 {
            server.poll()?;
        }
        assert!(server.state.greetings.is_empty());
        Ok(())
    }

    /// More than are looked at in one go.
    #[test]
    fn descriptors_that_are_left_are_told_of() -> Result<(), EndpointError> {
        let (mut server, silent) = silent("many", 70)?;
        for connection in &silent {
            socket::send(connection.as_raw_fd(), b"nonsense").map_err(system("test", "to send"))?;
        }
        assert!(server.state.look(Some(Duration::ZERO))?);
        assert!(!server.state.look(Some(Duration::ZERO))?);
        assert!(server.state.greetings.is_empty());
        Ok(())
    }

    #[test]
    fn nothing_is_reported_of_a_connection_whose_descriptors_are_refused() -> Result<(), EndpointError> {
        for stage in [Stage::Asked, Stage::Open] {
            let mut own = Endpoint::client()?;
            let (memory, _) = PairMemory::create().map_err(system("test", "memory"))?;
            let (socket, _other) = UnixDatagram::pair().map_err(system("test", "a connection"))?;
            // Nobody can wait for it.
            let file = tempfile::tempfile().map_err(system("test", "a file"))?;
            let added = own.state.add(stage, socket.into(), (Some(file.into()), 0), memory);
            assert_eq!(added.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert_eq!((own.poll()?, own.state.links.alive()), (None, 0));
        }
        Ok(())
    }

    #[test]
    fn who_was_refused_before_the_hello_is_told_why() -> Result<(), EndpointError> {
        let name = format!("refused-before-{}", std::process::id());
        let mut server = Endpoint::builder().max_peers(1).listen(&name)?;
        let address = server.address().expect("it listens").clone();
        let (mut first, mut second) = (Endpoint::client()?, Endpoint::client()?);
        first.connect(&address)?;
        server.wait(None)?;
        let dialled = dial(&address, None)?;
        for _ in 0..1000 {
            server.poll()?;
        }
        second.state.introduce(dialled)?;
        let event = second.wait(Some(Duration::from_secs(10)))?;
        assert!(matches!(event, Some(Event::Closed { ended: Ended::Refused(Refusal::Full), .. })), "{event:?}");
        Ok(())
    }

    #[test]
    fn who_has_left_holds_no_place_of_who_connects_then() -> Result<(), EndpointError> {
        let mut server = Endpoint::builder().max_peers(1).listen(&format!("again-{}", std::process::id()))?;
        let address = server.address().expect("it listens").clone();
        let mut client = Endpoint::client()?;
        let first = client.connect(&address)?;
        while server.poll()?.is_none() {}
        client.disconnect(first);
        let second = client.connect(&address)?;
        for _ in 0..1000 {
            server.poll()?;
        }
        loop {
            match client.wait(Some(Duration::from_secs(10)))? {
                Some(Event::Closed { peer, .. }) if peer == first => {}
                event => {
                    assert!(matches!(event, Some(Event::Connected { peer }) if peer == second), "{event:?}");
                    return Ok(());
                }
            }
        }
    }

    #[test]
    fn a_spare_descriptor_that_is_missing_is_had_again() -> Result<(), EndpointError> {
        let mut server = Endpoint::listen(&format!("spare-{}", std::process::id()))?;
        server.state.listener.as_mut().expect("it listens").spare = None;
        let mut client = Endpoint::client()?;
        client.connect(server.address().expect("it listens"))?;
        server.wait(None)?;
        assert!(server.state.listener.as_ref().expect("it listens").spare.is_some());
        Ok(())
    }
}
