//! The operating system's interface: memory, files, signals, waiting. Nothing here knows the protocols.

pub mod cast;
pub(crate) mod cma;
pub(crate) mod descriptors;
#[cfg(target_os = "linux")]
pub(crate) mod epoll;
pub(crate) mod fence;
pub(crate) mod file_size;
pub(crate) mod handler;
pub(crate) mod inherited;
pub(crate) mod kept_file;
#[cfg(target_os = "linux")]
pub(crate) mod membarrier;
pub(crate) mod memory;
pub(crate) mod nodelete;
pub(crate) mod numa;
pub(crate) mod process;
pub(crate) mod processors;
pub(crate) mod random;
pub(crate) mod shared_heap;
pub(crate) mod shm_file;
#[cfg_attr(not(target_os = "linux"), path = "sigusr2/none.rs")]
pub(crate) mod sigusr2;
#[cfg(target_os = "linux")]
pub(crate) mod socket;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod thread_signals;
#[cfg(target_os = "linux")]
pub(crate) mod timer;
#[cfg(all(target_os = "linux", feature = "tokio"))]
pub(crate) mod tokio_readable;
pub(crate) mod wait;
