//! Gets and puts that are started, and completed by later calls.

use std::io::IoSliceMut;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use intranode::{Access, Ended, Endpoint, EndpointError, Event, Handle};
use libtest_mimic::Completion;

use super::messages::pattern;
use super::owner::{Client, Digest};
use super::{Test, pair, repeats, unique};

pub(super) const TESTS: &[Test] = &[
    ("started_transfers_end_in_any_order", any_order),
    ("both_sides_start_more_gets_than_a_channel_holds", both_get),
    ("a_get_waits_for_a_place_behind_messages_that_nobody_receives", behind_unreceived),
    ("started_transfers_where_memory_cannot_be_read", refused),
    ("a_started_get_that_is_dropped_or_forgotten_is_in_nobodys_way", dropped_gets),
    ("a_put_that_is_dropped_keeps_its_data_until_it_is_answered", dropped_puts),
    ("data_of_a_put_that_panics_when_it_is_dropped_spoils_nothing", panicking_data),
    ("errors_end_a_started_transfer_and_stay", errors),
    ("a_get_whose_owner_leaves_says_so", owner_leaves),
    ("a_started_transfer_of_another_endpoint_is_refused", foreign),
    ("offsets_that_no_memory_has_are_refused", offsets_beyond_all_memory),
];

const LEN: usize = 3_000_000;

