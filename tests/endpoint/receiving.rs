//! Receives that are started, and completed later.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use intranode::{Access, Address, Ended, Endpoint, EndpointError, Event, Peer, RecvRequest};
use libtest_mimic::Completion;

use super::child::{self, Child};
use super::messages::pattern;
use super::{Role, Test, pair, repeats, unique};

pub(super) const TESTS: &[Test] = &[
    ("requests_complete_in_any_order", any_order),
    ("requests_of_a_tag_have_its_messages_in_their_order", same_tag),
    ("a_request_that_is_dropped_is_withdrawn", dropped),
    ("a_request_that_is_forgotten_keeps_its_message", forgotten),
    ("a_request_with_a_short_buffer_leaves_the_message", short_buffer),
    ("a_request_belongs_to_its_endpoint", foreign),
    ("more_short_answers_than_cells_of_a_peer_that_leaves", many_answers),
    ("messages_behind_requests_of_a_peer_that_leaves", behind_requests),
    ("messages_behind_others_and_data_that_hold_all_buffers", behind_data),
    ("others_are_received_beside_a_peer_that_has_sent_too_many", beside_too_many),
    ("requests_wake_a_sleeper", sleeper),
    ("requests_of_a_peer_that_was_killed", killed),
    ("requests_of_a_peer_that_leaves", left),
    ("requests_of_a_peer_that_is_disconnected", disconnected),
    ("requests_of_many_peers_of_which_some_die", many_peers),
];

pub(super) const ROLES: &[Role] = &[("answers some", answers_some)];

/// Short answers share cells: all of a full channel are received when their sender is gone.
fn many_answers() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    let mut answered = 0u64;
    let mut call = |client: &mut Endpoint, server: &mut Endpoint| -> Result<bool> {
        ensure!(client.try_send_unexpected(to_server, answered, &answered.to_ne_bytes())?);
        let mut data = [0; 8];
        let call = server.recv_unexpected(&mut data)?;
        let has_room = server.try_send_expected(call.peer, call.tag, &data)?;
        answered += u64::from(has_room);
        Ok(has_room)
    };
    while call(&mut client, &mut server)? {}
    ensure!(answered > 100, "{answered} answers share no cells");
    drop(server);
    for tag in 0..answered {
        let mut data = [0; 8];
        let received = client.recv_expected(to_server, tag, &mut data);
        ensure!(matches!(received, Ok(8)), "{tag} of {answered}: {received:?}");
        ensure!(data == tag.to_ne_bytes());
    }
    let behind = client.recv_expected(to_server, answered, &mut [0; 8]);
    ensure!(
        matches!(behind, Err(EndpointError::PeerGone { .. } | EndpointError::UnknownPeer { .. })),
        "{behind:?}"
    );
    Ok(Completion::Completed)
}

/// What a peer has sent last is behind as many requests as a server takes in that it had no room to answer.
fn behind_requests() -> Result<Completion> {
    let (mut client, to_server, mut server, to_client) = pair()?;
    let handle = server.share(vec![vec![1; 4096].into()], Access::Read).handle();
    while server.try_send_unexpected(to_client, 1, b"nobody receives this")? {}
    let mut gets = Vec::new();
    for count in [60, 4] {
        for _ in 0..count {
            gets.push(client.start_get(to_server, &handle, 0, vec![vec![0; 100]])?);
        }
        // The server takes these in.
        (0..100).try_for_each(|_| server.poll().map(drop))?;
    }
    ensure!(client.try_send_unexpected(to_server, 77, b"last words")?);
    drop((gets, client));
    while !matches!(server.wait(Some(Duration::from_secs(10)))?.context("its end")?, Event::Closed { .. }) {}
    let mut message = [0; 16];
    let received = server.try_recv_unexpected(&mut message)?.context("what it has sent last")?;
    ensure!((received.tag, &message[..received.bytes]) == (77, &b"last words"[..]), "{received:?}");
    Ok(Completion::Completed)
}

