//! Cases 46 to 49 and 52: names, and who may connect.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use intranode::{Address, Armed, Ended, Endpoint, EndpointError, Event, Refusal};
use libtest_mimic::Completion;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Uid, geteuid, setuid};

use super::child::{self, Child};
use super::faults::resources;
use super::messages::{calls, start_echo};
use super::sleeping::raise_descriptors;
use super::{Role, Test, pair, repeats, unique};

pub(super) const TESTS: &[Test] = &[
    ("case_46_one_of_two_creators_has_the_name", one_name),
    ("case_47_clients_connect_as_soon_as_the_name_is_there", early),
    ("case_48_many_connects_leave_nothing", many_connects),
    ("case_49_one_peer_too_many_is_refused", one_too_many),
    ("a_listener_that_ends_before_it_accepts_has_left", leaves_unaccepted),
    ("messages_of_many_clients_that_are_gone_are_kept", many_gone),
    ("a_client_that_comes_again_and_again_displaces_its_own_messages", comes_again),
    ("case_52_another_user_is_refused", other_user),
    ("a_look_refuses_only_some_of_many_of_another_user", many_of_another_user),
    ("a_server_that_always_has_calls_sees_who_connects", always_busy),
    ("names_and_addresses_are_checked", names),
    ("names_are_free_at_once_while_others_look", name_is_free),
    ("peers_are_told_at_once_while_others_look", peer_is_told),
    ("an_endpoint_connects_to_itself", itself),
    ("one_process_has_many_endpoints", many_endpoints),
    ("the_end_of_a_peer_is_reported_to_who_disconnects", own_end),
    ("the_end_of_a_peer_is_reported_while_another_is_busy", end_beside_a_busy_peer),
];

pub(super) const ROLES: &[Role] = &[
    ("listens if free", listens_if_free),
    ("sends and leaves", sends_and_leaves),
    ("as another user", as_another_user),
    ("many of another user", many_as_another_user),
];

/// The system keeps a socket, and its name, until a call has returned that is just looking at it. Many looks in each call make that
/// long.
fn looked_at(rings: bool, check: impl Fn(&Address, &mut Endpoint) -> Result<()>) -> Result<Completion> {
    let name = unique();
    for round in 0..repeats(200) {
        let mut server = Endpoint::listen(&name).with_context(|| format!("round {round}"))?;
        let address = server.address().context("it listens")?.clone();
        let mut client = Endpoint::client()?;
        let peer = client.connect(&address)?;
        while !matches!(client.poll()?, Some(Event::Connected { .. })) {
            while server.arm()? == Armed::Work {
                server.poll()?;
            }
        }
        if rings {
            // Nobody reads that, so the looks are at this connection.
            client.send_unexpected(peer, 0, b"")?;
        }
        let descriptor = server.as_fd().try_clone_to_owned()?;
        let (looks, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let mut looked_at = vec![PollFd::new(descriptor.as_fd(), PollFlags::POLLIN); 500];
                while !is_over.load(Ordering::Relaxed) {
                    poll(&mut looked_at, PollTimeout::ZERO)?;
                    looks.store(true, Ordering::Relaxed);
                }
                Ok::<_, anyhow::Error>(())
            });
            while !looks.load(Ordering::Relaxed) && !looking.is_finished() {
                thread::yield_now();
            }
            drop(server);
            let checked = check(&address, &mut client);
            is_over.store(true, Ordering::Relaxed);
            looking.join().ok().context("no panic")??;
            checked.with_context(|| format!("round {round}"))
        })?;
    }
    Ok(Completion::Completed)
}

fn name_is_free() -> Result<Completion> {
    looked_at(false, |address, _| Ok(Endpoint::listen(address.name()).map(drop)?))
}

fn peer_is_told() -> Result<Completion> {
    looked_at(true, |_, client| {
        loop {
            match client.poll()? {
                Some(Event::Closed { ended, .. }) => {
                    ensure!(ended == Ended::Left, "{ended:?}");
                    return Ok(());
                }
                Some(_) => {}
                None => ensure!(client.arm()? == Armed::Work, "nothing has happened"),
            }
        }
    })
}

