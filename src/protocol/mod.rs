//! The model-checked core.
//!
//! Everything that two ranks must agree on is decided here, once, in safe code that is generic over a
//! [`Platform`]: the abstract machine of atomic words, sleeping and payload cells. The same source runs over a
//! shared mapping in production and under the model checkers in `loom-tests` and `shuttle-tests`.
//!
//! | file | question that it answers |
//! | --- | --- |
//! | [`platform`] | what does a protocol need from the machine? |
//! | [`generation`] | what does an arrival word hold, and how does it wrap? |
//! | [`barrier`] | how does one round work: arrive, then wait for all? |
//! | [`hierarchical`] | how do many ranks meet without each reading the words of all? |
//! | [`sequence`] | how do ranks notice that they called different things? |
//! | [`transfer`] | how do blocks of any length reach everybody? |
//! | [`eager`] | how do short blocks reach everybody whose lengths nobody knows? |
//! | [`allreduce`] | how does a reduction give the same bits everywhere? |
//! | [`reduce_scatter`] | how does each rank get one block of a reduction? |
//! | [`started`] | how does a rank take part without waiting? |
//! | [`single_copy`] | how do blocks do without staging? |
//! | [`region`] | when may shared memory be written in place, and when read? |
//! | [`symmetric`] | how do ranks use memory of each other at any time, and wait for it? |
//! | [`message`] | how does one rank send to another? |
//! | [`membership`] | how does a rank join, leave, give up, and learn that another has? |
//! | [`call_lock`] | what if two threads of a rank call at the same time? |
//! | [`watch`] | who watches whom, and how does every rank learn of a death? |
//! | [`sleeper`] | what does a watcher need from the machine besides? |
//!
//! This module is public for the tests that live outside `src`; it is no part of the library's interface.

pub mod allreduce;
pub mod barrier;
pub mod block_transfer;
pub mod call;
pub mod call_lock;
pub mod contributions;
pub mod eager;
mod failure;
pub mod generation;
pub mod hierarchical;
mod member;
pub mod membership;
pub mod message;
pub mod offers;
pub mod partition;
#[expect(unsafe_code, reason = "declares the traits whose implementations promise something")]
pub mod platform;
pub mod prefetch;
pub mod reduce_scatter;
pub mod region;
pub mod sequence;
pub mod single_copy;
pub mod sleeper;
pub mod staging;
pub mod started;
pub mod symmetric;
pub mod transfer;
pub mod watch;

pub use call::Call;
pub use call_lock::{CallLock, Overlap};
pub use failure::{Cause, CauseKind, Failure};
pub use generation::Generation;
pub use hierarchical::{Barrier, Group};
pub use member::{Bell, Member, Segment, Slot};
pub use membership::claim;
pub use platform::{Expired, Killed, Ordering, Payload, Platform};

pub use sleeper::Sleeper;
pub use staging::{Staging, Turn};
