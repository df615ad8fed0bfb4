//! A key-value store: one server, any number of clients, which come and go.
//!
//! ```sh
//! cargo run --release --example key_value -- serve store &
//! cargo run --release --example key_value -- put store color green
//! cargo run --release --example key_value -- get store color
//! ```
//!
//! Without arguments it starts a server and 100 clients as threads, and compares what they get. `serve-mio store 7000` and
//! `serve-tokio store 7000` (with `--features tokio`) serve the same calls in an event loop, where they serve a TCP port too;
//! of short values only. They print their address, by which clients reach them over shared memory, or over TCP from elsewhere:
//!
//! ```sh
//! cargo run --release --features tokio --example key_value -- serve-tokio store 7000 &
//! cargo run --release --features tokio --example key_value -- put-at tcp://127.0.0.1:7000#intranode=.../store color green
//! ```
//!
//! A call is an unexpected message whose tag the client chooses; the answer is an expected one with the same tag. Values of more than
//! 3,839 bytes are put and got by `get`: the side that has them shares them, and sends the handle.

use std::collections::HashMap;
use std::io::IoSliceMut;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use intranode::{Access, Address, Endpoint, EndpointError, Handle, Peer};

use super::protocol::{GET, LONG, LONGEST, NONE, PUT, PUT_LONG, REFUSED, SHORT, STOP, is_put};

/// The longest that the server waits for a client that has something to be fetched, and does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

