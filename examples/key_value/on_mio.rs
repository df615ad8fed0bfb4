//! The store on mio: one thread serves endpoints, and a TCP port beside them. Values have up to 4 KiB.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;

use anyhow::{Context, Result};
use intranode::{Address, Armed, Endpoint, EndpointError};
use mio::net::{TcpListener, TcpStream};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::protocol::{Frames, Table, frame};

const ENDPOINT: Token = Token(0);
const PORT: Token = Token(1);

/// Serves until a client asks it to stop. Tells the address.
pub(crate) fn serve(name: &str, port: u16, listens: impl FnOnce(&Address) -> Result<()>) -> Result<()> {
    let mut endpoint = Endpoint::listen(name)?;
    let mut listener = TcpListener::bind(([127, 0, 0, 1], port).into())?;
    let mut poll = Poll::new()?;
    // mio waits for edges.
    poll.registry().register(&mut SourceFd(&endpoint.as_raw_fd()), ENDPOINT, Interest::READABLE)?;
    poll.registry().register(&mut listener, PORT, Interest::READABLE)?;
    let own = endpoint.address().context("it listens")?.clone();
    listens(&own.with_remote(&format!("tcp://{}", listener.local_addr()?))?)?;
    let (mut table, mut clients, mut next) = (Table::default(), HashMap::new(), 2);
    let mut events = Events::with_capacity(64);
    // Before the first event too: until it is armed the descriptor says nothing.
    while serve_endpoint(&mut endpoint, &mut table)? {
        poll.poll(&mut events, None).or_else(|error| match error.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        })?;
        for event in &events {
            match event.token() {
                ENDPOINT => {}
                PORT => {
                    while let Some(mut stream) = unless_blocked(listener.accept())?.map(|(stream, _)| stream) {
                        let interest = Interest::READABLE | Interest::WRITABLE;
                        poll.registry().register(&mut stream, Token(next), interest)?;
                        clients
                            .insert(Token(next), Client { stream, frames: Frames::default(), out: Vec::new() });
                        next += 1;
                    }
                }
                // What is wrong with one client is no reason to end.
                token => {
                    if clients.get_mut(&token).is_some_and(|client| !client.serve(&mut table).unwrap_or(false))
                    {
                        clients.remove(&token);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Serves until there is nothing more, and arms. Returns whether the server goes on.
fn serve_endpoint(endpoint: &mut Endpoint, table: &mut Table) -> Result<bool> {
    let mut buffer = [0; Endpoint::MAX_MESSAGE_BYTES];
    loop {
        while endpoint.poll()?.is_some() {}
        while let Some(call) = endpoint.try_recv_unexpected(&mut buffer)? {
            let Some(answer) = table.answer(&buffer[..call.bytes]) else { return Ok(false) };
            match endpoint.try_send_expected(call.peer, call.tag, &answer) {
                Ok(true) => {}
                // It has 64 answers that it does not take: nobody else waits for it.
                Ok(false) => endpoint.disconnect(call.peer),
                // Clients come and go.
                Err(EndpointError::PeerGone { .. } | EndpointError::UnknownPeer { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if endpoint.arm()? == Armed::Sleep {
            return Ok(true);
        }
    }
}

struct Client {
    stream: TcpStream,
    frames: Frames,
    /// Answers that there was no room for.
    out: Vec<u8>,
}

impl Client {
    /// Returns whether it is still there.
    fn serve(&mut self, table: &mut Table) -> Result<bool> {
        let mut bytes = [0; 4096];
        loop {
            while !self.out.is_empty() {
                let Some(len) = unless_blocked(self.stream.write(&self.out))? else { return Ok(true) };
                self.out.drain(..len);
            }
            if let Some((tag, call)) = self.frames.next()? {
                // Only a client of this user may stop the server.
                let Some(answer) = table.answer(&call) else { return Ok(false) };
                self.out = frame(tag, &answer);
                continue;
            }
            match unless_blocked(self.stream.read(&mut bytes))? {
                None => return Ok(true),
                Some(0) => return Ok(false),
                Some(len) => self.frames.push(&bytes[..len]),
            }
        }
    }
}

/// `None`: it would have had to wait.
fn unless_blocked<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
