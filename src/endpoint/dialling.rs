//! The side of connecting that begins.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
#[cfg(feature = "tokio")]
use std::time::Instant;

use crate::endpoint::address::Address;
use crate::endpoint::ended::Ended;
use crate::endpoint::error::{EndpointError, system};
use crate::endpoint::hello::Hello;
use crate::endpoint::link::Stage;
use crate::endpoint::peer::Peer;
use crate::endpoint::state::State;
use crate::segment::pair_memory::PairMemory;
use crate::sys::socket::{Credentials, Process};
use crate::sys::{process, socket};

const CONNECT: &str = "connect";

/// The longest between two attempts.
#[cfg(feature = "tokio")]
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// A connection to this user's process that listens, which has not been told anything.
pub(crate) struct Dialled {
    /// `None` once the connection has another owner.
    socket: Option<OwnedFd>,
    peer: Credentials,
}

impl Drop for Dialled {
    fn drop(&mut self) {
        self.socket.take().into_iter().for_each(socket::close);
    }
}

/// Connects to who listens at an address. Waits for room among the connections that are to be accepted, at most for so long.
pub(crate) fn dial(address: &Address, timeout: Option<Duration>) -> Result<Dialled, EndpointError> {
    address.check_local_for(CONNECT)?;
    let name = || address.name().to_owned();
    let socket = socket::connect(&address.socket_name(), timeout).map_err(|source| match source.kind() {
        io::ErrorKind::ConnectionRefused => EndpointError::NobodyListens { name: name() },
        io::ErrorKind::WouldBlock => {
            EndpointError::TimedOut { operation: CONNECT, peer: None, timeout: timeout.unwrap_or_default() }
        }
        _ => system(CONNECT, "the connection")(source),
    })?;
    let error = match socket::credentials(socket.as_fd()) {
        Ok(peer) if process::is_own_user(peer.user) => return Ok(Dialled { socket: Some(socket), peer }),
        Ok(peer) => EndpointError::ForeignUser { name: name(), process: peer.process, user: peer.user },
        Err(source) => system(CONNECT, "to say who listens")(source),
    };
    socket::close(socket);
    Err(error)
}

/// The same for a task. The system has no descriptor that says when there is room again, and a thread that waits for it could not be stopped
/// when the future is dropped.
#[cfg(feature = "tokio")]
pub(crate) async fn dial_again(address: &Address, timeout: Option<Duration>) -> Result<Dialled, EndpointError> {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match dial(address, Some(Duration::ZERO)) {
            Err(EndpointError::TimedOut { .. }) => {}
            dialled => return dialled,
        }
        let left = timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()));
        if let (Some(timeout), Some(Duration::ZERO)) = (timeout, left) {
            return Err(EndpointError::TimedOut { operation: CONNECT, peer: None, timeout });
        }
        tokio::time::sleep(left.map_or(pause, |left| left.min(pause))).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

impl State {
    /// Says the hello, and adds the connection, if there is still room for it: others may have connected while this one waited.
    pub(crate) fn introduce(&mut self, mut dialled: Dialled) -> Result<Peer, EndpointError> {
        self.check_room_for_peer()?;
        let (socket, peer) = (dialled.socket.as_ref().expect("it has no other owner"), dialled.peer);
        let (memory, file) = PairMemory::create().map_err(system(CONNECT, "the memory of the connection"))?;
        let started = process::start_time(std::process::id()).unwrap_or(0);
        let hello = Hello { started, memory: PairMemory::file_len() as u64 }.encode();
        match socket::send_with(socket.as_fd(), &hello, file.as_fd()) {
            // The other side has refused already, and says why.
            Err(error)
                if [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset].contains(&error.kind()) => {}
            sent => sent.map_err(system(CONNECT, "the hello"))?,
        }
        let process = socket::process(socket.as_fd(), peer.process);
        let is_gone = matches!(process, Process::Gone);
        // Only where the system says for certain which process listens.
        let process = if let Process::Is(process) = process { Some(process) } else { None };
        let (socket, number) = (dialled.socket.take().expect("it has no other owner"), peer.process);
        let added = self.add(Stage::Asked, socket, (process, number), memory);
        let peer = added.map_err(system(CONNECT, "to wait for a descriptor"))?;
        // A forked child of its may keep the name, and accepts nobody.
        if is_gone {
            self.end(peer, Ended::Died);
        }
        Ok(peer)
    }
}