/// The answers to gets that nobody tests, and messages that nobody receives: behind them a call finds what it waits for.
fn behind_data() -> Result<Completion> {
    for (expected, gets) in [(true, 2), (false, 2), (true, 20)] {
        let (mut client, to_server, mut server, to_client) = pair()?;
        let handle = server.share(vec![vec![1; 16 << 10].into()], Access::Read).handle();
        let start = |_| client.start_get(to_server, &handle, 0, vec![vec![0; 16 << 10]]);
        let gets = (0..gets).map(start).collect::<Result<Vec<_>, _>>()?;
        (0..100).try_for_each(|_| server.poll().map(drop))?;
        // Of the other kind than what is waited for.
        let mut send = |tag, expected| match expected {
            true => server.try_send_expected(to_client, tag, &[8; 4096]),
            false => server.try_send_unexpected(to_client, tag, &[8; 4096]),
        };
        while send(1, !expected)? {}
        let mut buffer = [0; 4096];
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut is_sent = false;
        loop {
            is_sent = is_sent || send(9, expected)?;
            let bytes = match expected {
                true => client.try_recv_expected(to_server, 9, &mut buffer)?,
                false => client.try_recv_unexpected(&mut buffer)?.map(|message| message.bytes),
            };
            if bytes == Some(4096) {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "sent: {is_sent}, with {} gets, expected: {expected}",
                gets.len()
            );
        }
        for mut get in gets {
            while client.test(&mut get)?.is_none() {
                server.poll()?;
            }
            ensure!(get.into_buffers() == [vec![1; 16 << 10]]);
        }
    }
    Ok(Completion::Completed)
}

/// `wait_any` says so only if nothing else has ended.
fn beside_too_many() -> Result<Completion> {
    let (mut many, to_server, mut server, from_many) = pair()?;
    let address = server.address().context("it listens")?.clone();
    let mut other = Endpoint::client()?;
    let other_to_server = other.connect(&address)?;
    other.send_unexpected(other_to_server, 0, b"")?;
    let from_other = server.recv_unexpected(&mut [])?.peer;
    let start = |server: &mut Endpoint, from| server.start_recv_expected(from, 1, [0; 8]);
    let mut requests = [start(&mut server, from_many)?, start(&mut server, from_other)?];
    loop {
        while many.try_send_expected(to_server, 2, b"nobody receives this")? {}
        match server.test(&mut requests[0]) {
            Ok(bytes) => ensure!(bytes.is_none()),
            Err(EndpointError::TooManyUnreceived { .. }) => break,
            Err(error) => Err(error)?,
        }
    }
    let error = server.wait_any(&mut requests);
    ensure!(matches!(error, Err(EndpointError::TooManyUnreceived { .. })), "{error:?}");
    other.send_expected(other_to_server, 1, b"good")?;
    let deadline = Instant::now() + Duration::from_secs(10);
    let ended = loop {
        match server.wait_any(&mut requests) {
            // It has not come yet.
            Err(EndpointError::TooManyUnreceived { .. }) if Instant::now() < deadline => {}
            ended => break ended?,
        }
    };
    ensure!(ended == Some(1) && server.test(&mut requests[1])? == Some(4), "{ended:?}");
    Ok(Completion::Completed)
}

fn any_order() -> Result<Completion> {
    let (mut client, to_server, mut server, to_client) = pair()?;
    // More than the channel has cells, and than it has buffers.
    let count = 300;
    let mut requests = Vec::new();
    for tag in 0..count {
        requests.push(client.start_recv_expected(to_server, tag, vec![0; 4096])?);
    }
    ensure!(client.test(&mut requests[7])?.is_none());
    let answers = thread::spawn(move || -> Result<Endpoint> {
        for index in 0..count {
            // A prime number of steps goes through all.
            let tag = index * 7 % count;
            server.send_expected(to_client, tag, &pattern(tag as usize, 10 * tag as usize))?;
        }
        Ok(server)
    });
    let mut places = Vec::new();
    while let Some(place) = client.wait_any(&mut requests)? {
        places.push(place);
    }
    places.sort_unstable();
    ensure!(places == (0..count as usize).collect::<Vec<_>>());
    for (tag, mut request) in requests.into_iter().enumerate() {
        ensure!(client.test(&mut request)? == Some(10 * tag) && client.wait_for(&mut request)? == 10 * tag);
        ensure!(request.into_buffer()[..10 * tag] == pattern(tag, 10 * tag));
    }
    answers.join().ok().context("no panic")??;
    Ok(Completion::Completed)
}

