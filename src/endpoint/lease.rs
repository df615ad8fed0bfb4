//! Leases on a connection: a peer reads memory of this process directly, until it has all or the lease is withdrawn.
//!
//! They are those of long messages between ranks ([`offer`](crate::protocol::message::offer)).

use crate::endpoint::link::Link;
use crate::endpoint::wire::{Status, decode_map, decode_reply};
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

    /// Gives back the lease of an answer for which nobody waits any more. Otherwise its owner could give none in its place.
    pub(crate) fn give_back(&self, reply: &[u8]) {
        if let Some((Status::Done, content)) = decode_reply(reply)
            && let Some((lease, _)) = decode_map(content)
        {
            // An error occurs in tests only.
            let _ = self.post().settle(&self.incoming(), lease, self.other());
        }
    }

    /// Reads under a lease of the other side's, by pieces. Returns whether what was read is what it was to be.
    pub(crate) fn pull(&self, number: u32, pull: impl FnMut() -> bool) -> bool {
        let settled = self.post().pull(&self.incoming(), number, self.other(), pull);
        // An error occurs in tests only.
        settled == Ok(Settled::Pulled)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::io::IoSliceMut;
    use std::time::Duration;

    use crate::endpoint::api::Endpoint;
    use crate::endpoint::error::EndpointError;
    use crate::endpoint::handle::{Access, Handle};
    use crate::endpoint::peer::Peer;

    /// More gets than leases that can be given at a time, none of which is completed: all leases are given back.
    fn gives_all_back(
        name: &str,
        begin: impl Fn(&mut Endpoint, Peer, &Handle) -> Result<(), EndpointError>,
    ) -> Result<(), EndpointError> {
        let mut owner = Endpoint::listen(&format!("{name}-lease-{}", std::process::id()))?;
        let mut client = Endpoint::builder().timeout(Duration::from_millis(1)).client()?;
        let to_owner = client.connect(owner.address().expect("it listens"))?;
        client.send_unexpected(to_owner, 0, b"")?;
        let to_client = owner.recv_unexpected(&mut [])?.peer;
        let handle = owner.share(vec![vec![1; 100_000].into()], Access::Read).handle();
        for lease in 1..=100 {
            begin(&mut client, to_owner, &handle)?;
            // By now the owner answers.
            let given = (0..10_000).any(|_| {
                owner.poll().is_ok() && owner.state.links.find(to_client).is_ok_and(|link| link.lease == lease)
            });
            assert!(given, "lease {lease} was not given");
            assert!(!owner.state.links.find(to_client)?.is_settled(lease));
            let settled = (0..10_000).any(|_| {
                client.poll().is_ok()
                    && owner.state.links.find(to_client).is_ok_and(|link| link.is_settled(lease))
            });
            assert!(settled, "lease {lease} was not given back");
        }
        Ok(())
    }

    #[test]
    fn a_get_that_was_late_gives_its_lease_back() -> Result<(), EndpointError> {
        gives_all_back("late", |client, to_owner, handle| {
            let error = client.get(to_owner, handle, 0, &mut [IoSliceMut::new(&mut [0; 100_000])]);
            assert!(matches!(error, Err(EndpointError::TimedOut { .. })), "{error:?}");
            Ok(())
        })
    }

    #[test]
    fn a_started_get_that_was_dropped_gives_its_lease_back() -> Result<(), EndpointError> {
        gives_all_back("dropped", |client, to_owner, handle| {
            client.start_get(to_owner, handle, 0, vec![vec![0; 100_000]]).map(drop)
        })
    }
}
