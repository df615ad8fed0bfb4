//! An owner of memory, which is a process of its own, and its clients.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use intranode::{Access, Address, Endpoint, Handle, Peer};
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use super::child::{self, Child};
use super::messages::pattern;
use super::{Role, namespaces, unique};

pub(super) const ROLES: &[Role] = &[("owner", owner)];

/// What a client asks of an owner, by the tag of its message.
pub(super) const SHARE: u64 = 1;
pub(super) const REVOKE: u64 = 2;
const CONTENTS: u64 = 3;
pub(super) const FILL: u64 = 4;

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
                // A peer that reads it now reads something else.
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
pub(super) struct Digest(pub(super) u64);

impl Digest {
    pub(super) fn new() -> Self {
        Digest(0xCBF2_9CE4_8422_2325)
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
        }
    }
}

/// A client of an owner, which is a process of its own, and ends with this value if that has started it.
pub(super) struct Client {
    pub(super) name: String,
    pub(super) process: Option<Child>,
    pub(super) own: Endpoint,
    pub(super) owner: Peer,
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

    pub(super) fn call(&mut self, tag: u64, data: &[u8]) -> Result<Vec<u8>> {
        self.own.send_unexpected(self.owner, tag, data)?;
        let mut answer = vec![0; 4096];
        let len = self.own.recv_expected(self.owner, tag, &mut answer)?;
        answer.truncate(len);
        Ok(answer)
    }

    pub(super) fn share(&mut self, len: usize, count: usize, write: bool) -> Result<Handle> {
        let numbers = [len as u64, count as u64, u64::from(write)].map(u64::to_ne_bytes);
        let handle = Handle::from_bytes(&self.call(SHARE, numbers.as_flattened())?)?;
        ensure!(handle.len() == (len * count) as u64);
        Ok(handle)
    }

    pub(super) fn contents(&mut self, handle: &Handle) -> Result<u64> {
        Ok(number(&self.call(CONTENTS, &handle.to_bytes())?, 0)? as u64)
    }

    /// Gets a range into segments of these lengths, and compares.
    pub(super) fn gets(&mut self, handle: &Handle, offset: usize, lengths: &[usize]) -> Result<()> {
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
