//! What is called: argument checks, counts and displacements, the user's buffers.

pub(crate) mod allgatherv;
mod allreduce;
mod barrier;
pub(crate) mod blocks;
mod broadcast;
pub mod counts;
