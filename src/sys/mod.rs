//! Everything unsafe: the mapping, sleeping and waking, the segment's file, copying.

pub(crate) mod copy;
