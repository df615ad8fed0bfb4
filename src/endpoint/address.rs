//! Where an endpoint listens.

use std::fmt;
use std::fs;
use std::str::FromStr;

use crate::endpoint::error::EndpointError;
use crate::sys::process;

/// The longest name of an endpoint, in bytes.
pub(crate) const MAX_NAME: usize = 64;

/// Where an endpoint listens: a name on a machine. [`Endpoint::address`](crate::Endpoint::address) gives it; as text it can be
/// sent to others, or written down.
///
/// ```
/// use intranode::{Address, Endpoint, EndpointError};
///
/// let name = format!("address-example-{}", std::process::id());
/// let server = Endpoint::listen(&name)?;
/// let address = server.address().expect("it listens");
/// let text = address.to_string();
/// assert!(text.starts_with("intranode://") && text.ends_with(&name));
/// assert_eq!(&text.parse::<Address>()?, address);
/// assert!(address.is_local());
/// # Ok::<(), EndpointError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The machine, since it was booted.
    boot: String,
    name: String,
}

impl Address {
    /// The address of an endpoint of this machine, by its name: 1 to 64 letters, digits, dots, hyphens and underscores of
    /// ASCII.
    ///
    /// # Errors
    /// [`EndpointError::InvalidName`].
    ///
    /// ```
    /// use intranode::{Address, EndpointError};
    ///
    /// assert_eq!(Address::local("store")?.name(), "store");
    /// assert!(matches!(Address::local("two words"), Err(EndpointError::InvalidName { .. })));
    /// # Ok::<(), EndpointError>(())
    /// ```
    pub fn local(name: &str) -> Result<Self, EndpointError> {
        if !is_name(name) {
            return Err(EndpointError::InvalidName { name: name.to_owned() });
        }
        Ok(Address { boot: boot_id(), name: name.to_owned() })
    }

    /// The name. Example: [`Address::local`](crate::Address::local).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is of this machine, and of the time since it was booted. Containers of one machine count as one machine
    /// here; whether the endpoint can be reached is found out by connecting. Example: [`Address`].
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.boot == boot_id()
    }

    /// The name of its socket. Users have names of their own.
    pub(crate) fn socket_name(&self) -> Vec<u8> {
        format!("intranode-{}-{}", process::user(), self.name).into_bytes()
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(allowed)
}

/// A number that the system has chosen when it was booted. Empty where the system does not tell.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "intranode://{}/{}", self.boot, self.name)
    }
}

impl FromStr for Address {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let invalid = || EndpointError::InvalidName { name: text.to_owned() };
        let (boot, name) =
            text.strip_prefix("intranode://").and_then(|rest| rest.split_once('/')).ok_or_else(invalid)?;
        let is_boot = boot.len() <= 64 && boot.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if !is_boot || !is_name(name) {
            return Err(invalid());
        }
        Ok(Address { boot: boot.to_owned(), name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::socket::LONGEST_NAME;

    #[test]
    fn only_addresses_are_parsed() {
        let good = "intranode://0a-f/some.name";
        assert_eq!(good.parse::<Address>().unwrap().to_string(), good);
        let long = format!("intranode://0/{}", "x".repeat(MAX_NAME + 1));
        for bad in
            ["", "intranode://", "intranode://0", "intranode://0/", "intranode://g/x", "tcp://0/x", &long]
        {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
        assert!(!good.parse::<Address>().unwrap().is_local());
    }

    #[test]
    fn the_longest_name_fits_into_a_socket_address() {
        let address = Address::local(&"x".repeat(MAX_NAME)).unwrap();
        assert!(address.socket_name().len() + "4294967295".len() <= LONGEST_NAME);
    }
}
