//! Cases 42 to 45, 50 and 51: processes that are killed, stop, fork or call exec.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use intranode::{Access, Address, Ended, Endpoint, EndpointError, Event, Handle};
use libtest_mimic::Completion;
use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pause};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use super::child::{self, Child};
use super::messages::{calls, pattern, start_echo};
use super::{Role, Test, pair, repeats, unique};

pub(super) const TESTS: &[Test] = &[
    ("case_42_clients_that_were_killed_leave_nothing", many_killed),
    ("case_43_clients_killed_at_any_moment", killed_anywhere),
    ("case_44_a_server_that_was_killed", server_killed),
    ("case_45_a_restarted_server_does_not_know_the_peer", restarted),
    ("case_50_a_forked_child_keeps_the_connection", forked_child),
    ("case_50_a_forked_child_does_not_hide_that_its_parent_died_before_it_was_accepted", reaped_before),
    ("case_50_a_forked_child_does_not_hide_that_who_listened_has_died", listener_reaped),
    ("case_50_a_forked_child_does_not_hide_that_its_parent_has_left", || leaves_a_child(DROPS)),
    ("case_50_a_forked_child_does_not_hide_that_its_parent_has_disconnected", || leaves_a_child(DISCONNECTS)),
    ("case_51_a_peer_calls_exec", exec),
    ("what_was_sent_before_dying_is_received", sent_before),
    ("a_frozen_peer_is_a_time_out", frozen),
    ("calls_in_a_forked_child_fail", in_a_forked_child),
    ("connections_of_a_forked_child_end_as_others_do", ends_in_a_forked_child),
];

pub(super) const ROLES: &[Role] = &[
    ("calls", calls_until_killed),
    ("sends", sends),
    ("forks and ends", forks_and_ends),
    ("listens and forks", listens_and_forks),
    ("execs", execs),
    ("fails in a child", fails_in_a_child),
    ("shares in a child", shares_in_a_child),
    ("ends in a child", ends_in_a_child),
];

/// What a process takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resources {
    pub(super) descriptors: usize,
    pub(super) mappings: usize,
    /// Private memory, in KiB.
    memory: u64,
}

pub(super) fn resources(pid: u32) -> Result<Resources> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).context("a line")?;
    let memory = line.split_whitespace().nth(1).context("a number")?.parse()?;
    let mappings = maps.lines().filter(|line| line.contains("memfd:intranode")).count();
    Ok(Resources { descriptors: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count(), mappings, memory })
}

impl Resources {
    /// Whether these are about the same: the last client may not have been noticed.
    pub(super) fn is_not_more_than(self, before: Resources) -> Result<()> {
        let close = self.descriptors <= before.descriptors + 4
            && self.mappings <= before.mappings + 2
            && self.memory <= before.memory + 1024;
        ensure!(close, "{self:?} after {before:?}");
        Ok(())
    }
}

/// Calls until it is killed.
fn calls_until_killed(args: &[String]) -> Result<()> {
    let mut client = Endpoint::client()?;
    let server = client.connect(&Address::local(&args[0])?)?;
    let mut buffer = [0; 4096];
    for number in 0.. {
        client.send_unexpected(server, number, &pattern(number as usize, 100))?;
        client.recv_expected(server, number, &mut buffer)?;
        if number == 0 {
            child::say("called")?;
        }
    }
    Ok(())
}

fn many_killed() -> Result<Completion> {
    let (server, address) = start_echo()?;
    let kill = |count: usize| -> Result<()> {
        for _ in 0..count {
            let mut client = Child::start("calls", &[address.name()])?;
            client.says("called")?;
            client.kill()?;
        }
        calls(&address, 10)
    };
    kill(20)?;
    let before = resources(server.pid())?;
    // More than Mercury's pool of 64 buffers survives.
    kill(repeats(100))?;
    resources(server.pid())?.is_not_more_than(before)?;
    Ok(Completion::Completed)
}

fn killed_anywhere() -> Result<Completion> {
    let (server, address) = start_echo()?;
    for round in 0..repeats(60) {
        let client = Child::start("calls", &[address.name()])?;
        // From before it has connected until after a few calls.
        let until = Instant::now() + Duration::from_micros(fastrand::u64(0..8000));
        while Instant::now() < until {
            std::thread::yield_now();
        }
        client.kill()?;
        if round % 10 == 0 {
            calls(&address, 20)?;
        }
    }
    calls(&address, 100)?;
    ensure!(resources(server.pid())?.descriptors < 20);
    Ok(Completion::Completed)
}

