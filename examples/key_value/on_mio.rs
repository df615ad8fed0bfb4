//! The store on mio: one thread serves endpoints, and a TCP port beside them. Values have up to 3,839 bytes.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, Result};
use intranode::{Address, Armed, Endpoint, EndpointError};
use mio::net::{TcpListener, TcpStream};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::protocol::{Accepting, Frames, PAUSE, Table, frame};

const ENDPOINT: Token = Token(0);
const PORT: Token = Token(1);

/// How many calls are answered in one go. Then others have their turn: one who calls again and again would keep them waiting.
const CALLS: usize = 64;

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// There may be more to do, of which no edge tells.
    Work,
    /// An edge tells when there is more.
    Wait,
    /// The server is to stop, or the client is gone.
    End,
}

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
    let (mut table, mut clients, mut next_token) = (Table::default(), HashMap::new(), 2);
    // Whether clients may wait at the port, of which no edge tells any more.
    let (mut accepting, mut may_wait) = (Accepting::default(), false);
    let (mut events, mut busy) = (Events::with_capacity(64), HashSet::new());
    loop {
        // Before the first event too: until it is armed the descriptor says nothing.
        let next = serve_endpoint(&mut endpoint, &mut table)?;
        if next == Next::End {
            return Ok(());
        }
        let sleeps = next == Next::Wait && busy.is_empty();
        let timeout = if sleeps { may_wait.then_some(PAUSE) } else { Some(Duration::ZERO) };
        poll.poll(&mut events, timeout).or_else(|error| match error.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        })?;
        for event in &events {
            match event.token() {
                ENDPOINT => {}
                PORT => may_wait = true,
                token => drop(busy.insert(token)),
            }
        }
        while may_wait {
            let stream = unless_blocked(listener.accept()).and_then(|accepted| {
                let Some((mut stream, _)) = accepted else { return Ok(None) };
                let interest = Interest::READABLE | Interest::WRITABLE;
                poll.registry().register(&mut stream, Token(next_token), interest)?;
                Ok(Some(stream))
            });
            match stream {
                Ok(Some(stream)) => {
                    accepting.works();
                    let client = Client { stream, frames: Frames::default(), out: Vec::new() };
                    clients.insert(Token(next_token), client);
                    next_token += 1;
                }
                Ok(None) => may_wait = false,
                Err(error) => {
                    accepting.fails(&error);
                    break;
                }
            }
        }
        busy.retain(|token| {
            // What is wrong with one client is no reason to end.
            let next = clients.get_mut(token).map(|client| client.serve(&mut table).unwrap_or(Next::End));
            if next == Some(Next::End) {
                clients.remove(token);
            }
            next == Some(Next::Work)
        });
    }
}

/// Answers some calls, and arms if there are no more.
fn serve_endpoint(endpoint: &mut Endpoint, table: &mut Table) -> Result<Next> {
    let mut buffer = [0; Endpoint::MAX_MESSAGE_BYTES];
    while endpoint.poll()?.is_some() {}
    for _ in 0..CALLS {
        let Some(call) = endpoint.try_recv_unexpected(&mut buffer)? else {
            return Ok(if endpoint.arm()? == Armed::Sleep { Next::Wait } else { Next::Work });
        };
        let Some(answer) = table.answer(&buffer[..call.bytes]) else { return Ok(Next::End) };
        match endpoint.try_send_expected(call.peer, call.tag, &answer) {
            Ok(true) => {}
            // It has 64 answers that it does not take: nobody else waits for it.
            Ok(false) => endpoint.disconnect(call.peer),
            // Clients come and go.
            Err(EndpointError::PeerGone { .. } | EndpointError::UnknownPeer { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Next::Work)
}

struct Client {
    stream: TcpStream,
    frames: Frames,
    /// Answers that there was no room for.
    out: Vec<u8>,
}

impl Client {
    /// Answers some calls.
    fn serve(&mut self, table: &mut Table) -> Result<Next> {
        let mut bytes = [0; 4096];
        for _ in 0..CALLS {
            while !self.out.is_empty() {
                let Some(len) = unless_blocked(self.stream.write(&self.out))? else { return Ok(Next::Wait) };
                self.out.drain(..len);
            }
            if let Some((tag, call)) = self.frames.next()? {
                // Only a client of this user may stop the server.
                let Some(answer) = table.answer(&call) else { return Ok(Next::End) };
                self.out = frame(tag, &answer);
                continue;
            }
            match unless_blocked(self.stream.read(&mut bytes))? {
                None => return Ok(Next::Wait),
                Some(0) => return Ok(Next::End),
                Some(len) => self.frames.push(&bytes[..len]),
            }
        }
        Ok(Next::Work)
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