/// Requests fill both channels, while each side takes some in: both have room for their answers at last.
fn both_get() -> Result<Completion> {
    const CELLS: usize = 64;
    let (mut one, to_other, mut other, to_one) = pair()?;
    let share = |endpoint: &mut Endpoint| endpoint.share(vec![vec![7; 8].into()], Access::Read).handle();
    let (of_one, of_other) = (share(&mut one), share(&mut other));
    let (mut gets, mut others) = (Vec::new(), Vec::new());
    for _ in 0..CELLS {
        gets.push(one.start_get(to_other, &of_other, 0, vec![[0; 8]])?);
        others.push(other.start_get(to_one, &of_one, 0, vec![[0; 8]])?);
    }
    // What is taken in makes room for requests of the other side.
    for _ in 0..4 {
        one.poll()?;
        for _ in 0..CELLS / 4 {
            others.push(other.start_get(to_one, &of_one, 0, vec![[0; 8]])?);
        }
    }
    for _ in 0..4 {
        other.poll()?;
        for _ in 0..CELLS / 4 {
            gets.push(one.start_get(to_other, &of_other, 0, vec![[0; 8]])?);
        }
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut open = gets.len() + others.len();
    while open > 0 {
        ensure!(Instant::now() < deadline, "{open} gets do not end");
        for (endpoint, gets) in [(&mut one, &mut gets), (&mut other, &mut others)] {
            // Also when its own are done.
            endpoint.poll()?;
            let before = gets.len();
            let mut goes_on = Vec::new();
            for mut get in gets.drain(..) {
                if endpoint.test(&mut get)?.is_none() {
                    goes_on.push(get);
                }
            }
            open -= before - goes_on.len();
            *gets = goes_on;
        }
    }
    Ok(Completion::Completed)
}

/// As many requests as may be under way are not answered, since messages that nobody receives hold all buffers of the owner's. One more
/// makes room, although no request of its own is under way.
fn behind_unreceived() -> Result<Completion> {
    const PLACES: usize = 64;
    let (mut client, to_server, mut server, to_client) = pair()?;
    let handle = server.share(vec![vec![7; 8].into()], Access::Read).handle();
    while server.try_send_expected(to_client, 5, &[0; 100])? {}
    (0..100).try_for_each(|_| client.poll().map(drop))?;
    let start = |_| client.start_get(to_server, &handle, 0, vec![[0; 8]]);
    let mut gets = (0..=PLACES).map(start).collect::<Result<Vec<_>, _>>()?;
    (0..100).try_for_each(|_| server.poll().map(drop))?;
    let mut last = gets.pop().context("the last one")?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while client.test(&mut last)?.is_none() {
        ensure!(Instant::now() < deadline, "it does not end");
        server.poll()?;
    }
    Ok(Completion::Completed)
}

/// At any moment, also between the answer and the reading.
fn owner_leaves() -> Result<Completion> {
    for polls in 0..8 {
        for drops in [false, true] {
            let (mut client, to_server, mut server, to_client) = pair()?;
            let handle = server.share(vec![pattern(7, 100_000).into()], Access::Read).handle();
            let mut get = client.start_get(to_server, &handle, 0, vec![vec![0; 100_000]])?;
            for _ in 0..polls {
                server.poll()?;
            }
            let _server = if drops {
                drop(server);
                None
            } else {
                server.disconnect(to_client);
                Some(server)
            };
            let error = client.wait_for(&mut get);
            ensure!(
                matches!(error, Err(EndpointError::PeerGone { ended: Ended::Left, .. })),
                "{polls} polls, drops: {drops}: {error:?}"
            );
        }
    }
    Ok(Completion::Completed)
}

/// Many gets and puts at once, of an owner in a process of its own.
fn many(client: &mut Client) -> Result<()> {
    let handle = client.share(LEN / 30, 30, true)?;
    let all = pattern(7, LEN);
    let ranges: Vec<_> = (0..20)
        .map(|_| fastrand::usize(0..LEN))
        .map(|start| (start, fastrand::usize(0..=LEN - start)))
        .collect();
    let mut gets = Vec::new();
    for (start, len) in &ranges {
        let buffers = vec![vec![0; len / 3], vec![0; len - len / 3]];
        gets.push(client.own.start_get(client.owner, &handle, *start as u64, buffers)?);
    }
    let mut ended = 0;
    while let Some(place) = client.own.wait_any(&mut gets)? {
        let bytes = client.own.test(&mut gets[place])?;
        ensure!(bytes == Some(ranges[place].1), "{bytes:?} of {:?}", ranges[place]);
        ended += 1;
    }
    ensure!(ended == ranges.len(), "{ended} were named");
    for (get, (start, len)) in gets.into_iter().zip(&ranges) {
        ensure!(get.into_buffers().concat() == all[*start..start + len], "{len} bytes from {start} on");
    }
    // Each writes its own part.
    let mut puts = Vec::new();
    let data = pattern(9, LEN);
    for (index, part) in data.chunks(LEN / 10).enumerate() {
        let offset = (index * (LEN / 10)) as u64;
        puts.push(client.own.start_put(
            client.owner,
            &handle,
            offset,
            vec![part[..7].to_vec(), part[7..].to_vec()],
        )?);
    }
    for put in puts.iter_mut().rev() {
        ensure!(client.own.wait_for(put)? == LEN / 10);
    }
    let mut digest = Digest::new();
    digest.add(&data);
    ensure!(client.contents(&handle)? == digest.0, "what was put is not there");
    ensure!(puts.into_iter().all(|put| put.into_data().is_some_and(|data| data.len() == 2)));
    Ok(())
}

fn any_order() -> Result<Completion> {
    let mut client = Client::start(&[])?;
    for _ in 0..repeats(3) {
        many(&mut client)?;
    }
    Ok(Completion::Completed)
}

fn refused() -> Result<Completion> {
    many(&mut Client::start(&["refuses"])?)?;
    Ok(Completion::Completed)
}

/// Lets both go on, until something holds.
fn until(
    both: [&mut Endpoint; 2],
    mut holds: impl FnMut(&mut [&mut Endpoint; 2]) -> Result<bool>,
) -> Result<()> {
    let (start, mut both) = (Instant::now(), both);
    while !holds(&mut both)? {
        for own in &mut both {
            while own.poll()?.is_some() {}
        }
        ensure!(start.elapsed() < Duration::from_secs(20), "it does not come");
    }
    Ok(())
}

/// More than there are leases, and places for requests.
fn dropped_gets() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    let memory = server.share(vec![pattern(1, 100_000).into()], Access::Read);
    for round in 0..repeats(300) {
        let mut get = client.start_get(to_server, &memory.handle(), 0, vec![vec![0; 100_000]])?;
        for _ in 0..round % 4 {
            while server.poll()?.is_some() {}
            let _ = client.test(&mut get)?;
        }
        if round % 10 == 9 {
            std::mem::forget(get);
        } else if round % 3 == 0 {
            ensure!(get.into_buffers()[0].len() == 100_000);
        }
        while server.poll()?.is_some() || client.poll()?.is_some() {}
    }
    let mut get = client.start_get(to_server, &memory.handle(), 0, vec![vec![0; 100_000]])?;
    until([&mut client, &mut server], |[client, _]| Ok(client.test(&mut get)?.is_some()))?;
    ensure!(get.into_buffers()[0] == pattern(1, 100_000));
    Ok(Completion::Completed)
}

