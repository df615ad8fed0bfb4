//! Endpoints of processes that have no descriptors left.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use intranode::{Address, Armed, Ended, Endpoint, EndpointError, Event, Refusal};
use libtest_mimic::Completion;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::child::{self, Child};
use super::sleeping::is_readable;
use super::{Role, Test, unique};

pub(super) const TESTS: &[Test] = &[
    ("descriptors_that_run_out_are_no_reason_to_spin", no_descriptors),
    ("who_cannot_be_refused_either_keeps_no_server_awake", no_spare_descriptor),
    ("a_refused_descriptor_names_the_call", refused_descriptors),
    ("without_a_descriptor_no_address_is_taken_for_another_machines", no_descriptor_for_addresses),
];

pub(super) const ROLES: &[Role] = &[
    ("has few descriptors", has_few_descriptors),
    ("has no spare descriptor", has_no_spare_descriptor),
    ("makes endpoints without descriptors", makes_endpoints_without_descriptors),
    ("has addresses without descriptors", has_addresses_without_descriptors),
];

/// Open files, as long as there are descriptors for them.
fn files() -> impl Iterator<Item = File> {
    std::iter::from_fn(|| File::open("/dev/null").ok())
}

/// A server that has no descriptor left for a connection, or one, and says how much processor time it needs while one waits.
fn has_few_descriptors(args: &[String]) -> Result<()> {
    let mut server = Endpoint::builder().spin(Duration::ZERO).max_peers(1000).listen(&args[0])?;
    setrlimit(Resource::RLIMIT_NOFILE, 40, 40)?;
    let mut taken: Vec<_> = files().collect();
    taken.truncate(taken.len() - args[1].parse::<usize>()?);
    child::say("listens")?;
    let before = cpu_time::own()?;
    ensure!(server.wait(Some(Duration::from_secs(1)))?.is_none());
    let used = cpu_time::own()? - before;
    ensure!(used < Duration::from_millis(100), "{used:?} of processor time");
    child::say("slept")?;
    taken.clear();
    let mut buffer = [0; 8];
    let call = server.recv_unexpected(&mut buffer)?;
    server.send_expected(call.peer, call.tag, &buffer[..call.bytes])?;
    while child::hear()?.is_some() {}
    Ok(())
}

/// A server that cannot have its spare descriptor again, as if another thread had taken it. It says how often it is woken within a second while a
/// connection waits.
fn has_no_spare_descriptor(args: &[String]) -> Result<()> {
    let mut server = Endpoint::builder().spin(Duration::ZERO).listen(&args[0])?;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // Number 0 is taken. With less, not even one descriptor could be waited for.
    setrlimit(Resource::RLIMIT_NOFILE, 1, hard)?;
    child::say("listens")?;
    child::hear()?.context("that one has connected")?;
    let (begin, mut turns) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(1) {
        ensure!(server.poll()?.is_none());
        if server.arm()? == Armed::Sleep {
            is_readable(&server, 1000)?;
        }
        turns += 1;
    }
    // It looks again after some time, of which it is told twice.
    ensure!(turns < 100, "it was woken {turns} times");
    // While it sleeps in a call of its own descriptors are given back.
    let gives_back = thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard)
    });
    let mut buffer = [0; 8];
    let call = server.recv_unexpected(&mut buffer)?;
    gives_back.join().ok().context("no panic")??;
    server.send_expected(call.peer, call.tag, &buffer[..call.bytes])?;
    while child::hear()?.is_some() {}
    Ok(())
}

fn no_spare_descriptor() -> Result<Completion> {
    let name = unique();
    let mut server = Child::start("has no spare descriptor", &[&name])?;
    server.says("listens")?;
    let mut client = Endpoint::client()?;
    let peer = client.connect(&Address::local(&name)?)?;
    client.send_unexpected(peer, 1, b"waits")?;
    server.tell("connected")?;
    ensure!(client.recv_expected(peer, 1, &mut [0; 8])? == 5);
    server.ends()?;
    Ok(Completion::Completed)
}

