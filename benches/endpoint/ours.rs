//! The endpoints: a server in a process of its own, and its client.

use std::io::{IoSlice, IoSliceMut};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use intranode::{Access, Address, Endpoint, Handle, Peer};
use nix::sys::signal::Signal;

use crate::block::{Client, repeated};
use crate::process::{Server, bind, processors};

/// By which this program knows that it is the server.
pub(crate) const SERVE: &str = "--serve-endpoint";

/// The longest transfer.
pub(crate) const LONGEST: usize = 64 << 20;

/// The tag of a message that asks for the handle.
const HANDLE: u64 = u64::MAX;

/// How long an endpoint polls that is awake: longer than the other side takes while a row is measured. After that it sleeps, so that it
/// takes no processor from the next row.
pub(crate) const AWAKE: Duration = Duration::from_millis(5);

fn builder(asleep: bool) -> intranode::EndpointBuilder {
    Endpoint::builder().spin(if asleep { Duration::ZERO } else { AWAKE })
}

/// The server: answers messages with what it gets, and shares memory. It ends with its client.
pub(crate) fn serve(name: &str, asleep: bool, processor: usize) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    bind(processor)?;
    let mut own = builder(asleep).timeout(None).listen(name)?;
    let memory = own.share(vec![vec![1; LONGEST].into()], Access::ReadWrite);
    let start = own.shared(&memory)?[0].as_ptr() as usize;
    println!("{start}");
    let mut data = [0; 64];
    loop {
        let call = own.recv_unexpected(&mut data)?;
        let handle = memory.handle().to_bytes();
        let answer = if call.tag == HANDLE { &handle } else { &data[..call.bytes] };
        own.send_expected(call.peer, call.tag, answer)?;
    }
}

/// A client, and the server's process.
pub(crate) struct Pair {
    pub(crate) server: Server,
    /// Where the server's memory begins.
    pub(crate) start: usize,
    own: Endpoint,
    peer: Peer,
    handle: Handle,
    pub(crate) memory: Vec<u8>,
}

impl Pair {
    pub(crate) fn start(asleep: bool) -> Result<Self> {
        let mode = if asleep { "asleep" } else { "awake" };
        let name = format!("bench-{}-{mode}", std::process::id());
        let processor = processors()?[1].to_string();
        let mut server =
            Server::start(Command::new(std::env::current_exe()?).args([SERVE, &name, mode, &processor]))?;
        let start = server.line()?.parse().context("an address")?;
        let mut own = builder(asleep).client()?;
        let peer = own.connect(&Address::local(&name)?)?;
        own.send_unexpected(peer, HANDLE, b"")?;
        let mut bytes = [0; Handle::BYTES];
        own.recv_expected(peer, HANDLE, &mut bytes)?;
        let handle = Handle::from_bytes(&bytes)?;
        Ok(Pair { server, start, own, peer, handle, memory: vec![2; LONGEST] })
    }

    /// Gigabytes a second of gets of this length.
    pub(crate) fn gets(&mut self, len: usize, length: Duration) -> Result<f64> {
        let Pair { own, peer, handle, memory, .. } = self;
        let seconds =
            repeated(length, || Ok(own.get(*peer, handle, 0, &mut [IoSliceMut::new(&mut memory[..len])])?))?;
        Ok(len as f64 / seconds / 1e9)
    }

    /// The same for puts.
    pub(crate) fn puts(&mut self, len: usize, length: Duration) -> Result<f64> {
        let Pair { own, peer, handle, memory, .. } = self;
        let seconds = repeated(length, || Ok(own.put(*peer, handle, 0, &[IoSlice::new(&memory[..len])])?))?;
        Ok(len as f64 / seconds / 1e9)
    }
}

impl Client for Pair {
    #[inline]
    fn call(&mut self, number: u64) -> Result<()> {
        Ok(self.own.send_unexpected(self.peer, number, &number.to_ne_bytes())?)
    }

    #[inline]
    fn answer(&mut self, number: u64) -> Result<u64> {
        let mut answer = [0; 8];
        self.own.recv_expected(self.peer, number, &mut answer)?;
        Ok(u64::from_ne_bytes(answer))
    }
}
