//! Cases 36 to 41, and idle peers: who sleeps, who is woken, and what it costs when nothing happens.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use intranode::{Address, Armed, Endpoint, EndpointError, Event};
use libtest_mimic::Completion;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use super::child::{self, Child};
use super::messages::pattern;
use super::{Role, Test, pair, repeats, unique};

pub(super) const TESTS: &[Test] = &[
    ("case_36_none_is_lost_to_a_receiver_that_sleeps", none_lost),
    ("case_36_none_is_lost_to_a_receiver_that_falls_asleep", none_lost_when_falling_asleep),
    ("case_37_no_system_call_while_both_are_awake", awake),
    ("case_38_a_burst_to_a_sleeper_rings_once", burst),
    ("case_39_the_descriptor_is_readable_iff_there_is_work", readable),
    ("case_41_draining_after_arming_loses_nothing", draining),
    ("a_thousand_idle_peers_cost_nothing", idle),
    ("a_time_out_is_kept_while_it_polls", polls_no_longer),
];

pub(super) const ROLES: &[Role] =
    &[("calls without packets", calls_without_packets), ("connects often", connects_often)];

fn polls_no_longer() -> Result<Completion> {
    let spin = Duration::from_secs(20);
    let mut own = Endpoint::builder().spin(spin).timeout(Some(Duration::from_millis(10))).client()?;
    let begin = Instant::now();
    ensure!(own.wait(Some(Duration::from_millis(10)))?.is_none());
    let error = own.recv_unexpected(&mut []);
    ensure!(matches!(error, Err(EndpointError::TimedOut { .. })), "{error:?}");
    ensure!(begin.elapsed() < spin / 2, "{:?}", begin.elapsed());
    Ok(Completion::Completed)
}

pub(super) fn is_readable(endpoint: &Endpoint, milliseconds: u16) -> Result<bool> {
    let mut entries = [PollFd::new(endpoint.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut entries, PollTimeout::from(milliseconds))? > 0)
}

fn none_lost() -> Result<Completion> {
    // Without polling every message finds a receiver that sleeps, or is about to.
    none_lost_to_one_that_polls_for(Duration::ZERO, repeats(50_000) as u64, 200)
}

/// Most messages come about when the receiver goes to sleep.
fn none_lost_when_falling_asleep() -> Result<Completion> {
    none_lost_to_one_that_polls_for(Duration::from_micros(50), repeats(10_000) as u64, 10_000)
}

/// The sender polls up to so often between two messages.
fn none_lost_to_one_that_polls_for(spin: Duration, count: u64, pause: u32) -> Result<Completion> {
    let name = unique();
    let mut server = Endpoint::builder().spin(spin).listen(&name)?;
    let sender = thread::spawn(move || -> Result<()> {
        let mut client = Endpoint::builder().spin(spin).client()?;
        let peer = client.connect(&Address::local(&name)?)?;
        for number in 0..count {
            client.send_unexpected(peer, number, &number.to_ne_bytes())?;
            for _ in 0..fastrand::u32(0..pause) {
                std::hint::spin_loop();
            }
        }
        Ok(())
    });
    let mut data = [0; 8];
    for number in 0..count {
        let message = server.recv_unexpected(&mut data)?;
        ensure!(message.tag == number && u64::from_ne_bytes(data) == number, "{message:?} instead of {number}");
    }
    sender.join().ok().context("no panic")??;
    Ok(Completion::Completed)
}

/// Ends by a signal if it sends a packet after it was told that it would not.
fn calls_without_packets(args: &[String]) -> Result<()> {
    let mut client = Endpoint::builder().spin(Duration::from_secs(30)).client()?;
    let server = client.connect(&Address::local(&args[0])?)?;
    let mut answer = [0; 100];
    let mut call = |number: u64| -> Result<(), EndpointError> {
        client.send_unexpected(server, number, &[1; 100])?;
        client.recv_expected(server, number, &mut answer).map(drop)
    };
    (0..100).try_for_each(&mut call)?;
    let packets = [libc::SYS_sendto, libc::SYS_sendmsg];
    let rules: BTreeMap<i64, _> = packets.into_iter().map(|number| (number, Vec::new())).collect();
    let kill = SeccompAction::KillProcess;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, kill, std::env::consts::ARCH.try_into()?)?;
    apply_filter(&BpfProgram::try_from(filter)?)?;
    (0..5000).try_for_each(&mut call)?;
    // The standard library writes by another call.
    child::say("done")
}

