//! Gets that their owner sends, although the client could read, as long as it polls.

use std::io::IoSliceMut;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use intranode::{Access, Address, Endpoint, Handle};
use libtest_mimic::Completion;
use nix::sys::signal::Signal;

use super::messages::pattern;
use super::owner::Client;
use super::{Test, pair, unique};

pub(super) const TESTS: &[Test] = &[
    ("gets_of_all_lengths_and_cuts", all_lengths),
    ("gets_whose_owner_stops_and_goes_on", stopping_owner),
    ("gets_beside_messages_that_nobody_receives", beside_messages),
    ("started_gets_leave_room_for_messages", room_for_messages),
];

const LENGTHS: [usize; 13] =
    [1, 40, 41, 4096, 4097, 16_384, 16_385, 20_000, 65_536, 100_001, 262_145, 1_048_577, 17_000_000];

fn all_lengths() -> Result<Completion> {
    let mut client = Client::start(&[])?;
    for len in LENGTHS {
        let handle = client.share(len.div_ceil(3), 3, false)?;
        let more = 3 * len.div_ceil(3) - len;
        // The first learns where it lies.
        for offset in [0, more, 0] {
            client.gets(&handle, offset, &[len])?;
            client.gets(&handle, offset, &[len / 3, len - len / 3])?;
            client.gets(&handle, offset, &vec![len.div_ceil(300); len / len.div_ceil(300)])?;
        }
    }
    Ok(Completion::Completed)
}

fn stopping_owner() -> Result<Completion> {
    let mut client = Client::start(&[])?;
    let handle = client.share(3_000_000, 1, false)?;
    let owner = client.process.take().context("its owner")?;
    let start = Instant::now();
    thread::scope(|scope| {
        let stops = scope.spawn(move || -> Result<_> {
            while start.elapsed() < Duration::from_secs(1) {
                for signal in [Signal::SIGSTOP, Signal::SIGCONT] {
                    owner.signal(signal)?;
                    thread::sleep(Duration::from_micros(fastrand::u64(0..2000)));
                }
            }
            // It lives until the last get has come.
            Ok(owner)
        });
        while !stops.is_finished() {
            let len = fastrand::usize(20_000..3_000_000);
            client.gets(&handle, fastrand::usize(0..=3_000_000 - len), &[len])?;
        }
        stops.join().expect("no panic").map(drop)
    })?;
    Ok(Completion::Completed)
}

/// An owner whose messages hold all buffers but a few, or all.
fn beside_messages() -> Result<Completion> {
    const LEN: usize = 500_000;
    for held in [40, 57, 60, 63] {
        let name = unique();
        let mut owner = Endpoint::listen(&name)?;
        let handle = owner.share(vec![pattern(3, LEN).into()], Access::Read).handle();
        let owner = thread::spawn(move || -> Result<()> {
            let peer = owner.recv_unexpected(&mut [])?.peer;
            for tag in 0..held {
                ensure!(owner.try_send_expected(peer, tag, &[tag as u8; 4096])?, "room");
            }
            owner.send_unexpected(peer, 0, &handle.to_bytes())?;
            ensure!(owner.recv_unexpected(&mut [])?.tag == 1);
            Ok(())
        });
        let mut client = Endpoint::client()?;
        let peer = client.connect(&Address::local(&name)?)?;
        client.send_unexpected(peer, 0, b"")?;
        let mut bytes = [0; Handle::BYTES];
        client.recv_unexpected(&mut bytes)?;
        let handle = Handle::from_bytes(&bytes)?;
        for len in [10_000, 100_000, LEN, LEN] {
            let mut target = vec![0; len];
            client.get(peer, &handle, 0, &mut [IoSliceMut::new(&mut target)])?;
            ensure!(target == pattern(3, LEN)[..len], "{len} bytes, {held} buffers were held");
        }
        for tag in 0..held {
            let mut message = [0; 4096];
            ensure!(client.recv_expected(peer, tag, &mut message)? == 4096 && message == [tag as u8; 4096]);
        }
        client.send_unexpected(peer, 1, b"")?;
        owner.join().expect("no panic")?;
    }
    Ok(Completion::Completed)
}

/// More has come than a connection has buffers, and nobody has looked at it.
fn room_for_messages() -> Result<Completion> {
    const LEN: usize = 16_384;
    let (mut client, to_server, mut server, to_client) = pair()?;
    let handle = server.share(vec![pattern(4, LEN).into()], Access::Read).handle();
    let mut gets = (0..40)
        .map(|_| client.start_get(to_server, &handle, 0, vec![vec![0; LEN]]))
        .collect::<Result<Vec<_>, _>>()?;
    // Until nothing more comes of it by itself.
    for _ in 0..1000 {
        server.poll()?;
        client.poll()?;
    }
    for _ in 0..10 {
        ensure!(server.try_send_expected(to_client, 1, &[5; 4096])?, "no room for a message");
        let mut message = [0; 4096];
        ensure!(client.recv_expected(to_server, 1, &mut message)? == 4096 && message == [5; 4096]);
    }
    for get in &mut gets {
        while client.test(get)?.is_none() {
            server.poll()?;
        }
    }
    for get in gets {
        ensure!(get.into_buffers()[0] == pattern(4, LEN));
    }
    Ok(Completion::Completed)
}
