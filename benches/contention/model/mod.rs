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
//! A store needs an RFO: all other copies are invalidated, and a rank that polls the line misses at its next poll. Nothing
//! else is modelled: no bandwidth, no interrupts, no other traffic than the lines of the barrier.
//!
//! | file | question that it answers |
//! | --- | --- |
//! | [`machine`] | which cores share which caches, and what does each step cost? |
//! | [`line`] | when does a read or an RFO of one line complete? |
//! | [`simulation`] | when does a core that waits for lines proceed? |
//! | [`barrier`] | which lines does a rank write and await, flat and in groups? |

pub(crate) mod barrier;
pub(crate) mod line;
pub(crate) mod machine;
pub(crate) mod simulation;

/// Picoseconds: integers, so that results are the same on every machine.
pub(crate) type Time = u64;

pub(crate) fn from_nanoseconds(nanoseconds: f64) -> Time {
    (nanoseconds * 1e3).round() as Time
}

pub(crate) fn microseconds(time: Time) -> f64 {
    time as f64 / 1e6
}
