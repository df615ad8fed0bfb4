//! A test's name begins with the number of its case in the design of messages. Servers and clients are processes that run this
//! program, with the name of a function and its arguments. Every test has a time limit, and what it has started is killed then.
//!
//! `ENDPOINT_REPEAT=10` repeats what is repeated ten times as often.

#[cfg(feature = "tokio")]
#[path = "async_roles.rs"]
mod async_roles;
#[cfg(feature = "tokio")]
#[path = "async_transfers.rs"]
mod async_transfers;
#[cfg(feature = "tokio")]
#[path = "async_waiting.rs"]
mod async_waiting;
#[cfg(feature = "tokio")]
#[path = "asynchronous.rs"]
mod asynchronous;
#[path = "bulk.rs"]
mod bulk;
#[path = "bulk_pull.rs"]
mod bulk_pull;
#[path = "child.rs"]
mod child;
#[path = "connecting.rs"]
mod connecting;
#[path = "descriptors.rs"]
mod descriptors;
#[path = "event_loops.rs"]
mod event_loops;
#[path = "faults.rs"]
mod faults;
#[path = "files.rs"]
mod files;
#[path = "flooding.rs"]
mod flooding;
#[path = "forged_answers.rs"]
mod forged_answers;
#[path = "forger.rs"]
mod forger;
#[path = "forging.rs"]
mod forging;
#[path = "hostile.rs"]
mod hostile;
#[path = "key_value.rs"]
mod key_value;
#[path = "lingering.rs"]
mod lingering;
#[path = "messages.rs"]
mod messages;
#[path = "namespaces.rs"]
mod namespaces;
#[path = "one_sided.rs"]
mod one_sided;
#[path = "owner.rs"]
mod owner;
#[path = "puts.rs"]
mod puts;
#[path = "random.rs"]
mod random;
#[path = "receiving.rs"]
mod receiving;
#[path = "routes.rs"]
mod routes;
#[path = "sent.rs"]
mod sent;
#[path = "sharing.rs"]
mod sharing;
#[path = "sleeping.rs"]
mod sleeping;
#[path = "steps.rs"]
mod steps;
#[path = "system_calls.rs"]
mod system_calls;
#[path = "transfers.rs"]
mod transfers;
#[path = "unmapped.rs"]
mod unmapped;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use intranode::Endpoint;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// A test.
type Test = (&'static str, fn() -> Result<Completion>);

/// What a child does, with its arguments.
type Role = (&'static str, fn(&[String]) -> Result<()>);

/// The longest that a test takes, on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|arg| arg == child::FLAG) {
        let roles = [
            messages::ROLES,
            receiving::ROLES,
            sleeping::ROLES,
            connecting::ROLES,
            descriptors::ROLES,
            faults::ROLES,
            hostile::ROLES,
            owner::ROLES,
            event_loops::ROLES,
            routes::ROLES,
            sharing::ROLES,
            files::ROLES,
            namespaces::ROLES,
            steps::ROLES,
            system_calls::ROLES,
            unmapped::ROLES,
            #[cfg(feature = "tokio")]
            async_roles::ROLES,
        ]
        .concat();
        return child::run(&roles, &args[2..]);
    }
    let mut arguments = Arguments::from_args();
    // They measure descriptors and memory of this process, too.
    arguments.test_threads = Some(1);
    let tests = [
        messages::TESTS,
        receiving::TESTS,
        random::TESTS,
        sleeping::TESTS,
        connecting::TESTS,
        descriptors::TESTS,
        faults::TESTS,
        hostile::TESTS,
        flooding::TESTS,
        forging::TESTS,
        bulk::TESTS,
        event_loops::TESTS,
        key_value::TESTS,
        lingering::TESTS,
        routes::TESTS,
        #[cfg(feature = "tokio")]
        asynchronous::TESTS,
        #[cfg(feature = "tokio")]
        async_waiting::TESTS,
        #[cfg(feature = "tokio")]
        async_transfers::TESTS,
        #[cfg(feature = "tokio")]
        async_roles::TESTS,
        bulk_pull::TESTS,
        sharing::TESTS,
        one_sided::TESTS,
        puts::TESTS,
        sent::TESTS,
        transfers::TESTS,
        files::TESTS,
        namespaces::TESTS,
        steps::TESTS,
        system_calls::TESTS,
        unmapped::TESTS,
    ]
    .concat();
    let names: Vec<_> = tests.iter().map(|(name, _)| *name).collect();
    let table = Trial::test("the_table_of_cases_names_all_tests", move || Ok(check_table(&names)?));
    let trial = |(name, test): Test| Trial::ignorable_test(name, move || limited(test));
    let trials = tests.into_iter().map(trial).chain([table]);
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// docs/endpoint-cases.md names the tests of each case, and no others.
fn check_table(names: &[&str]) -> Result<()> {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/endpoint-cases.md");
    let text = std::fs::read_to_string(file)?;
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let named: Vec<_> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
    // Without the feature some are not there.
    let is_there = |name: &str| names.contains(&name) || !cfg!(feature = "tokio");
    for name in named.iter().filter(|name| name.contains('_') && !name.contains('=')) {
        anyhow::ensure!(is_there(name), "{name} is in the table, and no test");
    }
    for name in names.iter().filter(|name| name.starts_with("case_")) {
        anyhow::ensure!(named.contains(name), "{name} is not in the table");
    }
    Ok(())
}

fn limited(test: fn() -> Result<Completion>) -> Result<Completion, Failed> {
    let (done, result) = mpsc::channel();
    let running = thread::spawn(move || {
        let _ = done.send(test());
    });
    match result.recv_timeout(LIMIT) {
        Ok(result) => result.map_err(|error| format!("{error:?}").into()),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(format!("not done within {LIMIT:?}").into()),
        Err(mpsc::RecvTimeoutError::Disconnected) => match running.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => Err("no result".into()),
        },
    }
}

/// How often something is repeated that is repeated so often in the usual run.
fn repeats(usual: usize) -> usize {
    let factor = std::env::var("ENDPOINT_REPEAT").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1);
    usual * factor
}

/// A name that no other test has.
fn unique() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A server and a client of this process, connected: with the client's peer and the server's.
fn pair() -> Result<(Endpoint, intranode::Peer, Endpoint, intranode::Peer)> {
    let mut server = Endpoint::listen(&unique())?;
    let mut client = Endpoint::client()?;
    let to_server = client.connect(server.address().expect("it listens"))?;
    let event = server.wait(Some(Duration::from_secs(10)))?;
    let Some(intranode::Event::Connected { peer: to_client }) = event else {
        anyhow::bail!("no connection: {event:?}");
    };
    let event = client.wait(Some(Duration::from_secs(10)))?;
    anyhow::ensure!(matches!(event, Some(intranode::Event::Connected { .. })), "not accepted: {event:?}");
    Ok((client, to_server, server, to_client))
}
