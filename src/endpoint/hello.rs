//! What two endpoints say to each other when they connect: packets over a socket, none of which is believed.
//!
//! ```text
//!   client                                      server
//!   connect ─────────────────────────────────▶  accept; who is it? (SO_PEERCRED, SO_PEERPIDFD)
//!   hello, with the memory of both channels ─▶  is it a hello, is the memory sealed and as long as it has to be?
//!           ◀───────────────────────── accepted, or refused and why, or that it ends
//!           ◀──────────────── ring ──────────▶  whenever one side has said that it sleeps
//! ```
//!
//! The client makes the memory, so a client can send at once, and what many clients take is theirs. A name is bound as long as
//! its socket is open, and nothing is in the file system.

use crate::codes::Codes;
use crate::endpoint::ended::Refusal;
use crate::sys::socket::RING;

/// The length of a hello, in bytes.
pub(crate) const HELLO: usize = 64;

/// The longest packet after it.
pub(crate) const PACKET: usize = 8;

const MAGIC: [u8; 8] = *b"intranod";

/// Changes with everything that both sides have to agree on, the memory among it.
const VERSION: u32 = 12;

const ACCEPTED: u8 = 1;
const REFUSED: u8 = 2;
const LEFT: u8 = 3;

/// What a client says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// When its process was started: tells it from one that has its number later.
    pub(crate) started: u64,
    /// The length of the memory that comes with it, in bytes.
    pub(crate) memory: u64,
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.started.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.memory.to_ne_bytes());
        bytes
    }

    /// Any bytes may have been sent.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Refusal> {
        let word =
            |at: usize| bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_ne_bytes);
        if bytes.len() != HELLO || bytes[..8] != MAGIC {
            return Err(Refusal::Hello);
        }
        if bytes[8..12] != VERSION.to_ne_bytes() {
            return Err(Refusal::Version);
        }
        if bytes[12..16].iter().chain(&bytes[32..]).any(|byte| *byte != 0) {
            return Err(Refusal::Hello);
        }
        let (Some(started), Some(memory)) = (word(16), word(24)) else { return Err(Refusal::Hello) };
        Ok(Hello { started, memory })
    }
}

/// A packet after the hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    /// There may be something in the channels.
    Ring,
    Accepted,
    Refused(Refusal),
    /// The side that listens has ended before it has accepted.
    Left,
}

impl Packet {
    pub(crate) fn encode(self) -> [u8; 2] {
        match self {
            Packet::Ring => [RING, 0],
            Packet::Accepted => [ACCEPTED, 0],
            Packet::Refused(why) => [REFUSED, why.code()],
            Packet::Left => [LEFT, 0],
        }
    }

    /// `None`: this library sends no such packet.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [RING] => Some(Packet::Ring),
            [ACCEPTED, 0] => Some(Packet::Accepted),
            [LEFT, 0] => Some(Packet::Left),
            [REFUSED, code] => Refusal::from_code(code).map(Packet::Refused),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_survives_encoding_and_nothing_else_is_one() {
        let hello = Hello { started: u64::MAX, memory: 7 };
        let good = hello.encode();
        assert_eq!(Hello::decode(&good), Ok(hello));
        assert_eq!(Hello::decode(&good[..HELLO - 1]), Err(Refusal::Hello));
        assert_eq!(Hello::decode(&[]), Err(Refusal::Hello));
        for at in (0..16).chain(32..HELLO) {
            let mut bad = good;
            bad[at] ^= 2;
            let expected = if (8..12).contains(&at) { Refusal::Version } else { Refusal::Hello };
            assert_eq!(Hello::decode(&bad), Err(expected), "byte {at}");
        }
    }

    #[test]
    fn packets_survive_encoding() {
        let refused = [Refusal::Full, Refusal::Resources].map(Packet::Refused);
        for packet in [Packet::Accepted, Packet::Left].into_iter().chain(refused) {
            assert_eq!(Packet::decode(&packet.encode()), Some(packet));
        }
        assert_eq!(Packet::decode(&[RING]), Some(Packet::Ring));
        for bad in
            [&[][..], &[3], &[ACCEPTED], &[ACCEPTED, 1], &[LEFT, 1], &[REFUSED, 0], &[REFUSED, 9], &[0; 3]]
        {
            assert_eq!(Packet::decode(bad), None, "{bad:?}");
        }
    }
}
