//! Random programs of sends and receives, against MPI's rules of matching.
//!
//! All ranks make the same [plan] from a seed, and each [plays](player) its part of the steps. Each rank [writes down](notes) which
//! receives it has started, and how each has ended; at the end it checks that each message was received once or was taken back, with its
//! bytes, and that no message or receive has [overtaken](order) another one.
//!
//! `CONFORMANCE_PROGRAMS` is the number of programs; `CONFORMANCE_SEED` is the seed of the first one, a failure tells its own.

mod notes;
mod order;
mod plan;
mod player;
mod receiving;

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, ensure};
use fastrand::Rng;
use intranode::Communicator;

use super::refused::refuse_reading;
use crate::scenario::{Outcome, Scenario, row, seed};
use plan::{Plan, Step};
use player::{Played, Player};

/// A call that waits longer hangs.
const HANGS: Duration = Duration::from_secs(20);

/// The longest message, in bytes.
const MOST: usize = 3 << 20;

/// What no message has brought.
const CANARY: u8 = 0xC3;

pub(super) fn rows() -> Vec<Scenario> {
    let rows = [
        row!(message_random_programs).ranks(&[1, 2, 3, 4]),
        row!(message_random_programs_where_memory_cannot_be_read).ranks(&[2, 3]),
    ];
    rows.into_iter().map(|row| row.timeout(HANGS)).collect()
}

fn message_random_programs(comm: Communicator) -> Outcome {
    play_all(&comm, false)
}

fn message_random_programs_where_memory_cannot_be_read(comm: Communicator) -> Outcome {
    refuse_reading()?;
    play_all(&comm, true)
}

fn play_all(comm: &Communicator, refused: bool) -> Outcome {
    let count = std::env::var("CONFORMANCE_PROGRAMS").map_or(Ok(8), |count| count.parse())?;
    let mut shared = comm.buffer::<u8>(2 * MOST)?;
    shared.copy_from_slice(contents());
    for seed in (0..count).map(|number| seed().wrapping_add(number)) {
        let plan = Plan::new(seed, comm.size(), refused);
        play(comm, &plan, &shared, seed).with_context(|| format!("program {seed}"))?;
    }
    Ok(())
}

/// What all messages are parts of.
fn contents() -> &'static [u8] {
    static CONTENTS: OnceLock<Vec<u8>> = OnceLock::new();
    CONTENTS.get_or_init(|| {
        let mut random = Rng::with_seed(0);
        (0..2 * MOST / 8).flat_map(|_| random.u64(..).to_ne_bytes()).collect()
    })
}

/// Plays this rank's part, and checks what has come of it.
fn play(comm: &Communicator, plan: &Plan, shared: &[u8], seed: u64) -> Outcome {
    let mut buffers: Vec<Vec<u8>> = plan
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Post { rank, capacity, .. } if *rank == comm.rank() => Some(vec![CANARY; *capacity]),
            _ => None,
        })
        .collect();
    let player = Player::new(comm, (plan, seed), shared, &mut buffers)?;
    let Played { messages, notes, posts, taken_back, buried } = player.play()?;
    let all = comm.allgather_vec(&taken_back)?.0;
    drop(messages);
    notes.check_taken_back(&all)?;
    for (post, buffer) in posts.into_iter().zip(&buffers) {
        notes.check_buffer(post, buffer)?;
    }
    ensure!(buried.iter().flatten().all(|byte| *byte == CANARY), "written to what was dropped");
    order::check(plan, &notes)
}

fn starts_with(buffer: &[u8], bytes: &[u8]) -> bool {
    buffer.get(..bytes.len()) == Some(bytes)
}

fn is_unchanged(buffer: &[u8]) -> bool {
    buffer.iter().all(|byte| *byte == CANARY)
}
