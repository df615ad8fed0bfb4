//! All ranks of a communicator, by MPI: what finds leaders for a subset of them.

use ferrompi::Communicator;
use intranode::{Connector, Error, Operation};

use crate::leaders::MpiLeaders;

/// The ranks of a [`Hierarchical`](intranode::Hierarchical) communicator, by the same numbers.
pub(crate) struct MpiRanks(Communicator);

impl MpiRanks {
    /// The ranks of `comm`, of which this one gets the number `rank`. Collective.
    pub(crate) fn new(comm: &Communicator, rank: usize) -> ferrompi::Result<Self> {
        split(comm, Some(0), rank).map(|all| MpiRanks(all.expect("every rank has a color")))
    }
}

impl Connector<MpiLeaders> for MpiRanks {
    fn part(&self, color: usize, key: usize) -> Result<Box<dyn Connector<MpiLeaders>>, Error> {
        let part = split(&self.0, Some(color), key).map_err(failed)?;
        Ok(Box::new(MpiRanks(part.expect("every rank has a color"))))
    }

    fn leaders(&self, leads: bool) -> Result<Option<MpiLeaders>, Error> {
        let leaders = split(&self.0, leads.then_some(0), self.0.rank() as usize).map_err(failed)?;
        Ok(leaders.map(MpiLeaders::new))
    }
}

/// MPI counts ranks in `i32`, and colors and keys are numbers of ranks.
fn split(comm: &Communicator, color: Option<usize>, key: usize) -> ferrompi::Result<Option<Communicator>> {
    comm.split(color.map_or(Communicator::UNDEFINED, |color| color as i32), key as i32)
}

fn failed(error: ferrompi::Error) -> Error {
    Error::LeadersFailed { operation: Operation::Split, reason: error.to_string().into() }
}