fn serve(name: &str) -> Result<()> {
    let mut server = Endpoint::builder().timeout(PATIENCE).listen(name)?;
    let mut values: HashMap<Vec<u8>, intranode::Registration> = HashMap::new();
    let mut buffer = [0; Endpoint::MAX_MESSAGE_BYTES];
    loop {
        let call = match server.recv_unexpected(&mut buffer) {
            Err(EndpointError::TimedOut { .. }) => continue,
            call => call?,
        };
        let answer = match &buffer[..call.bytes] {
            [STOP] => return Ok(()),
            [GET, len, rest @ ..] if rest.len() == usize::from(*len) => match values.get(rest) {
                None => vec![NONE],
                Some(value) if value.handle().len() <= LONGEST as u64 => {
                    [&[SHORT], &server.shared(value)?[0][..]].concat()
                }
                Some(value) => [&[LONG][..], &value.handle().to_bytes()].concat(),
            },
            [what @ (PUT | PUT_LONG), len, rest @ ..] if rest.len() >= usize::from(*len) => {
                let (key, value) = rest.split_at((*len).into());
                let (key, what, value) = (key.to_vec(), *what, value.to_vec());
                let value = if what == PUT { Ok(value) } else { fetch(&mut server, call.peer, &value) };
                // A client that is gone meanwhile, does not answer, or has sent nonsense, gets no value stored.
                let Ok(value) = value else {
                    server.disconnect(call.peer);
                    continue;
                };
                let value = server.share(vec![value.into()], Access::Read);
                if let Some(old) = values.insert(key, value) {
                    server.revoke(old)?;
                }
                vec![NONE]
            }
            _ => vec![REFUSED],
        };
        match server.try_send_expected(call.peer, call.tag, &answer) {
            Ok(true) => {}
            // It has 64 answers that it does not take: nobody else waits for it.
            Ok(false) => server.disconnect(call.peer),
            // Clients come and go.
            Err(EndpointError::PeerGone { .. } | EndpointError::UnknownPeer { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Gets what a peer shares.
fn fetch(own: &mut Endpoint, peer: Peer, handle: &[u8]) -> Result<Vec<u8>, EndpointError> {
    let handle = Handle::from_bytes(handle)?;
    // The handle is a stranger's: what it says of its length is no reason to allocate it all at once.
    let mut value = Vec::new();
    while (value.len() as u64) < handle.len() {
        let start = value.len();
        value.resize(start + (handle.len() - start as u64).min(16 << 20) as usize, 0);
        own.get(peer, &handle, start as u64, &mut [IoSliceMut::new(&mut value[start..])])?;
    }
    Ok(value)
}

struct Client {
    own: Endpoint,
    server: Peer,
    calls: u64,
}

impl Client {
    fn new(name: &str) -> Result<Self> {
        let mut own = Endpoint::client()?;
        let server = own.connect(&Address::local(name)?)?;
        Ok(Client { own, server, calls: 0 })
    }

    fn call(&mut self, parts: &[&[u8]]) -> Result<Vec<u8>> {
        self.calls += 1;
        self.own.send_unexpected(self.server, self.calls, &parts.concat())?;
        let mut answer = vec![0; Endpoint::MAX_MESSAGE_BYTES];
        let len = self.own.recv_expected(self.server, self.calls, &mut answer)?;
        answer.truncate(len);
        Ok(answer)
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        let len = [u8::try_from(key.len()).context("a key has up to 255 bytes")?];
        if value.len() <= LONGEST {
            return is_put(&self.call(&[&[PUT], &len, key.as_bytes(), value])?);
        }
        let shared = self.own.share(vec![value.into()], Access::Read);
        let called = self.call(&[&[PUT_LONG], &len, key.as_bytes(), &shared.handle().to_bytes()]);
        self.own.revoke(shared)?;
        is_put(&called?)
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        let len = [u8::try_from(key.len()).context("a key has up to 255 bytes")?];
        loop {
            let answer = self.call(&[&[GET], &len, key.as_bytes()])?;
            match answer.split_first().context("an answer")? {
                (&NONE, _) => return Ok(None),
                (&SHORT, value) => return Ok(Some(value.to_vec())),
                (&LONG, handle) => match fetch(&mut self.own, self.server, handle) {
                    Ok(value) => return Ok(Some(value)),
                    // Another client has put another value meanwhile.
                    Err(EndpointError::NotShared { .. }) => {}
                    Err(error) => return Err(error.into()),
                },
                (what, _) => bail!("the answer {what} is none"),
            }
        }
    }
}

/// A server and many clients, which compare what they get with what they have put.
fn demonstrate() -> Result<()> {
    const CLIENTS: usize = 100;
    let name = format!("key-value-{}", std::process::id());
    let server = {
        let name = name.clone();
        thread::spawn(move || serve(&name))
    };
    // Until the server listens.
    let mut stopper = loop {
        match Client::new(&name) {
            Ok(client) => break client,
            Err(error) if server.is_finished() => return Err(error),
            Err(_) => thread::yield_now(),
        }
    };
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let name = name.clone();
            thread::spawn(move || -> Result<()> {
                let mut client = Client::new(&name)?;
                for (round, len) in [0, 1, 100, LONGEST, LONGEST + 1, 100_000].into_iter().enumerate() {
                    let (key, value) = (format!("{number}"), vec![(number + round) as u8; len]);
                    client.put(&key, &value)?;
                    ensure!(client.get(&key)? == Some(value), "client {number}, {len} bytes");
                }
                ensure!(client.get("nothing")?.is_none());
                Ok(())
            })
        })
        .collect();
    for client in clients {
        client.join().ok().context("a client has panicked")??;
    }
    stopper.own.send_unexpected(stopper.server, 0, &[STOP])?;
    server.join().ok().context("the server has panicked")??;
    println!("{CLIENTS} clients have got what they had put");
    Ok(())
}

/// The address of a server that serves a port too.
fn says(address: &Address) -> Result<()> {
    println!("{address}");
    Ok(())
}

pub(crate) fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => demonstrate(),
        ["serve", name] => serve(name),
        ["serve-mio", name, port] => super::on_mio::serve(name, port.parse()?, says),
        #[cfg(feature = "tokio")]
        ["serve-tokio", name, port] => super::on_tokio::serve(name, port.parse()?, says),
        #[cfg(feature = "tokio")]
        ["put-at", address, key, value] => super::over_tcp::run(address, key, Some(value)),
        #[cfg(feature = "tokio")]
        ["get-at", address, key] => super::over_tcp::run(address, key, None),
        #[cfg(not(feature = "tokio"))]
        ["serve-tokio" | "put-at" | "get-at", ..] => bail!("compile it with --features tokio"),
        ["put", name, key, value] => Client::new(name)?.put(key, value.as_bytes()),
        ["get", name, key] => {
            let value = Client::new(name)?.get(key)?.context("there is no such key")?;
            println!("{}", String::from_utf8_lossy(&value));
            Ok(())
        }
        _ => bail!(
            "usage: key_value [serve NAME | serve-mio NAME PORT | serve-tokio NAME PORT | put NAME KEY VALUE | get NAME KEY | put-at ADDRESS KEY VALUE | get-at ADDRESS KEY]"
        ),
    }
}