/// Its process lives, so it has not died.
fn leaves_unaccepted() -> Result<Completion> {
    let server = Endpoint::listen(&unique())?;
    let address = server.address().context("it listens")?.clone();
    let mut clients = Vec::new();
    for tag in 0..20 {
        let mut client = Endpoint::client()?;
        let peer = client.connect(&address)?;
        client.send_unexpected(peer, tag, b"nobody receives this")?;
        clients.push((client, peer));
    }
    drop(server);
    for (mut client, peer) in clients {
        let event = client.wait(Some(Duration::from_secs(10)))?;
        ensure!(event == Some(Event::Closed { peer, ended: Ended::Left }), "{event:?}");
        ensure!(matches!(client.connect(&address), Err(EndpointError::NobodyListens { .. })));
    }
    Ok(Completion::Completed)
}

/// Each sends some messages and leaves; none is received before all have left. All are kept as long as they do not take much: of very many the
/// first are forgotten, and not reported as messages any more.
fn many_gone() -> Result<Completion> {
    for (count, long, kept) in [(900, 0, 900..901), (1200, 0, 1200..1201), (1200, 15, 900..1100)] {
        let mut server = Endpoint::listen(&unique())?;
        let address = server.address().context("it listens")?.clone();
        for tag in 0..count {
            let mut client = Endpoint::client()?;
            let peer = client.connect(&address)?;
            client.send_unexpected(peer, tag, &[1; 100])?;
            (0..long).try_for_each(|_| client.send_unexpected(peer, tag, &[2; 4096]))?;
            drop(client);
            server.arm()?;
        }
        let mappings = super::faults::resources(std::process::id())?.mappings;
        // Other tests may have some, too.
        ensure!(mappings < 400, "{mappings} are mapped of those that are gone");
        let (mut tags, mut buffer) = (Vec::new(), [0; 4096]);
        while let Some(message) = server.try_recv_unexpected(&mut buffer)? {
            let expected = if message.bytes == 100 { 1 } else { 2 };
            ensure!(buffer[..message.bytes].iter().all(|byte| *byte == expected));
            if message.bytes == 100 {
                tags.push(message.tag);
            }
        }
        ensure!(kept.contains(&tags.len()), "{} of {count}", tags.len());
        let last: Vec<_> = (count - tags.len() as u64..count).collect();
        ensure!(tags == last, "{count} have left: {tags:?}");
        let closed = std::iter::from_fn(|| server.poll().transpose())
            .filter(|event| matches!(event, Ok(Event::Closed { ended: Ended::Left, .. })));
        ensure!(closed.count() as u64 == count, "not all ends of {count} were reported");
    }
    Ok(Completion::Completed)
}

fn sends_and_leaves(args: &[String]) -> Result<()> {
    for _ in 0..args[1].parse()? {
        let mut client = Endpoint::client()?;
        let peer = client.connect(&Address::local(&args[0])?)?;
        client.send_unexpected(peer, 1, b"")?;
    }
    Ok(())
}

/// Those of a process that has come before, and more often, are kept, when another one's take too much.
fn comes_again() -> Result<Completion> {
    const SHORT: usize = 400;
    const LONG: usize = 60;
    let mut server = Endpoint::listen(&unique())?;
    let address = server.address().context("it listens")?.clone();
    Child::start("sends and leaves", &[address.name(), &SHORT.to_string()])?.ends()?;
    while server.arm()? == Armed::Work {
        while server.poll()?.is_some() {}
    }
    for _ in 0..300 {
        let mut client = Endpoint::client()?;
        let peer = client.connect(&address)?;
        (0..LONG).try_for_each(|_| client.send_unexpected(peer, 2, &[0; 4096]))?;
        drop(client);
        server.arm()?;
    }
    let mut left = [0, 0];
    while let Some(message) = server.try_recv_unexpected(&mut [0; 4096])? {
        left[message.tag as usize - 1] += 1;
    }
    ensure!(left[0] == SHORT && (200 * LONG..300 * LONG).contains(&left[1]), "{left:?} are left");
    Ok(Completion::Completed)
}

fn listens_if_free(args: &[String]) -> Result<()> {
    let server = Endpoint::listen(&args[0]);
    child::say(match &server {
        Ok(_) => "listens",
        Err(EndpointError::NameTaken { .. }) => "taken",
        Err(error) => bail!("{error}"),
    })?;
    while child::hear()?.is_some() {}
    Ok(())
}

