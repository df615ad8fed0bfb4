//! Memory that peers may access, and what names it.

use crate::endpoint::error::EndpointError;

/// What peers may do with memory that an endpoint shares. Example: [`Endpoint::share`](crate::Endpoint::share).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Get.
    Read,
    /// Get and put.
    ReadWrite,
}

/// Memory that an endpoint shares with its peers until it [revokes](crate::Endpoint::revoke) that.
///
/// ```
/// use intranode::{Access, Endpoint, EndpointError, Handle};
///
/// let mut owner = Endpoint::client()?;
/// let registration = owner.share(vec![vec![1; 100].into(), vec![2; 50].into()], Access::Read);
/// let bytes = registration.handle().to_bytes();
/// let handle = Handle::from_bytes(&bytes)?;
/// assert_eq!((handle.len(), handle.is_empty(), handle.access()), (150, false, Access::Read));
/// assert_eq!(owner.revoke(registration)?.len(), 2);
/// # Ok::<(), EndpointError>(())
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Registration {
    pub(crate) handle: Handle,
}

impl Registration {
    /// What peers need to access the memory. Example: [`Registration`].
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }
}

/// Names memory that an endpoint shares. It can be sent in a message, as [bytes](Handle::to_bytes). Every process that is a peer of the
/// endpoint and has the handle may use it; it cannot be guessed. Example: [`Registration`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub(crate) key: u64,
    pub(crate) len: u64,
    pub(crate) access: Access,
}

impl Handle {
    /// The length of a handle as bytes.
    ///
    /// ```
    /// assert_eq!(intranode::Handle::BYTES, 24);
    /// ```
    pub const BYTES: usize = 24;

    /// As bytes, for a message. Example: [`Registration`].
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.key.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_ne_bytes());
        bytes[16] = if self.access == Access::ReadWrite { 2 } else { 1 };
        bytes
    }

    /// From bytes. Any that look like a handle are taken for one: its owner decides. Example:
    /// [`Registration`].
    ///
    /// # Errors
    /// [`EndpointError::InvalidHandle`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EndpointError> {
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_ne_bytes).unwrap_or_default();
        match bytes.get(16..) {
            Some(&[access @ 1..=2, 0, 0, 0, 0, 0, 0, 0]) => {
                let access = if access == 2 { Access::ReadWrite } else { Access::Read };
                Ok(Handle { key: word(0), len: word(8), access })
            }
            _ => Err(EndpointError::InvalidHandle { bytes: bytes.len() }),
        }
    }

    /// The length of the memory, in bytes: of all buffers, one behind the other. Example:
    /// [`Registration`].
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes. Example: [`Registration`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What peers may do with it. Example: [`Registration`].
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_survive_encoding_and_other_bytes_are_none() {
        for access in [Access::Read, Access::ReadWrite] {
            let handle = Handle { key: u64::MAX, len: 7, access };
            assert_eq!(Handle::from_bytes(&handle.to_bytes()).unwrap(), handle);
            for at in 17..Handle::BYTES {
                let mut bad = handle.to_bytes();
                bad[at] = 1;
                assert!(Handle::from_bytes(&bad).is_err(), "byte {at}");
            }
        }
        for bad in [&[][..], &[1; 24], &[0; 24], &[1; 23], &[1; 25]] {
            assert!(Handle::from_bytes(bad).is_err());
        }
    }
}
