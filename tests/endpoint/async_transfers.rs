//! Gets and puts of tasks: of all shapes, many at once, and futures that are dropped.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Waker};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use intranode::{Access, Address, AsyncEndpoint, Endpoint, EndpointError, Event, Handle, Peer, Registration};
use libtest_mimic::Completion;
use tokio::task::yield_now;

use super::asynchronous::{runtime, soon};
use super::child::Child;
use super::messages::pattern;
use super::owner::{SHARE, refuse_reading};
use super::{Test, repeats, unique};

pub(super) const TESTS: &[Test] = &[
    ("async_gets_and_puts_of_all_shapes", all_shapes),
    ("async_gets_and_puts_where_memory_cannot_be_read", staged),
    ("async_gets_from_another_process", another_process),
    ("async_transfers_and_messages_at_once", at_once),
    ("async_transfers_that_fail_give_the_memory_back", failures),
    ("async_gets_that_are_dropped_leave_nothing", dropped_gets),
    ("async_puts_that_are_dropped_keep_their_data", dropped_puts),
    ("async_data_of_a_put_uses_the_endpoint_when_it_is_dropped", data_that_uses_the_endpoint),
];

/// An owner of memory with this pattern, and a client of it.
async fn pair(len: usize) -> Result<(AsyncEndpoint, Registration, AsyncEndpoint, Peer)> {
    let server = AsyncEndpoint::listen(&unique())?;
    let memory = server.share(vec![pattern(7, len).into()], Access::ReadWrite)?;
    let client = AsyncEndpoint::client()?;
    let peer = client.connect(server.address().context("it listens")?).await?;
    Ok((server, memory, client, peer))
}

/// Buffers of these lengths.
fn zeros(lengths: &[usize]) -> Vec<Vec<u8>> {
    lengths.iter().map(|len| vec![0; *len]).collect()
}

fn contents(server: &AsyncEndpoint, memory: &Registration) -> Result<Vec<u8>> {
    Ok(server.shared(memory, |buffers| buffers.concat())?)
}

async fn shapes() -> Result<()> {
    for len in [0, 1, 100, 4096, 10_000, 300_000, 3_000_000] {
        let (server, memory, client, peer) = pair(len).await?;
        let handle = memory.handle();
        let third = len / 3;
        for (offset, lengths) in [
            (0, vec![len]),
            (third, vec![len - third]),
            (0, vec![third, 0, third / 2]),
            (0, vec![7; len.min(5000) / 7]),
        ] {
            let (result, got) = client.get(peer, &handle, offset as u64, zeros(&lengths)).await;
            result?;
            let got = got.concat();
            ensure!(got == pattern(7, len)[offset..offset + got.len()], "{len} bytes from {offset} on");
        }
        let mut expected = pattern(7, len);
        for (seed, offset) in [(1, 0), (2, third)] {
            let data = pattern(seed, len - offset);
            let parts: Vec<Box<[u8]>> = data.chunks(len / 5 + 1).map(Box::from).collect();
            let (result, parts) = client.put(peer, &handle, offset as u64, parts).await;
            result?;
            ensure!(parts.concat() == data);
            expected[offset..].copy_from_slice(&data);
        }
        ensure!(contents(&server, &memory)? == expected, "{len} bytes");
    }
    Ok(())
}

fn all_shapes() -> Result<Completion> {
    runtime()?.block_on(shapes())?;
    Ok(Completion::Completed)
}

fn staged() -> Result<Completion> {
    let filtered = std::thread::spawn(|| -> Result<()> {
        refuse_reading()?;
        runtime()?.block_on(shapes())
    });
    filtered.join().ok().context("no panic")??;
    Ok(Completion::Completed)
}

fn another_process() -> Result<Completion> {
    let name = unique();
    let mut owner = Child::start("owner", &[&name])?;
    owner.says("listens")?;
    runtime()?.block_on(async {
        let client = AsyncEndpoint::client()?;
        let peer = client.connect(&Address::local(&name)?).await?;
        let (len, count) = (100_000, 30);
        let numbers = [len as u64, count as u64, 1].map(u64::to_ne_bytes);
        soon(client.send_unexpected(peer, SHARE, numbers.as_flattened())).await?;
        let mut handle = [0; Handle::BYTES];
        soon(client.recv_expected(peer, SHARE, &mut handle)).await?;
        let handle = Handle::from_bytes(&handle)?;
        let data = pattern(3, len * count - 5);
        let (result, data) = client.put(peer, &handle, 5, vec![data]).await;
        result?;
        let (result, got) = client.get(peer, &handle, 0, zeros(&[5, len * count - 5])).await;
        result?;
        ensure!(got[0] == pattern(7, 5) && got[1] == data[0]);
        // Its end is the end of what is under way.
        owner.kill()?;
        let (result, _) = client.get(peer, &handle, 0, zeros(&[len])).await;
        ensure!(matches!(result, Err(EndpointError::PeerGone { .. })), "{result:?}");
        Ok(Completion::Completed)
    })
}

