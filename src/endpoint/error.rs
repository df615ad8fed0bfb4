//! The error of all calls of endpoints.

use std::io;
use std::time::Duration;

use crate::endpoint::ended::Ended;
use crate::endpoint::peer::Peer;

/// The error of an endpoint's calls. Its text says what was wrong, and what to do.
///
/// ```
/// use intranode::{Address, Endpoint, EndpointError};
///
/// let mut client = Endpoint::client()?;
/// let nobody = Address::local("nobody-listens-here")?;
/// assert!(matches!(client.connect(&nobody), Err(EndpointError::NobodyListens { .. })));
/// # Ok::<(), EndpointError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// It is no name, or no address.
    #[error(
        "{name:?} is no name or address of an endpoint: a name has 1 to 64 of A-Z, a-z, 0-9, '.', '-' and '_', an address \
         is intranode://BOOT_ID/NAME, or REMOTE#intranode=BOOT_ID/NAME with a remote part like tcp://HOST:PORT of up to 255 \
         bytes"
    )]
    InvalidName {
        /// What was given.
        name: String,
    },

    /// Another endpoint listens at this name; or a forked child of one, or another user's process, has it.
    #[error(
        "another endpoint listens at {name:?}, or a forked child of one or another user's process has the name: end it, or choose \
         another name"
    )]
    NameTaken {
        /// The name.
        name: String,
    },

    /// No endpoint listens at this name, or it has ended.
    #[error("no endpoint of this user listens at {name:?} on this machine: start it first")]
    NobodyListens {
        /// The name.
        name: String,
    },

    /// The address is that of another machine, or of the time before this one was booted.
    #[error(
        "{address} is no address of this machine, as it was booted last: only local endpoints can be connected to"
    )]
    NotLocal {
        /// The address.
        address: String,
    },

    /// Another user's process listens at this name.
    #[error(
        "process {process} of user {user} listens at {name:?}, and users do not talk to each other: choose another name"
    )]
    ForeignUser {
        /// The name.
        name: String,
        /// The process.
        process: u32,
        /// Its user.
        user: u32,
    },

    /// This endpoint has as many peers as it can have.
    #[error("this endpoint has {peers} peers already: disconnect one, or raise max_peers or RLIMIT_NOFILE")]
    TooManyPeers {
        /// How many.
        peers: usize,
    },

    /// The peer is gone. What it has sent before has been received, or can be.
    #[error("{peer} is gone: {}", .ended.reason())]
    PeerGone {
        /// The peer.
        peer: Peer,
        /// Why.
        ended: Ended,
    },

    /// This endpoint has no such peer: it was gone long ago, or belongs to another endpoint.
    #[error("{peer} is no peer of this endpoint any more, or never was: connect again")]
    UnknownPeer {
        /// The peer.
        peer: Peer,
    },

    /// A message is too long.
    #[error("a message of {bytes} bytes was to be sent, and at most {max} can be: send it in parts")]
    TooLong {
        /// The length, in bytes.
        bytes: usize,
        /// The longest, in bytes.
        max: usize,
    },

    /// The buffer is shorter than the message. The message stays, and can be received with a longer one.
    #[error("the message of {peer} has {bytes} bytes, and the buffer {room}: receive it with a longer one")]
    Truncated {
        /// The sender.
        peer: Peer,
        /// The length of the message, in bytes.
        bytes: usize,
        /// The length of the buffer, in bytes.
        room: usize,
    },

    /// A peer has sent more that nobody has received than is kept for it, so that what was asked for cannot be found behind.
    #[error("{peer} has sent {messages} messages that nobody has received: receive them first")]
    TooManyUnreceived {
        /// The sender.
        peer: Peer,
        /// How many.
        messages: usize,
    },

    /// These bytes are no handle.
    #[error(
        "{bytes} bytes were to be a handle of shared memory, and are none: pass on what Handle::to_bytes returns"
    )]
    InvalidHandle {
        /// How many.
        bytes: usize,
    },

    /// The peer shares no memory by this handle: it has revoked that, or another endpoint has made the handle.
    #[error("{peer} shares no memory by this handle, or no more: ask it for another one")]
    NotShared {
        /// The peer.
        peer: Peer,
    },

    /// This endpoint has not registered this memory: another one has.
    #[error("the registration belongs to another endpoint: only the endpoint that has made it can use it")]
    ForeignRegistration,

    /// The memory is shorter. Nothing was read or written.
    #[error(
        "bytes {offset} to {offset} + {bytes} of the memory of {peer} were asked for, and {}",
        what_there_is(*offset, *bytes, *len)
    )]
    OutOfBounds {
        /// The peer.
        peer: Peer,
        /// Where the access begins, in bytes.
        offset: u64,
        /// Its length, in bytes.
        bytes: u64,
        /// The length of the memory by its handle, in bytes. Where the access ends within it, the handle was changed on its way, and the peer has
        /// refused the access.
        len: u64,
    },

    /// The memory can be read, and not be written. Nothing was written.
    #[error("the memory of {peer} is shared for reading only: it has to share it with Access::ReadWrite")]
    NotWritable {
        /// The peer.
        peer: Peer,
    },

    /// Nothing is mapped at a place of the memory that was to be read: of the peer's for a `get`, of this process's for a `put`. A
    /// file that was mapped, and truncated since, is such memory; who touched it there would be ended by SIGBUS. What comes before
    /// was moved.
    #[error(
        "the memory of a transfer with {peer} is not mapped from its byte {bytes} on: share and send what stays mapped"
    )]
    Fault {
        /// The peer.
        peer: Peer,
        /// The bytes that were moved: those from the front on.
        bytes: u64,
    },

    /// This endpoint has not started this receive: another one has.
    #[error("the request belongs to another endpoint: pass it to the endpoint that has started it")]
    ForeignRequest,

    /// What was waited for has not happened in time. Calls can go on.
    #[error("{operation}{}: nothing has come of it within {timeout:?}", with(*peer))]
    TimedOut {
        /// The call.
        operation: &'static str,
        /// The peer that was waited for; `None` if it was not one alone, or is none yet.
        peer: Option<Peer>,
        /// The time-out.
        timeout: Duration,
    },

    /// The endpoint belongs to the process that has made it, and this is a forked child.
    #[error("this endpoint belongs to the process that this one was forked from: make one of its own")]
    Forked,

    /// An `AsyncEndpoint` was made outside of a tokio runtime, or that runtime has ended.
    #[error(
        "no tokio runtime is there to wait in: make the endpoint inside of one that lasts as long as it does"
    )]
    NoRuntime,

    /// The transport to another machine has failed.
    #[error("{operation}: {remote} cannot be reached, or its server has gone: {source}: see whether it runs")]
    Remote {
        /// The call.
        operation: &'static str,
        /// The remote part of the address.
        remote: String,
        /// Why.
        source: io::Error,
    },

    /// The system has refused something.
    #[error("{operation}: the system refuses {what}: {source}")]
    System {
        /// The call.
        operation: &'static str,
        /// What it has refused.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// Why an access is out of bounds.
fn what_there_is(offset: u64, bytes: u64, len: u64) -> String {
    if offset.checked_add(bytes).is_some_and(|end| end <= len) {
        format!("it is shorter than its handle says ({len}): pass on what Handle::to_bytes returns")
    } else {
        format!("it has {len}")
    }
}

fn with(peer: Option<Peer>) -> String {
    peer.map_or_else(String::new, |peer| format!(" with {peer}"))
}

/// For `map_err`: the system has refused `what`.
pub(crate) fn system(operation: &'static str, what: &'static str) -> impl FnOnce(io::Error) -> EndpointError {
    move |source| EndpointError::System { operation, what, source }
}