/// The end of a peer is reported within the limit of a test, and after all else. Returns it, and what came before.
fn end_of(endpoint: &mut Endpoint) -> Result<(Ended, Vec<Event>)> {
    let mut before = Vec::new();
    loop {
        match endpoint.wait(Some(Duration::from_secs(20)))? {
            Some(Event::Closed { ended, .. }) => return Ok((ended, before)),
            Some(event) => before.push(event),
            None => bail!("no end after {before:?}"),
        }
    }
}

fn server_killed() -> Result<Completion> {
    let (server, address) = start_echo()?;
    let mut client = Endpoint::client()?;
    let peer = client.connect(&address)?;
    client.send_unexpected(peer, 1, b"hello")?;
    client.recv_expected(peer, 1, &mut [0; 5])?;
    server.signal(Signal::SIGKILL)?;
    let error = client.recv_expected(peer, 2, &mut [0; 5]);
    ensure!(matches!(error, Err(EndpointError::PeerGone { ended: Ended::Died, .. })), "{error:?}");
    ensure!(matches!(end_of(&mut client)?.0, Ended::Died));
    server.kill()?;
    let error = client.connect(&address);
    ensure!(matches!(error, Err(EndpointError::NobodyListens { .. })), "{error:?}");
    // The name can be used again.
    let mut again = Child::start("echo", &[address.name()])?;
    again.says("listens")?;
    calls(&address, 10)?;
    Ok(Completion::Completed)
}

fn restarted() -> Result<Completion> {
    let (server, address) = start_echo()?;
    let mut client = Endpoint::client()?;
    let old = client.connect(&address)?;
    client.send_unexpected(old, 1, b"hello")?;
    client.recv_expected(old, 1, &mut [0; 5])?;
    server.kill()?;
    let mut again = Child::start("echo", &[address.name()])?;
    again.says("listens")?;
    let new = client.connect(&address)?;
    client.send_unexpected(new, 1, b"hello")?;
    client.recv_expected(new, 1, &mut [0; 5])?;
    ensure!(new != old);
    // Until its end is noticed, what is sent to it goes nowhere.
    ensure!(matches!(end_of(&mut client)?.0, Ended::Died));
    for error in [client.send_unexpected(old, 2, b"?"), client.recv_expected(old, 2, &mut []).map(drop)] {
        ensure!(
            matches!(error, Err(EndpointError::PeerGone { .. } | EndpointError::UnknownPeer { .. })),
            "{error:?}"
        );
    }
    Ok(Completion::Completed)
}

/// What a process does that has forked.
const DROPS: &str = "drops";
const DISCONNECTS: &str = "disconnects";

/// Connects and forks; the child, which has the connection too, outlives it.
fn forks_and_ends(args: &[String]) -> Result<()> {
    let mut client = Endpoint::client()?;
    let server = client.connect(&Address::local(&args[0])?)?;
    client.send_unexpected(server, 1, b"hello")?;
    // SAFETY: the child only waits for the end.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            child::say(&child.to_string())?;
            match args.get(1).map(String::as_str) {
                Some(DROPS) => drop(client),
                Some(_) => client.disconnect(server),
                None => {}
            }
            while child::hear()?.is_some() {}
            Ok(())
        }
        ForkResult::Child => {
            // If the test fails, it does not live for ever.
            nix::unistd::alarm::set(60);
            loop {
                pause();
            }
        }
    }
}

/// To this thread the system does not say who is at the other end of a socket that was waited for: as kernels from 6.5 to 6.15.
fn knows_nobody_that_was_waited_for() -> Result<()> {
    let asks = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, libc::SO_PEERPIDFD as u64)?;
    let rules = BTreeMap::from([(libc::SYS_getsockopt, vec![SeccompRule::new(vec![asks])?])]);
    let refuse = SeccompAction::Errno(libc::EINVAL as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?;
    Ok(apply_filter(&BpfProgram::try_from(filter)?)?)
}

