//! What comes over an endpoint's sockets: connections, hellos, and what wakes.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::endpoint::ended::{Ended, Refusal};
use crate::endpoint::hello::{PACKET, Packet};
use crate::endpoint::key::Key;
use crate::endpoint::link::Stage;
use crate::endpoint::listener::{Accepted, Greeted, Greeting, refuse};
use crate::endpoint::peer::Peer;
use crate::endpoint::state::State;
use crate::sys::socket;
use crate::tuning::ENDPOINT_BATCH;

impl State {
    /// Accepts connections, as far as there is room for them. Returns whether more may wait.
    pub(super) fn accept(&mut self) -> bool {
        let late = self.greetings.iter().position(Greeting::is_late);
        if let Some(late) = late {
            self.remove_greeting(late);
        }
        for _ in 0..ENDPOINT_BATCH {
            self.greeted = self.greeted.wrapping_add(1);
            let number = self.greeted;
            let accepted = self.listener.as_mut().map_or(Accepted::None, |listener| listener.accept(number));
            let greeting = match accepted {
                Accepted::Greeting(greeting) => greeting,
                Accepted::Refused => continue,
                Accepted::None => return false,
            };
            if self.links.alive() + self.greetings.len() >= self.max_peers {
                refuse(greeting.socket.as_fd(), Refusal::Full);
            } else if self.epoll.add(greeting.socket.as_fd(), Key::Greeting(number).encode()).is_err() {
                refuse(greeting.socket.as_fd(), Refusal::Resources);
            } else {
                self.greetings.push(greeting);
                self.greet(number);
            }
        }
        true
    }

    /// Reads the hello of a connection, if it has come.
    pub(super) fn greet(&mut self, number: u32) {
        let Some(index) = self.greetings.iter().position(|greeting| greeting.number == number) else { return };
        match self.greetings[index].hear() {
            Greeted::NotYet => {}
            Greeted::Gone => drop(self.remove_greeting(index)),
            Greeted::Refused(why) => refuse(self.remove_greeting(index).socket.as_fd(), why),
            Greeted::Accepted(memory, process) => {
                let socket = self.remove_greeting(index).socket;
                // Before the connection is there: what it sends comes after this. An error means that the other side is gone.
                let _ = socket::send(socket.as_raw_fd(), &Packet::Accepted.encode());
                // Without room in the set of descriptors the connection is closed.
                let _ = self.add(Stage::Open, socket, process, *memory);
            }
        }
    }

    /// Tells those who have not been accepted yet that nobody will, as they could not tell that from a death. Accepts nothing any more.
    pub(super) fn turn_away(&mut self) {
        let Some(mut listener) = self.listener.take() else { return };
        // Another thread that is just looking at the endpoint's descriptor would keep the listener, and with it the name, until it has looked.
        // From here on nobody looks at the listener: both take the instance's lock.
        self.epoll.remove(listener.as_fd());
        // First: who connects from now on finds that nobody listens.
        listener.shut();
        // As many as were waiting.
        let waiting = core::iter::from_fn(|| match listener.accept(0) {
            Accepted::Greeting(greeting) => Some(Some(greeting)),
            Accepted::Refused => Some(None),
            Accepted::None => None,
        });
        for greeting in self.greetings.drain(..).chain(waiting.flatten()) {
            let _ = socket::send(greeting.socket.as_raw_fd(), &Packet::Left.encode());
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
                (Some(Packet::Ring), _) => self.wake(peer),
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
