//! The mapped segment: its layout, and the production platform over it.

pub(crate) mod atom;
pub(crate) mod buffer_memory;
pub(crate) mod channels;
#[cfg(test)]
mod contract;
pub(crate) mod double_buffer;
pub mod layout;
pub(crate) mod mapped;
pub(crate) mod message_memory;
#[cfg(test)]
pub(crate) mod observed;
#[cfg(target_os = "linux")]
pub(crate) mod pair_memory;
pub(crate) mod platform;
pub mod record;
pub(crate) mod recorder;
pub(crate) mod region_memory;
pub(crate) mod settings;
pub(crate) mod symmetric_memory;
pub(crate) mod unit;
