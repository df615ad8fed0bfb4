//! Memory that is shared for the time of a call, and what ends that it is shared.

use std::io::{IoSlice, IoSliceMut};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use intranode::{Access, Endpoint, EndpointError, Handle, Peer};
use libtest_mimic::Completion;
use nix::sys::signal::Signal;

use super::messages::pattern;
use super::{Role, Test, child, pair, repeats};

pub(super) const TESTS: &[Test] = &[
    ("borrowed_slices_are_read_as_one", as_one),
    ("borrowed_slices_are_read_only", read_only),
    ("case_56_more_than_3_gib", more_than_3_gib),
    ("case_60_borrowed_slices_end_with_the_call", end_with_the_call),
    ("case_60_borrowed_slices_end_with_a_panic", end_with_a_panic),
    ("case_60_borrowed_slices_change_after_the_call", change_after_the_call),
    ("case_60_disconnected_meanwhile", disconnected_meanwhile),
    ("borrowed_slices_of_an_endpoint_that_is_replaced", replaced),
    ("borrowed_slices_of_an_endpoint_that_is_exchanged", exchanged),
];

pub(super) const ROLES: &[Role] = &[("exchanges an endpoint", exchanges)];

/// A client that does this with its peer, while the server answers.
fn beside<R: Send + 'static>(
    server: &mut Endpoint,
    (mut client, peer): (Endpoint, Peer),
    run: impl FnOnce(&mut Endpoint, Peer) -> Result<R> + Send + 'static,
) -> Result<(Endpoint, R)> {
    let running = thread::spawn(move || run(&mut client, peer).map(|result| (client, result)));
    while !running.is_finished() {
        server.poll()?;
    }
    running.join().ok().context("no panic")?
}

fn get(
    own: &mut Endpoint,
    peer: Peer,
    handle: &Handle,
    offset: usize,
    len: usize,
) -> Result<Vec<u8>, EndpointError> {
    let mut target = vec![0xAB; len];
    let (first, rest) = target.split_at_mut(len / 3);
    own.get(peer, handle, offset as u64, &mut [IoSliceMut::new(first), IoSliceMut::new(rest)])?;
    Ok(target)
}

fn as_one() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    for (len, count) in [(0, 0), (0, 3), (1, 1), (100, 1), (7, 100), (100, 1025), (5000, 50), (3_000_000, 2)] {
        let all = pattern(7, len * count);
        let slices: Vec<_> = all.chunks(len.max(1)).map(IoSlice::new).collect();
        client = server.with_shared(&slices, |server, handle| -> Result<Endpoint> {
            ensure!(handle.len() == all.len() as u64 && handle.access() == Access::Read);
            let total = all.len();
            let run = move |own: &mut Endpoint, peer| {
                let whole = get(own, peer, &handle, 0, total)?;
                Ok((whole, get(own, peer, &handle, total / 3, total / 2)?))
            };
            let (client, (whole, part)) = beside(server, (client, to_server), run)?;
            ensure!(whole == all && part == all[total / 3..][..total / 2], "{len} × {count}");
            Ok(client)
        })?;
    }
    Ok(Completion::Completed)
}

/// More than 32 bits of bytes have room for, and than the system copies in one call.
fn more_than_3_gib() -> Result<Completion> {
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")).context("a line")?;
    if available.trim().trim_end_matches(" kB").parse::<u64>()? < 8 << 20 {
        return Ok(Completion::ignored_with("it takes 3 GiB, and 8 GiB of memory are not available"));
    }
    let len = (3 << 30) + 12_345;
    // What is not written takes no memory.
    let mut own = vec![0; len];
    let marks = [0, 1 << 30, (1 << 31) - 2, 1 << 31, len / 2, len - 1];
    marks.iter().for_each(|mark| own[*mark] = 7);
    let (client, to_server, mut server, _) = pair()?;
    let (first, rest) = own.split_at(len / 2);
    server.with_shared(&[IoSlice::new(first), IoSlice::new(rest)], |server, handle| {
        beside(server, (client, to_server), move |own, peer| {
            let mut got = vec![0; len];
            own.get(peer, &handle, 0, &mut [IoSliceMut::new(&mut got)])?;
            ensure!(marks.iter().all(|mark| got[*mark] == 7), "a mark is missing");
            let beside = marks.iter().flat_map(|mark| [mark.wrapping_sub(1), mark + 1]);
            ensure!(
                beside.filter_map(|place| got.get(place)).all(|byte| *byte == 0),
                "a mark is at another place"
            );
            Ok(())
        })
    })?;
    Ok(Completion::Completed)
}

