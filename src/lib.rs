//! Collectives and shared memory between the processes of one machine.

mod distribute;
#[doc(hidden)]
pub mod payload;
#[doc(hidden)]
pub mod protocol;
mod sys;

pub use distribute::Blocks;
