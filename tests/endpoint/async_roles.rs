//! Endpoints of tasks in processes of their own: one that forks, and one that has no descriptors left.

use std::fs::File;
use std::future::Future;
use std::pin::pin;
use std::process::exit;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use intranode::{Access, Address, AsyncEndpoint, Ended, Endpoint, EndpointError, Event, Refusal};
use libtest_mimic::Completion;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{ForkResult, fork};

use super::asynchronous::{runtime, soon};
use super::child::{self, Child};
use super::faults::ends_well;
use super::{Role, Test, unique};

pub(super) const TESTS: &[Test] = &[
    ("async_calls_in_a_forked_child_fail", calls_in_a_child),
    ("async_clients_are_refused_where_descriptors_run_out", refused),
];

pub(super) const ROLES: &[Role] =
    &[("fails in a child of a task", fails_in_a_child), ("has no descriptors", has_no_descriptors)];

fn calls_in_a_child() -> Result<Completion> {
    for way in [DROPS, GOES_ON] {
        let mut parent = Child::start("fails in a child of a task", &[way])?;
        parent.says("both")?;
        parent.ends()?;
    }
    Ok(Completion::Completed)
}

/// What the child does with a transfer.
const DROPS: &str = "drops";
const GOES_ON: &str = "goes on";

/// Polls a future once.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut TaskContext::from_waker(Waker::noop()))
}

/// Forks while one transfer waits for room, and another has an answer that gives it a lease. The runtime's own descriptors are the parent's:
/// the child does not enter it again.
fn fails_in_a_child(args: &[String]) -> Result<()> {
    const LEN: usize = 1_000_000;
    runtime()?.block_on(async {
        let mut server = Endpoint::listen(&unique())?;
        let handle = server.share(vec![vec![7; LEN].into()], Access::ReadWrite).handle();
        let client = AsyncEndpoint::client()?;
        let peer = client.connect(server.address().context("it listens")?).await?;
        let mut get = Box::pin(client.get(peer, &handle, 0, vec![vec![0; LEN]]));
        ensure!(poll_once(get.as_mut()).is_pending());
        // What was asked before is answered, and taken in, by the time that this is.
        client.send_unexpected(peer, 1, b"").await?;
        let to_client = server.recv_unexpected(&mut [])?.peer;
        server.send_expected(to_client, 1, b"")?;
        soon(client.recv_expected(peer, 1, &mut [])).await?;
        while client.try_send_unexpected(peer, 2, &[0; 4096])? {}
        let mut put = pin!(client.put(peer, &handle, 0, vec![vec![8; LEN]]));
        ensure!(poll_once(put.as_mut()).is_pending());
        // SAFETY: this process has one thread.
        if let ForkResult::Parent { child } = unsafe { fork() }? {
            ends_well(child)?;
            let (result, got) = get.await;
            result?;
            ensure!(got[0] == [7; LEN]);
            return child::say("both");
        }
        // If it hangs, it does not live for ever.
        nix::unistd::alarm::set(60);
        if args[0] == DROPS {
            drop(get);
            exit(0);
        }
        let put = poll_once(put.as_mut());
        exit(i32::from(!matches!(put, Poll::Ready((Err(EndpointError::Forked), _)))));
    })
}

/// A server that has no descriptor left for a connection.
fn has_no_descriptors(args: &[String]) -> Result<()> {
    runtime()?.block_on(async {
        let server = AsyncEndpoint::listen(&args[0])?;
        setrlimit(Resource::RLIMIT_NOFILE, 40, 40)?;
        let _taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        child::say("listens")?;
        let event = server.next_event().await;
        anyhow::bail!("it has room: {event:?}")
    })
}

/// They have connected by the time that it looks, which it is told of once.
fn refused() -> Result<Completion> {
    const COUNT: usize = 20;
    let name = unique();
    let mut server = Child::start("has no descriptors", &[&name])?;
    server.says("listens")?;
    server.signal(Signal::SIGSTOP)?;
    let address = Address::local(&name)?;
    let mut clients = (0..COUNT).map(|_| Endpoint::client()).collect::<Result<Vec<_>, _>>()?;
    clients.iter_mut().try_for_each(|client| client.connect(&address).map(drop))?;
    server.signal(Signal::SIGCONT)?;
    for (number, client) in clients.iter_mut().enumerate() {
        let event = client.wait(Some(Duration::from_secs(20)))?;
        ensure!(
            matches!(event, Some(Event::Closed { ended: Ended::Refused(Refusal::Resources), .. })),
            "client {number}: {event:?}"
        );
    }
    server.kill()?;
    Ok(Completion::Completed)
}
