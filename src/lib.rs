//! Collectives and shared memory between the processes of one machine.

#[doc(hidden)]
pub mod blocks;
mod buffers;
mod communicator;
mod config;
mod distribute;
mod element;
mod error;
mod join;
#[doc(hidden)]
pub mod layout;
#[doc(hidden)]
pub mod payload;
#[doc(hidden)]
pub mod protocol;
mod sys;
mod threads;

pub use communicator::Communicator;
pub use config::{Config, WaitKind};
pub use distribute::Blocks;
pub use element::{Number, ReduceOp};
pub use error::{BadSetting, Called, Error, InitFailure, Operation, TimeOut};
pub use threads::{threads, threads_with};

pub use bytemuck;

pub use sys::cast;