/// Data whose end can be seen.
struct Data {
    _seen: Arc<()>,
    bytes: Vec<u8>,
}

impl Data {
    fn new(seen: &Arc<()>, bytes: Vec<u8>) -> Self {
        Data { _seen: Arc::clone(seen), bytes }
    }
}

impl AsRef<[u8]> for Data {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn dropped_puts() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    let memory = server.share(vec![vec![0; 100_000].into()], Access::ReadWrite);
    let kept = Arc::new(());
    let put = client.start_put(to_server, &memory.handle(), 0, vec![Data::new(&kept, pattern(2, 100_000))])?;
    ensure!(put.into_data().is_none(), "data that the peer may still read");
    while client.poll()?.is_some() {}
    ensure!(Arc::strong_count(&kept) == 2, "the data is gone before the peer has read it");
    until([&mut client, &mut server], |_| Ok(Arc::strong_count(&kept) == 1))?;
    ensure!(server.shared(&memory)?[0][..] == pattern(2, 100_000));
    // What is forgotten stays, and others go on.
    let forgotten = vec![Data::new(&kept, pattern(3, 100_000))];
    std::mem::forget(client.start_put(to_server, &memory.handle(), 0, forgotten)?);
    let mut put = client.start_put(to_server, &memory.handle(), 0, vec![pattern(4, 100_000)])?;
    until([&mut client, &mut server], |[client, _]| Ok(client.test(&mut put)?.is_some()))?;
    ensure!(server.shared(&memory)?[0][..] == pattern(4, 100_000) && Arc::strong_count(&kept) == 2);
    // The end of a connection ends what is kept for it.
    let put = client.start_put(to_server, &memory.handle(), 0, vec![Data::new(&kept, vec![1; 100_000])])?;
    drop(put);
    while client.poll()?.is_some() {}
    client.disconnect(to_server);
    until([&mut client, &mut server], |_| Ok(Arc::strong_count(&kept) == 2))?;
    Ok(Completion::Completed)
}

fn errors() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    let memory = server.share(vec![vec![1; 100_000].into()], Access::Read);
    let handle = memory.handle();
    let error = client.start_get(to_server, &handle, 1, vec![vec![0; 100_000]]);
    ensure!(matches!(error, Err(EndpointError::OutOfBounds { .. })), "{error:?}");
    let error = client.start_put(to_server, &handle, 0, vec!["x"]);
    ensure!(matches!(error, Err(EndpointError::NotWritable { .. })), "{error:?}");
    // Of no bytes, which nobody is asked for.
    let mut empty = client.start_get(to_server, &handle, 100_000, Vec::<Vec<u8>>::new())?;
    ensure!(client.test(&mut empty)? == Some(0));
    server.revoke(memory)?;
    let mut get = client.start_get(to_server, &handle, 0, vec![vec![0; 100_000]])?;
    let mut outcome = Ok(None);
    until([&mut client, &mut server], |[client, _]| {
        outcome = client.test(&mut get);
        Ok(!matches!(outcome, Ok(None)))
    })?;
    for _ in 0..2 {
        ensure!(matches!(outcome, Err(EndpointError::NotShared { .. })), "{outcome:?}");
        outcome = client.test(&mut get);
    }
    ensure!(matches!(client.wait_for(&mut get), Err(EndpointError::NotShared { .. })));
    let mut late = client.start_get(to_server, &handle, 0, vec![vec![0; 100_000]])?;
    drop(server);
    let gone = client.wait_for(&mut late);
    let is_gone = |error: &EndpointError| matches!(error, EndpointError::PeerGone { ended: Ended::Left, .. });
    ensure!(gone.as_ref().is_err_and(is_gone), "{gone:?}");
    ensure!(client.test(&mut late).is_err_and(|error| is_gone(&error)));
    Ok(Completion::Completed)
}

