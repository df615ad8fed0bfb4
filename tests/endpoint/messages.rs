//! Cases 29 to 35: lengths, room, order, and who gets which message.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use intranode::{Address, Endpoint, EndpointError, Event, Peer};
use libtest_mimic::Completion;
use nix::sys::signal::Signal;

use super::child::{self, Child};
use super::{Role, Test, pair, repeats, unique};

pub(super) const TESTS: &[Test] = &[
    ("case_29_lengths", lengths),
    ("case_30_64_are_held_and_one_that_is_received_makes_room", room),
    ("room_is_reported_although_a_shorter_message_was_sent_since", room_behind_shorter),
    ("room_for_a_short_message_needs_no_buffer", room_without_buffer),
    ("case_31_a_blocked_sender_wakes", blocked_sender),
    ("case_32_a_stalled_client_is_in_nobodys_way", stalled_client),
    ("case_33_34_messages_are_kept_until_they_are_received", kept),
    ("case_33_expected_behind_many_unexpected", behind),
    ("unexpected_behind_many_expected", behind_expected),
    ("case_34_too_many_that_nobody_receives", too_many),
    ("case_35_expected_messages_match_peer_and_tag", matching),
    ("short_buffers_keep_the_message", short_buffer),
    ("two_processes_in_order", in_order),
];

pub(super) const ROLES: &[Role] = &[("echo", echo), ("sends and stalls", sends_and_stalls), ("counts", counts)];

/// What byte of a message is where.
pub(super) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|index| (index.wrapping_mul(31) ^ seed.wrapping_mul(17) ^ index >> 8) as u8).collect()
}

