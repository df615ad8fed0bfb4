//! Case 40, and endpoints in the event loops of others: mio, which waits for edges, and tokio.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use intranode::{Address, Armed, Endpoint, Event};
use libtest_mimic::Completion;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

#[path = "../../examples/key_value/on_mio.rs"]
mod on_mio;
#[cfg(feature = "tokio")]
#[path = "../../examples/key_value/on_tokio.rs"]
mod on_tokio;
#[cfg(feature = "tokio")]
#[path = "../../examples/key_value/over_tcp.rs"]
#[expect(dead_code, reason = "its program is for a shell")]
pub(super) mod over_tcp;
#[path = "../../examples/key_value/protocol.rs"]
#[expect(dead_code, reason = "long values are not for event loops")]
pub(super) mod protocol;

use self::protocol::{NONE, STOP, TcpClient, get_call, put_call, short_value};
use super::child::{self, Child};
use super::messages::pattern;
use super::sleeping::raise_descriptors;
use super::{Role, Test, repeats, unique};

pub(super) const TESTS: &[Test] = &[
    #[cfg(feature = "tokio")]
    ("case_40_tokio_serves_endpoints_and_a_port_and_sleeps", || store("serves on tokio")),
    ("case_40_mio_serves_endpoints_and_a_port_and_sleeps", || store("serves on mio")),
    #[cfg(feature = "tokio")]
    ("tokio_serves_others_while_clients_call_without_end", || floods("serves on tokio")),
    ("mio_serves_others_while_clients_call_without_end", || floods("serves on mio")),
    ("an_edge_tells_of_all_that_wait", many_at_once),
];

pub(super) const ROLES: &[Role] = &[
    #[cfg(feature = "tokio")]
    ("serves on tokio", |args| on_tokio::serve(&args[0], 0, says)),
    ("serves on mio", |args| on_mio::serve(&args[0], 0, says)),
];

fn says(address: &Address) -> Result<()> {
    child::say(&address.to_string())
}

/// A server in a process of its own, and its address, local and remote.
pub(super) fn start_store(role: &str) -> Result<(Child, Address)> {
    let mut server = Child::start(role, &[&unique()])?;
    let address = server.line()?.parse()?;
    Ok((server, address))
}

/// Where it serves over TCP.
pub(super) fn port(address: &Address) -> Result<&str> {
    address.remote().and_then(|remote| remote.strip_prefix("tcp://")).context("it serves a port")
}

const CLIENTS: usize = 100;
const TCP_CLIENTS: usize = 10;

/// Puts and gets, each answer of which is checked.
fn exercise(number: usize, mut call: impl FnMut(&[u8]) -> Result<Vec<u8>>) -> Result<()> {
    let key = format!("key of {number}");
    for round in 0..repeats(20) {
        let value = pattern(number * 1000 + round, (number * 131 + round * 977) % protocol::LONGEST);
        ensure!(call(&put_call(key.as_bytes(), &value)?)? == [NONE], "client {number} puts");
        let answer = call(&get_call(key.as_bytes())?)?;
        ensure!(short_value(&answer)? == Some(&value), "client {number} gets");
        ensure!(short_value(&call(&get_call(b"nothing")?)?)?.is_none(), "there is no such key");
    }
    Ok(())
}

fn client(number: usize, address: &Address) -> Result<()> {
    let mut client = Endpoint::client()?;
    let server = client.connect(address)?;
    let mut tag = 0;
    exercise(number, |call| {
        tag += 1;
        client.send_unexpected(server, tag, call)?;
        let mut answer = vec![0; Endpoint::MAX_MESSAGE_BYTES];
        let len = client.recv_expected(server, tag, &mut answer)?;
        answer.truncate(len);
        Ok(answer)
    })
}

fn store(role: &'static str) -> Result<Completion> {
    raise_descriptors()?;
    let (server, address) = start_store(role)?;
    let port = port(&address)?;
    // Both of these stay, and say nothing more once all others are done.
    let mut idle = Endpoint::client()?;
    let idle_peer = idle.connect(&address)?;
    let mut idle_tcp = TcpClient::new(port)?;
    ensure!(idle_tcp.call(&put_call(b"idle", b"tcp")?)? == [NONE]);
    let clients: Vec<_> = (0..CLIENTS + TCP_CLIENTS)
        .map(|number| {
            let (address, port) = (address.clone(), port.to_owned());
            thread::spawn(move || {
                if number < CLIENTS {
                    return client(number, &address);
                }
                let mut client = TcpClient::new(port)?;
                exercise(number, |call| client.call(call))
            })
        })
        .collect();
    for client in clients {
        client.join().ok().context("no panic")??;
    }
    // What one way has put comes back by the other.
    idle.send_unexpected(idle_peer, 1, &get_call(b"idle")?)?;
    let mut answer = [0; 64];
    let len = idle.recv_expected(idle_peer, 1, &mut answer)?;
    ensure!(short_value(&answer[..len])? == Some(b"tcp"), "{:?}", &answer[..len]);
    sleeps(server.pid())?;
    // And it is there when it is needed.
    ensure!(short_value(&idle_tcp.call(&get_call(b"idle")?)?)? == Some(&b"tcp"[..]));
    idle.send_unexpected(idle_peer, 2, &[STOP])?;
    server.ends()?;
    Ok(Completion::Completed)
}