fn read_only() -> Result<Completion> {
    let (client, to_server, mut server, _) = pair()?;
    let own = pattern(7, 100_000);
    server.with_shared(&[IoSlice::new(&own)], |server, handle| -> Result<()> {
        let mut bytes = handle.to_bytes();
        bytes[16] = 2;
        let forged = Handle::from_bytes(&bytes)?;
        beside(server, (client, to_server), move |own, peer| {
            for handle in [handle, forged] {
                for len in [1, 50_000] {
                    let error = own.put(peer, &handle, 0, &[IoSlice::new(&vec![1; len])]);
                    ensure!(matches!(error, Err(EndpointError::NotWritable { .. })), "{error:?}");
                }
            }
            Ok(())
        })?;
        Ok(())
    })?;
    ensure!(own == pattern(7, 100_000));
    Ok(Completion::Completed)
}

/// What is got of a handle whose memory is not shared any more.
fn is_not_shared(server: &mut Endpoint, client: (Endpoint, Peer), handle: Handle) -> Result<()> {
    beside(server, client, move |own, peer| {
        for len in [10, 100_000] {
            let error = get(own, peer, &handle, 0, len);
            ensure!(matches!(error, Err(EndpointError::NotShared { .. })), "{len}: {error:?}");
        }
        Ok(())
    })?;
    Ok(())
}

fn end_with_the_call() -> Result<Completion> {
    let (client, to_server, mut server, _) = pair()?;
    let own = pattern(7, 100_000);
    let handle = server.with_shared(&[IoSlice::new(&own)], |_, handle| handle);
    drop(own);
    is_not_shared(&mut server, (client, to_server), handle)?;
    Ok(Completion::Completed)
}

fn end_with_a_panic() -> Result<Completion> {
    let (client, to_server, mut server, _) = pair()?;
    let (own, mut kept) = (pattern(7, 100_000), None);
    let run = AssertUnwindSafe(|| {
        server.with_shared(&[IoSlice::new(&own)], |_, handle| {
            kept = Some(handle);
            std::panic::resume_unwind(Box::new("on purpose"));
        })
    });
    ensure!(catch_unwind(run).is_err());
    drop(own);
    is_not_shared(&mut server, (client, to_server), kept.context("it ran")?)?;
    Ok(Completion::Completed)
}

/// Gets until there is an error. Everything that is got has to be what was shared.
fn gets_until_an_error(own: &mut Endpoint, peer: Peer, handle: Handle, all: &[u8]) -> Result<EndpointError> {
    let mut target = vec![0; all.len()];
    loop {
        match own.get(peer, &handle, 0, &mut [IoSliceMut::new(&mut target)]) {
            Ok(()) => ensure!(target == all, "data that was not shared any more"),
            Err(error) => return Ok(error),
        }
    }
}

/// Answers for up to 20 ms.
fn answers_for_a_moment(server: &mut Endpoint) -> Result<()> {
    let end = Instant::now() + Duration::from_micros(fastrand::u64(0..20_000));
    while Instant::now() < end {
        server.poll()?;
    }
    Ok(())
}

const LARGE: usize = 8 << 20;

