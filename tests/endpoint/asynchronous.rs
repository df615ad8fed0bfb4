//! Endpoints that the tasks of a tokio runtime share.

use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use intranode::{Address, AsyncEndpoint, Ended, Endpoint, EndpointError, Event};
use libtest_mimic::Completion;
use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::messages::{calls, pattern, start_echo};
use super::{Test, repeats, unique};

pub(super) const TESTS: &[Test] = &[
    ("async_tasks_share_an_endpoint", many_tasks),
    ("async_runtimes_share_an_endpoint_with_other_threads", other_threads),
    ("async_others_run_while_messages_pour_in", flood),
    ("async_peers_that_are_gone", gone),
    ("async_names_are_free_at_once", names),
    ("async_connects_where_many_wait", connects_where_many_wait),
    ("async_without_a_runtime", no_runtime),
    ("async_connects_at_a_time_are_no_more_than_peers", connects_at_a_time),
];

pub(super) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// For what must happen. A test that hangs has a limit of its own, which says less.
pub(super) async fn soon<T>(future: impl Future<Output = Result<T, EndpointError>>) -> Result<T> {
    Ok(timeout(Duration::from_secs(30), future).await.context("nothing has come of it")??)
}

/// Answers each call with what it was.
async fn echo(server: &AsyncEndpoint, count: usize) -> Result<()> {
    let mut buffer = [0; 4096];
    for _ in 0..count {
        let call = soon(server.recv_unexpected(&mut buffer)).await?;
        soon(server.send_expected(call.peer, call.tag, &buffer[..call.bytes])).await?;
    }
    Ok(())
}

fn many_tasks() -> Result<Completion> {
    const TASKS: usize = 16;
    let rounds = repeats(200);
    let (server, address) = start_echo()?;
    runtime()?.block_on(async {
        let own = Arc::new(AsyncEndpoint::listen(&unique())?);
        let own_address = own.address().context("it listens")?.clone();
        let client = Arc::new(AsyncEndpoint::client()?);
        // A process, and an endpoint of this runtime.
        let peers = [client.connect(&address).await?, client.connect(&own_address).await?];
        let answers = tokio::spawn(async move { echo(&own, TASKS * rounds).await });
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let client = Arc::clone(&client);
                tokio::spawn(async move {
                    let mut answer = [0; 4096];
                    for call in 0..2 * rounds {
                        let (peer, tag) = (peers[call % 2], (task * 2 * rounds + call) as u64);
                        let data = pattern(call + task, (call * 37 + task) % 4097);
                        soon(client.send_unexpected(peer, tag, &data)).await?;
                        let bytes = soon(client.recv_expected(peer, tag, &mut answer)).await?;
                        ensure!(answer[..bytes] == data, "task {task}, call {call}");
                    }
                    Ok(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        answers.await?
    })?;
    drop(server);
    Ok(Completion::Completed)
}

fn other_threads() -> Result<Completion> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let server = runtime.block_on(async { AsyncEndpoint::listen(&unique()) })?;
    let (server, count) = (Arc::new(server), repeats(2000));
    let address = server.address().context("it listens")?.clone();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let server = Arc::clone(&server);
            runtime.spawn(async move { echo(&server, count / 4).await })
        })
        .collect();
    // One that does not belong to the runtime waits in it too.
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let address = address.clone();
            thread::spawn(move || calls(&address, count / 4))
        })
        .collect();
    for client in clients {
        client.join().ok().context("no panic")??;
    }
    runtime.block_on(async {
        for task in tasks {
            task.await??;
        }
        Ok(Completion::Completed)
    })
}

fn flood() -> Result<Completion> {
    runtime()?.block_on(async {
        let server = Arc::new(AsyncEndpoint::listen(&unique())?);
        let address = server.address().context("it listens")?.clone();
        let sender = thread::spawn(move || -> Result<()> {
            let mut client = Endpoint::client()?;
            let peer = client.connect(&address)?;
            loop {
                match client.send_unexpected(peer, 0, b"again") {
                    Err(EndpointError::PeerGone { .. }) => return Ok(()),
                    sent => sent?,
                }
            }
        });
        let receiver = Arc::clone(&server);
        let task = tokio::spawn(async move { while receiver.recv_unexpected(&mut [0; 8]).await.is_ok() {} });
        // Another task, and the clock.
        for _ in 0..20 {
            timeout(Duration::from_secs(20), tokio::time::sleep(Duration::from_millis(5))).await?;
        }
        task.abort();
        let _ = task.await;
        drop(server);
        sender.join().ok().context("no panic")?
    })?;
    Ok(Completion::Completed)
}

fn gone() -> Result<Completion> {
    let (echo, address) = start_echo()?;
    runtime()?.block_on(async {
        let client = Arc::new(AsyncEndpoint::client()?);
        let peer = client.connect(&address).await?;
        soon(client.send_unexpected(peer, 1, b"once")).await?;
        soon(client.recv_expected(peer, 1, &mut [0; 8])).await?;
        ensure!(soon(client.next_event()).await? == Event::Connected { peer });
        let waiting: Vec<_> = (0..4)
            .map(|tag| {
                let client = Arc::clone(&client);
                tokio::spawn(async move { client.recv_expected(peer, tag, &mut [0; 8]).await })
            })
            .collect();
        tokio::task::yield_now().await;
        echo.kill()?;
        for waiting in waiting {
            let error = timeout(Duration::from_secs(30), waiting).await??;
            ensure!(matches!(error, Err(EndpointError::PeerGone { ended: Ended::Died, .. })), "{error:?}");
        }
        ensure!(soon(client.next_event()).await? == Event::Closed { peer, ended: Ended::Died });
        let error = client.send_unexpected(peer, 1, b"").await;
        ensure!(matches!(error, Err(EndpointError::PeerGone { .. })), "{error:?}");
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(Completion::Completed)
}

fn names() -> Result<Completion> {
    let name = unique();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        for _ in 0..repeats(200) {
            let server = AsyncEndpoint::listen(&name)?;
            let client = AsyncEndpoint::client()?;
            let peer = client.connect(server.address().context("it listens")?).await?;
            client.send_unexpected(peer, 1, b"").await?;
            drop(server);
            drop(AsyncEndpoint::listen(&name)?);
            let error = soon(client.recv_expected(peer, 1, &mut [])).await;
            ensure!(error.is_err(), "the server is gone");
        }
        Ok(Completion::Completed)
    })
}

