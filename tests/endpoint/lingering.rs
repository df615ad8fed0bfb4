//! Descriptors that take long to close, in packets that an endpoint does not receive before it closes a connection.

use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use intranode::{Endpoint, Event};
use libtest_mimic::Completion;
use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::geteuid;

use super::hostile::{connect_as, say_good_hello, say_hello};
use super::{Test, unique};

pub(super) const TESTS: &[Test] = &[("descriptors_that_nobody_receives_hold_up_nobody", hold_up)];

/// The seconds that closing a socket waits here.
const LINGERS: i32 = 40;

/// Sends an empty packet, and a socket that has not sent all and that nobody else has. Its other end is returned.
fn send_slow(connection: &OwnedFd) -> Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut stream = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    while stream.write(&[0; 1 << 16]).is_ok() {}
    setsockopt(&stream, sockopt::Linger, &linger { l_onoff: 1, l_linger: LINGERS })?;
    say_hello(connection, b"", &[])?;
    say_hello(connection, b"", &[&File::from(OwnedFd::from(stream))])?;
    Ok(other)
}

fn hold_up() -> Result<Completion> {
    let mut server = Endpoint::listen(&unique())?;
    let address = server.address().context("it listens")?.clone();
    let connect = || connect_as(geteuid().as_raw(), address.name());
    let begin = Instant::now();
    let in_time = |what: &str| {
        let taken = begin.elapsed();
        ensure!(taken < Duration::from_secs(LINGERS as u64), "{what}: it waits, {taken:?}");
        Ok(())
    };
    // One that has said nothing, and one that has said nonsense.
    let (silent, nonsense) = (connect()?, connect()?);
    say_hello(&nonsense, b"nonsense", &[])?;
    let _others = [send_slow(&silent)?, send_slow(&nonsense)?];
    while server.poll()?.is_some() {}
    in_time("refusing")?;

    // One that is accepted: on newer systems what it sends later is refused.
    let accepted = connect()?;
    say_good_hello(&accepted)?;
    let _other = send_slow(&accepted)?;
    let Some(Event::Connected { peer }) = server.wait(Some(Duration::from_secs(20)))? else {
        bail!("it does not connect");
    };
    server.disconnect(peer);
    in_time("disconnecting")?;

    // One that waits to be accepted.
    let waiting = connect()?;
    say_good_hello(&waiting)?;
    let _other = send_slow(&waiting)?;
    drop(server);
    in_time("closing")?;
    Ok(Completion::Completed)
}
