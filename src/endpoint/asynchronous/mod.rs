//! An endpoint among the tasks of a tokio runtime.
//!
//! | file | question that it answers |
//! | --- | --- |
//! | `api`, `messages`, `sharing`, `transfer` | what is called? |
//! | `shared` | what do the tasks share, and what must hold when the lock is free? |
//! | `routes`, `connection` | how does one program talk to local and remote servers? |
//! | `waiters` | who waits for what, and is it there? |
//! | `attempt` | how does a call wait, and what if its future is dropped? |
//! | `driver` | who takes in what comes, and when does nobody run? |

pub(crate) mod api;
mod attempt;
pub(crate) mod connection;
mod driver;
mod messages;
mod routes;
mod shared;
mod sharing;
mod transfer;
mod waiters;
