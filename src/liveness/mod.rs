//! Who is alive: the watcher of other ranks' processes, and what a fatal signal in this one tells the others.

pub(crate) mod fatal;
#[cfg_attr(not(target_os = "linux"), path = "watcher/none.rs")]
pub(crate) mod watcher;
