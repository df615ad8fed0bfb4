//! Clients that publish without pause, faster than the server takes it in, what is no message. No call of the server's is held up.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use intranode::{Access, Endpoint, EndpointError, Handle, Peer};
use libtest_mimic::Completion;
use nix::sys::socket::{MsgFlags, send};

use super::forger::{PULL, REQUEST, address, bytes};
use super::hostile::{BUFFER, CELLS, intrude};
use super::{Test, unique};

pub(super) const TESTS: &[Test] =
    &[("case_54_clients_that_publish_without_pause_hold_up_nobody", publish_without_pause)];

/// The cells of a ring, of 64 bytes each. Behind them it says how many of them were taken.
const RING: u64 = 64;
const TAKEN: u64 = CELLS + RING * 64;
const CELLS_OF_SERVER: u64 = CELLS + 9728 + 64 * BUFFER as u64;

/// How many are published at once.
const HALF: u64 = RING / 2;

/// Where the token of the side that has connected is.
const TOKEN: u64 = 512;

const EXPECTED: u64 = 4;

/// The most that is read at once.
const LEN: usize = 1 << 20;

/// The messages of a peer that are taken in before one is received.
const UNRECEIVED: u64 = 128;

/// More than a call takes, and less than for how long the clients go on.
const LIMIT: Duration = Duration::from_secs(20);
const LONGEST: Duration = Duration::from_secs(60);

struct Client {
    connection: OwnedFd,
    memory: File,
    peer: Peer,
    published: u64,
    answered: u64,
}

impl Client {
    fn taken(&self) -> Result<u64> {
        let mut taken = [0; 8];
        self.memory.read_exact_at(&mut taken, TAKEN)?;
        Ok(u64::from_ne_bytes(taken))
    }

    /// Publishes some cells with this content, for which there is room, and rings. The kind and the length are in the first word.
    fn publish(&mut self, mut content: [u64; 8]) -> Result<()> {
        let turn = (self.published / RING + 1) & 0xFF;
        content[0] |= turn << 40;
        let cells = [content.map(u64::to_ne_bytes); HALF as usize];
        self.memory.write_all_at(cells.as_flattened().as_flattened(), CELLS + 64 * (self.published % RING))?;
        self.published += HALF;
        // If there is no room for it, it is rung for already.
        let _ = send(self.connection.as_raw_fd(), &[0], MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
        Ok(())
    }

    /// Publishes messages that nobody receives, until no more are taken in.
    fn fills(&mut self, server: &mut Endpoint) -> Result<()> {
        while self.published < UNRECEIVED {
            self.publish([EXPECTED << 51 | 3, 7, 0, 0, 0, 0, 0, 0])?;
            while self.taken()? < self.published {
                server.poll()?;
            }
        }
        Ok(())
    }

    /// So that the server always has room for the next ones.
    fn takes_answers(&mut self) -> Result<()> {
        let mut cells = [[0; 64]; RING as usize];
        self.memory.read_exact_at(cells.as_flattened_mut(), CELLS_OF_SERVER)?;
        // The sixth byte of a cell is its turn.
        while u64::from(cells[(self.answered % RING) as usize][5]) == (self.answered / RING + 1) & 0xFF {
            self.answered += 1;
        }
        self.memory.write_all_at(&self.answered.to_ne_bytes(), CELLS_OF_SERVER + RING * 64)?;
        Ok(())
    }

    /// Says by what this process is known.
    fn shows(&self, token: &u64) -> Result<()> {
        self.memory.write_all_at(bytes(&[address(token), *token]).as_slice(), TOKEN)?;
        Ok(())
    }

    /// Asks the server to read these bytes into memory with this key, which takes it longer, until it is told to stop, or somebody was held
    /// up for very long.
    fn puts(&mut self, key: u64, data: &[u8], stop: &AtomicBool) -> Result<()> {
        let (begin, len) = (Instant::now(), data.len() as u64);
        while !stop.load(Ordering::Relaxed) && begin.elapsed() < LONGEST {
            self.takes_answers()?;
            if self.published + HALF <= self.taken()? + RING {
                let start = address(data.as_ptr());
                self.publish([REQUEST << 51 | 40, 1, 0, PULL | len << 8, key, 0, start, len])?;
            }
        }
        Ok(())
    }
}

/// What a call returns that is not held up.
fn in_time<R>(name: &str, call: impl FnOnce() -> R) -> Result<R> {
    let begin = Instant::now();
    let result = call();
    let took = begin.elapsed();
    ensure!(took < LIMIT, "{name} took {took:?}");
    Ok(result)
}

fn publish_without_pause() -> Result<Completion> {
    let name = unique();
    let mut server = Endpoint::builder().timeout(Duration::from_secs(5)).listen(&name)?;
    let memory = server.share(vec![vec![0; LEN].into()], Access::ReadWrite);
    let mut clients = Vec::new();
    for _ in 0..2 {
        let (connection, memory, peer) = intrude(&name, &mut server)?;
        clients.push(Client { connection, memory, peer, published: 0, answered: 0 });
    }
    let (token, data) = (fastrand::u64(..), vec![1; LEN]);
    for client in &mut clients {
        client.shows(&token)?;
        client.fills(&mut server)?;
    }
    while server.poll()?.is_some() {}
    let mut honest = Endpoint::client()?;
    let to_server = honest.connect(server.address().context("it listens")?)?;
    let (hostile, handle, stop) = (clients[0].peer, memory.handle(), AtomicBool::new(false));
    let key = handle.to_bytes().first_chunk().map_or(0, |key| u64::from_ne_bytes(*key));
    thread::scope(|scope| {
        let (stop, data) = (&stop, &data);
        let writers: Vec<_> =
            clients.iter_mut().map(|client| scope.spawn(move || client.puts(key, data, stop))).collect();
        let sender = scope.spawn(|| {
            // By then the server waits.
            thread::sleep(Duration::from_millis(100));
            honest.send_unexpected(to_server, 1, b"honest")
        });
        let served = is_served(&mut server, hostile, &handle);
        stop.store(true, Ordering::Relaxed);
        sender.join().expect("no panic")?;
        writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"))?;
        served
    })?;
    ensure!(clients.iter().all(|client| client.published > UNRECEIVED + RING), "nothing was taken in");
    Ok(Completion::Completed)
}

/// Makes calls of all kinds that look behind what nobody has received.
fn is_served(server: &mut Endpoint, hostile: Peer, handle: &Handle) -> Result<()> {
    let buffer = &mut [0; 8];
    let message = in_time("recv_unexpected", || server.recv_unexpected(buffer))??;
    ensure!(message.peer != hostile && (message.tag, message.bytes) == (1, 6));
    let none = in_time("recv_unexpected", || server.recv_unexpected(buffer))?;
    ensure!(matches!(none, Err(EndpointError::TimedOut { .. })), "{none:?}");
    ensure!(in_time("try_recv_unexpected", || server.try_recv_unexpected(buffer))??.is_none());
    ensure!(in_time("try_recv_expected", || server.try_recv_expected(hostile, 1, buffer))??.is_none());
    let mut receive = server.start_recv_expected(hostile, 1, [0; 8])?;
    ensure!(in_time("test", || server.test(&mut receive))??.is_none());
    let mut get = server.start_get(hostile, handle, 0, vec![[0; 8]])?;
    ensure!(in_time("test", || server.test(&mut get))??.is_none());
    Ok(())
}