fn at_once() -> Result<Completion> {
    const LEN: usize = 3 << 20;
    runtime()?.block_on(async {
        let (server, memory, client, peer) = pair(LEN).await?;
        let (server, client, handle) = (Arc::new(server), Arc::new(client), memory.handle());
        let slots: Vec<_> = (0..4)
            .map(|_| server.share(vec![vec![0; 500_000].into()], Access::ReadWrite))
            .collect::<Result<_, _>>()?;
        let echo = Arc::clone(&server);
        let echo = tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(call) = echo.recv_unexpected(&mut buffer).await {
                echo.send_expected(call.peer, call.tag, &buffer[..call.bytes]).await?;
            }
            Ok::<_, EndpointError>(())
        });
        let mut tasks = tokio::task::JoinSet::new();
        for (task, slot) in slots.iter().map(Registration::handle).enumerate() {
            let client = Arc::clone(&client);
            tasks.spawn(async move {
                for round in 0..repeats(5) {
                    let (result, got) = client.get(peer, &handle, 0, zeros(&[LEN / 2, LEN / 2])).await;
                    result?;
                    ensure!(got.concat() == pattern(7, LEN), "task {task}");
                    let data = pattern(task + round, 500_000);
                    let (result, data) = client.put(peer, &slot, 0, vec![data]).await;
                    result?;
                    let (result, got) = client.get(peer, &slot, 0, zeros(&[500_000])).await;
                    result?;
                    ensure!(got == data, "task {task}, round {round}");
                    let tag = task as u64;
                    soon(client.send_unexpected(peer, tag, &data[0][..1000])).await?;
                    let mut answer = [0; 1000];
                    soon(client.recv_expected(peer, tag, &mut answer)).await?;
                    ensure!(answer[..] == data[0][..1000]);
                }
                Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        echo.abort();
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(Completion::Completed)
}

fn failures() -> Result<Completion> {
    runtime()?.block_on(async {
        let (server, memory, client, peer) = pair(100_000).await?;
        let handle = memory.handle();
        let (result, buffers) = client.get(peer, &handle, 1, vec![vec![0xAB; 100_000]]).await;
        ensure!(matches!(result, Err(EndpointError::OutOfBounds { .. })), "{result:?}");
        ensure!(buffers == [vec![0xAB; 100_000]]);
        let readable = server.share(vec![vec![1; 100].into()], Access::Read)?;
        let (result, data) = client.put(peer, &readable.handle(), 0, vec!["data"]).await;
        ensure!(matches!(result, Err(EndpointError::NotWritable { .. })), "{result:?}");
        ensure!(data == ["data"]);
        server.revoke(memory)?;
        let (result, buffers) = client.get(peer, &handle, 0, vec![vec![0xAB; 100_000]]).await;
        ensure!(matches!(result, Err(EndpointError::NotShared { .. })), "{result:?}");
        ensure!(buffers == [vec![0xAB; 100_000]]);
        client.disconnect(peer)?;
        let (result, _) = client.get(peer, &handle, 0, zeros(&[10])).await;
        ensure!(matches!(result, Err(EndpointError::PeerGone { .. })), "{result:?}");
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(Completion::Completed)
}

/// Polls a future so often, between which others run, and drops it. Returns whether it was ready.
async fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..times {
        let mut context = TaskContext::from_waker(Waker::noop());
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        yield_now().await;
    }
    None
}

fn dropped_gets() -> Result<Completion> {
    const LEN: usize = 5 << 20;
    runtime()?.block_on(async {
        let (server, memory, client, peer) = pair(LEN).await?;
        let (handle, mut dropped) = (memory.handle(), 0);
        // Many more than there are leases.
        for _ in 0..repeats(300) {
            let get = client.get(peer, &handle, 0, zeros(&[LEN / 2, LEN - LEN / 2]));
            match polled(get, fastrand::usize(..12)).await {
                Some((result, got)) => {
                    result?;
                    ensure!(got.concat() == pattern(7, LEN));
                }
                None => dropped += 1,
            }
        }
        ensure!(dropped > 50, "only {dropped} were dropped");
        let (result, got) = client.get(peer, &handle, 0, zeros(&[LEN])).await;
        result?;
        ensure!(got.concat() == pattern(7, LEN));
        server.revoke(memory)?;
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(Completion::Completed)
}

/// The owner reads what is put when it has its turn, and by then the future is dropped.
fn dropped_puts() -> Result<Completion> {
    const LEN: usize = 100_000;
    runtime()?.block_on(async {
        let mut server = Endpoint::listen(&unique())?;
        let memory = server.share(vec![pattern(7, LEN).into()], Access::ReadWrite);
        let client = AsyncEndpoint::client()?;
        let peer = client.connect(server.address().context("it listens")?).await?;
        let (mut put, data) = (0, pattern(3, LEN));
        for _ in 0..repeats(50) {
            server.shared(&memory)?[0].copy_from_slice(&pattern(7, LEN));
            ensure!(polled(client.put(peer, &memory.handle(), 0, vec![data.clone()]), 1).await.is_none());
            // What is free now has other contents.
            let others: Vec<Vec<u8>> = (0..8).map(|_| vec![0xEE; LEN]).collect();
            while server.poll()?.is_some() {}
            server.arm()?;
            while server.poll()?.is_some() {}
            let found = &server.shared(&memory)?[0][..];
            ensure!(*found == data || *found == pattern(7, LEN), "what was put is something else");
            put += usize::from(*found == data);
            drop(others);
            yield_now().await;
        }
        ensure!(put > 0, "nothing was put");
        // And the connection goes on.
        let handle = memory.handle();
        let get = client.get(peer, &handle, 0, zeros(&[LEN]));
        let serve = async {
            loop {
                server.poll().expect("no error");
                yield_now().await;
            }
        };
        tokio::select! {
            (result, got) = get => {
                result?;
                ensure!(got == [data]);
            }
            () = serve => {}
        }
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(Completion::Completed)
}

/// What is done when the data of a put is dropped.
struct Dropped(Option<Box<dyn FnOnce() + Send + Sync>>);

impl AsRef<[u8]> for Dropped {
    fn as_ref(&self) -> &[u8] {
        &[3; 100_000]
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|run| run());
    }
}

/// What becomes of a put that was given up.
#[derive(Clone, Copy, Debug)]
enum GivenUp {
    /// It is answered later.
    Unanswered,
    /// It was answered before.
    Answered,
    /// Its peer leaves.
    Left,
    /// The endpoint ends the connection.
    Disconnected,
}

/// Drops the data in all ways. `uses` is called each time, with the endpoint, which has one share in it, and has to return.
async fn drops_data(what: GivenUp, uses: fn(Arc<AsyncEndpoint>)) -> Result<Arc<AsyncEndpoint>> {
    let mut server = Endpoint::listen(&unique())?;
    let memory = server.share(vec![vec![0; 100_000].into()], Access::ReadWrite);
    let client = Arc::new(AsyncEndpoint::client()?);
    let peer = client.connect(server.address().context("it listens")?).await?;
    let count = Arc::new(AtomicUsize::new(0));
    let (own, counted) = (Arc::clone(&client), Arc::clone(&count));
    let run = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        uses(own);
    };
    {
        let (data, handle) = (vec![Dropped(Some(Box::new(run)))], memory.handle());
        let mut put = pin!(client.put(peer, &handle, 0, data));
        let mut context = TaskContext::from_waker(Waker::noop());
        ensure!(put.as_mut().poll(&mut context).is_pending());
        if matches!(what, GivenUp::Answered) {
            for _ in 0..1000 {
                server.poll()?;
                yield_now().await;
            }
        }
    }
    if matches!(what, GivenUp::Disconnected) {
        client.disconnect(peer)?;
    }
    let mut server = Some(server).filter(|_| !matches!(what, GivenUp::Left));
    let begin = Instant::now();
    while count.load(Ordering::Relaxed) == 0 {
        ensure!(begin.elapsed() < Duration::from_secs(30), "{what:?}: the data is not dropped");
        if let Some(server) = &mut server {
            server.poll()?;
        }
        yield_now().await;
    }
    Ok(client)
}

fn data_that_uses_the_endpoint() -> Result<Completion> {
    runtime()?.block_on(async {
        for what in [GivenUp::Unanswered, GivenUp::Answered, GivenUp::Left, GivenUp::Disconnected] {
            drops_data(what, |own| {
                drop(own.share(vec![vec![1; 10].into()], Access::Read).expect("the runtime is there"));
            })
            .await?;
        }
        // A panic of the program's own does not end the task that takes in what comes.
        for what in [GivenUp::Unanswered, GivenUp::Left] {
            let client = drops_data(what, |_| panic!("it is dropped")).await?;
            let (server, memory, _, _) = pair(100_000).await?;
            let peer = client.connect(server.address().context("it listens")?).await?;
            let (result, got) = client.get(peer, &memory.handle(), 0, zeros(&[100_000])).await;
            result?;
            ensure!(got == [pattern(7, 100_000)]);
        }
        last_share().await
    })?;
    Ok(Completion::Completed)
}

/// The data holds the last share in the endpoint, which is dropped with it.
async fn last_share() -> Result<()> {
    let mut server = Endpoint::listen(&unique())?;
    let memory = server.share(vec![vec![0; 100_000].into()], Access::ReadWrite);
    let client = Arc::new(AsyncEndpoint::client()?);
    let peer = client.connect(server.address().context("it listens")?).await?;
    let own = Arc::clone(&client);
    let data = vec![Dropped(Some(Box::new(|| drop(own))))];
    ensure!(polled(client.put(peer, &memory.handle(), 0, data), 1).await.is_none());
    drop(client);
    let begin = Instant::now();
    while !matches!(server.poll()?, Some(Event::Closed { .. })) {
        ensure!(begin.elapsed() < Duration::from_secs(30), "the endpoint is not dropped");
        yield_now().await;
    }
    Ok(())
}
