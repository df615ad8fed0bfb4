//! Everything unsafe: the mapping, sleeping and waking, the segment's file, copying.

#[cfg_attr(not(target_os = "linux"), path = "asked/none.rs")]
pub(crate) mod asked;
pub(crate) mod backing;
pub mod cast;
pub(crate) mod clock;
#[cfg(test)]
mod contract;
pub(crate) mod copy;
pub(crate) mod fatal;
pub(crate) mod file_size;
pub(crate) mod fork;
#[cfg(target_os = "linux")]
pub(crate) mod futex;
mod handler;
pub(crate) mod huge;
pub(crate) mod lines;
pub(crate) mod machine;
pub(crate) mod maker;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod named;
pub(crate) mod nodelete;
pub(crate) mod numa;
pub(crate) mod processors;
pub(crate) mod pthread;
pub(crate) mod region;
pub(crate) mod remote;
pub(crate) mod rlimit;
#[cfg(target_os = "linux")]
mod sealed;
pub(crate) mod spin;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod thread_wait;
pub(crate) mod turns;
#[cfg_attr(not(target_os = "linux"), path = "watcher/none.rs")]
pub(crate) mod watcher;
pub(crate) mod wide;
pub(crate) mod world;
