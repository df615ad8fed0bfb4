//! Pulls a gibibyte from another process, in one copy, from segments into segments.
//!
//! ```text
//! cargo run --release --example bulk_pull [MIB]        # both processes: it starts the owner itself
//!
//! cargo run --release --example bulk_pull serve NAME MIB
//! cargo run --release --example bulk_pull pull NAME    # any number of them, from other terminals
//! ```
//!
//! The owner shares its memory once, and answers as long as there are clients. A client asks for the handle by a message, gets
//! all of the memory several times, and compares every word.

use std::io::{BufRead, BufReader, IoSliceMut};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use intranode::{Access, Address, Endpoint, EndpointError, Event, Handle};

const MIB: usize = 1 << 20;

/// The segments of the owner's, and those of a client, which have other ends.
const SERVED: usize = 16 * MIB;
const PULLED: usize = 5 * MIB + 1000;

/// How often a client pulls. The first time its memory is new to it.
const PULLS: usize = 4;

pub(crate) fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve", name, mib] => serve(name, mib.parse::<usize>()? * MIB),
        ["pull", name] => pull(name),
        [] => both("1024"),
        [mib] => both(mib),
        _ => bail!("bulk_pull [MIB], bulk_pull serve NAME MIB, or bulk_pull pull NAME"),
    }
}

/// The owner as a process of its own, and a client.
fn both(mib: &str) -> Result<()> {
    let name = format!("bulk-pull-{}", std::process::id());
    let mut command = Command::new(std::env::current_exe()?);
    let mut owner = Owner(command.args(["serve", &name, mib]).stdout(Stdio::piped()).spawn()?);
    let mut line = String::new();
    BufReader::new(owner.0.stdout.take().context("a pipe")?).read_line(&mut line)?;
    ensure!(line.starts_with("shares"), "the owner has ended");
    pull(&name)?;
    ensure!(owner.0.wait()?.success(), "the owner has failed");
    Ok(())
}

/// Ends with the program, however that ends.
struct Owner(Child);

impl Drop for Owner {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The word at this place of the memory.
fn word(place: usize) -> u64 {
    (place as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Shares memory until the last client is gone.
fn serve(name: &str, len: usize) -> Result<()> {
    let mut own = Endpoint::listen(name)?;
    let words = SERVED / size_of::<u64>();
    let segment = |first: usize, len: usize| -> Box<[u8]> {
        (first..first + len / size_of::<u64>()).flat_map(|place| word(place).to_ne_bytes()).collect()
    };
    let segments = (0..len).step_by(SERVED).enumerate();
    let buffers: Vec<_> =
        segments.map(|(index, start)| segment(index * words, SERVED.min(len - start))).collect();
    let count = buffers.len();
    let memory = own.share(buffers, Access::Read);
    println!("shares {} MiB in {count} segments", len / MIB);
    let mut clients = 0;
    loop {
        // Gets go on in this call too: the owner says where the bytes lie, and the client's kernel copies them.
        match own.wait(None)? {
            Some(Event::Connected { .. }) => clients += 1,
            Some(Event::Message { expected: false, .. }) => {
                let call = own.recv_unexpected(&mut [])?;
                match own.send_expected(call.peer, call.tag, &memory.handle().to_bytes()) {
                    // It did not wait for the answer.
                    Err(EndpointError::PeerGone { .. }) => {}
                    sent => sent?,
                }
            }
            Some(Event::Closed { .. }) => {
                clients -= 1;
                if clients == 0 {
                    own.revoke(memory)?;
                    return Ok(());
                }
            }
            _ => {}
        }
    }
}

/// Pulls all that an owner shares.
fn pull(name: &str) -> Result<()> {
    let mut own = Endpoint::builder().timeout(Duration::from_secs(60)).client()?;
    let owner = own.connect(&Address::local(name)?)?;
    own.send_unexpected(owner, 1, b"")?;
    let mut bytes = [0; Handle::BYTES];
    own.recv_expected(owner, 1, &mut bytes)?;
    let handle = Handle::from_bytes(&bytes)?;

    let len = usize::try_from(handle.len())?;
    let mut memory = vec![0; len];
    for number in 0..PULLS {
        let mut segments: Vec<_> = memory.chunks_mut(PULLED).map(IoSliceMut::new).collect();
        let start = Instant::now();
        own.get(owner, &handle, 0, &mut segments)?;
        let seconds = start.elapsed().as_secs_f64();
        let (mib, count) = (len / MIB, segments.len());
        let speed = len as f64 / seconds / 1e9;
        println!("{mib} MiB into {count} segments in {:.1} ms: {speed:.2} GB/s", 1e3 * seconds);
        let words = memory.chunks_exact(size_of::<u64>());
        let wrong = words.enumerate().find(|(place, bytes)| **bytes != word(*place).to_ne_bytes());
        ensure!(wrong.is_none(), "pull {number}: word {:?} is wrong", wrong.map(|(place, _)| place));
        memory.fill(0);
    }
    println!("all words are right");
    Ok(())
}
