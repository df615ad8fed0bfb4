//! Why a connection has ended, or was never made.

use crate::codes::codes;

codes! {
    /// Why an endpoint refuses a connection.
    ///
    /// ```
    /// use intranode::{Ended, Endpoint, EndpointError, Event, Refusal};
    /// use std::time::Duration;
    ///
    /// let name = format!("refusal-example-{}", std::process::id());
    /// let mut server = Endpoint::builder().max_peers(1).listen(&name)?;
    /// let address = server.address().expect("it listens").clone();
    /// let (mut first, mut second) = (Endpoint::client()?, Endpoint::client()?);
    /// first.connect(&address)?;
    /// second.connect(&address)?;
    /// while server.poll()?.is_some() {}
    /// let event = second.wait(Some(Duration::from_secs(10)))?;
    /// assert!(matches!(event, Some(Event::Closed { ended: Ended::Refused(Refusal::Full), .. })));
    /// # Ok::<(), EndpointError>(())
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Refusal: u8 {
        /// It has as many peers as it can have.
        Full = 1,
        /// It belongs to another user.
        User = 2,
        /// It is of another version of this library.
        Version = 3,
        /// What it was sent is no hello of this library, or none came in time.
        Hello = 4,
        /// The memory that it was sent is not what it has to be: sealed, and of the right length.
        Memory = 5,
        /// It could not get what a connection takes: descriptors, or memory.
        Resources = 6,
    }
}

/// Why a peer is gone.
///
/// ```
/// use intranode::{Ended, Endpoint, EndpointError, Event};
/// use std::time::Duration;
///
/// let name = format!("ended-example-{}", std::process::id());
/// let mut server = Endpoint::listen(&name)?;
/// let mut client = Endpoint::client()?;
/// client.connect(server.address().expect("it listens"))?;
/// assert!(matches!(server.wait(None)?, Some(Event::Connected { .. })));
/// drop(client);
/// assert!(matches!(server.wait(None)?, Some(Event::Closed { ended: Ended::Left, .. })));
/// # Ok::<(), EndpointError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// It has disconnected, or dropped its endpoint.
    Left,
    /// Its process has ended without that, or has called exec.
    Died,
    /// It has refused the connection.
    Refused(Refusal),
    /// What it has written cannot have been written by this library.
    Violated,
    /// This endpoint has disconnected.
    Disconnected,
}

impl Ended {
    /// As a part of a sentence.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Ended::Left => "it has disconnected",
            Ended::Died => "its process has ended",
            Ended::Refused(Refusal::Full) => "it refuses, having as many peers as it can have",
            Ended::Refused(Refusal::User) => "it refuses, belonging to another user",
            Ended::Refused(Refusal::Version) => "it refuses, being of another version of this library",
            Ended::Refused(Refusal::Hello) => "it refuses, having got no hello that it understands",
            Ended::Refused(Refusal::Memory) => "it refuses the memory of the connection",
            Ended::Refused(Refusal::Resources) => "it refuses, having no descriptors or memory left",
            Ended::Violated => "it has written what this library does not write",
            Ended::Disconnected => "this endpoint has disconnected it",
        }
    }
}