/// In a thread of its own, on this system and on an older one.
fn on_both(test: impl Fn() -> Result<()> + Copy + Send + 'static) -> Result<Completion> {
    for is_older in [false, true] {
        let run =
            move || if is_older { knows_nobody_that_was_waited_for().and_then(|()| test()) } else { test() };
        thread::spawn(run).join().ok().context("no panic")?.with_context(|| format!("older: {is_older}"))?;
    }
    Ok(Completion::Completed)
}

fn reaped_before() -> Result<Completion> {
    on_both(|| {
        let mut server = Endpoint::listen(&unique())?;
        let name = server.address().context("it listens")?.name().to_owned();
        let mut client = Child::start("forks and ends", &[&name])?;
        let grandchild = Pid::from_raw(client.line()?.parse()?);
        client.kill()?;
        let ended = end_of(&mut server);
        // It has lived on all the time.
        nix::sys::signal::kill(grandchild, Signal::SIGKILL)?;
        let (ended, before) = ended?;
        ensure!(ended == Ended::Died && before.len() == 2, "{ended:?} after {before:?}");
        Ok(())
    })
}

fn listens_and_forks(args: &[String]) -> Result<()> {
    let _server = Endpoint::listen(&args[0])?;
    // SAFETY: the child only waits for the end.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            child::say(&child.to_string())?;
            loop {
                pause();
            }
        }
        ForkResult::Child => {
            // If the test fails, it does not live for ever.
            nix::unistd::alarm::set(60);
            loop {
                pause();
            }
        }
    }
}

/// The child keeps its name, at which nobody is accepted any more.
fn listener_reaped() -> Result<Completion> {
    on_both(|| {
        let name = unique();
        let mut server = Child::start("listens and forks", &[&name])?;
        let grandchild = Pid::from_raw(server.line()?.parse()?);
        server.kill()?;
        let mut client = Endpoint::client()?;
        let ended =
            client.connect(&Address::local(&name)?).map_err(Into::into).and_then(|_| end_of(&mut client));
        nix::sys::signal::kill(grandchild, Signal::SIGKILL)?;
        let (ended, before) = ended?;
        ensure!(ended == Ended::Died && before.is_empty(), "{ended:?} after {before:?}");
        Ok(())
    })
}

fn leaves_a_child(how: &str) -> Result<Completion> {
    let mut server = Endpoint::listen(&unique())?;
    let name = server.address().context("it listens")?.name().to_owned();
    let mut client = Child::start("forks and ends", &[&name, how])?;
    let grandchild = Pid::from_raw(client.line()?.parse()?);
    let ended = end_of(&mut server);
    // Both have lived on all the time.
    nix::sys::signal::kill(grandchild, Signal::SIGKILL)?;
    client.ends()?;
    let (ended, before) = ended?;
    ensure!(ended == Ended::Left && before.len() == 2, "{ended:?} after {before:?}");
    Ok(Completion::Completed)
}

fn forked_child() -> Result<Completion> {
    let mut server = Endpoint::listen(&unique())?;
    let name = server.address().context("it listens")?.name().to_owned();
    let mut client = Child::start("forks and ends", &[&name])?;
    let grandchild = nix::unistd::Pid::from_raw(client.line()?.parse()?);
    let start = Instant::now();
    client.signal(Signal::SIGKILL)?;
    let (ended, before) = end_of(&mut server)?;
    ensure!(ended == Ended::Died && before.len() == 2, "{ended:?} after {before:?}");
    ensure!(start.elapsed() < Duration::from_secs(10));
    // It has lived on all the time.
    nix::sys::signal::kill(grandchild, Signal::SIGKILL)?;
    Ok(Completion::Completed)
}

fn execs(args: &[String]) -> Result<()> {
    let mut client = Endpoint::client()?;
    let server = client.connect(&Address::local(&args[0])?)?;
    client.send_unexpected(server, 1, b"hello")?;
    Err(Command::new("sleep").arg("60").exec().into())
}

fn exec() -> Result<Completion> {
    let mut server = Endpoint::listen(&unique())?;
    let name = server.address().context("it listens")?.name().to_owned();
    let client = Child::start("execs", &[&name])?;
    let (ended, before) = end_of(&mut server)?;
    ensure!(ended == Ended::Died && before.len() == 2, "{ended:?} after {before:?}");
    let command = std::fs::read_to_string(format!("/proc/{}/comm", client.pid()))?;
    ensure!(command.trim() == "sleep", "{command}");
    client.kill()?;
    Ok(Completion::Completed)
}

