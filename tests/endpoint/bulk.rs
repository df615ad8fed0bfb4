//! Cases 55 to 63: memory that a process shares, read and written by another.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use intranode::{Access, Address, Endpoint, EndpointError, Handle, Peer};
use libtest_mimic::Completion;
use nix::libc;
use nix::sys::signal::Signal;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use super::child::{self, Child};
use super::messages::pattern;
use super::{Role, Test, namespaces, repeats, unique};

pub(super) const TESTS: &[Test] = &[
    ("case_55_contiguous_segmented_offsets", segments),
    ("case_56_1025_segments_and_many_bytes", many_segments),
    ("case_57_zero_bytes", zero),
    ("case_58_beyond_the_end_nothing_is_moved", beyond),
    ("case_59_put_into_read_only", read_only),
    ("case_60_revoked_before_and_after", revoked),
    ("case_60_revoked_meanwhile", revoked_meanwhile),
    ("case_61_forged_and_foreign_handles", forged),
    ("case_63_where_memory_cannot_be_read", refused),
    ("messages_go_on_beside_transfers", beside_messages),
    ("an_owner_that_dies_or_stops", owner_dies),
    ("both_sides_get_from_each_other", both_sides),
];

pub(super) const ROLES: &[Role] = &[("owner", owner)];

/// What a client asks of an owner, by the tag of its message.
const SHARE: u64 = 1;
const REVOKE: u64 = 2;
const CONTENTS: u64 = 3;
const FILL: u64 = 4;

/// From now on this thread is not allowed to read another process's memory.
pub(super) fn refuse_reading() -> Result<()> {
    let rules: BTreeMap<i64, _> = [(libc::SYS_process_vm_readv, Vec::new())].into();
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, std::env::consts::ARCH.try_into()?)?;
    Ok(apply_filter(&BpfProgram::try_from(filter)?)?)
}

fn number(bytes: &[u8], index: usize) -> Result<usize> {
    Ok(u64::from_ne_bytes(bytes.get(8 * index..8 * index + 8).context("a number")?.try_into()?) as usize)
}

/// Shares memory when asked to: a pattern, in as many segments as asked for.
fn owner(args: &[String]) -> Result<()> {
    match args.get(1).map(String::as_str) {
        Some("refuses") => refuse_reading()?,
        Some("namespace") => namespaces::enter()?,
        _ => {}
    }
    let mut own = Endpoint::builder().timeout(None).listen(&args[0])?;
    child::say("listens")?;
    let mut registrations = BTreeMap::new();
    let mut buffer = [0; 4096];
    loop {
        let call = own.recv_unexpected(&mut buffer)?;
        let data = buffer[..call.bytes].to_vec();
        let answer = match call.tag {
            SHARE => {
                let (len, count) = (number(&data, 0)?, number(&data, 1)?);
                let access = if number(&data, 2)? == 1 { Access::ReadWrite } else { Access::Read };
                let all = pattern(7, len * count);
                let buffers = all.chunks(len.max(1)).map(Box::from).collect();
                let registration = own.share(buffers, access);
                let handle = registration.handle();
                registrations.insert(handle.to_bytes(), registration);
                handle.to_bytes().to_vec()
            }
            REVOKE => {
                let registration = registrations.remove(&data[..]).context("it is shared")?;
                let buffers = own.revoke(registration)?;
                // Whoever reads it now reads something else.
                drop(buffers.into_iter().map(|mut buffer| buffer.fill(0xEE)).collect::<Vec<_>>());
                Vec::new()
            }
            CONTENTS => {
                let registration = registrations.get(&data[..]).context("it is shared")?;
                let mut digest = Digest::new();
                own.shared(registration)?.iter().for_each(|buffer| digest.add(buffer));
                digest.0.to_ne_bytes().to_vec()
            }
            FILL => {
                for number in 0..500u64 {
                    own.send_unexpected(call.peer, number, &[5; 4096])?;
                }
                Vec::new()
            }
            tag => anyhow::bail!("{tag}"),
        };
        own.send_expected(call.peer, call.tag, &answer)?;
    }
}

/// A digest of bytes (FNV-1a).
struct Digest(u64);

impl Digest {
    fn new() -> Self {
        Digest(0xCBF2_9CE4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
        }
    }
}

/// A client of an owner, which is a process of its own, and ends with this value if that has started it.
pub(super) struct Client {
    name: String,
    process: Option<Child>,
    own: Endpoint,
    owner: Peer,
}

impl Client {
    pub(super) fn start(args: &[&str]) -> Result<Self> {
        let name = unique();
        let mut process = Child::start("owner", &[&[&name[..]], args].concat())?;
        process.says("listens")?;
        Ok(Client { process: Some(process), ..Client::of(&name)? })
    }

