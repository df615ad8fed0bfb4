//! Endpoints that the tasks of a tokio runtime share.

use std::future::Future;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use intranode::{Address, AsyncEndpoint, Ended, Endpoint, EndpointError, Event};
use libtest_mimic::Completion;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::messages::{calls, pattern, start_echo};
use super::{Test, repeats, unique};

pub(super) const TESTS: &[Test] = &[
    ("async_tasks_share_an_endpoint", many_tasks),
    ("async_runtimes_share_an_endpoint_with_other_threads", other_threads),
    ("async_futures_that_are_dropped_lose_nothing", dropped_receives),
    ("async_sends_that_are_dropped_were_not_sent", dropped_sends),
    ("async_senders_wait_for_room", room),
    ("async_short_messages_need_no_buffer", short_room),
    ("async_expected_behind_many_unexpected", behind),
    ("async_what_was_not_taken_in_comes_without_a_ring", rest),
    ("async_others_run_while_messages_pour_in", flood),
    ("async_peers_that_are_gone", gone),
    ("async_names_are_free_at_once", names),
    ("async_without_a_runtime", no_runtime),
];

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// For what must happen. A test that hangs has a limit of its own, which says less.
async fn soon<T>(future: impl Future<Output = Result<T, EndpointError>>) -> Result<T> {
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

/// A thread that sends numbers, of all lengths, and leaves when it is told to.
fn numbers(
    address: Address,
    count: u64,
    leave: std::sync::mpsc::Receiver<()>,
) -> thread::JoinHandle<Result<()>> {
    thread::spawn(move || {
        let mut client = Endpoint::client()?;
        let peer = client.connect(&address)?;
        for number in 0..count {
            client.send_unexpected(peer, number, &pattern(number as usize, number as usize % 100))?;
            for _ in 0..fastrand::u32(0..500) {
                std::hint::spin_loop();
            }
        }
        let _ = leave.recv();
        Ok(())
    })
}

fn dropped_receives() -> Result<Completion> {
    let count = repeats(10_000) as u64;
    runtime()?.block_on(async {
        let server = AsyncEndpoint::listen(&unique())?;
        let (done, leave) = std::sync::mpsc::channel();
        let sender = numbers(server.address().context("it listens")?.clone(), count, leave);
        let (mut received, mut dropped) = (0, 0);
        let mut buffer = [0; 100];
        while received < count {
            let message = tokio::select! {
                biased;
                () = polls(fastrand::u32(0..4)) => {
                    dropped += 1;
                    continue;
                }
                message = server.recv_unexpected(&mut buffer) => message?,
            };
            ensure!(message.tag == received, "{message:?} instead of {received}");
            ensure!(buffer[..message.bytes] == pattern(received as usize, received as usize % 100));
            received += 1;
        }
        ensure!(dropped > 100, "only {dropped} were dropped");
        drop(done);
        sender.join().ok().context("no panic")?
    })?;
    Ok(Completion::Completed)
}

/// Is ready after a number of polls, between which others run.
async fn polls(number: u32) {
    for _ in 0..number {
        tokio::task::yield_now().await;
    }
}

fn dropped_sends() -> Result<Completion> {
    let count = repeats(5000) as u64;
    runtime()?.block_on(async {
        let server = Arc::new(AsyncEndpoint::listen(&unique())?);
        let client = AsyncEndpoint::client()?;
        let peer = client.connect(server.address().context("it listens")?).await?;
        let receiver = tokio::spawn(async move {
            for number in 0..count {
                let message = soon(server.recv_unexpected(&mut [0; 64])).await?;
                ensure!(message.tag == number, "{message:?} instead of {number}");
            }
            // What was dropped does not come later.
            let more = timeout(Duration::from_millis(20), server.recv_unexpected(&mut [0; 64])).await;
            ensure!(more.is_err(), "{more:?}");
            Ok(())
        });
        let (mut sent, mut dropped) = (0, 0u64);
        while sent < count {
            tokio::select! {
                biased;
                done = client.send_unexpected(peer, sent, &[0; 64]) => {
                    done?;
                    sent += 1;
                }
                () = polls(fastrand::u32(0..2)) => dropped += 1,
            }
        }
        ensure!(dropped > 10, "only {dropped} were dropped");
        receiver.await?
    })?;
    Ok(Completion::Completed)
}

fn room() -> Result<Completion> {
    let count = repeats(300) as u64;
    runtime()?.block_on(async {
        let mut server = Endpoint::listen(&unique())?;
        let client = Arc::new(AsyncEndpoint::client()?);
        let peer = client.connect(server.address().context("it listens")?).await?;
        let senders: Vec<_> = (0..8u64)
            .map(|sender| {
                let client = Arc::clone(&client);
                tokio::spawn(async move {
                    for number in 0..count {
                        // Some need a buffer, and some do not.
                        let len = if (sender + number) % 3 == 0 { 8 } else { 1000 };
                        soon(client.send_unexpected(peer, sender << 32 | number, &vec![0; len])).await?;
                    }
                    Ok::<_, anyhow::Error>(())
                })
            })
            .collect();
        let receiver = thread::spawn(move || -> Result<Endpoint> {
            let mut next = [0; 8];
            for _ in 0..8 * count {
                let tag = server.recv_unexpected(&mut [0; 1000])?.tag;
                let (sender, number) = ((tag >> 32) as usize, tag & 0xFFFF_FFFF);
                ensure!(number == next[sender], "{number} of sender {sender} instead of {}", next[sender]);
                next[sender] += 1;
            }
            Ok(server)
        });
        for sender in senders {
            sender.await??;
        }
        let server = tokio::task::spawn_blocking(move || receiver.join());
        server.await?.ok().context("no panic")??;
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(Completion::Completed)
}

fn short_room() -> Result<Completion> {
    runtime()?.block_on(async {
        let mut server = Endpoint::listen(&unique())?;
        let client = Arc::new(AsyncEndpoint::client()?);
        let peer = client.connect(server.address().context("it listens")?).await?;
        // Otherwise it would be woken by being accepted.
        ensure!(server.wait(Some(Duration::from_secs(20)))?.is_some());
        ensure!(soon(client.next_event()).await? == Event::Connected { peer });
        while client.try_send_unexpected(peer, 1, &[0; 1000])? {}
        // A task is polled only when it is woken.
        let sender = Arc::clone(&client);
        let short = tokio::spawn(async move { sender.send_unexpected(peer, 2, &[0; 8]).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        ensure!(!short.is_finished(), "there is no room");
        // Taken in, the long ones leave their places in the ring, and keep their buffers.
        while server.poll()?.is_some() {}
        timeout(Duration::from_secs(30), short).await.context("nobody has woken it")???;
        ensure!(!client.try_send_unexpected(peer, 3, &[0; 1000])?);
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(Completion::Completed)
}

fn behind() -> Result<Completion> {
    runtime()?.block_on(async {
        let server = AsyncEndpoint::listen(&unique())?;
        let address = server.address().context("it listens")?.clone();
        let client = thread::spawn(move || -> Result<Endpoint> {
            let mut client = Endpoint::client()?;
            let peer = client.connect(&address)?;
            (0..200).try_for_each(|number| client.send_unexpected(peer, number, &[1; 100]))?;
            client.send_expected(peer, 7, b"behind")?;
            client.recv_expected(peer, 8, &mut [0; 8])?;
            Ok(client)
        });
        let Event::Connected { peer } = soon(server.next_event()).await? else {
            anyhow::bail!("a client has connected");
        };
        let mut buffer = [0; 100];
        ensure!(soon(server.recv_expected(peer, 7, &mut buffer)).await? == 6);
        for number in 0..200 {
            ensure!(soon(server.recv_unexpected(&mut buffer)).await?.tag == number);
        }
        soon(server.send_expected(peer, 8, b"")).await?;
        client.join().ok().context("no panic")??;
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(Completion::Completed)
}

fn rest() -> Result<Completion> {
    // Of a peer 128 messages are taken in before one is received; 64 more are in its ring, and it says nothing more.
    const COUNT: u64 = 190;
    runtime()?.block_on(async {
        let server = AsyncEndpoint::listen(&unique())?;
        let address = server.address().context("it listens")?.clone();
        let sent = tokio::task::spawn_blocking(move || -> Result<Endpoint> {
            let mut client = Endpoint::client()?;
            let peer = client.connect(&address)?;
            (0..COUNT).try_for_each(|number| client.send_unexpected(peer, number, b"short"))?;
            Ok(client)
        });
        let client = sent.await??;
        // Until the endpoint sleeps; there is nothing that would say so.
        tokio::time::sleep(Duration::from_millis(20)).await;
        for number in 0..COUNT {
            ensure!(soon(server.recv_unexpected(&mut [0; 8])).await?.tag == number);
        }
        drop(client);
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(Completion::Completed)
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
