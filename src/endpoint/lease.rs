//! Leases on a connection: a peer reads memory of this process directly, until it has all or the lease is withdrawn.
//!
//! They are those of long messages between ranks ([`offer`](crate::protocol::message::offer)).

use crate::endpoint::calls::Reply;
use crate::endpoint::link::Link;
use crate::endpoint::mapped::Mapped;
use crate::endpoint::wire::{Map, Status, decode_map, decode_reply, len_of};
use crate::protocol::message::channel::OFFERS;
use crate::sys::cma::{self, Fetched};
use crate::tuning::ENDPOINT_MAPPED;

impl Link {
    /// Gives a lease. `None`: the peer has too many that it has not settled.
    pub(crate) fn open_lease(&mut self) -> Option<u32> {
        let count = self.leases + 1;
        let opened = self.post().open_lease(&self.outgoing(), count as u32);
        if opened {
            self.leases = count;
        }
        opened.then_some(count as u32)
    }

    /// Takes a lease back: what the peer has read under it, it throws away.
    pub(crate) fn withdraw(&self, number: u32) {
        // In a forked child it is not this side's any more.
        if self.memory.forked() {
            return;
        }
        let _ = self.post().withdraw(&self.outgoing(), number);
    }

    /// Takes all leases back: this side revokes nothing on this connection any more.
    pub(crate) fn withdraw_all(&self) {
        let first = self.leases.saturating_sub(OFFERS as u64);
        (first..self.leases).for_each(|before| self.withdraw((before + 1) as u32));
    }

    /// Whether a lease that this side has given is settled.
    pub(crate) fn is_settled(&self, number: u32) -> bool {
        self.post().is_settled(&self.outgoing(), number)
    }

    /// Gives back the lease, or the buffers, of an answer for which nobody waits any more. Otherwise its owner could give none in their
    /// place.
    pub(crate) fn give_back(&mut self, reply: Reply) {
        match reply {
            Reply::Data(data) => self.dispose(data),
            Reply::Message(message) => {
                if let Some((Status::Done, content)) = decode_reply(&message)
                    && let Some(map) = decode_map(content)
                {
                    self.settle(map.lease);
                }
            }
        }
    }

    /// Nothing more is read under a lease of the other side's.
    pub(super) fn settle(&self, lease: u32) {
        // An error occurs in tests only.
        let _ = self.post().settle(&self.incoming(), lease, self.other());
    }

    /// What is known of memory with this key, around this offset.
    pub(super) fn mapped(&self, key: u64, offset: u64) -> Option<&Mapped> {
        self.mapped.iter().find(|mapped| mapped.has(key, offset))
    }

    /// Notes where memory with this key lies, which has something at this offset. It may be longer than a handle says, which somebody else
    /// may have changed. False: it cannot be there.
    pub(super) fn map(&mut self, key: u64, offset: u64, map: Map) -> bool {
        let Map { lease, is_sent, start, parts } = map;
        let Some(len) = len_of(&parts) else { return false };
        let mapped = Mapped { key, lease, is_sent, start, len, parts };
        if start.checked_add(len).is_none() || !mapped.has(key, offset) {
            return false;
        }
        // One that was asked for twice, or the oldest.
        self.unmap_if(|other| other.has(key, offset));
        if self.mapped.len() == ENDPOINT_MAPPED {
            self.unmap(0);
        }
        self.mapped.push(mapped);
        true
    }

    /// Whether memory with this key is known to reach up to this byte: that does not change.
    pub(super) fn reaches(&self, key: u64, end: u64) -> bool {
        let is_mapped = |mapped: &Mapped| mapped.key == key && mapped.start + mapped.len >= end;
        self.mapped.iter().any(is_mapped) || self.reached.iter().any(|known| known.0 == key && known.1 >= end)
    }

