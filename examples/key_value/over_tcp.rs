//! The transport to other machines: TCP over tokio, with the frames of `protocol.rs`. And a client that does not know by which way
//! it talks.

use std::io;

use anyhow::{Context, Result};
use intranode::{Address, AsyncEndpoint, Connection, RemoteTransport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::protocol::{Frames, frame, get_call, is_put, put_call, short_value};

pub(crate) struct Tcp {
    stream: TcpStream,
    frames: Frames,
    /// Messages with another tag than the one that was asked for.
    kept: Vec<(u64, Vec<u8>)>,
}

impl RemoteTransport for Tcp {
    async fn connect(remote: &str) -> io::Result<Self> {
        let to = remote.strip_prefix("tcp://").ok_or(io::ErrorKind::Unsupported)?;
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Tcp { stream, frames: Frames::default(), kept: Vec::new() })
    }

    async fn send_unexpected(&mut self, tag: u64, data: &[u8]) -> io::Result<()> {
        self.stream.write_all(&frame(tag, data)).await
    }

    async fn recv_expected(&mut self, tag: u64) -> io::Result<Vec<u8>> {
        if let Some(at) = self.kept.iter().position(|message| message.0 == tag) {
            return Ok(self.kept.remove(at).1);
        }
        let mut bytes = [0; 4096];
        loop {
            while let Some(message) = self.frames.next().map_err(io::Error::other)? {
                if message.0 == tag {
                    return Ok(message.1);
                }
                self.kept.push(message);
            }
            match self.stream.read(&mut bytes).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => self.frames.push(&bytes[..len]),
            }
        }
    }
}

/// A client of a server that is on this machine, or on another.
pub(crate) struct Anywhere<'a> {
    connection: Connection<'a, Tcp>,
    calls: u64,
}

impl<'a> Anywhere<'a> {
    pub(crate) async fn new(own: &'a AsyncEndpoint, address: &Address) -> Result<Self> {
        Ok(Anywhere { connection: Connection::open(own, address).await?, calls: 0 })
    }

    pub(crate) fn is_local(&self) -> bool {
        self.connection.is_local()
    }

    pub(crate) async fn call(&mut self, call: &[u8]) -> Result<Vec<u8>> {
        self.calls += 1;
        self.connection.send_unexpected(self.calls, call).await?;
        Ok(self.connection.recv_expected(self.calls).await?)
    }

    pub(crate) async fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        is_put(&self.call(&put_call(key.as_bytes(), value)?).await?)
    }

    pub(crate) async fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        let answer = self.call(&get_call(key.as_bytes())?).await?;
        Ok(short_value(&answer)?.map(<[u8]>::to_vec))
    }
}

/// `put-at ADDRESS KEY VALUE` and `get-at ADDRESS KEY`.
pub(crate) fn run(address: &str, key: &str, value: Option<&str>) -> Result<()> {
    // With timers: where very many wait to be accepted, it connects again after some time.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let own = AsyncEndpoint::client()?;
        let mut client = Anywhere::new(&own, &address.parse()?).await?;
        eprintln!("{}", if client.is_local() { "over shared memory" } else { "over TCP" });
        match value {
            Some(value) => client.put(key, value.as_bytes()).await,
            None => {
                let value = client.get(key).await?.context("there is no such key")?;
                println!("{}", String::from_utf8_lossy(&value));
                Ok(())
            }
        }
    })
}
