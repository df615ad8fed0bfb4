//! Case 43: a process is killed between any two instructions of each step of a connection, from listening and connecting to closing.
//!
//! The victim runs under ptrace(2), in a process of its own. Its partner, which has to go on, is a thread of the test.

use std::collections::HashSet;
use std::io::{IoSlice, IoSliceMut};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use intranode::{Access, Address, Endpoint, EndpointError, Event, Handle, Incoming, Peer};
use libtest_mimic::Completion;

use super::child::{self, Child};
use super::faults::resources;
use super::messages::{calls, pattern};
use super::{Role, Test, repeats, unique};

#[path = "../faults/stepping.rs"]
#[expect(dead_code, reason = "the moments at which ranks are killed")]
pub(super) mod stepping;

pub(super) const TESTS: &[Test] = &[
    ("case_43_a_client_killed_in_connect_and_hello", || client_killed("connect")),
    ("case_43_a_client_killed_while_it_is_accepted", || client_killed("accepted")),
    ("case_43_a_client_killed_in_a_short_message", || client_killed("short")),
    ("case_43_a_client_killed_in_a_long_message", || client_killed("long")),
    ("case_43_a_client_killed_while_it_shares", || client_killed("share")),
    ("case_43_a_client_killed_in_a_get", || client_killed("get")),
    ("case_43_a_client_killed_in_a_put", || client_killed("put")),
    ("case_43_a_client_killed_while_it_revokes", || client_killed("revoke")),
    ("case_43_a_client_killed_while_it_disconnects", || client_killed("disconnect")),
    ("case_43_a_client_killed_while_it_closes", || client_killed("close")),
    ("case_43_a_server_killed_while_it_begins_to_listen", || server_killed("listen")),
    ("case_43_a_server_killed_while_it_accepts", || server_killed("accept")),
    ("case_43_a_server_killed_in_a_short_message", || server_killed("short")),
    ("case_43_a_server_killed_in_a_long_message", || server_killed("long")),
    ("case_43_a_server_killed_while_it_shares", || server_killed("share")),
    ("case_43_a_server_killed_in_a_get", || server_killed("get")),
    ("case_43_a_server_killed_in_a_put", || server_killed("put")),
    ("case_43_a_server_killed_while_it_revokes", || server_killed("revoke")),
    ("case_43_a_server_killed_while_it_disconnects", || server_killed("disconnect")),
    ("case_43_a_server_killed_while_it_closes", || server_killed("close")),
];

pub(super) const ROLES: &[Role] = &[("a victim", victim)];

/// How often a process is killed in a step.
const TIMES: usize = 4;

/// What the partner is asked for, by tag. Any other message it sends back.
const SHARED: u64 = u64::MAX;
const WANTS: u64 = u64::MAX - 1;
const GET_ON: u64 = u64::MAX - 2;
const STOP: u64 = u64::MAX - 3;

/// The length of all shared memory: more than goes by messages.
const LEN: usize = 20_000;
/// What the memory that is shared has at first, and what is put there.
const FIRST: usize = 7;
const PUT: usize = 3;

/// It does not poll, so that its steps are few.
fn builder() -> intranode::EndpointBuilder {
    Endpoint::builder().spin(Duration::ZERO).timeout(Some(Duration::from_secs(60)))
}

/// Does this. If it is the step in which this process is to be killed, it is traced meanwhile.
fn at<R>(step: &str, wanted: &str, run: impl FnOnce() -> Result<R>) -> Result<R> {
    if step != wanted {
        return run();
    }
    child::say("at the step")?;
    stepping::begin()?;
    let result = run();
    stepping::stop()?;
    result
}

fn await_connected(own: &mut Endpoint) -> Result<Peer> {
    match own.wait(None)? {
        Some(Event::Connected { peer }) => Ok(peer),
        event => bail!("{event:?}"),
    }
}

