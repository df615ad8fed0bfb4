//! What a descriptor in an endpoint's set is, as a number.

use crate::endpoint::peer::Peer;

/// What a descriptor of the set is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Listener,
    /// That the listener counts again.
    Timer,
    Greeting(u32),
    Socket(Peer),
    Process(Peer),
}

impl Key {
    pub(crate) fn encode(self) -> u64 {
        let of = |kind, Peer { slot, generation }| u64::from(generation) << 32 | u64::from(slot) << 2 | kind;
        match self {
            Key::Listener => 0,
            Key::Timer => 1 << 32,
            Key::Greeting(number) => u64::from(number) << 32 | 1,
            Key::Socket(peer) => of(2, peer),
            Key::Process(peer) => of(3, peer),
        }
    }

    pub(crate) fn decode(key: u64) -> Self {
        let (slot, generation) = (key as u32 >> 2, (key >> 32) as u32);
        match key & 3 {
            0 if generation == 0 => Key::Listener,
            0 => Key::Timer,
            1 => Key::Greeting(generation),
            2 => Key::Socket(Peer { slot, generation }),
            _ => Key::Process(Peer { slot, generation }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_encoding() {
        let peer = Peer { slot: (1 << 30) - 1, generation: u32::MAX };
        for key in [Key::Listener, Key::Timer, Key::Greeting(u32::MAX), Key::Socket(peer), Key::Process(peer)] {
            assert_eq!(Key::decode(key.encode()), key);
        }
    }
}
