//! How a subset of the ranks of several nodes gets leaders.

use crate::communicator::Communicator;
use crate::error::Error;
use crate::nodes::leaders::Leaders;
use crate::nodes::local::LocalLeaders;

/// How the ranks of a subset get leaders, any of them: what [`Hierarchical::split`](crate::Hierarchical::split) needs. It is over all ranks of a communicator, by
/// their numbers there. Over MPI it is a communicator of all ranks; for simulated nodes it is a [`Communicator`].
///
/// ```
/// use intranode::{Communicator, Connector, Leaders};
///
/// let nodes = intranode::threads(3, |comm| {
///     // Ranks 0 and 2 are leaders.
///     let leaders = Connector::leaders(&comm, comm.rank() != 1)?;
///     Ok::<_, intranode::Error>(leaders.map(|leaders| leaders.node()))
/// })?;
/// assert!(matches!(nodes[..], [Ok(Some(0)), Ok(None), Ok(Some(1))]));
/// # Ok::<(), intranode::Error>(())
/// ```
pub trait Connector<L>: Send + Sync {
    /// The same over the ranks that pass this color, which is less than the number of ranks, in the order of their keys. Collective.
    ///
    /// # Errors
    /// Any error, on every rank.
    fn part(&self, color: usize, key: usize) -> Result<Box<dyn Connector<L>>, Error>;

    /// Leaders over the ranks that pass `true`, in the order of the ranks: `Some` on these. Collective.
    ///
    /// # Errors
    /// Any error, on every rank.
    fn leaders(&self, leads: bool) -> Result<Option<L>, Error>;
}

impl Connector<LocalLeaders> for Communicator {
    fn part(&self, color: usize, key: usize) -> Result<Box<dyn Connector<LocalLeaders>>, Error> {
        Ok(Box::new(self.split(color, key)?))
    }

    fn leaders(&self, leads: bool) -> Result<Option<LocalLeaders>, Error> {
        let meet = self.split(usize::from(leads), self.rank())?;
        leads.then(|| LocalLeaders::new(meet)).transpose()
    }
}

/// A connector whose leaders go behind a pointer.
pub(super) struct Boxed<L>(pub(super) Box<dyn Connector<L>>);

impl<L: Leaders + 'static> Connector<Box<dyn Leaders>> for Boxed<L> {
    fn part(&self, color: usize, key: usize) -> Result<Box<dyn Connector<Box<dyn Leaders>>>, Error> {
        Ok(Box::new(Boxed(self.0.part(color, key)?)))
    }

    fn leaders(&self, leads: bool) -> Result<Option<Box<dyn Leaders>>, Error> {
        Ok(self.0.leaders(leads)?.map(|leaders| Box::new(leaders) as Box<dyn Leaders>))
    }
}
