//! How a process becomes a rank, and how its job ends.

pub mod cleanup;
pub(crate) mod config;
mod environment;
mod join;
mod split;
pub(crate) mod threads;
