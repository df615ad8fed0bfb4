//! The collectives of a communicator: argument checks, counts and displacements, the caller's buffers.

pub(crate) mod allgatherv;
mod allreduce;
mod barrier;
pub(crate) mod blocks;
mod broadcast;
pub mod counts;