fn awake() -> Result<Completion> {
    let name = unique();
    let mut server = Endpoint::builder().spin(Duration::from_secs(30)).listen(&name)?;
    let mut caller = Child::start("calls without packets", &[&name])?;
    let mut buffer = [0; 100];
    for _ in 0..5100 {
        let call = server.recv_unexpected(&mut buffer)?;
        server.send_expected(call.peer, call.tag, &buffer)?;
    }
    caller.says("done")?;
    caller.ends()?;
    Ok(Completion::Completed)
}

/// The packets that wait in all connections of this process.
fn waiting_packets() -> Result<usize> {
    let mut bytes = 0;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let is_socket =
            std::fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"));
        let number: i32 = entry.file_name().to_string_lossy().parse()?;
        let mut waiting: libc::c_int = 0;
        // SAFETY: it writes a live integer; a listening socket is refused.
        if is_socket && unsafe { libc::ioctl(number, libc::FIONREAD, &raw mut waiting) } == 0 {
            // Each has one byte.
            bytes += usize::try_from(waiting)?;
        }
    }
    Ok(bytes)
}

fn burst() -> Result<Completion> {
    let (mut client, to_server, mut server, _) = pair()?;
    for round in 0..10 {
        while server.poll()?.is_some() || server.arm()? == Armed::Work {}
        ensure!(waiting_packets()? == 0);
        for number in 0..50 {
            client.send_unexpected(to_server, number, &pattern(round, 100))?;
        }
        ensure!(waiting_packets()? == 1, "{} packets for one arming", waiting_packets()?);
        for _ in 0..50 {
            server.recv_unexpected(&mut [0; 100])?;
        }
    }
    Ok(Completion::Completed)
}

fn readable() -> Result<Completion> {
    let mut server = Endpoint::listen(&unique())?;
    let arm = |server: &mut Endpoint| -> Result<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            while let Some(event) = server.poll()? {
                events.push(event);
            }
            if server.arm()? == Armed::Sleep {
                return Ok(events);
            }
        }
    };
    ensure!(arm(&mut server)?.is_empty() && !is_readable(&server, 0)?);
    let mut client = Endpoint::client()?;
    let peer = client.connect(server.address().context("it listens")?)?;
    ensure!(is_readable(&server, 5000)?, "a client has connected");
    let events = arm(&mut server)?;
    ensure!(matches!(events[..], [Event::Connected { .. }]), "{events:?}");
    ensure!(!is_readable(&server, 20)?);
    for number in 0..10 {
        ensure!(client.try_send_unexpected(peer, number, &[0; 50])?);
        ensure!(is_readable(&server, 5000)?, "message {number}");
        let events = arm(&mut server)?;
        ensure!(matches!(events[..], [Event::Message { tag, .. }] if tag == number), "{events:?}");
        ensure!(!is_readable(&server, 0)?, "it was reported");
    }
    // To receive is no work for the receiver, and tells the sender only if it waits.
    while server.try_recv_unexpected(&mut [0; 50])?.is_some() {}
    ensure!(!is_readable(&server, 0)?);
    while client.poll()?.is_some() {}
    while client.try_send_unexpected(peer, 0, &[0; 50])? {}
    arm(&mut server)?;
    while client.arm()? == Armed::Work {
        while client.poll()?.is_some() {}
    }
    ensure!(!is_readable(&client, 0)?);
    while server.try_recv_unexpected(&mut [0; 50])?.is_some() {}
    ensure!(is_readable(&client, 5000)?, "there is room again");
    ensure!(client.poll()?.is_some_and(|event| event == Event::Room { peer }) || client.arm()? == Armed::Work);
    arm(&mut server)?;
    drop(client);
    ensure!(is_readable(&server, 5000)?, "a client is gone");
    let events = arm(&mut server)?;
    ensure!(matches!(events[..], [.., Event::Closed { .. }]), "{events:?}");
    ensure!(!is_readable(&server, 20)?, "readable after one event");
    Ok(Completion::Completed)
}