/// Each call has one descriptor more each time, until it works.
fn makes_endpoints_without_descriptors(args: &[String]) -> Result<()> {
    let address = Address::local(&args[0])?;
    let mut client = Endpoint::client()?;
    setrlimit(Resource::RLIMIT_NOFILE, 40, 40)?;
    let mut taken: Vec<_> = files().collect();
    let name = unique();
    let mut refused = |call: &str,
                       mut make: Box<dyn FnMut() -> Result<(), EndpointError> + '_>|
     -> Result<()> {
        let mut errors = 0;
        while let Err(error) = make() {
            ensure!(matches!(error, EndpointError::System { operation, .. } if operation == call), "{error}");
            ensure!(error.to_string().starts_with(&format!("{call}: the system refuses")), "{error}");
            errors += 1;
            taken.pop().with_context(|| format!("{call} works with some descriptors"))?;
        }
        ensure!(errors > 0, "{call} needs no descriptor");
        // What has failed has left nothing.
        taken.extend(files());
        Ok(())
    };
    refused("client", Box::new(|| Endpoint::client().map(drop)))?;
    refused("listen", Box::new(|| Endpoint::listen(&name).map(drop)))?;
    refused("connect", Box::new(|| client.connect(&address).map(drop)))
}

fn refused_descriptors() -> Result<Completion> {
    let server = Endpoint::listen(&unique())?;
    let address = server.address().context("it listens")?.clone();
    Child::start("makes endpoints without descriptors", &[address.name()])?.ends()?;
    Ok(Completion::Completed)
}

/// Before this process has had to know which machine it is on.
fn has_addresses_without_descriptors(args: &[String]) -> Result<()> {
    let mut client = Endpoint::client()?;
    setrlimit(Resource::RLIMIT_NOFILE, 40, 40)?;
    let taken: Vec<_> = files().collect();
    let address: Address = args[0].parse()?;
    let refused = |result: Result<(), EndpointError>, call: &str| {
        let is_refused = matches!(&result, Err(EndpointError::System { operation, .. }) if *operation == call);
        ensure!(is_refused, "{call}: {result:?}");
        Ok(())
    };
    refused(Address::local(address.name()).map(drop), "local")?;
    refused(client.connect(&address).map(drop), "connect")?;
    refused(client.route(&address).map(drop), "connect")?;
    refused(Endpoint::listen(&unique()).map(drop), "listen")?;
    drop(taken);
    ensure!(Address::local(address.name())?.is_local());
    client.connect(&address)?;
    Ok(())
}

fn no_descriptor_for_addresses() -> Result<Completion> {
    let server = Endpoint::listen(&unique())?;
    let address = server.address().context("it listens")?.clone().with_remote("tcp://nowhere:1")?;
    Child::start("has addresses without descriptors", &[&address.to_string()])?.ends()?;
    Ok(Completion::Completed)
}

/// The processor time of this process.
mod cpu_time {
    use std::time::Duration;

    use nix::time::{ClockId, clock_gettime};

    pub(super) fn own() -> anyhow::Result<Duration> {
        Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into())
    }
}

fn no_descriptors() -> Result<Completion> {
    // With one it can accept the connection, and not its memory.
    ["0", "1"].into_iter().try_for_each(refuses_without_descriptors)?;
    Ok(Completion::Completed)
}

fn refuses_without_descriptors(left: &str) -> Result<()> {
    let name = unique();
    let mut server = Child::start("has few descriptors", &[&name, left])?;
    server.says("listens")?;
    let address = Address::local(&name)?;
    let mut client = Endpoint::client()?;
    // One after the other.
    for number in 0..2 {
        client.connect(&address)?;
        let event = client.wait(Some(Duration::from_secs(20)))?;
        ensure!(
            matches!(event, Some(Event::Closed { ended: Ended::Refused(Refusal::Resources), .. })),
            "client {number}, {left} left: {event:?}"
        );
    }
    server.says("slept")?;
    let peer = client.connect(&address)?;
    client.send_unexpected(peer, 1, b"now")?;
    ensure!(client.recv_expected(peer, 1, &mut [0; 8])? == 3);
    server.ends()
}
