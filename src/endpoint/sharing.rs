//! Memory that an endpoint shares with its peers: its own, or borrowed for the time of a call.

use std::io::IoSlice;
use std::sync::atomic::{Ordering::Acquire, fence};
use std::sync::{Arc, Weak};

use crate::copy::lent::Lent;
use crate::endpoint::api::Endpoint;
use crate::endpoint::error::EndpointError;
use crate::endpoint::handle::{Access, Handle, Registration};
use crate::endpoint::state::State;

/// Takes back what is shared by this handle, also while a panic unwinds.
struct Shared<'e> {
    endpoint: &'e mut Endpoint,
    handle: Handle,
    loan: Weak<Lent>,
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        let State { shares, links, .. } = &mut self.endpoint.state;
        let was_shared = shares.revoke(&self.handle, links).is_some();
        // Besides the frame that lends, the endpoint that shares the memory has the loan.
        if self.loan.strong_count() > 1 {
            // Its peers may go on reading what is borrowed no more, and only it can take its leases back.
            eprintln!("intranode: {EXCHANGED}");
            std::process::abort();
        }
        // What was withdrawn by another thread, which has dropped the endpoint, is withdrawn before the borrow ends.
        fence(Acquire);
        // A panic in a panic would end the process.
        assert!(was_shared || std::thread::panicking(), "{EXCHANGED}");
    }
}

const EXCHANGED: &str =
    "the endpoint was exchanged for another one while it shared borrowed memory: leave it in its place";

impl Endpoint {
    /// Lets peers access memory, which belongs to the endpoint from now on, until it is [revoked](Endpoint::revoke): buffers that
    /// count as one, one behind the other. Peers need the [handle](Registration::handle), which is sent to them in a message.
    ///
    /// ```
    /// use intranode::{Access, Endpoint, EndpointError, Handle};
    /// use std::io::{IoSlice, IoSliceMut};
    ///
    /// let name = format!("share-example-{}", std::process::id());
    /// let mut server = Endpoint::listen(&name)?;
    /// let address = server.address().expect("it listens").clone();
    /// let client = std::thread::spawn(move || {
    ///     let mut client = Endpoint::client()?;
    ///     let server = client.connect(&address)?;
    ///     client.send_unexpected(server, 0, b"where?")?;
    ///     let mut bytes = [0; Handle::BYTES];
    ///     client.recv_expected(server, 0, &mut bytes)?;
    ///     let handle = Handle::from_bytes(&bytes)?;
    ///     let (mut first, mut rest) = ([0; 10], vec![0; 99_990]);
    ///     client.get(server, &handle, 0, &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut rest)])?;
    ///     client.put(server, &handle, 50_000, &[IoSlice::new(b"from the "), IoSlice::new(b"client")])?;
    ///     client.send_unexpected(server, 1, b"done")?;
    ///     Ok::<_, EndpointError>((first, rest[99_989]))
    /// });
    /// let memory = server.share(vec![vec![1; 60_000].into(), vec![2; 40_000].into()], Access::ReadWrite);
    /// let call = server.recv_unexpected(&mut [0; 16])?;
    /// server.send_expected(call.peer, 0, &memory.handle().to_bytes())?;
    /// // The endpoint answers the peer in its own calls.
    /// server.recv_unexpected(&mut [0; 16])?;
    /// assert_eq!(&server.shared(&memory)?[0][50_000..50_015], b"from the client");
    /// let buffers = server.revoke(memory)?;
    /// assert_eq!(buffers[1].len(), 40_000);
    /// assert_eq!(client.join().expect("no panic")?, ([1; 10], 2));
    /// # Ok::<(), EndpointError>(())
    /// ```
    pub fn share(&mut self, buffers: Vec<Box<[u8]>>, access: Access) -> Registration {
        self.state.shares.add(buffers, access)
    }

