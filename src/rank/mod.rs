//! One rank of a communicator: its state, and its view of the other ranks.

pub(crate) mod arrivals;
pub(crate) mod buffers;
pub(crate) mod choices;
pub(crate) mod cma_peers;
pub(crate) mod comm_tree;
pub(crate) mod eager_calls;
pub(crate) mod groups;
pub(crate) mod heap;
pub(crate) mod heap_prefixes;
pub(crate) mod job_state;
pub(crate) mod lending;
pub(crate) mod process_settings;
pub(crate) mod rank_state;
pub(crate) mod shared_processors;
pub(crate) mod shared_regions;
pub(crate) mod started;
mod starting;
mod transport;
mod unchanged;
