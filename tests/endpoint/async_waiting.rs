//! Tasks that wait for messages, and for room: none is forgotten, and futures that are dropped lose nothing.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use intranode::{Address, AsyncEndpoint, Endpoint, Event};
use libtest_mimic::Completion;
use tokio::time::timeout;

use super::asynchronous::{runtime, soon};
use super::messages::pattern;
use super::{Test, repeats, unique};

pub(super) const TESTS: &[Test] = &[
    ("async_futures_that_are_dropped_lose_nothing", dropped_receives),
    ("async_sends_that_are_dropped_were_not_sent", dropped_sends),
    ("async_senders_wait_for_room", room),
    ("async_short_messages_need_no_buffer", short_room),
    ("async_expected_behind_many_unexpected", behind),
    ("async_unexpected_behind_many_expected", behind_expected),
    ("async_what_was_not_taken_in_comes_without_a_ring", rest),
];

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

/// The task waits already when the messages come.
fn behind_expected() -> Result<Completion> {
    runtime()?.block_on(async {
        let server = AsyncEndpoint::listen(&unique())?;
        let address = server.address().context("it listens")?.clone();
        let client = thread::spawn(move || -> Result<Endpoint> {
            let mut client = Endpoint::client()?;
            let peer = client.connect(&address)?;
            thread::sleep(Duration::from_millis(20));
            (0..300).try_for_each(|number| client.send_expected(peer, number, &[1; 100]))?;
            client.send_unexpected(peer, 7, b"behind")?;
            client.recv_expected(peer, 8, &mut [0; 8])?;
            Ok(client)
        });
        let mut buffer = [0; 100];
        let message = soon(server.recv_unexpected(&mut buffer)).await?;
        ensure!((message.tag, message.bytes) == (7, 6), "{message:?}");
        for number in 0..300 {
            ensure!(soon(server.recv_expected(message.peer, number, &mut buffer)).await? == 100);
        }
        soon(server.send_expected(message.peer, 8, b"")).await?;
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
