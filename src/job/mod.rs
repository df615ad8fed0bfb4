//! Joining and splitting a job, its configuration, and the cleanup of its shared memory.

pub mod cleanup;
pub(crate) mod config;
pub(crate) mod environment;
mod from_env;
mod join;
pub(crate) mod launchers;
pub mod observe;
pub mod recorded;
mod recording;
mod settings;
mod split;
pub(crate) mod threads;
