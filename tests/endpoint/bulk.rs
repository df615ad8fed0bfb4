//! Cases 55 to 63: memory that a process shares, read and written by another.

use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use intranode::{Access, Address, Endpoint, EndpointError, Handle, Peer};
use libtest_mimic::Completion;
use nix::sys::signal::Signal;

use super::messages::pattern;
use super::owner::{Client, Digest, FILL, REVOKE, refuse_reading, shapes};
use super::{Test, repeats, unique};

pub(super) const TESTS: &[Test] = &[
    ("case_55_contiguous_segmented_offsets", segments),
    ("case_56_1025_segments_and_many_bytes", many_segments),
    ("case_57_zero_bytes", zero),
    ("case_58_beyond_the_end_nothing_is_moved", beyond),
    ("a_handle_that_says_less_names_the_front_of_the_memory", shorter),
    ("a_handle_that_says_more_moves_nothing", longer),
    ("case_59_put_into_read_only", read_only),
    ("case_60_revoked_before_and_after", revoked),
    ("case_60_revoked_meanwhile", revoked_meanwhile),
    ("case_61_forged_and_foreign_handles", forged),
    ("case_63_where_memory_cannot_be_read", refused),
    ("messages_go_on_beside_transfers", beside_messages),
    ("an_owner_that_dies_or_stops", owner_dies),
    ("both_sides_get_from_each_other", both_sides),
];

fn segments() -> Result<Completion> {
    shapes(&mut Client::start(&[])?)?;
    Ok(Completion::Completed)
}

fn many_segments() -> Result<Completion> {
    let mut client = Client::start(&[])?;
    let handle = client.share(100, 1025, true)?;
    client.gets(&handle, 0, &[100; 1025])?;
    client.gets(&handle, 50, &[41; 2498])?;
    let data = pattern(3, 102_500);
    let slices: Vec<_> = data.chunks(100).map(IoSlice::new).collect();
    client.own.put(client.owner, &handle, 0, &slices)?;
    let mut digest = Digest::new();
    digest.add(&data);
    ensure!(client.contents(&handle)? == digest.0);
    let large = client.share(64 << 20, 2, false)?;
    client.gets(&large, 0, &[128 << 20])?;
    Ok(Completion::Completed)
}

fn zero() -> Result<Completion> {
    let mut client = Client::start(&[])?;
    let handle = client.share(100, 1, true)?;
    for offset in [0, 50, 100] {
        client.gets(&handle, offset, &[])?;
        client.gets(&handle, offset, &[0, 0])?;
        client.own.put(client.owner, &handle, offset as u64, &[IoSlice::new(&[])])?;
    }
    let none = client.share(0, 0, true)?;
    ensure!(none.is_empty());
    client.gets(&none, 0, &[])?;
    Ok(Completion::Completed)
}

/// A handle that says something else than its owner.
fn changed(handle: &Handle, change: impl FnOnce(&mut [u8; 24])) -> Result<Handle> {
    let mut bytes = handle.to_bytes();
    change(&mut bytes);
    Ok(Handle::from_bytes(&bytes)?)
}

fn beyond() -> Result<Completion> {
    let mut client = Client::start(&[])?;
    let handle = client.share(100, 2, true)?;
    let before = client.contents(&handle)?;
    let longer = changed(&handle, |bytes| bytes[8..16].copy_from_slice(&u64::MAX.to_ne_bytes()))?;
    for (handle, offset, len) in [
        (handle, 201, 0),
        (handle, 0, 201),
        (handle, 199, 2),
        (handle, u64::MAX, 1),
        (handle, u64::MAX, 0),
        // What the owner has to find out.
        (longer, 0, 201),
        (longer, 199, 10_000),
        (longer, u64::MAX - 1, 1),
        (longer, 1 << 40, 100_000),
    ] {
        let mut target = vec![0xAB; len];
        let error = client.own.get(client.owner, &handle, offset, &mut [IoSliceMut::new(&mut target)]);
        ensure!(matches!(error, Err(EndpointError::OutOfBounds { .. })), "{offset}, {len}: {error:?}");
        ensure!(target.iter().all(|byte| *byte == 0xAB));
        let error = client.own.put(client.owner, &handle, offset, &[IoSlice::new(&target)]);
        ensure!(matches!(error, Err(EndpointError::OutOfBounds { .. })), "{offset}, {len}: {error:?}");
    }
    ensure!(client.contents(&handle)? == before);
    client.gets(&handle, 0, &[200])?;
    Ok(Completion::Completed)
}