fn same_tag() -> Result<Completion> {
    let (mut client, to_server, mut server, to_client) = pair()?;
    let start = |client: &mut Endpoint| client.start_recv_expected(to_server, 5, [0; 8]);
    let (mut first, mut second) = (start(&mut client)?, start(&mut client)?);
    for number in 1..=4_u64 {
        server.send_expected(to_client, 5, &number.to_ne_bytes())?;
    }
    // The second is asked for first, and a receive that was not started comes behind both.
    ensure!(client.wait_for(&mut second)? == 8);
    let mut third = [0; 8];
    ensure!(client.recv_expected(to_server, 5, &mut third)? == 8);
    ensure!(client.wait_for(&mut first)? == 8);
    let mut fourth = start(&mut client)?;
    ensure!(client.wait_for(&mut fourth)? == 8);
    let numbers = [first.into_buffer(), second.into_buffer(), third, fourth.into_buffer()];
    ensure!(numbers.map(u64::from_ne_bytes) == [1, 2, 3, 4], "{numbers:?}");
    Ok(Completion::Completed)
}

fn dropped() -> Result<Completion> {
    let (mut client, to_server, mut server, to_client) = pair()?;
    let mut buffer = [0; 8];
    let withdrawn = client.start_recv_expected(to_server, 5, &mut buffer)?;
    let mut stays = client.start_recv_expected(to_server, 5, [0; 8])?;
    server.send_expected(to_client, 5, &1_u64.to_ne_bytes())?;
    ensure!(client.test(&mut stays)?.is_none(), "it is the message of the first");
    drop(withdrawn);
    // Now the buffer can be used, and the message is the second's.
    buffer.fill(7);
    ensure!(client.wait_for(&mut stays)? == 8 && stays.into_buffer() == 1_u64.to_ne_bytes());
    server.send_expected(to_client, 5, &2_u64.to_ne_bytes())?;
    let mut last = client.start_recv_expected(to_server, 5, vec![0; 8])?;
    ensure!(client.wait_for(&mut last)? == 8 && buffer == [7; 8]);
    // One that has ended is in nobody's way.
    server.send_expected(to_client, 5, &3_u64.to_ne_bytes())?;
    ensure!(client.recv_expected(to_server, 5, &mut buffer)? == 8 && buffer == 3_u64.to_ne_bytes());
    drop(last);
    Ok(Completion::Completed)
}

fn forgotten() -> Result<Completion> {
    let (mut client, to_server, mut server, to_client) = pair()?;
    let mut buffer = Box::new([0; 8]);
    std::mem::forget(client.start_recv_expected(to_server, 5, &mut buffer[..])?);
    server.send_expected(to_client, 5, &1_u64.to_ne_bytes())?;
    server.send_expected(to_client, 5, &2_u64.to_ne_bytes())?;
    let mut second = [0; 8];
    ensure!(client.recv_expected(to_server, 5, &mut second)? == 8 && second == 2_u64.to_ne_bytes());
    ensure!(client.try_recv_expected(to_server, 5, &mut second)?.is_none() && *buffer == [0; 8]);
    drop(buffer);
    drop(server);
    // The message that it keeps holds up nothing.
    let mut last = client.start_recv_expected(to_server, 6, [0; 8])?;
    let error = client.wait_for(&mut last);
    ensure!(matches!(error, Err(EndpointError::PeerGone { ended: Ended::Left, .. })), "{error:?}");
    Ok(Completion::Completed)
}