fn sends(args: &[String]) -> Result<()> {
    let mut client = Endpoint::client()?;
    let server = client.connect(&Address::local(&args[0])?)?;
    for number in 0..50 {
        client.send_unexpected(server, number, &pattern(number as usize, 80 * number as usize))?;
    }
    child::say("sent")?;
    while child::hear()?.is_some() {}
    Ok(())
}

fn sent_before() -> Result<Completion> {
    for leaves in [false, true] {
        let mut server = Endpoint::listen(&unique())?;
        let name = server.address().context("it listens")?.name().to_owned();
        let mut client = Child::start("sends", &[&name])?;
        client.says("sent")?;
        if leaves {
            client.ends()?;
        } else {
            client.kill()?;
        }
        // Only now the server accepts it.
        let (ended, before) = end_of(&mut server)?;
        let expected = if leaves { Ended::Left } else { Ended::Died };
        ensure!(ended == expected && before.len() == 51, "{ended:?} after {before:?}");
        let mut buffer = [0; 4096];
        for number in 0..50 {
            let message = server.recv_unexpected(&mut buffer)?;
            let data = pattern(number as usize, 80 * number as usize);
            ensure!(message.tag == number && buffer[..message.bytes] == data);
        }
        ensure!(server.try_recv_unexpected(&mut buffer)?.is_none());
    }
    Ok(Completion::Completed)
}

fn frozen() -> Result<Completion> {
    let (server, address) = start_echo()?;
    let mut client = Endpoint::builder().timeout(Duration::from_millis(300)).client()?;
    let peer = client.connect(&address)?;
    client.send_unexpected(peer, 1, b"hello")?;
    client.recv_expected(peer, 1, &mut [0; 5])?;
    server.signal(Signal::SIGSTOP)?;
    client.send_unexpected(peer, 2, b"again")?;
    let names_it = |error: &EndpointError, call: &str| {
        let is_named = matches!(error, EndpointError::TimedOut { operation, peer: Some(named), .. } if *operation == call && *named == peer);
        ensure!(
            is_named && error.to_string().starts_with(&format!("{call} with {peer}: ")),
            "{error}: {error:?}"
        );
        Ok(())
    };
    names_it(&client.recv_expected(peer, 2, &mut [0; 5]).unwrap_err(), "recv_expected")?;
    let mut receive = client.start_recv_expected(peer, 4, [0; 5])?;
    names_it(&client.wait_for(&mut receive).unwrap_err(), "wait_for")?;
    let error = client.recv_unexpected(&mut []).unwrap_err();
    ensure!(error.to_string().starts_with("recv_unexpected: "), "{error}");
    let shared = client.share(vec![vec![0; 5].into()], Access::ReadWrite);
    let error = client.get(peer, &shared.handle(), 0, &mut [IoSliceMut::new(&mut [0; 5])]).unwrap_err();
    names_it(&error, "get")?;
    names_it(&client.put(peer, &shared.handle(), 0, &[IoSlice::new(&[0; 5])]).unwrap_err(), "put")?;
    let error = loop {
        if let Err(error) = client.send_unexpected(peer, 3, &[0; 4096]) {
            break error;
        }
    };
    names_it(&error, "send_unexpected")?;
    server.signal(Signal::SIGCONT)?;
    ensure!(client.recv_expected(peer, 2, &mut [0; 5])? == 5, "calls go on");
    Ok(Completion::Completed)
}

fn fails_in_a_child(args: &[String]) -> Result<()> {
    let mut client = Endpoint::client()?;
    let server = client.connect(&Address::local(&args[0])?)?;
    client.send_unexpected(server, 1, b"hello")?;
    client.recv_expected(server, 1, &mut [0; 5])?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            ends_well(child)?;
            client.send_unexpected(server, 2, b"still")?;
            client.recv_expected(server, 2, &mut [0; 5])?;
            child::say("both")
        }
        ForkResult::Child => {
            let forked = |result: Result<(), EndpointError>| matches!(result, Err(EndpointError::Forked));
            let failed = forked(client.send_unexpected(server, 2, b"?"))
                && forked(client.recv_expected(server, 2, &mut []).map(drop))
                && forked(client.poll().map(drop))
                && forked(client.arm().map(drop))
                && forked(client.wait(None).map(drop));
            client.disconnect(server);
            drop(client);
            std::process::exit(i32::from(!failed));
        }
    }
}

