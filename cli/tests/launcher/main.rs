//! The launcher over real processes.

mod bench;
mod clean;
mod documentation;
mod ending;
mod environment;
mod leftovers;
mod live;
mod output;
mod programs;
mod report;
mod signals;
mod support;
mod top;
