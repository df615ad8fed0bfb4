//! Messages between strangers: any two processes of one user on a machine, started by anybody at any time.
//!
//! | file | question that it answers |
//! | --- | --- |
//! | `api`, `messages`, `receiving`, `events`, `sharing`, `transfer`, `started`, `completing` | what is called? |
//! | `builder` | with which settings? |
//! | `address`, `routes`, `peer`, `ended`, `error` | whom does a call name, how is that reached, and what does it report? |
//! | `state`, `waiting` | what goes on inside of a call, and when may an endpoint sleep? |
//! | `dialling`, `listener`, `hello`, `sockets`, `key` | how do two strangers connect, and what is checked? |
//! | `links`, `keeping`, `kept` | which connections are there, what is kept of one that has ended, and how much is that? |
//! | `link`, `taking`, `direct`, `sending`, `calls`, `body` | what goes through one of them? |
//! | `postings` | which receive has which message? |
//! | `handle`, `shares`, `lease`, `mapped` | which memory may peers access, and until when? |
//! | `getting`, `putting`, `requests`, `steps`, `left`, `over` | how does a transfer go on, step by step, and what is left of it? |
//! | `wire`, `slices` | what do they ask for, and where does it lie? |
//! | `asynchronous` | how do the tasks of a tokio runtime share an endpoint? |
//!
//! The channels are those of messages between ranks ([`protocol::message`](crate::protocol::message)): a ring and buffers for each
//! direction, in memory that belongs to one connection. A bell rings by a packet over that connection's socket.

pub(crate) mod address;
pub(crate) mod api;
#[cfg(feature = "tokio")]
pub(crate) mod asynchronous;
mod at_once;
mod body;
pub(crate) mod builder;
mod calls;
pub(crate) mod completing;
mod dialling;
mod direct;
pub(crate) mod ended;
pub(crate) mod error;
mod events;
mod getting;
pub(crate) mod handle;
pub(crate) mod hello;
mod keeping;
mod kept;
mod key;
mod lease;
mod left;
mod link;
mod links;
mod listener;
mod mapped;
mod messages;
mod over;
pub(crate) mod peer;
mod postings;
mod putting;
pub(crate) mod receiving;
mod requests;
pub(crate) mod routes;
mod sender;
mod sending;
mod shares;
mod sharing;
mod short;
mod slices;
mod sockets;
pub(crate) mod started;
mod state;
mod steps;
mod taking;
mod transfer;
mod waiting;
pub(crate) mod wire;