    /// The other side has said so.
    pub(super) fn has_reached(&mut self, key: u64, end: u64) {
        if self.reaches(key, end) {
            return;
        }
        self.reached.retain(|known| known.0 != key);
        if self.reached.len() == ENDPOINT_MAPPED {
            self.reached.pop_front();
        }
        self.reached.push_back((key, end));
    }

    /// Forgets memory, whose lease is given back.
    fn unmap(&mut self, index: usize) {
        let Mapped { lease, .. } = self.mapped.remove(index);
        self.settle(lease);
    }

    /// Forgets some.
    pub(super) fn unmap_if(&mut self, mut is_meant: impl FnMut(&Mapped) -> bool) {
        while let Some(index) = self.mapped.iter().position(&mut is_meant) {
            self.unmap(index);
        }
    }

    /// Reads memory of the other side's process. Adds the bytes that were read in any case.
    pub(super) fn read_parts(&self, parts: &mut [(u64, &mut [u8])], done: &mut usize) -> Fetched {
        cma::read_parts(self.process_number(), self.memory.token(), parts, done)
    }

    /// Reads under a lease of the other side's, by pieces. Returns whether what was read is what it was to be.
    pub(super) fn read_under(&self, lease: u32, pull: impl FnMut() -> bool) -> bool {
        self.post().read(&self.incoming(), lease, pull)
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
    use crate::protocol::message::channel::OFFERS;
    use crate::tuning::ENDPOINT_MAPPED;

    /// Reads all of this memory, while its owner polls.
    fn get(
        owner: &mut Endpoint,
        (client, from): (&mut Endpoint, Peer),
        handle: &Handle,
    ) -> Result<(), EndpointError> {
        let mut get = client.start_get(from, handle, 0, vec![vec![0; handle.len() as usize]])?;
        while client.test(&mut get)?.is_none() {
            owner.poll()?;
        }
        Ok(())
    }

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
                owner.poll().is_ok() && owner.state.links.find(to_client).is_ok_and(|link| link.leases == lease)
            });
            assert!(given, "lease {lease} was not given");
            assert!(!owner.state.links.find(to_client)?.is_settled(lease as u32));
            let settled = (0..10_000).any(|_| {
                client.poll().is_ok()
                    && owner.state.links.find(to_client).is_ok_and(|link| link.is_settled(lease as u32))
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

    /// However many memories are read, the owner has as many leases outstanding as are remembered, and so can give others.
    #[test]
    fn leases_of_what_is_forgotten_are_given_back() -> Result<(), EndpointError> {
        const LEN: usize = 50_000;
        let mut owner = Endpoint::listen(&format!("mapped-{}", std::process::id()))?;
        let mut client = Endpoint::client()?;
        let to_owner = client.connect(owner.address().expect("it listens"))?;
        client.send_unexpected(to_owner, 0, b"")?;
        let to_client = owner.recv_unexpected(&mut [])?.peer;
        let mut memories = Vec::new();
        for number in 1..=200 {
            memories.push(owner.share(vec![vec![1; LEN].into()], Access::Read));
            let handle = memories[number - 1].handle();
            get(&mut owner, (&mut client, to_owner), &handle)?;
            assert_eq!(client.state.links.find(to_owner)?.mapped.len(), number.min(ENDPOINT_MAPPED));
            let link = owner.state.links.find(to_client)?;
            assert_eq!(link.leases as usize, number, "each was read under a lease");
            let open = (1..=link.leases).filter(|lease| !link.is_settled(*lease as u32)).count();
            assert_eq!(open, number.min(ENDPOINT_MAPPED));
        }
        Ok(())
    }

    /// Leases have numbers, and the next may have the place of one that is read under since long ago.
    #[test]
    fn a_lease_that_is_remembered_is_in_no_others_way() -> Result<(), EndpointError> {
        let mut owner = Endpoint::listen(&format!("long-lease-{}", std::process::id()))?;
        let mut client = Endpoint::client()?;
        let to_owner = client.connect(owner.address().expect("it listens"))?;
        let [first, other] =
            [1, 2].map(|byte| owner.share(vec![vec![byte; 50_000].into()], Access::Read).handle());
        let mut get = |client: &mut Endpoint, handle| get(&mut owner, (client, to_owner), handle);
        get(&mut client, &first)?;
        for _ in 1..OFFERS {
            get(&mut client, &other)?;
            client.state.links.find(to_owner)?.unmap_if(|mapped| mapped.key == other.key);
        }
        assert!(client.state.links.find(to_owner)?.mapped(first.key, 0).is_some());
        // This one is sent, since no lease can be given; the next finds one.
        get(&mut client, &other)?;
        assert!(client.state.links.find(to_owner)?.mapped(other.key, 0).is_none());
        get(&mut client, &other)?;
        assert!(client.state.links.find(to_owner)?.mapped(other.key, 0).is_some());
        Ok(())
    }

    #[test]
    fn leases_end_with_the_connection() -> Result<(), EndpointError> {
        for disconnects in [false, true] {
            let mut owner = Endpoint::listen(&format!("lease-end-{}", std::process::id()))?;
            let handle = owner.share(vec![vec![1; 50_000].into()], Access::Read).handle();
            let mut client = Endpoint::client()?;
            let to_owner = client.connect(owner.address().expect("it listens"))?;
            let to_client = owner.wait(None)?.expect("a client connects").peer();
            get(&mut owner, (&mut client, to_owner), &handle)?;
            let link = client.state.links.find(to_owner)?;
            let lease = link.mapped(handle.key, 0).expect("it was read").lease;
            assert!(link.read_under(lease, || false));
            // The client has not been told yet.
            let _owner = if disconnects {
                owner.disconnect(to_client);
                Some(owner)
            } else {
                drop(owner);
                None
            };
            assert!(!link.read_under(lease, || false), "disconnects: {disconnects}");
        }
        Ok(())
    }

    /// The numbers of leases wrap.
    #[test]
    fn leases_that_were_given_before_as_many_as_there_are_numbers_end_too() -> Result<(), EndpointError> {
        let mut owner = Endpoint::listen(&format!("lease-wrap-{}", std::process::id()))?;
        let mut client = Endpoint::client()?;
        let to_owner = client.connect(owner.address().expect("it listens"))?;
        let to_client = owner.wait(None)?.expect("a client connects").peer();
        owner.state.links.find(to_client)?.leases = (u32::MAX - 2).into();
        let mut leases = Vec::new();
        for _ in 0..4 {
            let handle = owner.share(vec![vec![1; 50_000].into()], Access::Read).handle();
            get(&mut owner, (&mut client, to_owner), &handle)?;
            let link = client.state.links.find(to_owner)?;
            leases.push(link.mapped(handle.key, 0).expect("it was read").lease);
        }
        assert_eq!(leases, [u32::MAX - 1, u32::MAX, 0, 1]);
        owner.disconnect(to_client);
        let link = client.state.links.find(to_owner)?;
        assert!(!leases.into_iter().any(|lease| link.read_under(lease, || false)));
        Ok(())
    }

    #[test]
    fn little_is_remembered_of_how_far_memory_reaches() -> Result<(), EndpointError> {
        let mut owner = Endpoint::listen(&format!("reached-{}", std::process::id()))?;
        let mut client = Endpoint::client()?;
        let to_owner = client.connect(owner.address().expect("it listens"))?;
        for number in 1..=100 {
            let handle = owner.share(vec![vec![1; 50_000].into()], Access::ReadWrite).handle();
            let mut put = client.start_put(to_owner, &handle, 0, vec![[2; 50_000]])?;
            while client.test(&mut put)?.is_none() {
                owner.poll()?;
            }
            let link = client.state.links.find(to_owner)?;
            assert!(link.reaches(handle.key, 50_000) && link.reached.len() <= ENDPOINT_MAPPED, "{number}");
        }
        Ok(())
    }
}