fn draining() -> Result<Completion> {
    let name = unique();
    let mut server = Endpoint::listen(&name)?;
    let count = repeats(20_000) as u64;
    let sender = thread::spawn(move || -> Result<()> {
        let mut client = Endpoint::client()?;
        let peer = client.connect(&Address::local(&name)?)?;
        for number in 0..count {
            client.send_unexpected(peer, number, b"")?;
            for _ in 0..fastrand::u32(0..500) {
                std::hint::spin_loop();
            }
        }
        // It stays, so that nothing but messages can wake the server.
        while !matches!(client.wait(None)?, Some(Event::Closed { .. })) {}
        Ok(())
    });
    let mut received = 0;
    while received < count {
        // First what is reported, then what it was about: a message is reported once.
        while server.poll()?.is_some() {}
        while let Some(message) = server.try_recv_unexpected(&mut [])? {
            ensure!(message.tag == received);
            received += 1;
        }
        if received < count && server.arm()? == Armed::Sleep {
            ensure!(is_readable(&server, 20_000)?, "asleep after {received} messages");
        }
    }
    drop(server);
    sender.join().ok().context("no panic")??;
    Ok(Completion::Completed)
}

/// Raises the limit of descriptors as far as it may. Returns it.
pub(super) fn raise_descriptors() -> Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

fn connects_often(args: &[String]) -> Result<()> {
    raise_descriptors()?;
    let mut client = Endpoint::client()?;
    let address = Address::local(&args[0])?;
    let peers: Vec<_> =
        (0..args[1].parse::<usize>()?).map(|_| client.connect(&address)).collect::<Result<_, _>>()?;
    for (number, peer) in peers.iter().enumerate() {
        client.send_unexpected(*peer, number as u64, b"once")?;
    }
    child::say("connected")?;
    while let Some(number) = child::hear()? {
        client.send_unexpected(peers[number.parse::<usize>()?], 7, b"again")?;
    }
    Ok(())
}

fn idle() -> Result<Completion> {
    let limit = raise_descriptors()?;
    let count = if limit > 5000 { 1000 } else { limit as usize / 5 };
    let mut server = Endpoint::builder().spin(Duration::ZERO).listen(&unique())?;
    let name = server.address().context("it listens")?.name().to_owned();
    let mut clients = Child::start("connects often", &[&name, &count.to_string()])?;
    let mut data = [0; 8];
    for _ in 0..count {
        server.recv_unexpected(&mut data)?;
    }
    clients.says("connected")?;
    while server.wait(Some(Duration::from_millis(100)))?.is_some() {}
    let before = getrusage(UsageWho::RUSAGE_SELF)?;
    let start = Instant::now();
    ensure!(server.wait(Some(Duration::from_secs(2)))?.is_none());
    let elapsed = start.elapsed();
    let after = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = |usage: &nix::sys::resource::Usage| {
        let time = (usage.user_time(), usage.system_time());
        1_000_000 * (time.0.tv_sec() + time.1.tv_sec()) + time.0.tv_usec() + time.1.tv_usec()
    };
    let used = micros(&after) - micros(&before);
    // It sleeps once, and this program's other thread waits for it.
    let switches = after.voluntary_context_switches() - before.voluntary_context_switches();
    eprintln!("{count} idle peers: {used} µs of processor time in {elapsed:?}, {switches} sleeps");
    ensure!(used < 20_000 && switches <= 5, "{used} µs, {switches} sleeps");
    // And all of them can be heard.
    for number in [0, count / 2, count - 1] {
        clients.tell(&number.to_string())?;
        ensure!(server.recv_unexpected(&mut data)?.tag == 7);
    }
    clients.ends()?;
    let mut closed = 0;
    while closed < count {
        let event = server.wait(Some(Duration::from_secs(30)))?.context("all clients are gone")?;
        closed += usize::from(matches!(event, Event::Closed { .. }));
    }
    Ok(Completion::Completed)
}
