//! What clients ask for, and what they are answered, over endpoints and over TCP.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use intranode::Endpoint;

/// What a client asks for: the first byte of its call. A key follows: its length as a byte, and its bytes.
pub(crate) const GET: u8 = 0;
/// The value, or its handle, follows the key.
pub(crate) const PUT: u8 = 1;
pub(crate) const PUT_LONG: u8 = 2;
pub(crate) const STOP: u8 = 3;

/// The answer is the value, or its handle, or nothing.
pub(crate) const NONE: u8 = 0;
pub(crate) const SHORT: u8 = 1;
pub(crate) const LONG: u8 = 2;
/// This server does not do that.
pub(crate) const REFUSED: u8 = 3;

/// What fits into a message, with a key of up to 255 bytes.
pub(crate) const LONGEST: usize = Endpoint::MAX_MESSAGE_BYTES - 2 - 255;

/// After how long a server accepts again that could not: it may have had no descriptor left.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Whether clients can be accepted over the port. That they cannot is said once, and is no reason to end: those that are there are served.
#[derive(Default)]
pub(crate) struct Accepting {
    fails: bool,
}

impl Accepting {
    pub(crate) fn works(&mut self) {
        self.fails = false;
    }

    pub(crate) fn fails(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.fails, true) {
            eprintln!("no further client can be accepted over the port until others leave: {error}");
        }
    }
}

/// The values of a server that has short ones only.
#[derive(Default)]
pub(crate) struct Table(HashMap<Vec<u8>, Vec<u8>>);

impl Table {
    /// `None`: the server is to stop.
    pub(crate) fn answer(&mut self, call: &[u8]) -> Option<Vec<u8>> {
        Some(match call {
            [STOP] => return None,
            [GET, len, key @ ..] if key.len() == usize::from(*len) => match self.0.get(key) {
                None => vec![NONE],
                Some(value) => [&[SHORT], &value[..]].concat(),
            },
            [PUT, len, rest @ ..]
                if (usize::from(*len)..=usize::from(*len) + LONGEST).contains(&rest.len()) =>
            {
                let (key, value) = rest.split_at((*len).into());
                self.0.insert(key.to_vec(), value.to_vec());
                vec![NONE]
            }
            _ => vec![REFUSED],
        })
    }
}

pub(crate) fn get_call(key: &[u8]) -> Result<Vec<u8>> {
    Ok([&[GET, length(key)?], key].concat())
}

pub(crate) fn put_call(key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
    Ok([&[PUT, length(key)?], key, value].concat())
}

fn length(key: &[u8]) -> Result<u8> {
    u8::try_from(key.len()).context("a key has up to 255 bytes")
}

pub(crate) fn is_put(answer: &[u8]) -> Result<()> {
    ensure!(answer == [NONE], "the server does not take such a value");
    Ok(())
}

/// The value in an answer that has no handle.
pub(crate) fn short_value(answer: &[u8]) -> Result<Option<&[u8]>> {
    match answer.split_first().context("an answer")? {
        (&NONE, _) => Ok(None),
        (&SHORT, value) => Ok(Some(value)),
        (what, _) => bail!("the answer {what} is no short value"),
    }
}

/// A message over TCP: its length without this head and its tag, little-endian, and its bytes.
const HEAD: usize = 4 + 8;

pub(crate) fn frame(tag: u64, bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes()[..], &tag.to_le_bytes(), bytes].concat()
}

/// Messages out of what has come of a stream.
#[derive(Default)]
pub(crate) struct Frames(Vec<u8>);

impl Frames {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// The next that has come completely: its tag and its bytes.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Vec<u8>)>> {
        let Some((head, rest)) = self.0.split_first_chunk::<HEAD>() else { return Ok(None) };
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        ensure!(len <= Endpoint::MAX_MESSAGE_BYTES, "a message of {len} bytes");
        let tag = u64::from_le_bytes(head[4..].try_into()?);
        let Some(bytes) = rest.get(..len).map(<[u8]>::to_vec) else { return Ok(None) };
        self.0.drain(..HEAD + len);
        Ok(Some((tag, bytes)))
    }
}

/// A client over TCP.
pub(crate) struct TcpClient {
    stream: TcpStream,
    frames: Frames,
    calls: u64,
}

impl TcpClient {
    pub(crate) fn new(to: impl ToSocketAddrs) -> Result<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        Ok(TcpClient { stream, frames: Frames::default(), calls: 0 })
    }

    pub(crate) fn call(&mut self, call: &[u8]) -> Result<Vec<u8>> {
        self.calls += 1;
        self.stream.write_all(&frame(self.calls, call))?;
        let mut bytes = [0; 4096];
        loop {
            if let Some((tag, answer)) = self.frames.next()? {
                ensure!(tag == self.calls, "the answer to another call");
                return Ok(answer);
            }
            let len = self.stream.read(&mut bytes)?;
            ensure!(len > 0, "the server has closed the connection");
            self.frames.push(&bytes[..len]);
        }
    }
}
