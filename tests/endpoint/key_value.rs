//! The example of a key-value store whose server waits in its calls.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use intranode::{Access, Address, Endpoint, EndpointError, Peer};
use libtest_mimic::Completion;

use super::bulk_pull::{NOT_BUILT, program};
use super::child::Started;
use super::event_loops::port;
use super::event_loops::protocol::{NONE, PUT_LONG, STOP, TcpClient, get_call, put_call, short_value};
use super::{Test, unique};

pub(super) const TESTS: &[Test] = &[
    ("example_key_value_does_not_wait_for_clients_that_stall", stalls),
    ("example_key_value_on_mio_goes_on_without_descriptors", || goes_on("serve-mio")),
    #[cfg(feature = "tokio")]
    ("example_key_value_on_tokio_goes_on_without_descriptors", || goes_on("serve-tokio")),
    #[cfg(feature = "tokio")]
    ("example_key_value_waits_where_many_are_to_be_accepted", waits),
];

fn connect(name: &str) -> Result<(Endpoint, Peer)> {
    let mut own = Endpoint::builder().timeout(Duration::from_secs(20)).client()?;
    let peer = own.connect(&Address::local(name)?)?;
    Ok((own, peer))
}

fn call(own: &mut Endpoint, server: Peer, call: &[u8]) -> Result<Vec<u8>> {
    own.send_unexpected(server, 1, call)?;
    let mut answer = vec![0; Endpoint::MAX_MESSAGE_BYTES];
    let len = own.recv_expected(server, 1, &mut answer)?;
    answer.truncate(len);
    Ok(answer)
}

fn stalls() -> Result<Completion> {
    let Some(program) = program("key_value")? else { return Ok(Completion::ignored_with(NOT_BUILT)) };
    let name = unique();
    let mut server = Started(Command::new(program).args(["serve", &name]).spawn()?);
    let begin = Instant::now();
    let (mut own, peer) = loop {
        match connect(&name) {
            Ok(connected) => break connected,
            Err(error) if begin.elapsed() > Duration::from_secs(20) => return Err(error),
            Err(_) => thread::yield_now(),
        }
    };
    ensure!(call(&mut own, peer, &put_call(b"key", &[7; 2000])?)? == [NONE]);

    // One that calls, and takes no answers.
    let (mut deaf, to_server) = connect(&name)?;
    let ended = loop {
        if let Err(error) = deaf.send_unexpected(to_server, 1, &get_call(b"key")?) {
            break error;
        }
    };
    ensure!(matches!(ended, EndpointError::PeerGone { .. }), "the server waits: {ended}");

    // One whose value is to be fetched, and that does not serve it.
    let (mut stalled, to_server) = connect(&name)?;
    let memory = stalled.share(vec![vec![0; 100_000].into()], Access::Read);
    let put = [&[PUT_LONG, 3][..], b"key", &memory.handle().to_bytes()].concat();
    stalled.send_unexpected(to_server, 1, &put)?;
    let value = call(&mut own, peer, &get_call(b"key")?)?;
    ensure!(short_value(&value)? == Some(&[7; 2000]), "another value");

    own.send_unexpected(peer, 1, &[STOP])?;
    while server.0.try_wait()?.is_none() {
        if begin.elapsed() > Duration::from_secs(60) {
            bail!("it does not end");
        }
        thread::yield_now();
    }
    ensure!(server.0.wait().context("its end")?.success());
    Ok(Completion::Completed)
}

/// A server with few descriptors, at whose port more clients wait than it has descriptors for.
fn goes_on(serves: &str) -> Result<Completion> {
    let Some(program) = program("key_value")? else { return Ok(Completion::ignored_with(NOT_BUILT)) };
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 40 && exec \"$@\"", "sh"]).arg(program).args([serves, &unique(), "0"]);
    let mut server = Started(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?);
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().context("a pipe")?).read_line(&mut line)?;
    let address: Address = line.trim().parse()?;
    let port = port(&address)?;
    let mut own = Endpoint::builder().timeout(Duration::from_secs(20)).client()?;
    let peer = own.connect(&address)?;
    ensure!(call(&mut own, peer, &put_call(b"key", b"value")?)? == [NONE]);
    for _ in 0..2 {
        let mut first = TcpClient::new(port)?;
        let others = (0..60).map(|_| TcpStream::connect(port)).collect::<Result<Vec<_>, _>>()?;
        // Those that it has are served, and others as soon as these leave.
        ensure!(short_value(&first.call(&get_call(b"key")?)?)? == Some(&b"value"[..]), "over TCP");
        let mut last = TcpClient::new(port)?;
        ensure!(short_value(&call(&mut own, peer, &get_call(b"key")?)?)? == Some(&b"value"[..]));
        drop(others);
        ensure!(short_value(&last.call(&get_call(b"key")?)?)? == Some(&b"value"[..]), "who has waited");
    }
    own.send_unexpected(peer, 1, &[STOP])?;
    let mut said = String::new();
    server.0.stderr.take().context("a pipe")?.read_to_string(&mut said)?;
    ensure!(server.0.wait()?.success(), "{said}");
    let lines = said.matches("Too many open files").count();
    ensure!((1..=70).contains(&lines) && said.lines().count() == lines, "{said}");
    Ok(Completion::Completed)
}

/// One that listens, and accepts nobody, so that there is no room for the client.
#[cfg(feature = "tokio")]
fn waits() -> Result<Completion> {
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
    };

    let Some(program) = program("key_value")? else { return Ok(Completion::ignored_with(NOT_BUILT)) };
    let name = unique();
    let address = UnixAddr::new_abstract(format!("intranode-{}-{name}", nix::unistd::geteuid()).as_bytes())?;
    let seqpacket = |flags| socket(AddressFamily::Unix, SockType::SeqPacket, flags, None);
    let listener = seqpacket(SockFlag::SOCK_CLOEXEC)?;
    bind(listener.as_raw_fd(), &address)?;
    listen(&listener, Backlog::new(1)?)?;
    let mut waiting = Vec::new();
    loop {
        let client = seqpacket(SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)?;
        match connect(client.as_raw_fd(), &address) {
            Ok(()) => waiting.push(client),
            Err(nix::Error::EAGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    // Where nobody listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let address = Address::local(&name)?.with_remote(&format!("tcp://{port}"))?.to_string();
    let mut command = Command::new(program);
    let mut client = Started(command.args(["get-at", &address, "key"]).stderr(Stdio::piped()).spawn()?);
    let status = format!("/proc/{}/status", client.0.id());
    let sleeps = || -> Result<u64> {
        let status = std::fs::read_to_string(&status)?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Ok(line.context("a number")?.trim().parse()?)
    };
    let begin = Instant::now();
    while client.0.try_wait()?.is_none() && sleeps()? < 10 {
        ensure!(begin.elapsed() < Duration::from_secs(30), "it does not try again");
        thread::yield_now();
    }
    // Now the route is remote.
    drop(listener);
    let mut said = String::new();
    client.0.stderr.take().context("a pipe")?.read_to_string(&mut said)?;
    ensure!(client.0.wait()?.code() == Some(1) && said.contains("cannot be reached"), "{said}");
    Ok(Completion::Completed)
}
