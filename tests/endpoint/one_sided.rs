//! Gets of memory whose place is known: the owner is not asked again, and still decides until when it is read.

use std::io::IoSliceMut;

use anyhow::{Context, Result, ensure};
use intranode::{Access, Endpoint, EndpointError, Handle, Peer};
use libtest_mimic::Completion;
use nix::sys::signal::Signal;

use super::messages::pattern;
use super::owner::{Client, REVOKE};
use super::{Test, pair};

pub(super) const TESTS: &[Test] = &[
    ("gets_of_known_memory_while_its_owner_has_stopped", stopped_owner),
    ("gets_of_known_memory_see_what_its_owner_has_changed", changed),
    ("gets_of_more_memories_than_are_known", many_memories),
    ("gets_from_anywhere_in_memory_of_many_parts", many_parts),
];

/// Longer than what goes by messages, for which an owner has to be there.
const LEN: usize = 50_000;

fn stopped_owner() -> Result<Completion> {
    let mut client = Client::start(&[])?;
    let handles = [client.share(LEN, 3, true)?, client.share(2_000_000, 1, false)?];
    for handle in &handles {
        client.gets(handle, 0, &[LEN])?;
    }
    let owner = client.process.take().context("its owner")?;
    owner.signal(Signal::SIGSTOP)?;
    for offset in [0, 1, LEN, 2 * LEN - 7] {
        client.gets(&handles[0], offset, &[LEN / 2, LEN / 2 + 7])?;
    }
    // Some are read in several pieces, of which the last is short.
    for len in [LEN, (256 << 10) + 100, (1 << 20) + 100] {
        client.gets(&handles[1], 0, &[len])?;
        let mut get = client.own.start_get(client.owner, &handles[1], 0, vec![vec![0; len]])?;
        ensure!(client.own.wait_for(&mut get)? == len);
        ensure!(get.into_buffers()[0] == pattern(7, len));
    }
    owner.signal(Signal::SIGCONT)?;
    client.call(REVOKE, &handles[0].to_bytes())?;
    let error = client.gets(&handles[0], 0, &[LEN]).err().context("it was revoked")?;
    let error = error.downcast_ref::<EndpointError>();
    ensure!(matches!(error, Some(EndpointError::NotShared { .. })), "{error:?}");
    client.gets(&handles[1], 0, &[LEN])?;
    Ok(Completion::Completed)
}

/// A get that its owner answers, in one thread with it.
fn get(
    (client, to_server): (&mut Endpoint, Peer),
    server: &mut Endpoint,
    handle: &Handle,
    offset: usize,
    len: usize,
) -> Result<Vec<u8>> {
    let mut get = client.start_get(to_server, handle, offset as u64, vec![vec![0; len]])?;
    while client.test(&mut get)?.is_none() {
        server.poll()?;
    }
    get.into_buffers().pop().context("a buffer")
}

fn changed() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    let memory = server.share(vec![vec![1; LEN].into()], Access::Read);
    ensure!(get((&mut client, to_server), &mut server, &memory.handle(), 0, LEN)? == vec![1; LEN]);
    server.shared(&memory)?[0].fill(2);
    let mut target = vec![0; LEN];
    client.get(to_server, &memory.handle(), 0, &mut [IoSliceMut::new(&mut target)])?;
    ensure!(target == vec![2; LEN]);
    Ok(Completion::Completed)
}

/// More than leases can be given at a time, too.
fn many_memories() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    let mut memories: Vec<_> =
        (0..100).map(|seed| server.share(vec![pattern(seed, LEN).into()], Access::Read)).collect();
    let each = (0..100).chain((0..100).rev()).chain((0..200).map(|_| fastrand::usize(0..100)));
    for seed in each {
        // This one is always known.
        for seed in [0, seed] {
            let got = get((&mut client, to_server), &mut server, &memories[seed].handle(), 0, LEN)?;
            ensure!(got == pattern(seed, LEN), "memory {seed}");
        }
    }
    let last = memories.pop().context("the last")?.handle();
    for memory in memories {
        server.revoke(memory)?[0].fill(0xEE);
    }
    let got = get((&mut client, to_server), &mut server, &last, 0, LEN)?;
    ensure!(got == pattern(99, LEN), "what was not revoked");
    Ok(Completion::Completed)
}

/// More than one message can name.
fn many_parts() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    let all = pattern(3, 2000 * 101);
    let memory = server.share(all.chunks(101).map(Box::from).collect(), Access::Read);
    for _ in 0..200 {
        let offset = fastrand::usize(0..all.len() - 20_000);
        let len = fastrand::usize(20_000..=all.len() - offset);
        let got = get((&mut client, to_server), &mut server, &memory.handle(), offset, len)?;
        ensure!(got == all[offset..][..len], "{len} bytes from {offset} on");
    }
    Ok(Completion::Completed)
}