fn foreign() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    let memory = server.share(vec![vec![1; 100_000].into()], Access::Read);
    let mut get = client.start_get(to_server, &memory.handle(), 0, vec![vec![0; 100_000]])?;
    let error = server.test(&mut get);
    ensure!(matches!(error, Err(EndpointError::ForeignRequest)), "{error:?}");
    until([&mut client, &mut server], |[client, _]| Ok(client.test(&mut get)?.is_some()))?;
    // A call that waits goes on with no other, and is not disturbed by it.
    let mut target = [0; 10];
    let mut other = client.start_get(to_server, &memory.handle(), 0, vec![vec![0; 10]])?;
    until([&mut client, &mut server], |[client, _]| Ok(client.test(&mut other)?.is_some()))?;
    drop(server);
    let error = client.get(to_server, &memory.handle(), 0, &mut [IoSliceMut::new(&mut target)]);
    ensure!(matches!(error, Err(EndpointError::PeerGone { .. })), "{error:?}");
    Ok(Completion::Completed)
}

/// Also where the handle says that the memory is as large as can be said.
fn offsets_beyond_all_memory() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    let memory = server.share(vec![vec![1; 100].into()], Access::ReadWrite);
    let mut bytes = memory.handle().to_bytes();
    bytes[8..16].copy_from_slice(&u64::MAX.to_ne_bytes());
    let forged = Handle::from_bytes(&bytes)?;
    for offset in [1 << 62, (1 << 63) - 4, (1 << 63) - 3, (1 << 63) + 5, u64::MAX - 4, u64::MAX] {
        let started = client.start_put(to_server, &forged, offset, vec![vec![9; 4]]);
        let result = started.and_then(|mut put| {
            loop {
                server.poll()?;
                if let Some(bytes) = client.test(&mut put)? {
                    return Ok(bytes);
                }
            }
        });
        ensure!(matches!(result, Err(EndpointError::OutOfBounds { .. })), "a put at {offset:#x}: {result:?}");
    }
    ensure!(server.shared(&memory)? == [[1; 100]], "something was written");
    Ok(Completion::Completed)
}

struct Panics([u8; 4]);

impl AsRef<[u8]> for Panics {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("it is dropped");
    }
}

/// Gives up a put whose data panics when it is dropped, which happens while this runs, and uses the endpoint then.
fn panics_while(run: impl FnOnce(&mut Endpoint, &mut Option<Endpoint>) -> Result<()>) -> Result<()> {
    let mut server = Endpoint::listen(&unique())?;
    let handle = server.share(vec![vec![1; 8].into()], Access::ReadWrite).handle();
    let mut client = Endpoint::builder().max_peers(1).client()?;
    let peer = client.connect(server.address().context("it listens")?)?;
    drop(client.start_put(peer, &handle, 0, vec![Panics([9; 4])])?);
    client.arm()?;
    let mut server = Some(server);
    let panic = catch_unwind(AssertUnwindSafe(|| run(&mut client, &mut server)));
    let panic = panic.err().context("the data is dropped")?;
    ensure!(panic.downcast_ref::<&str>() == Some(&"it is dropped"));
    // What the endpoint was about is complete: there is room for another peer.
    if server.is_some() {
        client.disconnect(peer);
    }
    let mut other = Endpoint::listen(&unique())?;
    let handle = other.share(vec![vec![2; 8].into()], Access::Read).handle();
    let peer = client.connect(other.address().context("it listens")?)?;
    let mut get = client.start_get(peer, &handle, 0, vec![[0; 8]])?;
    let begin = Instant::now();
    while client.test(&mut get)?.is_none() {
        other.poll()?;
        ensure!(begin.elapsed() < Duration::from_secs(30), "it does not end");
    }
    ensure!(get.into_buffers() == [[2; 8]]);
    Ok(())
}

fn panicking_data() -> Result<Completion> {
    panics_while(|client, server| {
        let server = server.as_mut().context("it is there")?;
        for _ in 0..10_000 {
            server.poll()?;
            client.poll()?;
        }
        Ok(())
    })?;
    panics_while(|client, server| {
        drop(server.take());
        while !matches!(client.wait(Some(Duration::from_secs(10)))?, None | Some(Event::Closed { .. })) {}
        Ok(())
    })?;
    Ok(Completion::Completed)
}
