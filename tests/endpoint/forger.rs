//! An owner of memory that answers what it likes: not the library, but bytes written into the memory of a connection.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, ensure};
use nix::cmsg_space;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind, listen,
    recvmsg, send, socket,
};
use nix::unistd::geteuid;

/// In the memory of a connection: the token of the side that listens.
const TOKEN: u64 = 640;

/// The cells of the side that has connected, and of this one.
const THEIRS: u64 = 4096;
const OWN: u64 = THEIRS + BUFFERS + 64 * BUFFER;

/// In a channel: how many cells were taken, which buffers are held, the leases, and the buffers.
const TAKEN: u64 = 64 * 64;
const HELD: u64 = TAKEN + 128;
const LEASES: u64 = HELD + 128;
const BUFFERS: u64 = 9728;
const BUFFER: u64 = 32 << 10;

pub(super) const REQUEST: u64 = 5;
const WRITES: u64 = 10;
pub(super) const REPLY: u64 = 6;
pub(super) const DATA: u64 = 11;

/// From this bit of a cell's number on it says at which byte of a buffer its data begin, divided by `BEGIN_STEP`.
pub(super) const BEGIN: u32 = 56;
pub(super) const BEGIN_STEP: usize = 128;

/// What a client has asked: its number, and the words of what it asks.
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) what: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// What a client asks for.
pub(super) const MAP: u64 = 1;
pub(super) const READ: u64 = 2;
pub(super) const PULL: u64 = 3;
pub(super) const WRITE: u64 = 4;

/// What a client asks before it puts, which is answered for all.
const CHECK: u64 = 4;

pub(super) struct Listener(OwnedFd);

pub(super) fn listens(name: &str) -> Result<Listener> {
    let address = UnixAddr::new_abstract(format!("intranode-{}-{name}", geteuid()).as_bytes())?;
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    bind(listener.as_raw_fd(), &address)?;
    listen(&listener, Backlog::new(5)?)?;
    Ok(Listener(listener))
}

/// One connection of a client.
pub(super) struct Forger {
    connection: OwnedFd,
    memory: File,
    taken: u64,
    answered: u64,
    /// What a client verifies before it reads this process's memory.
    token: Box<u64>,
    pub(super) data: Vec<u8>,
}

impl Listener {
    /// The next connection, over which nothing was said or heard.
    pub(super) fn connection(&self) -> Result<OwnedFd> {
        // SAFETY: a descriptor that was just opened, and that has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(accept(self.0.as_raw_fd())?) })
    }

    /// Accepts the next connection, as an endpoint does.
    pub(super) fn accept(&self, data: Vec<u8>) -> Result<Forger> {
        let connection = self.connection()?;
        let mut bytes = [0; 64];
        let (mut space, mut slices) = (cmsg_space!([RawFd; 1]), [IoSliceMut::new(&mut bytes)]);
        let hello =
            recvmsg::<()>(connection.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
        let memory = hello.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmRights(files) => files.first().copied(),
            _ => None,
        });
        // SAFETY: as for the connection.
        let memory = unsafe { File::from_raw_fd(memory.context("no memory with the hello")?) };
        // Its client may have waited for too long already, and be gone.
        let _ = send(connection.as_raw_fd(), &[1, 0], MsgFlags::MSG_NOSIGNAL);
        let token = Box::new(fastrand::u64(..));
        let forger = Forger { connection, memory, taken: 0, answered: 0, token, data };
        forger.shows(address(&raw const *forger.token), *forger.token)?;
        Ok(forger)
    }
}

pub(super) fn address<T>(start: *const T) -> u64 {
    start.expose_provenance() as u64
}

