//! More than one machine: a communicator whose ranks are on several nodes, with the results of one on a single machine, bit
//! for bit. The ranks of a node have a [`Communicator`](crate::Communicator); one of each, its leader, speaks for it by
//! [`Leaders`](leaders::Leaders), over whatever connects the nodes.
//!
//! A call is made of steps inside the nodes, and of exchanges between the leaders. First all ranks agree on the call
//! ([`agreement`]); after every exchange between leaders each leader tells its node how that ended ([`session`]).
//! A call that is started and completed later ([`start`]) has the same steps, none of which waits ([`steps`]).

mod agreement;
mod alltoall;
mod alltoallv;
pub(crate) mod connector;
mod desk;
mod gathers;
mod gathers_to_root;
pub(crate) mod hierarchical;
mod in_place;
pub(crate) mod leaders;
pub(crate) mod local;
pub(crate) mod map;
mod moves;
mod notice;
mod own;
mod packets;
mod places;
mod prefixes;
mod progress;
mod queue;
mod reduce;
mod reductions;
mod replicas;
pub(crate) mod roll_call;
mod rooted_in_place;
mod rooted_moves;
mod scatters;
mod session;
mod setup;
mod split;
mod start;
mod started_calls;
mod steps;
#[cfg(feature = "serde")]
mod values;
mod vectors;
pub(crate) mod waiting;
mod zeros;