fn change_after_the_call() -> Result<Completion> {
    for _ in 0..repeats(20) {
        let (mut client, to_server, mut server, _) = pair()?;
        let mut own = pattern(7, LARGE);
        let getter = server.with_shared(&[IoSlice::new(&own)], |server, handle| -> Result<_> {
            let getter = thread::spawn(move || -> Result<_> {
                let error = gets_until_an_error(&mut client, to_server, handle, &pattern(7, LARGE))?;
                Ok((client, error))
            });
            answers_for_a_moment(server)?;
            Ok(getter)
        })?;
        own.fill(0xEE);
        while !getter.is_finished() {
            server.poll()?;
        }
        let (_client, error) = getter.join().ok().context("no panic")??;
        ensure!(matches!(error, EndpointError::NotShared { .. }), "{error:?}");
    }
    Ok(Completion::Completed)
}

/// The owner ends the connection in the middle of a get, and changes its memory.
fn disconnected_meanwhile() -> Result<Completion> {
    for _ in 0..repeats(40) {
        let (mut client, to_server, mut server, to_client) = pair()?;
        let own = server.share(vec![pattern(7, LARGE).into()], Access::Read);
        let handle = own.handle();
        let getter = thread::spawn(move || -> Result<_> {
            gets_until_an_error(&mut client, to_server, handle, &pattern(7, LARGE))
        });
        answers_for_a_moment(&mut server)?;
        server.disconnect(to_client);
        server.shared(&own)?[0].fill(0xEE);
        let error = getter.join().ok().context("no panic")??;
        let ended = matches!(error, EndpointError::NotShared { .. } | EndpointError::PeerGone { .. });
        ensure!(ended, "{error:?}");
    }
    Ok(Completion::Completed)
}

/// It is dropped, which revokes what it shares.
fn replaced() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    let own = pattern(7, 100_000);
    let mut kept = None;
    let run = AssertUnwindSafe(|| {
        server.with_shared(&[IoSlice::new(&own)], |server, handle| {
            kept = Some(handle);
            *server = Endpoint::client().expect("an endpoint");
        });
    });
    let panic = catch_unwind(run).err().context("it has to panic")?;
    let text = panic.downcast_ref::<String>().context("a text")?;
    ensure!(text.contains("the endpoint was exchanged"), "{text}");
    drop(own);
    let gone = get(&mut client, to_server, &kept.context("it ran")?, 0, 100_000);
    ensure!(matches!(gone, Err(EndpointError::PeerGone { .. })), "{gone:?}");
    Ok(Completion::Completed)
}

/// In a process of its own, which ends: an endpoint that cannot be found has given leases of borrowed memory.
fn exchanged() -> Result<Completion> {
    for way in ["swaps", "swaps and panics", "forgets"] {
        let mut command = Command::new(std::env::current_exe()?);
        let output = command.args([child::FLAG, "exchanges an endpoint", way]).output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.signal() == Some(Signal::SIGABRT as i32), "{way}: {}, {text}", output.status);
        ensure!(text.contains("the endpoint was exchanged"), "{way}: {text}");
    }
    // One that comes back in time is asked.
    let output = Command::new(std::env::current_exe()?)
        .args([child::FLAG, "exchanges an endpoint", "swaps twice"])
        .output()?;
    ensure!(output.status.success(), "{}", output.status);
    Ok(Completion::Completed)
}

fn exchanges(args: &[String]) -> Result<()> {
    // No file is to be left of it.
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0)?;
    let (client, to_server, mut server, _) = pair()?;
    let (mut other, own) = (Endpoint::client()?, pattern(7, 100_000));
    server.with_shared(&[IoSlice::new(&own)], |server, handle| -> Result<()> {
        beside(server, (client, to_server), move |own, peer| Ok(get(own, peer, &handle, 0, 100_000)?))?;
        match args[0].as_str() {
            "forgets" => std::mem::forget(std::mem::replace(server, Endpoint::client()?)),
            _ => std::mem::swap(server, &mut other),
        }
        assert!(args[0] != "swaps and panics", "it panics");
        if args[0] == "swaps twice" {
            std::mem::swap(server, &mut other);
        }
        Ok(())
    })
}
