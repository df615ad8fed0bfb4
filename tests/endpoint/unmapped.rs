//! Case 62: memory of a transfer that is not mapped any more. The owner of a mapped file cannot keep others from truncating it.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Write};
use std::os::fd::AsRawFd;

use anyhow::{Result, ensure};
use intranode::{Access, Address, Endpoint, EndpointError, Handle};
use libtest_mimic::Completion;
use nix::libc;

use super::child::{self, Child};
use super::messages::pattern;
use super::{Role, Test, unique};

pub(super) const TESTS: &[Test] = &[
    ("case_62_a_get_from_a_truncated_file", get_truncated),
    ("case_62_a_put_from_a_truncated_file", put_truncated),
];

pub(super) const ROLES: &[Role] = &[("shares a file", shares_a_file), ("puts a file", puts_a_file)];

/// What lies before the file in memory, the file's length, and what is left of it, which are pages.
const BEFORE: usize = 100_000;
const FILE: usize = 3 << 20;
const LEFT: usize = FILE / 4;

/// A file, mapped for as long as the process lives.
fn mapped() -> Result<(File, &'static [u8])> {
    let mut file = tempfile::tempfile()?;
    file.write_all(&pattern(9, FILE))?;
    let (kind, protection) = (libc::MAP_SHARED, libc::PROT_READ);
    // SAFETY: a new mapping, anywhere.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), FILE, protection, kind, file.as_raw_fd(), 0) };
    ensure!(start != libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    // SAFETY: never unmapped. It is truncated, and then this program does not touch what is gone.
    Ok((file, unsafe { std::slice::from_raw_parts(start.cast(), FILE) }))
}

/// Shares memory and a file behind it, which it truncates when asked to.
fn shares_a_file(args: &[String]) -> Result<()> {
    let mut own = Endpoint::builder().timeout(None).listen(&args[0])?;
    let (file, mapped) = mapped()?;
    let before = pattern(7, BEFORE);
    child::say("listens")?;
    own.with_shared(&[IoSlice::new(&before), IoSlice::new(mapped)], |own, handle| -> Result<()> {
        loop {
            let call = own.recv_unexpected(&mut [])?;
            if call.tag == 1 {
                file.set_len(LEFT as u64)?;
            }
            own.send_expected(call.peer, call.tag, &handle.to_bytes())?;
        }
    })
}

fn get_truncated() -> Result<Completion> {
    let name = unique();
    let mut owner = Child::start("shares a file", &[&name])?;
    owner.says("listens")?;
    let mut client = Endpoint::client()?;
    let peer = client.connect(&Address::local(&name)?)?;
    let mut bytes = [0; Handle::BYTES];
    let mut call = |client: &mut Endpoint, tag| {
        client.send_unexpected(peer, tag, b"")?;
        client.recv_expected(peer, tag, &mut bytes)?;
        Handle::from_bytes(&bytes)
    };
    let handle = call(&mut client, 0)?;
    let all = [pattern(7, BEFORE), pattern(9, FILE)].concat();
    let mut target = vec![0; all.len()];
    client.get(peer, &handle, 0, &mut [IoSliceMut::new(&mut target)])?;
    ensure!(target == all);
    call(&mut client, 1)?;
    for offset in [0, 5, BEFORE - 1, BEFORE + 1, BEFORE + LEFT - 1, BEFORE + LEFT] {
        let there = BEFORE + LEFT - offset;
        let len = all.len() - offset;
        target.fill(0);
        let (first, rest) = target[..len].split_at_mut(len / 3);
        let targets = &mut [IoSliceMut::new(first), IoSliceMut::new(rest)];
        let error = client.get(peer, &handle, offset as u64, targets);
        match error {
            Err(EndpointError::Fault { peer: of, bytes }) => {
                ensure!(of == peer && bytes == there as u64, "{bytes}")
            }
            other => anyhow::bail!("from {offset} on: {other:?}"),
        }
        ensure!(target[..there] == all[offset..][..there], "what came before, from {offset} on");
    }
    // The connection, the rest of the memory, and the owner are as they were.
    client.get(peer, &handle, 0, &mut [IoSliceMut::new(&mut target[..BEFORE + LEFT])])?;
    ensure!(target[..BEFORE + LEFT] == all[..BEFORE + LEFT]);
    call(&mut client, 0)?;
    Ok(Completion::Completed)
}

/// Puts memory and a truncated file behind it.
fn puts_a_file(args: &[String]) -> Result<()> {
    let mut own = Endpoint::client()?;
    let peer = own.connect(&Address::local(&args[0])?)?;
    let (file, mapped) = mapped()?;
    own.send_unexpected(peer, 0, b"")?;
    let mut bytes = [0; Handle::BYTES];
    own.recv_expected(peer, 0, &mut bytes)?;
    let handle = Handle::from_bytes(&bytes)?;
    let before = pattern(7, BEFORE);
    let data = [IoSlice::new(&before), IoSlice::new(mapped)];
    own.put(peer, &handle, 0, &data)?;
    file.set_len(LEFT as u64)?;
    match own.put(peer, &handle, 0, &data) {
        Err(EndpointError::Fault { bytes, .. }) => ensure!(bytes == (BEFORE + LEFT) as u64, "{bytes}"),
        other => anyhow::bail!("{other:?}"),
    }
    own.put(peer, &handle, 0, &data[..1])?;
    own.send_unexpected(peer, 1, b"")?;
    Ok(())
}

fn put_truncated() -> Result<Completion> {
    let name = unique();
    // The owner is the parent, which may read its child's memory.
    let mut owner = Endpoint::listen(&name)?;
    let memory = owner.share(vec![vec![0; BEFORE + FILE].into()], Access::ReadWrite);
    let client = Child::start("puts a file", &[&name])?;
    let call = owner.recv_unexpected(&mut [])?;
    owner.send_expected(call.peer, 0, &memory.handle().to_bytes())?;
    ensure!(owner.recv_unexpected(&mut [])?.tag == 1);
    client.ends()?;
    ensure!(owner.shared(&memory)?[0][..] == [pattern(7, BEFORE), pattern(9, FILE)].concat());
    Ok(Completion::Completed)
}
