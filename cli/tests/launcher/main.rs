//! The launcher over real processes.

mod ending;
mod environment;
mod leftovers;
mod output;
mod signals;
mod support;
