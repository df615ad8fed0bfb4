//! Leases on a connection: a peer reads memory of this process directly, until it has all or the lease is withdrawn.
//!
//! They are those of long messages between ranks ([`offer`](crate::protocol::message::offer)).

use crate::endpoint::link::Link;
use crate::protocol::message::Settled;
use crate::protocol::message::channel::MOST;

impl Link {
    /// Gives a lease. `None`: the peer has too many that it has not settled.
    pub(crate) fn open_lease(&mut self) -> Option<u32> {
        let number = self.lease.wrapping_add(1);
        let opened = self.post().open_lease(&self.outgoing(), number);
        if opened {
            self.lease = number;
        }
        opened.then_some(number)
    }

    /// Takes a lease back: what the peer has read under it, it throws away.
    pub(crate) fn withdraw(&self, number: u32) {
        let _ = self.post().withdraw(&self.outgoing(), number);
    }

    /// Takes all leases back: this side revokes nothing on this connection any more.
    pub(crate) fn withdraw_all(&self) {
        let given = self.lease.min(MOST as u32);
        (0..given).for_each(|back| self.withdraw(self.lease.wrapping_sub(back)));
    }

    /// Whether a lease that this side has given is settled.
    pub(crate) fn is_settled(&self, number: u32) -> bool {
        self.post().is_settled(&self.outgoing(), number)
    }

    /// Whether a lease of the other side still holds.
    pub(crate) fn is_leased(&self, number: u32) -> bool {
        self.post().is_offered(&self.incoming(), number)
    }

    /// This side has read all, or gives up. Returns whether what was read is what it was to be.
    pub(crate) fn settle(&self, number: u32) -> bool {
        // An error occurs in tests only.
        let settled = self.post().settle(&self.incoming(), number, self.other());
        settled == Ok(Settled::Pulled)
    }
}