fn one_name() -> Result<Completion> {
    let name = unique();
    for _ in 0..repeats(5) {
        let mut creators =
            (0..4).map(|_| Child::start("listens if free", &[&name])).collect::<Result<Vec<_>>>()?;
        let said = creators.iter_mut().map(Child::line).collect::<Result<Vec<_>>>()?;
        ensure!(said.iter().filter(|line| *line == "listens").count() == 1, "{said:?}");
        // Killed, it leaves no name behind.
        creators.into_iter().try_for_each(|creator| creator.kill().map(drop))?;
    }
    let server = Endpoint::listen(&name)?;
    let second = Endpoint::listen(&name);
    ensure!(matches!(second, Err(EndpointError::NameTaken { .. })), "{second:?}");
    drop(server);
    Endpoint::listen(&name)?;
    Ok(Completion::Completed)
}

fn early() -> Result<Completion> {
    for _ in 0..repeats(5) {
        let name = unique();
        let address = Address::local(&name)?;
        let mut server = Child::start("echo", &[&name])?;
        loop {
            match calls(&address, 10) {
                Ok(()) => break,
                Err(error) => match error.downcast_ref() {
                    Some(EndpointError::NobodyListens { .. }) => std::thread::yield_now(),
                    _ => return Err(error),
                },
            }
        }
        server.says("listens")?;
    }
    Ok(Completion::Completed)
}

fn many_connects() -> Result<Completion> {
    let (server, address) = start_echo()?;
    // Those that come first make what the allocator keeps.
    (0..200).try_for_each(|_| calls(&address, 2))?;
    let (before, own) = (resources(server.pid())?, resources(std::process::id())?);
    (0..repeats(1500)).try_for_each(|_| calls(&address, 2))?;
    let (after, own_after) = (resources(server.pid())?, resources(std::process::id())?);
    own_after.is_not_more_than(own)?;
    // The last of them may not have been noticed.
    calls(&address, 2)?;
    after.is_not_more_than(before)?;
    Ok(Completion::Completed)
}

fn one_too_many() -> Result<Completion> {
    let mut server = Endpoint::builder().max_peers(3).listen(&unique())?;
    let address = server.address().context("it listens")?.clone();
    let mut clients = Vec::new();
    for number in 0..5 {
        let mut client = Endpoint::client()?;
        let peer = client.connect(&address)?;
        while server.wait(Some(Duration::from_millis(20)))?.is_some() {}
        let event = client.wait(Some(Duration::from_secs(10)))?;
        match event {
            Some(Event::Connected { .. }) => ensure!(number < 3, "{number}"),
            Some(Event::Closed { ended: Ended::Refused(Refusal::Full), .. }) => {
                ensure!(number >= 3, "{number}");
                let error = client.send_unexpected(peer, 0, b"");
                ensure!(
                    matches!(error, Err(EndpointError::PeerGone { ended: Ended::Refused(Refusal::Full), .. })),
                    "{error:?}"
                );
            }
            other => bail!("{other:?}"),
        }
        clients.push(client);
    }
    // When one has left there is room.
    clients.remove(0);
    while !matches!(server.wait(Some(Duration::from_secs(10)))?, Some(Event::Closed { .. })) {}
    let mut client = Endpoint::client()?;
    client.connect(&address)?;
    while server.wait(Some(Duration::from_millis(20)))?.is_some() {}
    let event = client.wait(Some(Duration::from_secs(10)))?;
    ensure!(matches!(event, Some(Event::Connected { .. })), "{event:?}");
    let mut busy = Endpoint::builder().max_peers(0).client()?;
    let error = busy.connect(&address);
    ensure!(matches!(error, Err(EndpointError::TooManyPeers { peers: 0 })), "{error:?}");
    Ok(Completion::Completed)
}

fn as_another_user(args: &[String]) -> Result<()> {
    // What another user's name would be is known to everybody.
    let socket = super::hostile::connect_as(0, &args[0])?;
    setuid(Uid::from_raw(65_534))?;
    drop(socket);
    let socket = super::hostile::connect_as(0, &args[0])?;
    let answer = super::hostile::answer(&socket)?;
    ensure!(answer == [2, 2], "{answer:?}");
    // The name of this user is free, and another user's endpoint is not found there.
    let error = Endpoint::client()?.connect(&Address::local(&args[0])?);
    ensure!(matches!(error, Err(EndpointError::NobodyListens { .. })), "{error:?}");
    child::say("refused")
}