fn short_buffer() -> Result<Completion> {
    let (mut client, to_server, mut server, to_client) = pair()?;
    let mut buffer = [0; 16];
    let mut short = client.start_recv_expected(to_server, 5, &mut buffer[..8])?;
    server.send_expected(to_client, 5, &[9; 100])?;
    for _ in 0..2 {
        let error = client.wait_for(&mut short);
        ensure!(matches!(error, Err(EndpointError::Truncated { bytes: 100, room: 8, .. })), "{error:?}");
    }
    drop(short);
    ensure!(buffer == [0; 16], "nothing is written");
    let mut long = client.start_recv_expected(to_server, 5, [0; 100])?;
    ensure!(client.wait_for(&mut long)? == 100 && long.into_buffer() == [9; 100]);
    Ok(Completion::Completed)
}

fn foreign() -> Result<Completion> {
    let (mut client, to_server, mut server, to_client) = pair()?;
    let mut request = client.start_recv_expected(to_server, 5, [0; 8])?;
    server.send_expected(to_client, 5, &[1; 8])?;
    let error = server.test(&mut request);
    ensure!(matches!(error, Err(EndpointError::ForeignRequest)), "{error:?}");
    // Nor one that has no such peer.
    let error = Endpoint::client()?.test(&mut request);
    ensure!(matches!(error, Err(EndpointError::ForeignRequest)), "{error:?}");
    ensure!(client.wait_for(&mut request)? == 8);
    Ok(Completion::Completed)
}

fn sleeper() -> Result<Completion> {
    let name = unique();
    let mut server = Endpoint::builder().spin(Duration::ZERO).listen(&name)?;
    let calls = repeats(5000) as u64;
    let client = thread::spawn(move || -> Result<()> {
        let mut client = Endpoint::builder().spin(Duration::ZERO).client()?;
        let peer = client.connect(&Address::local(&name)?)?;
        let mut requests: Vec<RecvRequest<[u8; 8]>> = Vec::new();
        let mut next = 0;
        while next < calls || !requests.is_empty() {
            while next < calls && requests.len() < 16 {
                requests.push(client.start_recv_expected(peer, next, [0; 8])?);
                client.send_unexpected(peer, next, &[])?;
                next += 1;
            }
            let place = client.wait_any(&mut requests)?.context("some are under way")?;
            let request = requests.swap_remove(place);
            let tag = request.tag();
            ensure!(u64::from_ne_bytes(request.into_buffer()) == tag);
        }
        Ok(())
    });
    for _ in 0..calls {
        let call = server.recv_unexpected(&mut [])?;
        server.send_expected(call.peer, call.tag, &call.tag.to_ne_bytes())?;
    }
    client.join().ok().context("no panic")??;
    Ok(Completion::Completed)
}

/// A server that answers the calls with even tags, and says how many it has had.
fn answers_some(args: &[String]) -> Result<()> {
    let mut own = Endpoint::builder().timeout(None).listen(&args[0])?;
    child::say("listens")?;
    for number in 1.. {
        let call = own.recv_unexpected(&mut [])?;
        if call.tag.is_multiple_of(2) {
            own.send_expected(call.peer, call.tag, b"answer")?;
        }
        if number == args[1].parse::<u64>()? {
            child::say("answered")?;
        }
    }
    Ok(())
}

/// Calls with these tags, and receives for their answers, under way.
fn calls(own: &mut Endpoint, peer: Peer, tags: u64) -> Result<Vec<RecvRequest<[u8; 16]>>> {
    (0..tags)
        .map(|tag| {
            let request = own.start_recv_expected(peer, tag, [0; 16])?;
            own.send_unexpected(peer, tag, &[])?;
            Ok(request)
        })
        .collect()
}

