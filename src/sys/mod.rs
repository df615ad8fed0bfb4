//! Everything unsafe: the mapping, sleeping and waking, the segment's file, copying.

pub(crate) mod copy;
pub(crate) mod fork;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod named;
pub(crate) mod pthread;
#[cfg(test)]
mod testing;