fn shorter() -> Result<Completion> {
    let mut client = Client::start(&[])?;
    let handle = client.share(50_000, 6, true)?;
    let shorter = changed(&handle, |bytes| bytes[8..16].copy_from_slice(&100_000_u64.to_ne_bytes()))?;
    for (handle, len) in [(shorter, 100_000), (handle, 300_000), (shorter, 60_000)] {
        client.gets(&handle, 0, &[len])?;
        client.gets(&handle, 10_000, &[len - 10_000])?;
        client.own.put(client.owner, &handle, 0, &[IoSlice::new(&pattern(7, len))])?;
    }
    let error = client.own.get(client.owner, &shorter, 1, &mut [IoSliceMut::new(&mut [0; 100_000])]);
    let Err(error @ EndpointError::OutOfBounds { len: 100_000, .. }) = error else { bail!("{error:?}") };
    let said =
        format!("bytes 1 to 1 + 100000 of the memory of {} were asked for, and it has 100000", client.owner);
    ensure!(error.to_string() == said, "{error}");
    client.gets(&handle, 0, &[300_000])?;
    Ok(Completion::Completed)
}

/// Pieces that lie inside are not moved either, whatever the endpoint knows of the memory.
fn longer() -> Result<Completion> {
    for refuses in [&[][..], &["refuses"]] {
        for (len, more) in
            [(3_usize << 20, 5000), (100_000, 5000), (8000, 5000), (5000, 1), (100_000, 10 << 20)]
        {
            for count in [1, 2, 500] {
                for got in [0, len] {
                    says_more(refuses, len.div_ceil(count), count, len + more, got)?;
                }
            }
        }
    }
    Ok(Completion::Completed)
}

fn says_more(refuses: &[&str], len: usize, count: usize, all: usize, got: usize) -> Result<()> {
    let all = all.max(len * count + 1);
    let mut client = Client::start(refuses)?;
    let handle = client.share(len, count, true)?;
    let before = client.contents(&handle)?;
    let longer = changed(&handle, |bytes| bytes[8..16].copy_from_slice(&(1_u64 << 30).to_ne_bytes()))?;
    if got > 0 {
        client.gets(&longer, 0, &[got.min(len * count)])?;
    }
    let mut target = vec![0xAB; all];
    let error = client.own.get(client.owner, &longer, 0, &mut [IoSliceMut::new(&mut target)]);
    ensure!(matches!(error, Err(EndpointError::OutOfBounds { .. })), "{len}, {count}, {all}: {error:?}");
    ensure!(target.iter().all(|byte| *byte == 0xAB), "{len}, {count}, {all}, {got}: something was read");
    let mut get = client.own.start_get(client.owner, &longer, 0, vec![target])?;
    let Err(error @ EndpointError::OutOfBounds { .. }) = client.own.wait_for(&mut get) else {
        bail!("{len}, {count}, {all}");
    };
    let (owner, says) = (client.owner, "it is shorter than its handle says (1073741824)");
    let said = format!("bytes 0 to 0 + {all} of the memory of {owner} were asked for, and {says}");
    ensure!(error.to_string().starts_with(&said), "{error}");
    let target = get.into_buffers().concat();
    ensure!(target.iter().all(|byte| *byte == 0xAB), "{len}, {count}, {all}, {got}: something was read");
    let error = client.own.put(client.owner, &longer, 0, &[IoSlice::new(&target)]);
    ensure!(matches!(error, Err(EndpointError::OutOfBounds { .. })), "{len}, {count}, {all}: {error:?}");
    let mut put = client.own.start_put(client.owner, &longer, 0, vec![target])?;
    let error = client.own.wait_for(&mut put);
    ensure!(matches!(error, Err(EndpointError::OutOfBounds { .. })), "{len}, {count}, {all}: {error:?}");
    ensure!(client.contents(&handle)? == before, "{len}, {count}, {all}, {got}: something was written");
    client.gets(&handle, 0, &[len * count])
}

