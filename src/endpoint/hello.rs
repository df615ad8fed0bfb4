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
//! Both say whether they are *fenced*: then a side that is about to sleep has the system fence the other, which needs no fence for each
//! message. The side that listens may do without at once, since the other has said it before; the other one once it is accepted.
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
const VERSION: u32 = 9;

/// The place of a hello's flag.
const FENCED: usize = 32;

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
    /// Whether this side is fenced: its process is registered for membarrier, and calls that before it sleeps.
    pub(crate) fenced: bool,
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.started.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.memory.to_ne_bytes());
        bytes[FENCED] = self.fenced.into();
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
        if bytes[12..16].iter().chain(&bytes[FENCED + 1..]).any(|byte| *byte != 0) || bytes[FENCED] > 1 {
            return Err(Refusal::Hello);
        }
        let (Some(started), Some(memory)) = (word(16), word(24)) else { return Err(Refusal::Hello) };
        Ok(Hello { started, memory, fenced: bytes[FENCED] == 1 })
    }
}

/// A packet after the hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    /// There may be something in the channels.
    Ring,
    Accepted {
        /// As in a [`Hello`]; only if that side is.
        fenced: bool,
    },
    Refused(Refusal),
    /// The side that listens has ended before it has accepted.
    Left,
}

impl Packet {
    pub(crate) fn encode(self) -> [u8; 2] {
        match self {
            Packet::Ring => [RING, 0],
            Packet::Accepted { fenced } => [ACCEPTED, fenced.into()],
            Packet::Refused(why) => [REFUSED, why.code()],
            Packet::Left => [LEFT, 0],
        }
    }

    /// `None`: this library sends no such packet.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [RING] => Some(Packet::Ring),
            [ACCEPTED, fenced @ (0 | 1)] => Some(Packet::Accepted { fenced: fenced == 1 }),
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
        let hello = Hello { started: u64::MAX, memory: 7, fenced: false };
        let good = hello.encode();
        assert_eq!(Hello::decode(&good), Ok(hello));
        let fenced = Hello { fenced: true, ..hello };
        assert_eq!(Hello::decode(&fenced.encode()), Ok(fenced));
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
        let accepted = [false, true].map(|fenced| Packet::Accepted { fenced });
        for packet in
            accepted.into_iter().chain([Packet::Refused(Refusal::Full), Packet::Refused(Refusal::Resources)])
        {
            assert_eq!(Packet::decode(&packet.encode()), Some(packet));
        }
        assert_eq!(Packet::decode(&[RING]), Some(Packet::Ring));
        assert_eq!(Packet::decode(&Packet::Left.encode()), Some(Packet::Left));
        for bad in
            [&[][..], &[3], &[ACCEPTED], &[ACCEPTED, 2], &[LEFT, 1], &[REFUSED, 0], &[REFUSED, 9], &[0; 3]]
        {
            assert_eq!(Packet::decode(bad), None, "{bad:?}");
        }
    }
}
