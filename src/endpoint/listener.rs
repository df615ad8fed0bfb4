//! The listening side of connecting: who may connect, and what is checked before a stranger's memory is mapped.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use crate::endpoint::address::Address;
use crate::endpoint::ended::Refusal;
use crate::endpoint::error::{EndpointError, system};
use crate::endpoint::hello::{HELLO, Hello, Packet};
use crate::segment::pair_memory::PairMemory;
use crate::sys::process;
use crate::sys::socket::{self, Credentials, Process};
use crate::sys::timer::Timer;
use crate::tuning::ENDPOINT_HELLO;

/// A name at which an endpoint listens.
pub(crate) struct Listener {
    pub(crate) address: Address,
    socket: OwnedFd,
    /// Given up when no other descriptor can be had: then a connection can still be accepted, and refused. It would stay
    /// readable otherwise.
    pub(super) spare: Option<OwnedFd>,
    /// For how long it is not looked at, where there is not even that one.
    pub(super) timer: Timer,
}

/// A connection of which no hello has come.
pub(crate) struct Greeting {
    pub(crate) number: u32,
    pub(crate) socket: OwnedFd,
    credentials: Credentials,
    pub(super) since: Instant,
}

/// What has come of accepting.
pub(crate) enum Accepted {
    /// The next connection of this user.
    Greeting(Greeting),
    /// The next connection was none of this user's, or was gone. There may be others.
    Refused,
    /// There is none.
    None,
    /// There may be one, and the system can have none accepted now.
    NotNow,
}

/// What has come of a greeting.
pub(crate) enum Greeted {
    /// Nothing was said.
    NotYet,
    /// The other side has closed.
    Gone,
    Refused(Refusal),
    Accepted(Box<Newcomer>),
}

/// Who is accepted.
pub(crate) struct Newcomer {
    /// That of the connection.
    pub(crate) memory: PairMemory,
    /// The process that has made it.
    pub(crate) process: (Option<OwnedFd>, u32),
    /// Whether that has ended already.
    pub(crate) is_gone: bool,
}

impl Listener {
    pub(crate) fn new(address: Address) -> Result<Self, EndpointError> {
        let socket = socket::listen(&address.socket_name()).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => EndpointError::NameTaken { name: address.name().to_owned() },
            _ => system("listen", "the socket")(source),
        })?;
        let spare = socket.try_clone().map_err(system("listen", "a descriptor"))?;
        let timer = Timer::new().map_err(system("listen", "a descriptor"))?;
        Ok(Listener { address, socket, spare: Some(spare), timer })
    }

    /// Accepts one connection, of any user: those of others may be without end.
    pub(crate) fn accept(&mut self, number: u32) -> Accepted {
        let socket = match socket::accept(self.as_fd()) {
            Ok(socket) => socket,
            Err(error) => match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE) if self.spare.is_some() => return self.refuse_one(),
                Some(libc::ECONNABORTED | libc::EINTR) => return Accepted::Refused,
                Some(libc::EAGAIN) => return Accepted::None,
                _ => return Accepted::NotNow,
            },
        };
        match socket::credentials(socket.as_fd()) {
            Ok(credentials) if process::is_own_user(credentials.user) => {
                return Accepted::Greeting(Greeting { number, socket, credentials, since: Instant::now() });
            }
            Ok(_) => refuse(socket, Refusal::User),
            Err(_) => socket::close(socket),
        }
        Accepted::Refused
    }

    /// Nobody connects any more. Who has connected before can still be accepted.
    pub(crate) fn shut(&mut self) {
        // So that there is a descriptor for each of them in turn.
        self.spare = None;
        socket::hang_up(self.as_fd());
    }

    /// Refuses the next connection, if there is one: the system says that it has no descriptor before it looks for that.
    fn refuse_one(&mut self) -> Accepted {
        self.spare = None;
        let refused = match socket::accept(self.as_fd()) {
            Ok(socket) => {
                refuse(socket, Refusal::Resources);
                Accepted::Refused
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Accepted::None,
            Err(_) => Accepted::NotNow,
        };
        self.find_spare();
        refused
    }

    /// Another thread may have taken it when it was given up.
    pub(super) fn find_spare(&mut self) {
        if self.spare.is_none() {
            self.spare = self.socket.try_clone().ok();
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Tells the other side why, and closes the connection.
pub(crate) fn refuse(socket: OwnedFd, why: Refusal) {
    end(socket, Packet::Refused(why));
}

/// Says this as the last. The other side may be gone.
pub(crate) fn end(socket: OwnedFd, packet: Packet) {
    let _ = socket::send(socket.as_raw_fd(), &packet.encode());
    socket::close(socket);
}

impl Greeting {
    /// Whether it has been without a hello for too long.
    pub(crate) fn is_late(&self) -> bool {
        self.since.elapsed() >= ENDPOINT_HELLO
    }

    /// Reads the hello.
    pub(crate) fn hear(&self) -> Greeted {
        // Longer by one byte than a hello is, so that what is longer is noticed.
        let mut bytes = [0; HELLO + 1];
        let packet = match socket::receive_with(self.socket.as_fd(), &mut bytes) {
            Ok(packet) if packet.len > 0 => packet,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Greeted::NotYet,
            _ => return Greeted::Gone,
        };
        let file = match <[OwnedFd; 1]>::try_from(packet.descriptors) {
            Ok([file]) if !packet.truncated => File::from(file),
            // There was no descriptor left for it.
            Err(none) if none.is_empty() && packet.truncated && packet.len == HELLO => {
                return Greeted::Refused(Refusal::Resources);
            }
            _ => return Greeted::Refused(Refusal::Hello),
        };
        let hello = match Hello::decode(&bytes[..packet.len]) {
            Ok(hello) => hello,
            Err(why) => return Greeted::Refused(why),
        };
        if hello.memory != PairMemory::file_len() as u64 {
            return Greeted::Refused(Refusal::Memory);
        }
        match PairMemory::open(&file) {
            Ok(Some(memory)) => {
                let number = self.credentials.process;
                let process = socket::process(self.socket.as_fd(), number);
                let is_gone = matches!(process, Process::Gone);
                let process = (checked(process, number, &hello), number);
                Greeted::Accepted(Box::new(Newcomer { memory, process, is_gone }))
            }
            Ok(None) => Greeted::Refused(Refusal::Memory),
            Err(_) => Greeted::Refused(Refusal::Resources),
        }
    }
}

/// The process that has connected, if it is certain. Without it only the connection tells that it is gone, which a forked child may keep.
fn checked(process: Process, number: u32, hello: &Hello) -> Option<OwnedFd> {
    match process {
        Process::Is(process) => Some(process),
        // One that lies only keeps others from noticing that itself has ended.
        Process::MayBe(process) => (process::start_time(number) == Some(hello.started)).then_some(process),
        Process::Gone | Process::Unknown => None,
    }
}
