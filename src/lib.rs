//! Collectives and shared memory between the processes of one machine.

mod distribute;
mod element;
mod error;
#[doc(hidden)]
pub mod layout;
#[doc(hidden)]
pub mod payload;
#[doc(hidden)]
pub mod protocol;
mod sys;

pub use distribute::Blocks;
pub use element::{Number, ReduceOp};
pub use error::{BadSetting, Called, Error, InitFailure, Operation, TimeOut};