    /// Lets peers read borrowed slices as long as `run` runs: as [`share`](Endpoint::share) does, for memory that the endpoint
    /// cannot own. It is revoked when `run` returns or panics, without waiting: what a peer is reading then it throws away, and gets
    /// an error.
    ///
    /// This is a call with a closure, and not a guard that borrows the slices: a guard can be forgotten (`std::mem::forget`), and
    /// the endpoint would then read memory that is borrowed no more. `std::thread::scope` is one for the same reason.
    ///
    /// ```
    /// use intranode::{Endpoint, EndpointError, Handle};
    /// use std::io::{IoSlice, IoSliceMut};
    ///
    /// let name = format!("with-shared-example-{}", std::process::id());
    /// let mut server = Endpoint::listen(&name)?;
    /// let address = server.address().expect("it listens").clone();
    /// let client = std::thread::spawn(move || {
    ///     let mut client = Endpoint::client()?;
    ///     let server = client.connect(&address)?;
    ///     client.send_unexpected(server, 0, b"where?")?;
    ///     let mut bytes = [0; Handle::BYTES];
    ///     client.recv_expected(server, 0, &mut bytes)?;
    ///     let mut all = vec![0; 100_000];
    ///     client.get(server, &Handle::from_bytes(&bytes)?, 0, &mut [IoSliceMut::new(&mut all)])?;
    ///     client.send_unexpected(server, 1, b"done")?;
    ///     Ok::<_, EndpointError>(all)
    /// });
    /// let (first, rest) = (vec![1; 60_000], vec![2; 40_000]);
    /// server.with_shared(&[IoSlice::new(&first), IoSlice::new(&rest)], |server, handle| {
    ///     let call = server.recv_unexpected(&mut [0; 16])?;
    ///     server.send_expected(call.peer, 0, &handle.to_bytes())?;
    ///     // The endpoint answers the peer in this call.
    ///     server.recv_unexpected(&mut [0; 16])
    /// })?;
    /// assert!(client.join().expect("no panic")? == [first, rest].concat());
    /// # Ok::<(), EndpointError>(())
    /// ```
    ///
    /// # Panics
    /// When `run` has exchanged the endpoint for another one (`std::mem::replace`), and dropped it.
    ///
    /// # Aborts
    /// The process ends (`std::process::abort`) when `run` has exchanged the endpoint for another one (`std::mem::swap`) that stays: its peers
    /// could go on reading the memory, which is borrowed no more.
    pub fn with_shared<R>(
        &mut self,
        slices: &[IoSlice<'_>],
        run: impl FnOnce(&mut Endpoint, Handle) -> R,
    ) -> R {
        Lent::during(slices, |lent| {
            let loan = Arc::downgrade(&lent);
            let handle = self.state.shares.lend(lent);
            let shared = Shared { endpoint: self, handle, loan };
            run(shared.endpoint, handle)
        })
    }

    /// The memory that a registration is of, by buffer. Peers that read meanwhile may get some of what was there before and some of what is
    /// there later. Example: [`Endpoint::share`].
    ///
    /// # Errors
    /// [`EndpointError::ForeignRegistration`], [`EndpointError::Forked`].
    pub fn shared(&mut self, registration: &Registration) -> Result<Vec<&mut [u8]>, EndpointError> {
        self.state.check()?;
        self.state.shares.buffers(registration).ok_or(EndpointError::ForeignRegistration)
    }

    /// Takes memory back. It does not wait: what a peer is reading at this moment it throws away, and gets an error. Example:
    /// [`Endpoint::share`].
    ///
    /// # Errors
    /// [`EndpointError::ForeignRegistration`], [`EndpointError::Forked`].
    pub fn revoke(&mut self, registration: Registration) -> Result<Vec<Box<[u8]>>, EndpointError> {
        self.state.check()?;
        let State { shares, links, .. } = &mut self.state;
        let memory = shares.revoke(&registration.handle, links).ok_or(EndpointError::ForeignRegistration)?;
        Ok(memory.into_buffers())
    }
}