    /// Of an owner that somebody else has started.
    pub(super) fn of(name: &str) -> Result<Self> {
        let mut own = Endpoint::builder().timeout(Duration::from_secs(20)).client()?;
        let owner = own.connect(&Address::local(name)?)?;
        Ok(Client { name: name.to_owned(), process: None, own, owner })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn call(&mut self, tag: u64, data: &[u8]) -> Result<Vec<u8>> {
        self.own.send_unexpected(self.owner, tag, data)?;
        let mut answer = vec![0; 4096];
        let len = self.own.recv_expected(self.owner, tag, &mut answer)?;
        answer.truncate(len);
        Ok(answer)
    }

    fn share(&mut self, len: usize, count: usize, write: bool) -> Result<Handle> {
        let numbers = [len as u64, count as u64, u64::from(write)].map(u64::to_ne_bytes);
        let handle = Handle::from_bytes(&self.call(SHARE, numbers.as_flattened())?)?;
        ensure!(handle.len() == (len * count) as u64);
        Ok(handle)
    }

    fn contents(&mut self, handle: &Handle) -> Result<u64> {
        Ok(number(&self.call(CONTENTS, &handle.to_bytes())?, 0)? as u64)
    }

    /// Gets a range into segments of these lengths, and compares.
    fn gets(&mut self, handle: &Handle, offset: usize, lengths: &[usize]) -> Result<()> {
        let mut targets: Vec<Vec<u8>> = lengths.iter().map(|len| vec![0; *len]).collect();
        let mut slices: Vec<_> = targets.iter_mut().map(|target| IoSliceMut::new(target)).collect();
        self.own.get(self.owner, handle, offset as u64, &mut slices)?;
        let got = targets.concat();
        let all = pattern(7, offset + got.len());
        ensure!(got == all[offset..], "{} bytes from {offset} on", got.len());
        Ok(())
    }
}

/// Gets and puts of all shapes.
pub(super) fn shapes(client: &mut Client) -> Result<()> {
    for (len, count) in
        [(1, 1), (100, 1), (4096, 1), (10_000, 1), (3_000_000, 1), (7, 100), (5000, 50), (100_000, 30)]
    {
        let handle = client.share(len, count, true)?;
        let total = len * count;
        client.gets(&handle, 0, &[total])?;
        client.gets(&handle, total / 3, &[total - total / 3])?;
        let third = total / 3;
        client.gets(&handle, 0, &[third, 0, third / 2, total - third - third / 2])?;
        let mut lengths = vec![97; total / 97];
        lengths.push(total % 97);
        client.gets(&handle, 0, &lengths[lengths.len().saturating_sub(2000)..])?;
        // Two puts, of which the second overwrites a part of the first.
        let mut expected = pattern(7, total);
        for (seed, start) in [(1, 0), (2, total / 2)] {
            let data = pattern(seed, total - start);
            let cut = data.len() / 3;
            let slices = [IoSlice::new(&data[..cut]), IoSlice::new(&[]), IoSlice::new(&data[cut..])];
            client.own.put(client.owner, &handle, start as u64, &slices)?;
            expected[start..].copy_from_slice(&data);
        }
        let mut digest = Digest::new();
        digest.add(&expected);
        ensure!(client.contents(&handle)? == digest.0, "{len} × {count}");
        client.call(REVOKE, &handle.to_bytes())?;
    }
    Ok(())
}

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
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(fastrand::u64(0..5000)));
            nix::sys::signal::kill(pid, if round % 2 == 0 { Signal::SIGKILL } else { Signal::SIGSTOP })
        });
        let mut target = vec![0; 16 << 20];
        let mut own = std::mem::replace(&mut client.own, Endpoint::client()?);
        let error = loop {
            let slices = &mut [IoSliceMut::new(&mut target)];
            if round % 2 == 1 && killer.is_finished() {
                break None;
            }
            if let Err(error) = own.get(client.owner, &handle, 0, slices) {
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
    let name = unique();
    let mut server = Endpoint::listen(&name)?;
    let len = 300_000;
    let transfers = move |own: &mut Endpoint, peer: Peer| -> Result<()> {
        let registration = own.share(vec![pattern(1, len).into()], Access::Read);
        own.send_expected(peer, 1, &registration.handle().to_bytes())?;
        let mut bytes = [0; Handle::BYTES];
        own.recv_expected(peer, 1, &mut bytes)?;
        let handle = Handle::from_bytes(&bytes)?;
        let mut target = vec![0; len];
        for _ in 0..20 {
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
    Ok(Completion::Completed)
}
