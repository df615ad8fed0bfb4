//! The launcher over real processes.

mod bench;
mod ending;
mod environment;
mod leftovers;
mod output;
mod signals;
mod support;
