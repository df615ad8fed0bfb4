use super::*;
use crate::endpoint::api::Endpoint;
use crate::endpoint::calls::Reply;
use crate::endpoint::error::EndpointError;
use crate::endpoint::peer::Armed;
use crate::endpoint::wire::{decode_reply, encode_place};

std::thread_local! {
    /// How often this thread has looked at memory for leases that have ended.
    pub(super) static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

const SEGMENT: usize = 1 << 10;
const COUNT: usize = 5 * PARTS;
const LEN: usize = 100_000;

/// An owner of [`COUNT`] segments, which are too many for one lease, and its client.
fn pair(name: &str, access: Access) -> Result<(Endpoint, Registration, Endpoint, Peer), EndpointError> {
    let mut owner = Endpoint::listen(&format!("shares-{name}-{}", std::process::id()))?;
    let memory = owner.share(vec![vec![1; SEGMENT].into(); COUNT], access);
    let mut client = Endpoint::client()?;
    let to_owner = client.connect(owner.address().expect("it listens"))?;
    Ok((owner, memory, client, to_owner))
}

fn get(
    (owner, client): (&mut Endpoint, &mut Endpoint),
    (from, handle): (Peer, &Handle),
    offset: usize,
) -> Result<(), EndpointError> {
    let mut get = client.start_get(from, handle, offset as u64, vec![vec![0; LEN]])?;
    while client.test(&mut get)?.is_none() {
        owner.poll()?;
    }
    Ok(())
}

/// How many leases an owner remembers.
fn leases(owner: &Endpoint) -> usize {
    owner.state.shares.shares.values().map(|share| share.leases.len()).sum()
}

#[test]
fn revoking_takes_back_all_leases_of_a_peer() -> Result<(), EndpointError> {
    let (mut owner, memory, mut client, to_owner) = pair("revoked", Access::Read)?;
    for offset in [0, COUNT / 2 * SEGMENT] {
        get((&mut owner, &mut client), (to_owner, &memory.handle()), offset)?;
    }
    let mut stand = || -> Result<Vec<bool>, EndpointError> {
        let link = client.state.links.find(to_owner)?;
        Ok(link.mapped.iter().map(|mapped| link.read_under(mapped.lease, || false)).collect())
    };
    assert_eq!(stand()?, [true; 2]);
    owner.revoke(memory)?;
    assert_eq!(stand()?, [false; 2]);
    Ok(())
}

/// Whatever a peer asks for.
#[test]
fn leases_are_remembered_no_longer_than_they_are_open() -> Result<(), EndpointError> {
    let (mut owner, memory, mut client, to_owner) = pair("remembered", Access::Read)?;
    for _ in 0..100 {
        get((&mut owner, &mut client), (to_owner, &memory.handle()), 0)?;
        client.state.links.find(to_owner)?.unmap_if(|_| true);
    }
    assert_eq!(leases(&owner), 1);
    drop(client);
    while leases(&owner) > 0 {
        assert!(owner.wait(Some(std::time::Duration::from_secs(10)))?.is_some(), "it is remembered");
    }
    Ok(())
}

#[test]
fn what_is_revoked_and_not_mapped_any_more_is_not_shared() -> Result<(), EndpointError> {
    let (mut owner, _, mut client, to_owner) = pair("unmapped", Access::Read)?;
    // More than allocators keep.
    let memory = owner.share(vec![vec![0; 64 << 20].into()], Access::Read);
    let handle = memory.handle();
    get((&mut owner, &mut client), (to_owner, &handle), 0)?;
    drop(owner.revoke(memory)?);
    let error = get((&mut owner, &mut client), (to_owner, &handle), 0);
    assert!(matches!(error, Err(EndpointError::NotShared { .. })), "{error:?}");
    Ok(())
}

#[test]
fn requests_that_wait_are_few_and_in_no_messages_way() -> Result<(), EndpointError> {
    let (mut owner, memory, mut client, to_owner) = pair("wait", Access::ReadWrite)?;
    client.send_unexpected(to_owner, 0, b"kept")?;
    let to_client = owner.wait(None)?.expect("a client connects").peer();
    // There is room for no answer.
    while owner.state.links.find(to_client)?.finds_room(0) {
        assert!(owner.try_send_unexpected(to_client, 0, b"")?);
    }
    let place = encode_place(memory.handle().key, 0, false);
    let mut sent = 0;
    for _ in 0..4 {
        let link = client.state.links.find(to_owner)?;
        while link.finds_room(LONGEST) {
            let number = link.calls.number();
            link.send_slices(Kind::Write, number, &place, LONGEST, [&[2; LONGEST][..]].into_iter());
            sent += 1;
        }
        for _ in 0..1000 {
            owner.poll()?;
        }
    }
    // It does not wait for places, as this library does: one more than these is taken in, in memory of the owner's, and others have to wait
    // in the channel.
    assert_eq!(sent, (64 + 1) + 64);
    // Nobody waits for what a peer has asked for that is gone.
    drop(client);
    while owner.state.links.find_open(to_client).is_ok() {
        owner.poll()?;
    }
    let link = owner.state.links.find(to_client)?;
    assert_eq!((link.arrived.len(), link.has_requests()), (1, false));
    Ok(())
}

/// However many there are: others are served in between, and the endpoint does not sleep before all are.
#[test]
fn a_call_moves_one_piece_for_a_peer_that_puts_much() -> Result<(), EndpointError> {
    const PULLS: usize = 8;
    let (mut owner, _, mut client, to_owner) = pair("pulls", Access::ReadWrite)?;
    let handle = owner.share(vec![vec![0; MESSAGE_PIECE_BYTES].into()], Access::ReadWrite).handle();
    let to_client = owner.wait(None)?.expect("a client connects").peer();
    let data = vec![1; MESSAGE_PIECE_BYTES];
    let link = client.state.links.find(to_owner)?;
    for number in 1..=PULLS as u64 {
        let what = What::Pull(vec![part(&data)]);
        let left = data.len() as u64;
        assert!(link.send_request(number, &Request { key: handle.key, offset: 0, left, what }));
    }
    for served in 1..=PULLS {
        assert_eq!(owner.arm()?, Armed::Work, "before {served}");
        assert_eq!(owner.poll()?, None);
        let link = client.state.links.find(to_owner)?;
        assert_eq!(link.take_in().cells, 1, "{served}");
        assert_eq!(owner.state.links.find(to_client)?.has_work(), served < PULLS);
    }
    // It may have been rung for the room that the client has made.
    assert!((0..10).any(|_| owner.arm().is_ok_and(|armed| armed == Armed::Sleep)));
    Ok(())
}

#[test]
fn writes_that_are_refused_give_their_buffers_back() -> Result<(), EndpointError> {
    let (mut owner, memory, mut client, to_owner) = pair("refused", Access::ReadWrite)?;
    let handle = memory.handle();
    drop(owner.revoke(memory)?);
    for number in 0..2 * 64 {
        let mut put = client.start_put(to_owner, &handle, 0, vec![[2; LONGEST]])?;
        let error = (0..10_000).find_map(|_| owner.poll().and_then(|_| client.test(&mut put)).err());
        assert!(matches!(error, Some(EndpointError::NotShared { .. })), "put {number}: {error:?}");
    }
    Ok(())
}

/// Whatever the other side's library has checked.
#[test]
fn an_owner_checks_what_it_is_asked_for() -> Result<(), EndpointError> {
    const MOST: usize = MESSAGE_PIECE_BYTES;
    let source = vec![2; MOST + 1];
    let pull = |len: usize| What::Pull(vec![part(&source[..len])]);
    let (all, end) = ((COUNT * SEGMENT) as u64, u64::MAX);
    // The access to the memory, from which byte on how much is left, and what is asked for.
    let rows = [
        (Access::Read, 0, 0, pull(1), Status::NotWritable),
        (Access::Read, 0, 0, What::Check, Status::NotWritable),
        (Access::ReadWrite, 0, all, What::Check, Status::Done),
        (Access::ReadWrite, 0, all + 1, What::Check, Status::Bounds),
        (Access::ReadWrite, 0, all + 1, What::Map(1), Status::Bounds),
        (Access::ReadWrite, all, 0, What::Map(1), Status::Bounds),
        (Access::ReadWrite, end, 0, What::Map(1), Status::Bounds),
        (Access::ReadWrite, all, 0, What::Read(1), Status::Bounds),
        (Access::ReadWrite, all, 0, pull(1), Status::Bounds),
        // So that no peer keeps it from others for long.
        (Access::ReadWrite, 0, 0, pull(MOST + 1), Status::Bounds),
    ];
    for (access, offset, left, what, expected) in rows {
        let (mut owner, memory, mut client, to_owner) = pair("asked", access)?;
        let link = client.state.links.find(to_owner)?;
        let number = link.calls.ask(false);
        let request = Request { key: memory.handle().key, offset, left, what };
        assert!(link.send_request(number, &request));
        let reply = loop {
            owner.poll()?;
            client.state.progress()?;
            if let Some(reply) = client.state.links.find_open(to_owner)?.calls.take_reply(number) {
                break reply;
            }
        };
        let Reply::Message(reply) = reply else { panic!("{request:?}") };
        let status = decode_reply(&reply).map(|(status, _)| status);
        assert_eq!(status, Some(expected), "{access:?}, {request:?}");
        assert!(owner.shared(&memory)?.iter().all(|buffer| buffer.iter().all(|byte| *byte == 1)));
    }
    Ok(())
}

#[test]
fn a_key_of_one_endpoint_tells_none_of_another() -> Result<(), EndpointError> {
    let keys = || -> Result<u64, EndpointError> {
        Ok(Endpoint::client()?.share(Vec::new(), Access::Read).handle().key)
    };
    let keys = [keys()?, keys()?];
    assert!(keys[0] != keys[1] && keys.iter().all(|key| *key >= 1 << 32), "{keys:?}");
    Ok(())
}

/// Who has truncated a file that is mapped would be ended by reading it.
#[test]
fn what_is_lent_is_not_said_to_be_sent() -> Result<(), EndpointError> {
    let (mut owner, memory, mut client, to_owner) = pair("lent", Access::Read)?;
    let mut is_sent = |owner: &mut Endpoint, handle: &Handle| {
        get((owner, &mut client), (to_owner, handle), 0)?;
        let mapped = client.state.links.find(to_owner)?.mapped(handle.key, 0);
        Ok::<_, EndpointError>(mapped.map(|mapped| mapped.is_sent))
    };
    assert_eq!(is_sent(&mut owner, &memory.handle())?, Some(true));
    let slices = [std::io::IoSlice::new(&[1; LEN])];
    assert_eq!(owner.with_shared(&slices, |owner, handle| is_sent(owner, &handle))?, Some(false));
    Ok(())
}

#[test]
fn when_a_peer_ends_only_what_it_had_leases_of_is_looked_at() -> Result<(), EndpointError> {
    let (mut owner, memory, mut client, to_owner) = pair("many", Access::Read)?;
    let others: Vec<_> = (0..100).map(|_| owner.share(vec![vec![1; LEN].into()], Access::Read)).collect();
    let mut last = Vec::new();
    for read in [&memory, &others[7], &others[9]] {
        get((&mut owner, &mut client), (to_owner, &read.handle()), 0)?;
    }
    for of in others.into_iter().enumerate() {
        match of {
            // It has no lease of this any more.
            (7, memory) => drop(owner.revoke(memory)?),
            (_, memory) => last.push(memory),
        }
    }
    assert_eq!(leases(&owner), 2);
    let before = LOOKED_AT.get();
    drop(client);
    while leases(&owner) > 0 {
        owner.poll()?;
    }
    assert_eq!(LOOKED_AT.get() - before, 2);
    assert!(owner.state.shares.leased.is_empty());
    Ok(())
}