fn read_only() -> Result<Completion> {
    let mut client = Client::start(&[])?;
    let handle = client.share(100_000, 1, false)?;
    let before = client.contents(&handle)?;
    let forged = changed(&handle, |bytes| bytes[16] = 2)?;
    for handle in [handle, forged] {
        for len in [1, 5000, 100_000] {
            let error = client.own.put(client.owner, &handle, 0, &[IoSlice::new(&vec![1; len])]);
            ensure!(matches!(error, Err(EndpointError::NotWritable { .. })), "{error:?}");
        }
    }
    ensure!(client.contents(&handle)? == before);
    client.gets(&handle, 0, &[100_000])?;
    Ok(Completion::Completed)
}

fn revoked() -> Result<Completion> {
    let mut client = Client::start(&[])?;
    for len in [10, 1_000_000] {
        let (gone, stays) = (client.share(len, 1, true)?, client.share(len, 1, true)?);
        client.gets(&gone, 0, &[len])?;
        client.call(REVOKE, &gone.to_bytes())?;
        let mut target = vec![0xAB; len];
        let error = client.own.get(client.owner, &gone, 0, &mut [IoSliceMut::new(&mut target)]);
        ensure!(matches!(error, Err(EndpointError::NotShared { .. })), "{error:?}");
        ensure!(target.iter().all(|byte| *byte == 0xAB));
        let error = client.own.put(client.owner, &gone, 0, &[IoSlice::new(&target)]);
        ensure!(matches!(error, Err(EndpointError::NotShared { .. })), "{error:?}");
        client.gets(&stays, 0, &[len])?;
    }
    Ok(Completion::Completed)
}

/// A get is what was shared, or an error: the owner changes the memory as soon as it has it back.
fn revoked_meanwhile() -> Result<Completion> {
    let mut client = Client::start(&[])?;
    let len = 8 << 20;
    let (mut whole, mut errors) = (0, 0);
    for _ in 0..repeats(20) {
        let handle = client.share(len, 1, false)?;
        let all = pattern(7, len);
        // By the time that the first answer is there the second message may be, too: it revokes while this process reads.
        client.own.send_unexpected(client.owner, REVOKE, &handle.to_bytes())?;
        let mut target = vec![0; len];
        match client.own.get(client.owner, &handle, 0, &mut [IoSliceMut::new(&mut target)]) {
            Ok(()) => {
                ensure!(target == all, "data that was not shared any more");
                whole += 1;
            }
            Err(EndpointError::NotShared { .. }) => errors += 1,
            Err(error) => return Err(error.into()),
        }
        client.own.recv_expected(client.owner, REVOKE, &mut [])?;
    }
    // Now from another client, at any moment.
    let name = client.name.clone();
    for _ in 0..repeats(20) {
        let handle = client.share(len, 1, false)?;
        let (mut other, all) = (Endpoint::client()?, pattern(7, len));
        let owner = other.connect(&Address::local(&name)?)?;
        let getter = std::thread::spawn(move || -> Result<(usize, usize)> {
            let mut target = vec![0; len];
            let mut whole = 0;
            loop {
                match other.get(owner, &handle, 0, &mut [IoSliceMut::new(&mut target)]) {
                    Ok(()) => {
                        ensure!(target == all, "data that was not shared any more");
                        whole += 1;
                    }
                    Err(EndpointError::NotShared { .. }) => return Ok((whole, 1)),
                    Err(error) => return Err(error.into()),
                }
            }
        });
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..20_000)));
        client.call(REVOKE, &handle.to_bytes())?;
        let (more, error) = getter.join().ok().context("no panic")??;
        (whole, errors) = (whole + more, errors + error);
    }
    eprintln!("{whole} gets before, {errors} errors after");
    ensure!(errors > 0);
    Ok(Completion::Completed)
}

fn forged() -> Result<Completion> {
    let (mut client, mut other) = (Client::start(&[])?, Client::start(&[])?);
    let handle = client.share(1000, 1, true)?;
    let foreign = other.share(1000, 1, true)?;
    let guessed = changed(&handle, |bytes| bytes[0] ^= 1)?;
    for handle in [foreign, guessed] {
        let error = client.own.get(client.owner, &handle, 0, &mut [IoSliceMut::new(&mut [0; 1000])]);
        ensure!(matches!(error, Err(EndpointError::NotShared { .. })), "{error:?}");
    }
    let registration = client.own.share(vec![vec![0; 10].into()], Access::Read);
    let error = other.own.revoke(registration);
    ensure!(matches!(error, Err(EndpointError::ForeignRegistration)), "{error:?}");
    Ok(Completion::Completed)
}

