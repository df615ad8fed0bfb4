//! The text of an address: an address if and only if its grammar says so, and then it is written as it was read.

use intranode::{Address, EndpointError};

/// The input: a text. Returns whether it is an address.
pub fn run(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let expected = expect(&text);
    match text.parse::<Address>() {
        Ok(address) => {
            let (remote, name) = expected.unwrap_or_else(|| panic!("{text:?}: {address:?}"));
            assert_eq!((address.remote(), address.name()), (remote, name), "{text:?}");
            assert_eq!(address.to_string(), text);
            if let Some(remote) = remote {
                let again = Address::local(name).and_then(|address| address.with_remote(remote));
                assert_eq!(again.expect("its parts are allowed").remote(), Some(remote));
            }
            true
        }
        Err(EndpointError::InvalidName { name }) => {
            assert_eq!(expected, None, "{text:?}");
            assert_eq!(name, text);
            // Alone it may be a name, or a remote part: then it is no more than that.
            if let Ok(local) = Address::local(&text) {
                assert_eq!(local.name(), text);
            }
            if let Ok(both) = Address::local("x").expect("a name").with_remote(&text) {
                assert_eq!(both.to_string().parse::<Address>().expect("an address"), both);
            }
            false
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// The remote part and the name; `None` if the text is no address. Read byte by byte, otherwise than the library does it.
fn expect(text: &str) -> Option<(Option<&str>, &str)> {
    let slash = text.rfind('/')?;
    let (front, name) = (&text[..slash], &text[slash + 1..]);
    let is_name = |byte: u8| matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_name) {
        return None;
    }
    let boot =
        front.bytes().rev().take_while(|byte| matches!(byte, b'a'..=b'f' | b'A'..=b'F' | b'0'..=b'9' | b'-'));
    let boot = boot.count();
    let front = &front[..front.len() - boot];
    if boot > 64 {
        return None;
    }
    if front == "intranode://" {
        return Some((None, name));
    }
    let remote = front.strip_suffix("#intranode=")?;
    let (scheme, rest) = remote.split_at(remote.find(':')?);
    let rest = rest.strip_prefix("://")?;
    let is_scheme = |(at, byte): (usize, u8)| {
        byte.is_ascii_alphabetic() || at > 0 && matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.')
    };
    let is_remote = !scheme.is_empty()
        && scheme.bytes().enumerate().all(is_scheme)
        && !scheme.eq_ignore_ascii_case("intranode")
        && !rest.is_empty()
        && rest.bytes().all(|byte| (0x21..0x7F).contains(&byte) && byte != b'#')
        && remote.len() <= 255;
    is_remote.then_some((Some(remote), name))
}