/// Goes through all steps, with its side of the connection, a name, and the step at which it is killed.
pub(super) fn victim(args: &[String]) -> Result<()> {
    let [side, name, wanted] = args else { bail!("{args:?}") };
    let wanted = &wanted[..];
    let (mut own, peer) = if side == "listens" {
        let mut own = at("listen", wanted, || Ok(builder().listen(name)?))?;
        child::say("listens")?;
        let peer = at("accept", wanted, || await_connected(&mut own))?;
        (own, peer)
    } else {
        let (mut own, address) = (builder().client()?, Address::local(name)?);
        let peer = at("connect", wanted, || Ok(own.connect(&address)?))?;
        at("accepted", wanted, || await_connected(&mut own))?;
        (own, peer)
    };
    for (step, len) in [("short", 8), ("long", 4096)] {
        let (data, mut answer) = (pattern(1, len), vec![0; len]);
        at(step, wanted, || {
            own.send_unexpected(peer, 1, &data)?;
            Ok(own.recv_expected(peer, 1, &mut answer)?)
        })?;
        ensure!(answer == data);
    }
    let buffers = vec![pattern(FIRST, LEN).into()];
    let shared = at("share", wanted, || {
        let shared = own.share(buffers, Access::ReadWrite);
        own.send_unexpected(peer, SHARED, &shared.handle().to_bytes())?;
        // The partner gets and puts before it answers.
        own.recv_expected(peer, SHARED, &mut [])?;
        Ok(shared)
    })?;
    ensure!(own.shared(&shared)?[0][..] == pattern(PUT, LEN));
    own.shared(&shared)?[0].copy_from_slice(&pattern(FIRST, LEN));

    own.send_unexpected(peer, WANTS, &[])?;
    let mut handle = [0; Handle::BYTES];
    own.recv_expected(peer, WANTS, &mut handle)?;
    let handle = Handle::from_bytes(&handle)?;
    let mut got = vec![0; LEN];
    at("get", wanted, || Ok(own.get(peer, &handle, 0, &mut [IoSliceMut::new(&mut got)])?))?;
    is_of(&got, &[FIRST, PUT])?;
    let data = pattern(PUT, LEN);
    at("put", wanted, || Ok(own.put(peer, &handle, 0, &[IoSlice::new(&data)])?))?;

    own.send_unexpected(peer, GET_ON, &shared.handle().to_bytes())?;
    at("revoke", wanted, || {
        // It answers some of what it is asked for.
        (0..5).try_for_each(|_| own.wait(Some(Duration::from_millis(1))).map(drop))?;
        // A peer that reads it from now on reads something else.
        own.revoke(shared)?[0].fill(0xEE);
        Ok(())
    })?;
    at("disconnect", wanted, || {
        own.disconnect(peer);
        Ok(())
    })?;
    at("close", wanted, || {
        drop(own);
        Ok(())
    })
}

/// Each byte is that of one of these patterns.
fn is_of(bytes: &[u8], seeds: &[usize]) -> Result<()> {
    let patterns: Vec<_> = seeds.iter().map(|seed| pattern(*seed, bytes.len())).collect();
    let wrong = (0..bytes.len()).find(|at| patterns.iter().all(|pattern| pattern[*at] != bytes[*at]));
    ensure!(wrong.is_none(), "byte {wrong:?} is something else");
    Ok(())
}

/// The other side of the victim. What it gets is what was shared, or an error that says that the victim is gone.
pub(super) struct Partner {
    own: Endpoint,
    handle: Handle,
    memory: intranode::Registration,
    open: HashSet<Peer>,
}

impl Partner {
    pub(super) fn new(mut own: Endpoint) -> Self {
        let memory = own.share(vec![pattern(FIRST, LEN).into()], Access::ReadWrite);
        Partner { handle: memory.handle(), own, memory, open: HashSet::new() }
    }

    /// Does what it is asked for, until it is told to stop, and all others have ended. `until`: this one's end is enough.
    pub(super) fn run(mut self, until: Option<Peer>) -> Result<()> {
        let (mut stopping, mut buffer) = (false, [0; 4096]);
        while !stopping || self.open.len() > 1 {
            match self.own.wait(Some(Duration::from_secs(60)))? {
                Some(Event::Connected { peer }) => {
                    ensure!(self.open.insert(peer), "{peer} has connected twice")
                }
                Some(Event::Closed { peer, .. }) => {
                    self.open.remove(&peer);
                    if until == Some(peer) {
                        break;
                    }
                }
                Some(Event::Message { expected: false, .. }) => {
                    // It may have disconnected, and taken it along.
                    let Some(message) = self.own.try_recv_unexpected(&mut buffer)? else { continue };
                    stopping |= message.tag == STOP;
                    match self.answer(message, &buffer[..message.bytes]) {
                        Ok(()) => {}
                        Err(error) => match error.downcast_ref() {
                            Some(EndpointError::PeerGone { .. } | EndpointError::UnknownPeer { .. }) => {}
                            _ => return Err(error),
                        },
                    }
                }
                Some(_) => {}
                None => bail!("nothing happens, and {} are there", self.open.len()),
            }
        }
        // What a victim has put there in part.
        is_of(self.own.shared(&self.memory)?[0], &[FIRST, PUT])
    }

