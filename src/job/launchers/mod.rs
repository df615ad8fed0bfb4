//! The launchers under which a process becomes a rank without any variable of ours. Each is a file.
//!
//! A launcher sets variables from which follow the rank, the size, and the same of this node. What is missing is a name that
//! is the same for all ranks of the job, and for no others: each file says what it is made of.

mod choice;
mod hydra;
mod openmpi;
pub(crate) mod placement;
mod slurm;
#[cfg(test)]
mod tests;
mod torchrun;

pub(super) use choice::{Choice, choose, detect};
