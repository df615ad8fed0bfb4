//! A discrete-event model of cache lines with one home each, and of the barriers that run over them.
//!
//! ```text
//!  socket 0                          socket 1             A read miss is served
//!  ┌ L3 ────────┐ ┌ L3 ────────┐     ┌ L3 ────────┐       1. by the own L3, if a core there has a copy,
//!  │ core  core │ │ core  core │     │ core  core │       2. by the line's home otherwise.
//!  └──────┬─────┘ └──────┬─────┘     └──────┬─────┘       Either serves the readers of one line one
//!         └──── home ────┴──────────────────┘             after another.
//! ```
//!
//! A store takes the line for its own core (RFO): the copies elsewhere are invalidated, and a rank that polls the line
//! misses at its next poll. That is all there is: no bandwidth, no interrupts, no other traffic, nothing but the lines
//! of the barrier.
//!
//! | file | question that it answers |
//! | --- | --- |
//! | [`machine`] | how many cores share what, and what does each step cost? |
//! | [`line`] | when does a read or an RFO of one line complete? |
//! | [`simulation`] | what do cores do that wait for lines? |
//! | [`barrier`] | which lines does a rank write and await, flat and in groups? |

pub(crate) mod barrier;
pub(crate) mod line;
pub(crate) mod machine;
pub(crate) mod simulation;

/// Picoseconds: whole numbers, so that a run gives the same on every machine.
pub(crate) type Time = u64;

pub(crate) fn from_nanoseconds(nanoseconds: f64) -> Time {
    (nanoseconds * 1e3).round() as Time
}

pub(crate) fn microseconds(time: Time) -> f64 {
    time as f64 / 1e6
}