/// What a child that was forked ends with.
pub(super) fn ends_well(child: Pid) -> Result<()> {
    let status = waitpid(child, None)?;
    ensure!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
    Ok(())
}

/// The peer has a lease of each memory: a child cannot withdraw it.
fn shares_in_a_child(_: &[String]) -> Result<()> {
    let (mut client, to_owner, mut owner, _) = pair()?;
    let mut get = |owner: &mut Endpoint, handle: &Handle| -> Result<()> {
        let mut get = client.start_get(to_owner, handle, 0, vec![vec![0; 1_000_000]])?;
        while client.test(&mut get)?.is_none() {
            owner.poll()?;
        }
        Ok(())
    };
    let memory = owner.share(vec![vec![7; 1_000_000].into()], Access::Read);
    get(&mut owner, &memory.handle())?;
    // SAFETY: this process has one thread.
    if let ForkResult::Parent { child } = unsafe { fork() }? {
        ends_well(child)?;
    } else {
        let failed = matches!(owner.shared(&memory), Err(EndpointError::Forked))
            && matches!(owner.revoke(memory), Err(EndpointError::Forked));
        std::process::exit(i32::from(!failed));
    }
    let slice = vec![7; 1_000_000];
    let forked = owner.with_shared(&[IoSlice::new(&slice)], |owner, handle| {
        get(owner, &handle)?;
        // SAFETY: as above.
        Ok::<_, anyhow::Error>(unsafe { fork() }?)
    })?;
    let ForkResult::Parent { child } = forked else { std::process::exit(0) };
    ends_well(child)?;
    child::say("both")
}

fn in_a_forked_child() -> Result<Completion> {
    let (_server, address) = start_echo()?;
    let mut client = Child::start("fails in a child", &[address.name()])?;
    client.says("both")?;
    client.ends()?;
    let mut owner = Child::start("shares in a child", &[])?;
    owner.says("both")?;
    owner.ends()?;
    let (client, _, mut server, _) = pair()?;
    drop(client);
    ensure!(matches!(end_of(&mut server)?.0, Ended::Left));
    Ok(Completion::Completed)
}

/// Both processes have connections that end with something kept: the parent first.
fn ends_in_a_child(_: &[String]) -> Result<()> {
    let (mut client, to_server, mut server, _) = pair()?;
    client.send_unexpected(to_server, 1, b"kept")?;
    drop(client);
    end_of(&mut server)?;
    // SAFETY: this process has one thread.
    if let ForkResult::Parent { child } = unsafe { fork() }? {
        ends_well(child)?;
        ensure!(server.recv_unexpected(&mut [0; 4])?.bytes == 4);
        return child::say("both");
    }
    // If it hangs, it does not live for ever.
    nix::unistd::alarm::set(60);
    let ended = ends_with_an_answer().inspect_err(|error| eprintln!("in the child: {error:?}"));
    std::process::exit(i32::from(ended.is_err()));
}

/// The client has an answer that gives it a lease when the owner leaves, and gives that back later.
fn ends_with_an_answer() -> Result<()> {
    let (mut client, to_owner, mut owner, _) = pair()?;
    let memory = owner.share(vec![vec![7; 1_000_000].into()], Access::Read);
    let get = client.start_get(to_owner, &memory.handle(), 0, vec![vec![0; 1_000_000]])?;
    client.send_unexpected(to_owner, 1, b"behind")?;
    // What was asked before is answered then.
    while !matches!(owner.poll()?, Some(Event::Message { .. })) {}
    drop(owner);
    end_of(&mut client)?;
    drop(get);
    client.arm()?;
    Ok(())
}

fn ends_in_a_forked_child() -> Result<Completion> {
    let mut parent = Child::start("ends in a child", &[])?;
    parent.says("both")?;
    parent.ends()?;
    Ok(Completion::Completed)
}