fn refused() -> Result<Completion> {
    // The owner cannot read: puts go through messages.
    shapes(&mut Client::start(&["refuses"])?)?;
    // Only the owner can: gets go through messages. The filter is of a thread, and of what that starts.
    let mut client = Client::start(&[])?;
    let others = std::thread::spawn(move || -> Result<()> {
        refuse_reading()?;
        shapes(&mut client)?;
        // Neither can.
        shapes(&mut Client::start(&[])?)
    });
    others.join().ok().context("no panic")??;
    Ok(Completion::Completed)
}

fn beside_messages() -> Result<Completion> {
    let mut client = Client::start(&[])?;
    let handle = client.share(500_000, 3, true)?;
    // More messages than the channel holds: answers are behind them.
    client.own.send_unexpected(client.owner, FILL, &[])?;
    // The owner is busy sending them until there is room, so some are received first.
    for number in 0..300 {
        ensure!(client.own.recv_unexpected(&mut [0; 4096])?.tag == number);
    }
    client.gets(&handle, 0, &[1_500_000])?;
    for number in 300..500 {
        ensure!(client.own.recv_unexpected(&mut [0; 4096])?.tag == number);
    }
    ensure!(client.own.recv_expected(client.owner, FILL, &mut [])? == 0);
    Ok(Completion::Completed)
}

fn owner_dies() -> Result<Completion> {
    for round in 0..repeats(5) {
        let mut client = Client::start(&[])?;
        let handle = client.share(4 << 20, 4, true)?;
        let pid = client.process.as_ref().context("its owner")?.pid();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid)?);
        // One that has stopped is waited for as long as this each time.
        let mut own = Endpoint::builder().timeout(Duration::from_secs(1)).client()?;
        let owner = own.connect(&Address::local(&client.name)?)?;
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(fastrand::u64(0..5000)));
            nix::sys::signal::kill(pid, if round % 2 == 0 { Signal::SIGKILL } else { Signal::SIGSTOP })
        });
        let mut target = vec![0; 16 << 20];
        let error = loop {
            let slices = &mut [IoSliceMut::new(&mut target)];
            if round % 2 == 1 && killer.is_finished() {
                break None;
            }
            if let Err(error) = own.get(owner, &handle, 0, slices) {
                break Some(error);
            }
            ensure!(target == pattern(7, 16 << 20), "data of a dead process");
        };
        ensure!(
            matches!(error, None | Some(EndpointError::PeerGone { .. } | EndpointError::TimedOut { .. })),
            "{error:?}"
        );
        killer.join().ok().context("no panic")??;
    }
    Ok(Completion::Completed)
}

fn both_sides() -> Result<Completion> {
    // Of one message, in a cell and in a buffer, and of many.
    for (len, times) in [(8, 2000), (3000, 2000), (300_000, 20)] {
        get_from_each_other(len, times)?;
    }
    Ok(Completion::Completed)
}

fn get_from_each_other(len: usize, times: usize) -> Result<()> {
    let name = unique();
    let mut server = Endpoint::listen(&name)?;
    let transfers = move |own: &mut Endpoint, peer: Peer| -> Result<()> {
        let registration = own.share(vec![pattern(1, len).into()], Access::Read);
        own.send_expected(peer, 1, &registration.handle().to_bytes())?;
        let mut bytes = [0; Handle::BYTES];
        own.recv_expected(peer, 1, &mut bytes)?;
        let handle = Handle::from_bytes(&bytes)?;
        let mut target = vec![0; len];
        for _ in 0..times {
            own.get(peer, &handle, 0, &mut [IoSliceMut::new(&mut target)])?;
            ensure!(target == pattern(1, len));
            target.fill(0);
        }
        // The other side may not be done.
        own.send_expected(peer, 2, b"")?;
        own.recv_expected(peer, 2, &mut [])?;
        Ok(())
    };
    let client = std::thread::spawn(move || -> Result<()> {
        let mut client = Endpoint::client()?;
        let peer = client.connect(&Address::local(&name)?)?;
        client.send_unexpected(peer, 0, b"")?;
        transfers(&mut client, peer)
    });
    let peer = server.recv_unexpected(&mut [])?.peer;
    transfers(&mut server, peer)?;
    client.join().ok().context("no panic")??;
    Ok(())
}
