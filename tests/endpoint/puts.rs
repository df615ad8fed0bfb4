//! Puts of all lengths: what is short is sent, what is long is read by the owner, and what is in between goes in both ways at a time.

use std::io::IoSlice;

use anyhow::{Result, ensure};
use libtest_mimic::Completion;

use super::Test;
use super::messages::pattern;
use super::owner::{Client, Digest};

pub(super) const TESTS: &[Test] = &[
    ("puts_of_all_lengths_and_cuts", all_lengths),
    ("puts_whose_owner_cannot_read", refused),
    ("puts_beside_messages_that_nobody_receives", beside_messages),
];

const LENGTHS: [usize; 12] = [1, 24, 25, 4096, 4097, 16_384, 16_385, 20_000, 65_536, 100_000, 262_144, 262_145];

/// Puts into the middle of new memory, from slices that are cut like this, and compares all of it.
fn puts(client: &mut Client, len: usize, cut: usize) -> Result<()> {
    let (before, after) = (len % 97, 13);
    let handle = client.share(before + len + after, 1, true)?;
    let data = pattern(5, len);
    let slices: Vec<_> = data.chunks(cut).map(IoSlice::new).collect();
    client.own.put(client.owner, &handle, before as u64, &slices)?;
    let mut expected = pattern(7, before + len + after);
    expected[before..before + len].copy_from_slice(&data);
    let mut digest = Digest::new();
    digest.add(&expected);
    ensure!(client.contents(&handle)? == digest.0, "{len} bytes, cut by {cut}");
    Ok(())
}

fn all_lengths() -> Result<Completion> {
    let mut client = Client::start(&[])?;
    for len in LENGTHS {
        // The last two are more slices than a message can name.
        for cut in [len, len.div_ceil(2), 4096, len.div_ceil(300), 77] {
            puts(&mut client, len, cut)?;
        }
    }
    Ok(Completion::Completed)
}

/// It is found out by the first put that is not short.
fn refused() -> Result<Completion> {
    for len in LENGTHS {
        let mut client = Client::start(&["refuses"])?;
        for cut in [len, 5000] {
            puts(&mut client, len, cut)?;
        }
    }
    Ok(Completion::Completed)
}

/// Messages hold all buffers but a few, or all.
fn beside_messages() -> Result<Completion> {
    for held in [50, 60, 63] {
        let mut client = Client::start(&[])?;
        let handle = client.share(200_000, 1, true)?;
        let data = pattern(5, 200_000);
        // The owner takes none of them in as long as it has stopped.
        let owner = client.process.as_ref().expect("it has started its owner");
        owner.signal(nix::sys::signal::Signal::SIGSTOP)?;
        let mut put = {
            for tag in 0..held {
                ensure!(client.own.try_send_expected(client.owner, tag, &[1; 4096])?, "room");
            }
            client.own.start_put(client.owner, &handle, 0, vec![data.clone()])?
        };
        owner.signal(nix::sys::signal::Signal::SIGCONT)?;
        ensure!(client.own.wait_for(&mut put)? == data.len());
        let mut digest = Digest::new();
        digest.add(&data);
        ensure!(client.contents(&handle)? == digest.0, "{held} buffers were held");
    }
    Ok(Completion::Completed)
}
