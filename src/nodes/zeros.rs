//! Memory for what is received before it is put into its places.

use std::alloc::{Layout, handle_alloc_error};

use bytemuck::Pod;
use bytemuck::allocation::try_zeroed_vec;

/// Zeros, of which none is on the stack. Without memory the process ends, as by any vector: the other ranks wait for this one.
pub(super) fn zeros<T: Pod>(len: usize) -> Vec<T> {
    try_zeroed_vec(len).unwrap_or_else(|()| match Layout::array::<T>(len) {
        Ok(layout) => handle_alloc_error(layout),
        Err(_) => panic!("{len} elements are more than a vector has"),
    })
}
