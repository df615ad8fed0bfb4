//! The collectives of a communicator: argument checks, counts and displacements, the caller's buffers.

pub(crate) mod allgatherv;
mod allreduce;
mod alltoall;
mod alltoallv;
mod alltoallv_eager;
mod barrier;
pub(crate) mod block_table;
pub(crate) mod blocks;
mod broadcast;
mod count_header;
pub mod counts;
mod first_part;
mod gather;
mod in_place;
mod local;
mod memory;
mod own_check;
mod own_reduction;
mod owned;
mod pair_counts;
mod parts;
pub(crate) mod pending;
mod raw;
mod raw_blocks;
mod raw_parts;
mod reduce;
mod reduce_scatter;
pub(crate) mod reduction;
pub(crate) mod rooted;
mod scan;
mod scatter;
mod short;
mod start;
mod start_alltoallv;
mod start_blocks;
mod start_reductions;
#[cfg(test)]
mod tests;
#[cfg(feature = "serde")]
pub(crate) mod values;
mod vector_buffers;
pub(crate) mod vectors;
