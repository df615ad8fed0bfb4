//! Where an endpoint listens.

use std::fmt;
use std::fs;
use std::io;
use std::str::FromStr;
use std::sync::OnceLock;

use crate::endpoint::error::{EndpointError, system};
use crate::sys::process;

/// The longest name of an endpoint, in bytes.
pub(crate) const MAX_NAME: usize = 64;

/// The longest remote part of an address, in bytes.
pub(crate) const MAX_REMOTE: usize = 255;

/// What stands between the two parts of an address that has a remote one.
const LOCAL_PART: &str = "#intranode=";

/// Where an endpoint listens: a name on a machine. [`Endpoint::address`](crate::Endpoint::address) gives it; as text it can be
/// sent to others, or written down.
///
/// The text is `intranode://BOOT_ID/NAME`. With a remote part, where the same is served by another transport, it is
/// `tcp://HOST:PORT#intranode=BOOT_ID/NAME`: a program that does not know endpoints finds what it knows at the front. What is before the `#`
/// means something only to that transport.
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
    remote: Option<String>,
}

impl Address {
    /// The address of an endpoint of this machine, by its name: 1 to 64 letters, digits, dots, hyphens and underscores of
    /// ASCII.
    ///
    /// # Errors
    /// [`EndpointError::InvalidName`]; [`EndpointError::System`] if there is no descriptor left by which to know the machine.
    ///
    /// ```
    /// use intranode::{Address, EndpointError};
    ///
    /// assert_eq!(Address::local("store")?.name(), "store");
    /// assert!(matches!(Address::local("two words"), Err(EndpointError::InvalidName { .. })));
    /// # Ok::<(), EndpointError>(())
    /// ```
    pub fn local(name: &str) -> Result<Self, EndpointError> {
        Self::local_for("local", name)
    }

    /// The same in another call.
    pub(crate) fn local_for(call: &'static str, name: &str) -> Result<Self, EndpointError> {
        if !is_name(name) {
            return Err(EndpointError::InvalidName { name: name.to_owned() });
        }
        let boot = boot_id().map_err(system(call, BOOT_ID))?;
        Ok(Address { boot, name: name.to_owned(), remote: None })
    }

    /// The same with a remote part, where the same is served to other machines: `SCHEME://` and more, up to 255 bytes of visible
    /// ASCII without `#`.
    ///
    /// # Errors
    /// [`EndpointError::InvalidName`].
    ///
    /// ```
    /// use intranode::{Address, EndpointError};
    ///
    /// let address = Address::local("store")?.with_remote("tcp://10.0.0.7:4000")?;
    /// let text = address.to_string();
    /// assert!(text.starts_with("tcp://10.0.0.7:4000#intranode=") && text.ends_with("/store"));
    /// assert_eq!(text.parse::<Address>()?.remote(), Some("tcp://10.0.0.7:4000"));
    /// # Ok::<(), EndpointError>(())
    /// ```
    pub fn with_remote(self, remote: &str) -> Result<Self, EndpointError> {
        if !is_remote(remote) {
            return Err(EndpointError::InvalidName { name: remote.to_owned() });
        }
        Ok(Address { remote: Some(remote.to_owned()), ..self })
    }

    /// The remote part, without the rest. Example: [`Address::with_remote`](crate::Address::with_remote).
    #[must_use]
    pub fn remote(&self) -> Option<&str> {
        self.remote.as_deref()
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
        boot_id().is_ok_and(|own| self.boot == own)
    }

    /// An error of this call, if it is not.
    pub(crate) fn check_local_for(&self, call: &'static str) -> Result<(), EndpointError> {
        match boot_id().map_err(system(call, BOOT_ID))? {
            own if own == self.boot => Ok(()),
            _ => Err(EndpointError::NotLocal { address: self.to_string() }),
        }
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

fn is_remote(remote: &str) -> bool {
    let is_scheme = |scheme: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && scheme.bytes().all(allowed)
    };
    let is_visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    // Two kinds of text would have one meaning.
    let is_other = |scheme: &str| !scheme.eq_ignore_ascii_case("intranode");
    remote.len() <= MAX_REMOTE
        && remote.split_once("://").is_some_and(|(scheme, rest)| {
            is_scheme(scheme) && is_other(scheme) && !rest.is_empty() && is_visible(rest)
        })
}

const BOOT_ID: &str = "a descriptor for the machine's boot identifier";

/// A number that the system has chosen when it was booted. Empty where the system does not tell. An error if it would, and has no descriptor left
/// for that.
fn boot_id() -> io::Result<String> {
    // Kept: it takes a descriptor to read it, and without one no address would be of this machine.
    static KNOWN: OnceLock<String> = OnceLock::new();
    match KNOWN.get() {
        Some(known) => Ok(known.clone()),
        None => match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
            Ok(read) => Ok(KNOWN.get_or_init(|| read.trim().to_owned()).clone()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => Err(error),
            Err(_) => Ok(String::new()),
        },
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.remote {
            None => write!(f, "intranode://{}/{}", self.boot, self.name),
            Some(remote) => write!(f, "{remote}{LOCAL_PART}{}/{}", self.boot, self.name),
        }
    }
}

impl FromStr for Address {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let invalid = || EndpointError::InvalidName { name: text.to_owned() };
        let (remote, local) = match text.strip_prefix("intranode://") {
            Some(local) => (None, local),
            None => {
                text.split_once(LOCAL_PART).map(|(remote, local)| (Some(remote), local)).ok_or_else(invalid)?
            }
        };
        let (boot, name) = local.split_once('/').ok_or_else(invalid)?;
        let is_boot = boot.len() <= 64 && boot.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if !is_boot || !is_name(name) || !remote.is_none_or(is_remote) {
            return Err(invalid());
        }
        Ok(Address { boot: boot.to_owned(), name: name.to_owned(), remote: remote.map(str::to_owned) })
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
        let both = "tcp://[::1]:4000#intranode=0a-f/some.name";
        assert_eq!(both.parse::<Address>().unwrap().to_string(), both);
        let long = format!("intranode://0/{}", "x".repeat(MAX_NAME + 1));
        let long_remote = format!("tcp://{}#intranode=0/x", "x".repeat(MAX_REMOTE - 5));
        for bad in [
            "",
            "intranode://",
            "intranode://0",
            "intranode://0/",
            "intranode://g/x",
            "tcp://0/x",
            &long,
            "#intranode=0/x",
            "tcp#intranode=0/x",
            "tcp://#intranode=0/x",
            "://h#intranode=0/x",
            "7://h#intranode=0/x",
            "tcp://h h#intranode=0/x",
            "tcp://h##intranode=0/x",
            "tcp://h#intranode=0/x#intranode=0/x",
            "Intranode://h#intranode=0/x",
            "intranode://0/x#intranode=0/x",
            "tcp://h#Intranode=0/x",
            "tcp://h#intranode=0",
            &long_remote,
        ] {
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
