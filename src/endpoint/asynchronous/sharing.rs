//! Memory that peers may access.

use crate::endpoint::asynchronous::api::AsyncEndpoint;
use crate::endpoint::error::EndpointError;
use crate::endpoint::handle::{Access, Registration};

impl AsyncEndpoint {
    /// Lets peers access memory, as [`Endpoint::share`](crate::Endpoint::share): they do so while this endpoint's runtime runs.
    ///
    /// ```
    /// use intranode::{Access, AsyncEndpoint, Endpoint, EndpointError};
    /// use std::io::IoSliceMut;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), EndpointError> {
    /// let server = AsyncEndpoint::listen(&format!("async-share-{}", std::process::id()))?;
    /// let memory = server.share(vec![vec![7; 100_000].into()], Access::Read)?;
    /// let (address, handle) = (server.address().expect("it listens").clone(), memory.handle());
    /// let got = tokio::task::spawn_blocking(move || {
    ///     let mut client = Endpoint::client()?;
    ///     let server = client.connect(&address)?;
    ///     let mut bytes = vec![0; 100_000];
    ///     client.get(server, &handle, 0, &mut [IoSliceMut::new(&mut bytes)])?;
    ///     Ok::<_, EndpointError>(bytes)
    /// });
    /// assert_eq!(got.await.expect("no panic")?, [7; 100_000]);
    /// assert_eq!(server.shared(&memory, |buffers| buffers[0][0])?, 7);
    /// assert_eq!(server.revoke(memory)?[0].len(), 100_000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`EndpointError::NoRuntime`].
    pub fn share(&self, buffers: Vec<Box<[u8]>>, access: Access) -> Result<Registration, EndpointError> {
        self.shared.call(|endpoint| Ok(endpoint.share(buffers, access)))
    }

    /// Shows the memory that a registration is of to a closure, during which other tasks' calls have to wait: it should be short,
    /// and must not call this endpoint. Example: [`AsyncEndpoint::share`].
    ///
    /// # Errors
    /// [`EndpointError::ForeignRegistration`], [`EndpointError::NoRuntime`].
    pub fn shared<R>(
        &self,
        registration: &Registration,
        look: impl FnOnce(Vec<&mut [u8]>) -> R,
    ) -> Result<R, EndpointError> {
        self.shared.call(|endpoint| endpoint.shared(registration).map(look))
    }

    /// Takes memory back, at once. Example: [`AsyncEndpoint::share`].
    ///
    /// # Errors
    /// [`EndpointError::ForeignRegistration`], [`EndpointError::NoRuntime`].
    pub fn revoke(&self, registration: Registration) -> Result<Vec<Box<[u8]>>, EndpointError> {
        self.shared.call(|endpoint| endpoint.revoke(registration))
    }
}