    fn answer(&mut self, Incoming { peer, tag, .. }: Incoming, data: &[u8]) -> Result<()> {
        let own = &mut self.own;
        let answer = match tag {
            SHARED => {
                let (handle, mut got) = (Handle::from_bytes(data)?, vec![0; LEN]);
                own.get(peer, &handle, 0, &mut [IoSliceMut::new(&mut got)])?;
                ensure!(got == pattern(FIRST, LEN), "not what was shared");
                own.put(peer, &handle, 0, &[IoSlice::new(&pattern(PUT, LEN))])?;
                &[]
            }
            WANTS => &self.handle.to_bytes()[..],
            GET_ON => {
                let (handle, mut got) = (Handle::from_bytes(data)?, vec![0; LEN]);
                return loop {
                    match own.get(peer, &handle, 0, &mut [IoSliceMut::new(&mut got)]) {
                        Ok(()) => ensure!(got == pattern(FIRST, LEN), "data that was not shared any more"),
                        Err(EndpointError::NotShared { .. }) => break Ok(()),
                        Err(error) => break Err(error.into()),
                    }
                };
            }
            _ => data,
        };
        Ok(own.send_expected(peer, tag, answer)?)
    }
}

/// Kills a victim after some of the instructions of its step: after all of them at first, then after none, then anywhere. `None`:
/// the system does not permit that.
fn kill(mut victim: Child, turn: usize, all: &mut usize) -> Result<Option<()>> {
    victim.says("at the step")?;
    let limit = match turn {
        0 => usize::MAX,
        1 => 0,
        _ => fastrand::usize(..*all),
    };
    let Some(steps) = stepping::step(victim.pid(), limit)? else { return Ok(None) };
    if turn == 0 {
        eprintln!("{steps} instructions");
        ensure!(steps > 500, "these are not all");
        *all = steps;
    }
    victim.kill()?;
    Ok(Some(()))
}

fn client_killed(step: &'static str) -> Result<Completion> {
    let before = resources(std::process::id())?;
    let server = Endpoint::listen(&unique())?;
    let address = server.address().context("it listens")?.clone();
    let partner = thread::spawn(move || Partner::new(server).run(None));
    let (mut all, mut is_traced) = (0, true);
    for turn in 0..repeats(TIMES) {
        let victim = Child::start("a victim", &["connects", address.name(), step])?;
        is_traced = kill(victim, turn, &mut all)?.is_some();
        if !is_traced {
            break;
        }
        ensure!(!partner.is_finished(), "{:?}", partner.join());
        calls(&address, 3)?;
    }
    let mut last = Endpoint::client()?;
    let peer = last.connect(&address)?;
    last.send_unexpected(peer, STOP, &[])?;
    // Of each victim that has connected the server has learnt the end.
    partner.join().ok().context("no panic")??;
    drop(last);
    resources(std::process::id())?.is_not_more_than(before)?;
    Ok(if is_traced { Completion::Completed } else { Completion::ignored_with(stepping::NOT_TRACED) })
}

fn server_killed(step: &'static str) -> Result<Completion> {
    let before = resources(std::process::id())?;
    let mut all = 0;
    for turn in 0..repeats(TIMES) {
        let name = unique();
        let mut victim = Child::start("a victim", &["listens", &name, step])?;
        let partner = (step != "listen").then(|| -> Result<_> {
            victim.says("listens")?;
            let address = Address::local(&name)?;
            Ok(thread::spawn(move || -> Result<()> {
                let mut own = Endpoint::client()?;
                match own.connect(&address) {
                    Ok(peer) => Partner::new(own).run(Some(peer)),
                    // It was killed before it was connected to.
                    Err(EndpointError::NobodyListens { .. }) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }))
        });
        let is_traced = kill(victim, turn, &mut all)?.is_some();
        if let Some(partner) = partner {
            partner?.join().ok().context("no panic")??;
        }
        if !is_traced {
            return Ok(Completion::ignored_with(stepping::NOT_TRACED));
        }
        // The name is free at once.
        drop(Endpoint::listen(&name)?);
    }
    resources(std::process::id())?.is_not_more_than(before)?;
    Ok(Completion::Completed)
}
