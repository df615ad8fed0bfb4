//! Memory: mappings, limits, and shared files.

pub(crate) mod backing;
pub(crate) mod findable;
pub(crate) mod fork;
pub(crate) mod headroom;
pub(crate) mod huge;
pub(crate) mod mapping;
#[cfg(target_os = "linux")]
pub(crate) mod memfd;
pub(crate) mod pages;
#[cfg(target_os = "linux")]
pub(crate) mod readable;
pub(crate) mod rlimit;
