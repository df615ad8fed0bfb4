//! Joining and splitting a job, its configuration, and the cleanup of its shared memory.

pub mod cleanup;
pub(crate) mod config;
mod environment;
mod join;
mod split;
pub(crate) mod threads;