fn other_user() -> Result<Completion> {
    if !geteuid().is_root() {
        return Ok(Completion::ignored_with("only root can become another user"));
    }
    let (server, address) = start_echo()?;
    let mut other = Child::start("as another user", &[address.name()])?;
    other.says("refused")?;
    other.ends()?;
    calls(&address, 10)?;
    drop(server);
    Ok(Completion::Completed)
}

/// Connects many times, and says each time it is asked how many of these have been answered.
fn many_as_another_user(args: &[String]) -> Result<()> {
    setuid(Uid::from_raw(65_534))?;
    let sockets = (0..args[1].parse()?).map(|_| super::hostile::connect_as(0, &args[0]));
    let sockets = sockets.collect::<Result<Vec<_>>>()?;
    child::say("connected")?;
    while child::hear()?.is_some() {
        let mut sockets: Vec<_> =
            sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut sockets, PollTimeout::ZERO)?;
        let answered = sockets.iter().filter(|socket| socket.any() == Some(true));
        child::say(&answered.count().to_string())?;
    }
    Ok(())
}

/// Who connects again and again holds up no call for longer than a look takes.
fn many_of_another_user() -> Result<Completion> {
    const COUNT: usize = 64;
    if !geteuid().is_root() {
        return Ok(Completion::ignored_with("only root can become another user"));
    }
    let mut server = Endpoint::listen(&unique())?;
    let address = server.address().context("it listens")?.clone();
    let mut other = Child::start("many of another user", &[address.name(), &COUNT.to_string()])?;
    other.says("connected")?;
    let mut answered = Vec::new();
    while answered.last() != Some(&COUNT) {
        ensure!(answered.len() <= COUNT, "{answered:?}");
        ensure!(server.poll()?.is_none());
        other.tell("how many?")?;
        answered.push(other.line()?.parse()?);
    }
    ensure!(answered[0] > 0 && answered[0] < COUNT / 2, "{answered:?}");
    other.ends()?;
    // Behind all of them there is room for one of this user.
    let mut client = Endpoint::client()?;
    client.connect(&address)?;
    ensure!(matches!(server.wait(Some(Duration::from_secs(10)))?, Some(Event::Connected { .. })));
    Ok(Completion::Completed)
}

fn names() -> Result<Completion> {
    for bad in ["", "a/b", "a b", "ä", &"x".repeat(65)] {
        let error = Endpoint::listen(bad);
        ensure!(matches!(error, Err(EndpointError::InvalidName { .. })), "{bad:?}: {error:?}");
    }
    let name = "x".repeat(64);
    let server = Endpoint::listen(&name)?;
    let address: Address = server.address().context("it listens")?.to_string().parse()?;
    ensure!(address.is_local() && Some(&address) == server.address());
    let mut client = Endpoint::client()?;
    client.connect(&address)?;
    let elsewhere: Address = format!("intranode://0000-1111/{name}").parse()?;
    let error = client.connect(&elsewhere);
    ensure!(matches!(error, Err(EndpointError::NotLocal { .. })), "{error:?}");
    drop(server);
    let error = Endpoint::client()?.connect(&address);
    ensure!(matches!(error, Err(EndpointError::NobodyListens { .. })), "{error:?}");
    Ok(Completion::Completed)
}

fn itself() -> Result<Completion> {
    let mut own = Endpoint::listen(&unique())?;
    let address = own.address().context("it listens")?.clone();
    let to_own = own.connect(&address)?;
    own.send_unexpected(to_own, 1, b"to me")?;
    let mut buffer = [0; 8];
    let message = own.recv_unexpected(&mut buffer)?;
    ensure!(message.peer != to_own && &buffer[..5] == b"to me");
    own.send_expected(message.peer, 2, b"back")?;
    ensure!(own.recv_expected(to_own, 2, &mut buffer)? == 4);
    own.disconnect(to_own);
    let error = own.recv_expected(to_own, 2, &mut buffer);
    ensure!(matches!(error, Err(EndpointError::PeerGone { ended: Ended::Disconnected, .. })), "{error:?}");
    Ok(Completion::Completed)
}