/// What was answered is received, and the others have this end.
fn half_are_answered(own: &mut Endpoint, requests: &mut [RecvRequest<[u8; 16]>], ended: Ended) -> Result<()> {
    let mut named = 0;
    while let Some(place) = own.wait_any(requests)? {
        named += 1;
        let even = requests[place].tag().is_multiple_of(2);
        match own.test(&mut requests[place]) {
            Ok(Some(6)) if even => {}
            Err(EndpointError::PeerGone { ended: found, .. }) if !even && found == ended => {}
            other => anyhow::bail!("{:?}: {other:?}", requests[place]),
        }
    }
    ensure!(named == requests.len());
    Ok(())
}

fn killed() -> Result<Completion> {
    for _ in 0..repeats(5) {
        let name = unique();
        let mut server = Child::start("answers some", &[&name, "40"])?;
        server.says("listens")?;
        let mut client = Endpoint::client()?;
        let peer = client.connect(&Address::local(&name)?)?;
        let mut requests = calls(&mut client, peer, 40)?;
        server.says("answered")?;
        server.kill()?;
        half_are_answered(&mut client, &mut requests, Ended::Died)?;
        // And one that is started afterwards.
        let error = client.start_recv_expected(peer, 1, [0; 16]).map(drop);
        ensure!(matches!(error, Err(EndpointError::PeerGone { ended: Ended::Died, .. })), "{error:?}");
    }
    Ok(Completion::Completed)
}

fn left() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    let mut requests = calls(&mut client, to_server, 10)?;
    for _ in 0..10 {
        let call = server.recv_unexpected(&mut [])?;
        if call.tag.is_multiple_of(2) {
            server.send_expected(call.peer, call.tag, b"answer")?;
        }
    }
    drop(server);
    half_are_answered(&mut client, &mut requests, Ended::Left)?;
    Ok(Completion::Completed)
}

fn disconnected() -> Result<Completion> {
    let (mut client, to_server, mut server, to_client) = pair()?;
    let mut request = client.start_recv_expected(to_server, 5, [0; 8])?;
    server.send_expected(to_client, 5, &[1; 8])?;
    client.disconnect(to_server);
    let error = client.wait_for(&mut request);
    ensure!(
        matches!(error, Err(EndpointError::PeerGone { ended: Ended::Disconnected, .. })),
        "{error:?}, and what was not received is thrown away"
    );
    Ok(Completion::Completed)
}

fn many_peers() -> Result<Completion> {
    let mut client = Endpoint::client()?;
    let mut servers = Vec::new();
    let mut requests = Vec::new();
    for _ in 0..6 {
        let name = unique();
        let mut server = Child::start("answers some", &[&name, "10"])?;
        server.says("listens")?;
        let peer = client.connect(&Address::local(&name)?)?;
        requests.extend(calls(&mut client, peer, 10)?);
        servers.push((server, peer));
    }
    let mut dead = Vec::new();
    for (index, (server, peer)) in servers.iter_mut().enumerate() {
        server.says("answered")?;
        if index % 2 == 0 {
            server.signal(nix::sys::signal::Signal::SIGKILL)?;
            dead.push(*peer);
        }
    }
    // All answers, and the ends of those that are dead. Those of the others are waited for in vain.
    let ends = servers.len() * 5 + dead.len() * 5;
    for _ in 0..ends {
        let place = client.wait_any(&mut requests)?.context("not all were named")?;
        let (peer, even) = (requests[place].from(), requests[place].tag().is_multiple_of(2));
        let result = client.test(&mut requests[place]);
        let answered = matches!(result, Ok(Some(6)));
        let gone = matches!(result, Err(EndpointError::PeerGone { ended: Ended::Died, .. }));
        ensure!(answered && even || gone && !even && dead.contains(&peer), "{result:?}");
    }
    for request in &mut requests {
        if !request.tag().is_multiple_of(2) && !dead.contains(&request.from()) {
            ensure!(client.test(request)?.is_none());
        }
    }
    Ok(Completion::Completed)
}