fn no_runtime() -> Result<Completion> {
    let error = AsyncEndpoint::client();
    ensure!(matches!(error, Err(EndpointError::NoRuntime)), "{error:?}");
    let first = runtime()?;
    let server = first.block_on(async { AsyncEndpoint::listen(&unique()) })?;
    let second = runtime()?;
    second.block_on(async {
        let mut buffer = [0; 8];
        let receiving = server.recv_unexpected(&mut buffer);
        tokio::pin!(receiving);
        ensure!(timeout(Duration::from_millis(20), &mut receiving).await.is_err());
        // A runtime must not be dropped inside of another.
        thread::spawn(move || drop(first)).join().ok().context("no panic")?;
        let error = timeout(Duration::from_secs(20), receiving).await?;
        ensure!(matches!(error, Err(EndpointError::NoRuntime)), "{error:?}");
        Ok::<_, anyhow::Error>(())
    })?;
    let error = server.share(Vec::new(), intranode::Access::Read);
    ensure!(matches!(error, Err(EndpointError::NoRuntime)), "{error:?}");
    Ok(Completion::Completed)
}

/// One that listens, and accepts nobody by itself: there is no room for another that waits for that.
fn listens_and_is_full(name: &str) -> Result<(OwnedFd, OwnedFd)> {
    let address = UnixAddr::new_abstract(format!("intranode-{}-{name}", nix::unistd::geteuid()).as_bytes())?;
    let new = || socket::socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None);
    let (listener, waits) = (new()?, new()?);
    socket::bind(listener.as_raw_fd(), &address)?;
    socket::listen(&listener, Backlog::new(0)?)?;
    socket::connect(waits.as_raw_fd(), &address)?;
    Ok((listener, waits))
}

fn connects_where_many_wait() -> Result<Completion> {
    let name = unique();
    let address = Address::local(&name)?;
    let (listener, _waits) = listens_and_is_full(&name)?;
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
    runtime.block_on(async {
        let client = AsyncEndpoint::new(Endpoint::builder().timeout(None).client()?)?;
        for _ in 0..3 {
            let connected = timeout(Duration::from_millis(20), client.connect(&address)).await;
            ensure!(connected.is_err(), "{connected:?}, and there is no room");
        }
        // Those take no thread any more.
        timeout(Duration::from_secs(30), tokio::task::spawn_blocking(|| ())).await.context("a thread")??;
        let limited = Endpoint::builder().timeout(Duration::from_millis(30)).client()?;
        let limited = AsyncEndpoint::new(limited)?;
        let late = timeout(Duration::from_secs(30), limited.connect(&address)).await?;
        ensure!(matches!(late, Err(EndpointError::TimedOut { .. })), "{late:?}");
        // Once there is room it connects.
        let (connected, accepted) = tokio::join!(soon(client.connect(&address)), async {
            yield_now().await;
            socket::accept(listener.as_raw_fd())
        });
        connected?;
        nix::unistd::close(accepted?)?;
        Ok::<_, anyhow::Error>(())
    })?;
    drop(runtime);
    Ok(Completion::Completed)
}

/// All of them find room, and wait to be accepted.
fn connects_at_a_time() -> Result<Completion> {
    let name = unique();
    let address = Address::local(&name)?;
    let (listener, first) = listens_and_is_full(&name)?;
    let (begin, begins) = channel();
    let acceptor = thread::spawn(move || -> Result<()> {
        begins.recv()?;
        let accepted = (0..4).map(|_| socket::accept(listener.as_raw_fd())).collect::<Result<Vec<_>, _>>()?;
        // A peer whose connection is closed makes room for another.
        ensure!(begins.recv().is_err(), "the client is done");
        Ok(accepted.into_iter().try_for_each(nix::unistd::close)?)
    });
    let connected = runtime()?.block_on(async {
        let client = AsyncEndpoint::new(Endpoint::builder().max_peers(1).client()?)?;
        let connect = || soon(async { Ok(client.connect(&address).await) });
        let (one, two, three, ()) =
            tokio::join!(connect(), connect(), connect(), async { begin.send(()).expect("it waits") });
        Ok::<_, anyhow::Error>([one?, two?, three?])
    })?;
    let is_refused = |result: &&Result<_, _>| matches!(result, Err(EndpointError::TooManyPeers { peers: 1 }));
    ensure!(connected.iter().filter(is_refused).count() == 2, "{connected:?}");
    ensure!(connected.iter().filter(|result| result.is_ok()).count() == 1, "{connected:?}");
    drop((first, begin));
    acceptor.join().ok().context("no panic")??;
    Ok(Completion::Completed)
}