fn always_busy() -> Result<Completion> {
    let mut server = Endpoint::listen(&unique())?;
    let address = server.address().context("it listens")?.clone();
    let (mut first, mut second) = (Endpoint::client()?, Endpoint::client()?);
    let to_server = first.connect(&address)?;
    let mut buffer = [0; 8];
    let mut call = |server: &mut Endpoint, number: u64| -> Result<u64> {
        first.send_unexpected(to_server, number, b"")?;
        let call = server.recv_unexpected(&mut buffer)?;
        if call.tag == number {
            server.send_expected(call.peer, number, b"")?;
            first.recv_expected(to_server, number, &mut buffer)?;
        }
        Ok(call.tag)
    };
    // The first call makes the server see the first client.
    ensure!(call(&mut server, 0)? == 0);
    let from_second = second.connect(&address)?;
    second.send_unexpected(from_second, u64::MAX, b"")?;
    let deadline = Instant::now() + Duration::from_secs(10);
    for number in 1.. {
        if call(&mut server, number)? != number {
            return Ok(Completion::Completed);
        }
        ensure!(Instant::now() < deadline, "{number} calls, and the second client's was none");
    }
    bail!("no more numbers")
}

/// Whether it has sent what nobody has received, and whether it has left before.
fn own_end() -> Result<Completion> {
    for (sends, leaves) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut client, to_server, mut server, to_client) = pair()?;
        if sends {
            client.send_unexpected(to_server, 1, b"hello")?;
        }
        if leaves {
            drop(client);
        }
        // What has come is taken in, and not reported.
        server.try_recv_expected(to_client, 1, &mut []).ok();
        server.disconnect(to_client);
        let events = std::iter::from_fn(|| server.poll().transpose()).collect::<Result<Vec<_>, _>>()?;
        let ends = events.iter().filter(|event| matches!(event, Event::Closed { .. })).count();
        ensure!(ends == 1, "{events:?} where it sends: {sends}, and leaves: {leaves}");
    }
    Ok(Completion::Completed)
}

/// The busy one has something new whenever the server asks.
fn end_beside_a_busy_peer() -> Result<Completion> {
    let (mut busy, to_server, mut server, _) = pair()?;
    let address = server.address().context("it listens")?.clone();
    let mut other = Endpoint::client()?;
    other.connect(&address)?;
    let connected = server.wait(Some(Duration::from_secs(10)))?;
    let Some(Event::Connected { peer }) = connected else { bail!("{connected:?}") };
    (0..10).try_for_each(|_| busy.send_unexpected(to_server, 1, b"x"))?;
    drop(other);
    for _ in 0..10_000 {
        busy.try_send_unexpected(to_server, 1, b"x")?;
        match server.poll()? {
            Some(Event::Message { .. }) => {
                server.try_recv_unexpected(&mut [0; 8])?;
            }
            Some(Event::Closed { peer: closed, .. }) => {
                ensure!(closed == peer);
                return Ok(Completion::Completed);
            }
            Some(Event::Room { .. }) | None => {}
            event => bail!("{event:?}"),
        }
    }
    bail!("10,000 reports, and none of its end")
}

fn many_endpoints() -> Result<Completion> {
    raise_descriptors()?;
    let mut servers = (0..8).map(|_| Endpoint::listen(&unique())).collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<Address> = servers.iter().filter_map(|server| server.address().cloned()).collect();
    let mut client = Endpoint::client()?;
    let peers = addresses.iter().map(|address| client.connect(address)).collect::<Result<Vec<_>, _>>()?;
    for (number, peer) in peers.iter().enumerate() {
        client.send_unexpected(*peer, number as u64, b"?")?;
    }
    for (number, server) in servers.iter_mut().enumerate() {
        let call = server.recv_unexpected(&mut [0; 1])?;
        ensure!(call.tag == number as u64);
        server.send_expected(call.peer, 0, &[number as u8])?;
    }
    for (number, peer) in peers.iter().enumerate().rev() {
        let mut answer = [0xFF];
        client.recv_expected(*peer, 0, &mut answer)?;
        ensure!(usize::from(answer[0]) == number);
    }
    Ok(Completion::Completed)
}