/// Calls over TCP as fast as they are answered, by two threads.
fn flood_port(port: &str, ends: &Arc<AtomicBool>) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(port)?;
    let (mut reader, own, ends) = (stream.try_clone()?, stream.try_clone()?, Arc::clone(ends));
    let calls = protocol::frame(1, &get_call(b"nothing")?).repeat(1000);
    thread::spawn(move || while !ends.load(Relaxed) && stream.write_all(&calls).is_ok() {});
    thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    Ok(own)
}

/// The same over an endpoint.
fn flood_endpoint(address: &Address, ends: &Arc<AtomicBool>) -> Result<thread::JoinHandle<Result<()>>> {
    let (address, ends) = (address.clone(), Arc::clone(ends));
    let call = get_call(b"nothing")?;
    Ok(thread::spawn(move || {
        let mut client = Endpoint::client()?;
        let server = client.connect(&address)?;
        let mut under_way = 0;
        while !ends.load(Relaxed) {
            while under_way < 48 && client.try_send_unexpected(server, 1, &call)? {
                under_way += 1;
            }
            while client.try_recv_expected(server, 1, &mut [0; 64])?.is_some() {
                under_way -= 1;
            }
        }
        Ok(())
    }))
}

fn floods(role: &'static str) -> Result<Completion> {
    let (server, address) = start_store(role)?;
    let port = port(&address)?;
    for by_port in [true, false] {
        let ends = Arc::new(AtomicBool::new(false));
        let flooding =
            if by_port { Err(flood_port(port, &ends)?) } else { Ok(flood_endpoint(&address, &ends)?) };
        let (done, is_done) = mpsc::channel();
        for by_port in [true, false] {
            let (address, port, done) = (address.clone(), port.to_owned(), done.clone());
            thread::spawn(move || {
                let answered = || -> Result<()> {
                    if by_port {
                        let mut client = TcpClient::new(port)?;
                        return exercise(0, |call| client.call(call));
                    }
                    client(1, &address)
                };
                done.send(answered())
            });
        }
        for _ in 0..2 {
            is_done.recv_timeout(Duration::from_secs(30)).context("others are kept waiting")??;
        }
        ends.store(true, Relaxed);
        match flooding {
            Ok(client) => client.join().ok().context("no panic")??,
            Err(stream) => stream.shutdown(Shutdown::Both)?,
        }
    }
    let mut client = Endpoint::client()?;
    let peer = client.connect(&address)?;
    client.send_unexpected(peer, 1, &[STOP])?;
    server.ends()?;
    Ok(Completion::Completed)
}

/// The processor time of a process's threads, and how often they have slept.
fn usage(pid: u32) -> Result<(Duration, u64)> {
    let (mut time, mut sleeps) = (0, 0);
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?.path();
        let text = std::fs::read_to_string(thread.join("schedstat"))?;
        time += text.split(' ').next().context("a time")?.parse::<u64>()?;
        let status = std::fs::read_to_string(thread.join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sleeps += line.context("a number")?.trim().parse::<u64>()?;
    }
    Ok((Duration::from_nanos(time), sleeps))
}

/// Nothing happens to a process for a second, once it has taken in what has come before.
fn sleeps(pid: u32) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut last = usage(pid)?;
    loop {
        thread::sleep(Duration::from_millis(50));
        let now = usage(pid)?;
        if now == last {
            break;
        }
        ensure!(Instant::now() < deadline, "it never sleeps: {now:?} after {last:?}");
        last = now;
    }
    thread::sleep(Duration::from_secs(1));
    let (time, sleeps) = usage(pid)?;
    ensure!(!time.is_zero(), "the system counts no processor time");
    let used = time - last.0;
    eprintln!("idle for a second: {used:?} of processor time, {} sleeps", sleeps - last.1);
    ensure!(used < Duration::from_millis(1) && sleeps <= last.1 + 2, "{used:?}, {} sleeps", sleeps - last.1);
    Ok(())
}

/// More connections than are looked at in one go, of which all but the last say nothing.
fn many_at_once() -> Result<Completion> {
    raise_descriptors()?;
    let mut server = Endpoint::listen(&unique())?;
    let address = server.address().context("it listens")?.clone();
    let user = nix::unistd::geteuid().as_raw();
    let silent =
        (0..200).map(|_| super::hostile::connect_as(user, address.name())).collect::<Result<Vec<_>>>()?;
    let mut client = Endpoint::client()?;
    client.connect(&address)?;
    let mut poll = Poll::new()?;
    poll.registry().register(&mut SourceFd(&server.as_raw_fd()), Token(0), Interest::READABLE)?;
    let mut events = Events::with_capacity(1);
    'edges: loop {
        poll.poll(&mut events, Some(Duration::from_secs(10)))?;
        ensure!(!events.is_empty(), "no edge, and a client waits");
        loop {
            if let Some(event) = server.poll()? {
                ensure!(matches!(event, Event::Connected { .. }), "{event:?}");
                break 'edges;
            }
            if server.arm()? == Armed::Sleep {
                break;
            }
        }
    }
    drop(silent);
    Ok(Completion::Completed)
}