/// Sends each call back to its sender, until its input is closed.
fn echo(args: &[String]) -> Result<()> {
    let mut server = Endpoint::listen(&args[0])?;
    child::say("listens")?;
    let mut buffer = [0; 4096];
    loop {
        let call = server.recv_unexpected(&mut buffer)?;
        match server.send_expected(call.peer, call.tag, &buffer[..call.bytes]) {
            Ok(()) | Err(EndpointError::PeerGone { .. } | EndpointError::UnknownPeer { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// An echo server in a process of its own.
pub(super) fn start_echo() -> Result<(Child, Address)> {
    let name = unique();
    let mut server = Child::start("echo", &[&name])?;
    server.says("listens")?;
    Ok((server, Address::local(&name)?))
}

/// Makes calls to an echo server.
pub(super) fn calls(address: &Address, count: usize) -> Result<()> {
    let mut client = Endpoint::client()?;
    let server = client.connect(address)?;
    let mut answer = [0; 4096];
    for call in 0..count {
        let data = pattern(call, (call * 37) % 4097);
        client.send_unexpected(server, call as u64, &data)?;
        let bytes = client.recv_expected(server, call as u64, &mut answer)?;
        ensure!(answer[..bytes] == data, "call {call}");
    }
    Ok(())
}

fn lengths() -> Result<Completion> {
    let (mut client, to_server, mut server, to_client) = pair()?;
    let mut buffer = vec![0xEE; 5000];
    for len in [0, 1, 39, 40, 41, 4095, 4096] {
        let data = pattern(len, len);
        client.send_unexpected(to_server, len as u64, &data)?;
        let message = server.recv_unexpected(&mut buffer)?;
        ensure!((message.peer, message.tag, message.bytes) == (to_client, len as u64, len));
        ensure!(buffer[..len] == data && buffer[len..].iter().all(|byte| *byte == 0xEE), "{len} bytes");
        server.send_expected(to_client, len as u64, &data)?;
        ensure!(client.recv_expected(to_server, len as u64, &mut buffer)? == len && buffer[..len] == data);
        buffer.fill(0xEE);
    }
    let too_long = [0; 4097];
    for error in
        [client.send_unexpected(to_server, 0, &too_long), server.send_expected(to_client, 0, &too_long)]
    {
        ensure!(matches!(error, Err(EndpointError::TooLong { bytes: 4097, max: 4096 })), "{error:?}");
    }
    ensure!(server.try_recv_unexpected(&mut buffer)?.is_none());
    Ok(Completion::Completed)
}

fn room() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    for number in 0..64 {
        ensure!(client.try_send_unexpected(to_server, number, &pattern(number as usize, 4096))?, "{number}");
    }
    ensure!(!client.try_send_unexpected(to_server, 64, &[0; 41])?);
    // Taken in, they keep their buffers.
    while server.poll()?.is_some() {}
    ensure!(!client.try_send_unexpected(to_server, 64, &[0; 41])? && client.poll()?.is_none());
    let mut buffer = [0; 4096];
    for number in 0..200 {
        let message = server.recv_unexpected(&mut buffer)?;
        ensure!(message.tag == number && buffer[..] == pattern(number as usize, 4096), "{number}");
        let event = client.wait(Some(Duration::from_secs(10)))?;
        ensure!(event == Some(Event::Room { peer: to_server }), "{event:?}");
        let next = number + 64;
        ensure!(client.try_send_unexpected(to_server, next, &pattern(next as usize, 4096))?, "{next}");
        ensure!(!client.try_send_unexpected(to_server, next, &[0; 41])?);
    }
    Ok(Completion::Completed)
}

/// All buffers are held, and all cells are free.
fn hold_buffers(client: &mut Endpoint, to_server: Peer, server: &mut Endpoint) -> Result<()> {
    for number in 0..64 {
        ensure!(client.try_send_unexpected(to_server, number, &[0; 4096])?, "{number}");
    }
    while server.poll()?.is_some() {}
    Ok(())
}

fn room_behind_shorter() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    hold_buffers(&mut client, to_server, &mut server)?;
    ensure!(!client.try_send_unexpected(to_server, 64, &[0; 100])?);
    ensure!(client.try_send_unexpected(to_server, 65, &[0; 8])?);
    ensure!(client.wait(Some(Duration::from_millis(20)))?.is_none(), "there is no room for what was refused");
    while server.try_recv_unexpected(&mut [0; 4096])?.is_some() {}
    let event = client.wait(Some(Duration::from_secs(10)))?;
    ensure!(event == Some(Event::Room { peer: to_server }), "{event:?}");
    ensure!(client.try_send_unexpected(to_server, 64, &[0; 100])? && client.poll()?.is_none());
    Ok(Completion::Completed)
}

fn room_without_buffer() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    hold_buffers(&mut client, to_server, &mut server)?;
    let mut sent = 0;
    while client.try_send_unexpected(to_server, 100, &[0; 8])? {
        sent += 1;
    }
    ensure!(!client.try_send_unexpected(to_server, 64, &[0; 4096])? && sent > 0);
    ensure!(client.wait(Some(Duration::from_millis(20)))?.is_none(), "there is no cell");
    // Cells are free again, and no buffer.
    while server.poll()?.is_some() {}
    let event = client.wait(Some(Duration::from_secs(10)))?;
    ensure!(event == Some(Event::Room { peer: to_server }), "{event:?}");
    ensure!(client.try_send_unexpected(to_server, 100, &[0; 8])?);
    // The longer one is refused once more, and has its own report.
    ensure!(!client.try_send_unexpected(to_server, 64, &[0; 4096])?);
    ensure!(client.wait(Some(Duration::from_millis(20)))?.is_none(), "there is no buffer");
    while server.try_recv_unexpected(&mut [0; 4096])?.is_some() {}
    let event = client.wait(Some(Duration::from_secs(10)))?;
    ensure!(event == Some(Event::Room { peer: to_server }), "{event:?}");
    Ok(Completion::Completed)
}

fn blocked_sender() -> Result<Completion> {
    let name = unique();
    let mut server = Endpoint::builder().spin(Duration::ZERO).listen(&name)?;
    let count = 1000u64;
    let sender = std::thread::spawn(move || -> Result<()> {
        let mut client = Endpoint::builder().spin(Duration::ZERO).client()?;
        let peer = client.connect(&Address::local(&name)?)?;
        for number in 0..count {
            client.send_unexpected(peer, number, &pattern(number as usize, 100))?;
        }
        Ok(())
    });
    let mut buffer = [0; 100];
    for number in 0..count {
        if number % 64 == 0 {
            // Time for the sender to find no room, and to sleep.
            std::thread::yield_now();
        }
        ensure!(server.recv_unexpected(&mut buffer)?.tag == number);
        ensure!(buffer[..] == pattern(number as usize, 100));
    }
    sender.join().ok().context("no panic")??;
    Ok(Completion::Completed)
}

fn sends_and_stalls(args: &[String]) -> Result<()> {
    let mut client = Endpoint::client()?;
    let server = client.connect(&Address::local(&args[0])?)?;
    while client.try_send_unexpected(server, 7, &[7; 4096])? {}
    child::say("full")?;
    while child::hear()?.is_some() {}
    Ok(())
}

fn stalled_client() -> Result<Completion> {
    let mut server = Endpoint::listen(&unique())?;
    let address = server.address().context("it listens")?.clone();
    let mut stalled = Child::start("sends and stalls", &[address.name()])?;
    stalled.says("full")?;
    stalled.signal(Signal::SIGSTOP)?;
    let mut buffer = [0; 4096];
    let from_stalled = server.recv_unexpected(&mut buffer)?.peer;
    // Until it has no room any more.
    while server.try_send_expected(from_stalled, 1, &[1; 4096])? {}
    let other = std::thread::spawn(move || calls(&address, 1000));
    let mut served = 0;
    while served < 1000 {
        let call = server.recv_unexpected(&mut buffer)?;
        if call.peer != from_stalled {
            server.send_expected(call.peer, call.tag, &buffer[..call.bytes])?;
            served += 1;
        }
    }
    other.join().ok().context("no panic")??;
    stalled.signal(Signal::SIGCONT)?;
    stalled.ends()?;
    Ok(Completion::Completed)
}

fn kept() -> Result<Completion> {
    let (mut client, to_server, mut server, to_client) = pair()?;
    for number in 0..20u64 {
        client.send_unexpected(to_server, number, &pattern(number as usize, 10 * number as usize))?;
        client.send_expected(to_server, number, &pattern(number as usize, 11 * number as usize))?;
    }
    // Each is reported once, and stays.
    let mut reported = 0;
    while let Some(event) = server.poll()? {
        ensure!(matches!(event, Event::Message { peer, .. } if peer == to_client), "{event:?}");
        reported += 1;
    }
    ensure!(reported == 40, "{reported}");
    drop(client);
    let mut buffer = [0; 4096];
    for number in (0..20u64).rev() {
        let bytes = server.recv_expected(to_client, number, &mut buffer)?;
        ensure!(buffer[..bytes] == pattern(number as usize, 11 * number as usize));
    }
    for number in 0..20u64 {
        let message = server.recv_unexpected(&mut buffer)?;
        ensure!(
            message.tag == number && buffer[..message.bytes] == pattern(number as usize, 10 * number as usize)
        );
    }
    let gone = server.recv_expected(to_client, 0, &mut buffer);
    ensure!(matches!(gone, Err(EndpointError::PeerGone { .. })), "{gone:?}");
    Ok(Completion::Completed)
}

fn behind() -> Result<Completion> {
    let (mut client, to_server, mut server, to_client) = pair()?;
    let sender = std::thread::spawn(move || -> Result<Endpoint> {
        // More than the channel holds, and more than is taken in without being asked for.
        for number in 0..200 {
            client.send_unexpected(to_server, number, &pattern(number as usize, 4096))?;
        }
        client.send_expected(to_server, 9, b"behind all of them")?;
        Ok(client)
    });
    let mut buffer = [0; 4096];
    let bytes = server.recv_expected(to_client, 9, &mut buffer)?;
    ensure!(&buffer[..bytes] == b"behind all of them");
    for number in 0..200 {
        ensure!(server.recv_unexpected(&mut buffer)?.tag == number);
        ensure!(buffer[..] == pattern(number as usize, 4096), "{number}");
    }
    sender.join().ok().context("no panic")??;
    Ok(Completion::Completed)
}

/// Expected ones that nobody receives; of another peer there are more than are looked through.
fn behind_expected() -> Result<Completion> {
    let (mut client, to_server, mut server, to_client) = pair()?;
    let mut other = Endpoint::client()?;
    let other_to_server = other.connect(server.address().context("it listens")?)?;
    let mut sent = 0;
    let mut is_refused = 0;
    while is_refused < 1000 {
        is_refused += 1;
        while other.try_send_expected(other_to_server, sent, &[3; 4000])? {
            (sent, is_refused) = (sent + 1, 0);
        }
        ensure!(server.try_recv_unexpected(&mut [])?.is_none() && sent < 400);
    }
    ensure!(sent > 128, "{sent} messages");
    let sender = std::thread::spawn(move || -> Result<Endpoint> {
        for number in 0..200 {
            client.send_expected(to_server, number, &pattern(number as usize, 4096))?;
        }
        client.send_unexpected(to_server, 9, b"behind all of them")?;
        Ok(client)
    });
    let mut buffer = [0; 4096];
    let message = server.recv_unexpected(&mut buffer)?;
    ensure!((message.peer, message.tag) == (to_client, 9), "{message:?}");
    for number in 0..200 {
        ensure!(server.recv_expected(to_client, number, &mut buffer)? == 4096);
        ensure!(buffer[..] == pattern(number as usize, 4096), "{number}");
    }
    sender.join().ok().context("no panic")??;
    Ok(Completion::Completed)
}

fn too_many() -> Result<Completion> {
    let (mut client, to_server, mut server, to_client) = pair()?;
    let mut sent = 0;
    let error = loop {
        while client.try_send_unexpected(to_server, sent, &[3; 4000])? {
            sent += 1;
        }
        match server.try_recv_expected(to_client, 1, &mut []) {
            Ok(None) => {}
            other => break other,
        }
    };
    ensure!(matches!(error, Err(EndpointError::TooManyUnreceived { .. })), "{error:?}");
    ensure!(sent < 400, "{sent} messages of 4000 bytes");
    for number in 0..sent {
        ensure!(server.recv_unexpected(&mut [0; 4000])?.tag == number);
    }
    client.send_expected(to_server, 1, b"")?;
    ensure!(server.recv_expected(to_client, 1, &mut [])? == 0);
    Ok(Completion::Completed)
}

fn matching() -> Result<Completion> {
    let mut server = Endpoint::listen(&unique())?;
    let address = server.address().context("it listens")?.clone();
    let mut clients = Vec::new();
    for number in 0..3u8 {
        let mut client = Endpoint::client()?;
        let peer = client.connect(&address)?;
        client.send_unexpected(peer, number.into(), &[number])?;
        clients.push((client, peer));
    }
    let mut peers = [None; 3];
    for _ in 0..3 {
        let mut data = [0];
        let message = server.recv_unexpected(&mut data)?;
        peers[usize::from(data[0])] = Some(message.peer);
    }
    for (number, (client, peer)) in clients.iter_mut().enumerate() {
        for tag in [5, u64::MAX, 0] {
            client.send_expected(*peer, tag, &[number as u8, tag as u8])?;
        }
    }
    let mut data = [0; 2];
    for (number, peer) in peers.into_iter().enumerate().rev() {
        let peer = peer.context("it has sent")?;
        for tag in [0, 5, u64::MAX] {
            server.recv_expected(peer, tag, &mut data)?;
            ensure!(data == [number as u8, tag as u8]);
        }
        ensure!(server.try_recv_expected(peer, 5, &mut data)?.is_none());
    }
    Ok(Completion::Completed)
}

fn short_buffer() -> Result<Completion> {
    let (mut client, to_server, mut server, to_client) = pair()?;
    client.send_unexpected(to_server, 1, &[9; 100])?;
    client.send_expected(to_server, 2, &[8; 100])?;
    let mut buffer = [0; 200];
    let error = server.recv_unexpected(&mut buffer[..16]);
    ensure!(matches!(error, Err(EndpointError::Truncated { bytes: 100, room: 16, .. })), "{error:?}");
    let error = server.recv_expected(to_client, 2, &mut buffer[..99]);
    ensure!(matches!(error, Err(EndpointError::Truncated { bytes: 100, room: 99, .. })), "{error:?}");
    ensure!(buffer == [0; 200], "nothing is written");
    ensure!(server.recv_unexpected(&mut buffer)?.bytes == 100 && buffer[..100] == [9; 100]);
    ensure!(server.recv_expected(to_client, 2, &mut buffer)? == 100 && buffer[..100] == [8; 100]);
    Ok(Completion::Completed)
}

fn counts(args: &[String]) -> Result<()> {
    let mut client = Endpoint::client()?;
    let server = client.connect(&Address::local(&args[0])?)?;
    for number in 0..args[1].parse()? {
        let len = (number as usize * 13) % 300;
        client.send_unexpected(server, number, &pattern(number as usize, len))?;
    }
    child::say("sent")?;
    while child::hear()?.is_some() {}
    Ok(())
}

fn in_order() -> Result<Completion> {
    let mut server = Endpoint::listen(&unique())?;
    let name = server.address().context("it listens")?.name().to_owned();
    let count = repeats(20_000) as u64;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(Child::start("counts", &[&name, &count.to_string()])?);
    }
    let (mut next, mut buffer) = (std::collections::BTreeMap::new(), [0; 4096]);
    for _ in 0..3 * count {
        let message = server.recv_unexpected(&mut buffer)?;
        let expected = next.entry(message.peer).or_insert(0u64);
        ensure!(message.tag == *expected, "{message:?} instead of {expected}");
        let len = (*expected as usize * 13) % 300;
        ensure!(buffer[..message.bytes] == pattern(*expected as usize, len));
        *expected += 1;
    }
    clients.into_iter().try_for_each(Child::ends)?;
    Ok(Completion::Completed)
}
