//! Memory: mapping it, how much there is, and where it comes from.

pub(crate) mod backing;
pub(crate) mod fork;
pub(crate) mod headroom;
pub(crate) mod huge;
pub(crate) mod mapping;
#[cfg(target_os = "linux")]
mod memfd;
pub(crate) mod pages;
pub(crate) mod rlimit;