impl Forger {
    fn word(&self, at: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn write(&self, at: u64, word: u64) -> Result<()> {
        Ok(self.memory.write_all_at(&word.to_ne_bytes(), at)?)
    }

    /// The next that the client asks; none once it has closed.
    pub(super) fn next(&mut self) -> Result<Option<Asked>> {
        loop {
            let cell = THEIRS + 64 * (self.taken % 64);
            let word = self.word(cell)?;
            if word >> 40 & 0xFF == self.taken / 64 + 1 {
                self.taken += 1;
                let asked = Asked {
                    number: self.word(cell + 8)? & ((1 << BEGIN) - 1),
                    what: self.word(cell + 24)? & 0xFF,
                    offset: self.word(cell + 40)?,
                    len: self.word(cell + 48)?,
                };
                let (kind, mask) = (word >> 51 & 15, self.word(cell + 16)?);
                self.write(THEIRS + TAKEN, self.taken)?;
                if kind == WRITES {
                    // Its buffers are free again; the client may have others.
                    self.write(THEIRS + HELD, self.word(THEIRS + HELD)? & !mask)?;
                    return Ok(Some(Asked { what: WRITE, len: word & 0x0FFF_FFFF, ..asked }));
                }
                ensure!(kind == REQUEST, "a cell of kind {kind}");
                if mask == 0 && asked.what == CHECK {
                    // That there is room is the truth.
                    self.reply(asked.number, &bytes(&[0]))?;
                    continue;
                }
                if mask == 0 {
                    return Ok(Some(asked));
                }
                let first = THEIRS + BUFFERS + BUFFER * u64::from(mask.trailing_zeros());
                // A client that waits for the answer takes no other meanwhile.
                self.write(THEIRS + HELD, 0)?;
                return Ok(Some(Asked {
                    what: self.word(first)? & 0xFF,
                    len: self.word(first + 24)?,
                    ..asked
                }));
            }
            // The client does not ring, since nobody has said here that it sleeps.
            let mut entries = [PollFd::new(self.connection.as_fd(), PollFlags::empty())];
            if poll(&mut entries, PollTimeout::from(1u8))? > 0 {
                return Ok(None);
            }
        }
    }

    /// Publishes a cell, and wakes the client. Bytes for which it has no room are in a buffer.
    pub(super) fn publish(&mut self, kind: u64, tag: u64, len: u64, mask: u64, bytes: &[u8]) -> Result<()> {
        let cell = OWN + 64 * (self.answered % 64);
        self.write(cell + 8, tag)?;
        self.write(cell + 16, mask)?;
        let place =
            if mask == 0 { cell + 24 } else { OWN + BUFFERS + BUFFER * u64::from(mask.trailing_zeros()) };
        self.memory.write_all_at(bytes, place)?;
        self.write(cell, (self.answered / 64 + 1) << 40 | kind << 51 | len)?;
        self.answered += 1;
        // A client that has closed meanwhile does not get it.
        let _ = send(self.connection.as_raw_fd(), &[0], MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
        Ok(())
    }

    /// Answers a request with these bytes.
    pub(super) fn reply(&mut self, number: u64, bytes: &[u8]) -> Result<()> {
        let mask = if bytes.len() <= 40 { 0 } else { 1 << (self.answered % 64) };
        self.publish(REPLY, number, bytes.len() as u64, mask, bytes)
    }

    /// The bytes that a request asks for.
    pub(super) fn wanted(&self, asked: &Asked) -> Vec<u8> {
        let start = asked.offset as usize;
        self.data[start..start + asked.len as usize].to_vec()
    }

    /// Answers with these bytes, as an owner does with those that were asked for.
    pub(super) fn sends(&mut self, number: u64, bytes: &[u8]) -> Result<()> {
        // Adjacent buffers.
        let count = bytes.len().div_ceil(BUFFER as usize) as u64;
        let mask = if bytes.len() <= 40 { 0 } else { (1 << count) - 1 };
        self.publish(DATA, number, bytes.len() as u64, mask, bytes)
    }

    /// Says by what its process is known.
    pub(super) fn shows(&self, address: u64, token: u64) -> Result<()> {
        self.write(TOKEN, address)?;
        self.write(TOKEN + 8, token)
    }

    /// What an owner says where its bytes lie: a lease, which byte is the first, and the parts.
    pub(super) fn map(&self, lease: u64, parts: &[(u64, u64)]) -> Vec<u64> {
        let mut words = vec![0, lease, 0];
        words.extend(parts.iter().flat_map(|(start, len)| [*start, *len]));
        words
    }

    /// Where its bytes do lie.
    pub(super) fn start(&self) -> u64 {
        address(self.data.as_ptr())
    }

    /// Gives a lease, as an endpoint does.
    pub(super) fn gives_lease(&self, number: u64) -> Result<()> {
        self.write(OWN + LEASES + 8 * (number % 64), number << 2 | 1)
    }

    /// Overwrites a word of its own cells, counts and leases.
    pub(super) fn scribbles(&self, index: u64, word: u64) -> Result<()> {
        self.write(OWN + 8 * (index % (BUFFERS / 8)), word)
    }
}

pub(super) fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
