//! What connects the leaders of the nodes.

use std::time::Duration;

use crate::nodes::waiting::{LeadersError, Waiting};

/// What connects the leaders of the nodes: one rank of each. The library has it over a second segment
/// ([`LocalLeaders`](crate::LocalLeaders)), to simulate nodes on one machine; over a network the crate intranode-mpi has it over MPI.
///
/// All leaders make the same collective calls in the same order. A call returns when this leader's part is complete. While it
/// waits it calls [`Waiting::pause`] again and again, which keeps the ranks of its node from giving it up, so an
/// implementation starts what it does and tests it. After an error it is used no more. A panic in it ends the communicator; the other
/// nodes learn of it by [`fail`](Leaders::fail) in this leader's next call, or by the time-out.
///
/// Each call has a second form, which starts it and does not wait; [`test`](Leaders::test) completes it. A leader has started at most
/// one at a time, and makes no other call but [`fail`](Leaders::fail) before that is complete. A call may be started by some leaders,
/// while others wait in its first form: both exchange the same messages.
///
/// Where a leader is late, others may wait for one another: [`RollCall`](crate::RollCall) finds out whom to name.
///
/// ```
/// use std::time::Duration;
/// use intranode::{Leaders, LeadersError, Waiting};
///
/// /// A single node: there is nobody to wait for.
/// struct Alone;
///
/// impl Leaders for Alone {
///     fn node(&self) -> usize {
///         0
///     }
///     fn nodes(&self) -> usize {
///         1
///     }
///     fn allgatherv(&mut self, _: &mut [u8], _: &[usize], _: &mut Waiting<'_>) -> Result<(), LeadersError> {
///         Ok(())
///     }
///     fn broadcast(&mut self, _: &mut [u8], _: usize, _: &mut Waiting<'_>) -> Result<(), LeadersError> {
///         Ok(())
///     }
///     fn send(&mut self, _: &[u8], to: usize, _: &mut Waiting<'_>) -> Result<(), LeadersError> {
///         Err(LeadersError::Transport { reason: format!("there is no node {to}") })
///     }
///     fn recv(&mut self, _: &mut [u8], from: usize, _: &mut Waiting<'_>) -> Result<(), LeadersError> {
///         Err(LeadersError::Transport { reason: format!("there is no node {from}") })
///     }
///     fn start_allgatherv(&mut self, _: Vec<u8>, _: &[usize]) -> Result<(), LeadersError> {
///         Ok(())
///     }
///     fn start_broadcast(&mut self, _: Vec<u8>, _: usize) -> Result<(), LeadersError> {
///         Ok(())
///     }
///     fn start_send(&mut self, _: Vec<u8>, to: usize) -> Result<(), LeadersError> {
///         Err(LeadersError::Transport { reason: format!("there is no node {to}") })
///     }
///     fn start_recv(&mut self, _: Vec<u8>, from: usize) -> Result<(), LeadersError> {
///         Err(LeadersError::Transport { reason: format!("there is no node {from}") })
///     }
///     fn test(&mut self, _: Option<Duration>) -> Result<Option<Vec<u8>>, LeadersError> {
///         Ok(None) // a communicator of one node makes none of these calls
///     }
///     fn fail(&mut self, _: &[u8]) {}
/// }
///
/// assert_eq!((Alone.node(), Alone.nodes()), (0, 1));
/// ```
pub trait Leaders: Send {
    /// The node of this leader: 0 to `nodes() - 1`.
    fn node(&self) -> usize;

    /// The number of nodes.
    fn nodes(&self) -> usize;

    /// Gathers the blocks of all nodes on every leader: `counts[n]` bytes of node `n`, one after the other in `data`, in which the
    /// own block is already. `counts` is the same on all.
    ///
    /// # Errors
    /// Any [`LeadersError`].
    fn allgatherv(
        &mut self,
        data: &mut [u8],
        counts: &[usize],
        wait: &mut Waiting<'_>,
    ) -> Result<(), LeadersError>;

    /// Copies `data` of the leader of node `root` to all leaders. It has the same length on all.
    ///
    /// # Errors
    /// Any [`LeadersError`].
    fn broadcast(&mut self, data: &mut [u8], root: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError>;

    /// Sends `data` to the leader of node `to`. It may wait until that receives it.
    ///
    /// # Errors
    /// Any [`LeadersError`].
    fn send(&mut self, data: &[u8], to: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError>;

    /// Receives the next message of the leader of node `from`, which is as long as `data`.
    ///
    /// # Errors
    /// Any [`LeadersError`].
    fn recv(&mut self, data: &mut [u8], from: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError>;

    /// Starts an [`allgatherv`](Leaders::allgatherv) of `data`.
    ///
    /// # Errors
    /// Any [`LeadersError`].
    fn start_allgatherv(&mut self, data: Vec<u8>, counts: &[usize]) -> Result<(), LeadersError>;

    /// Starts a [`broadcast`](Leaders::broadcast) of `data`.
    ///
    /// # Errors
    /// Any [`LeadersError`].
    fn start_broadcast(&mut self, data: Vec<u8>, root: usize) -> Result<(), LeadersError>;

    /// Starts to [`send`](Leaders::send) `data`.
    ///
    /// # Errors
    /// Any [`LeadersError`].
    fn start_send(&mut self, data: Vec<u8>, to: usize) -> Result<(), LeadersError>;

    /// Starts to [`receive`](Leaders::recv) as many bytes as `data` has.
    ///
    /// # Errors
    /// Any [`LeadersError`].
    fn start_recv(&mut self, data: Vec<u8>, from: usize) -> Result<(), LeadersError>;

    /// Goes on with the call that was started, as far as that takes no waiting. `Some`: it is complete; its data, with what has come.
    /// A node is given up if nothing has come from it for as long as `timeout` after the first test that has missed it.
    ///
    /// # Errors
    /// Any [`LeadersError`].
    fn test(&mut self, timeout: Option<Duration>) -> Result<Option<Vec<u8>>, LeadersError>;

    /// Tells all other leaders that this node has failed, without waiting for them: the calls that they are in, or make next,
    /// return [`LeadersError::Failed`] with `notice`. It is the last call.
    fn fail(&mut self, notice: &[u8]);
}

/// What is behind a pointer, so that a program can choose at run time.
impl<L: Leaders + ?Sized> Leaders for Box<L> {
    fn node(&self) -> usize {
        (**self).node()
    }

    fn nodes(&self) -> usize {
        (**self).nodes()
    }

    fn allgatherv(
        &mut self,
        data: &mut [u8],
        counts: &[usize],
        wait: &mut Waiting<'_>,
    ) -> Result<(), LeadersError> {
        (**self).allgatherv(data, counts, wait)
    }

    fn broadcast(&mut self, data: &mut [u8], root: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        (**self).broadcast(data, root, wait)
    }

    fn send(&mut self, data: &[u8], to: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        (**self).send(data, to, wait)
    }

    fn recv(&mut self, data: &mut [u8], from: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        (**self).recv(data, from, wait)
    }

    fn start_allgatherv(&mut self, data: Vec<u8>, counts: &[usize]) -> Result<(), LeadersError> {
        (**self).start_allgatherv(data, counts)
    }

    fn start_broadcast(&mut self, data: Vec<u8>, root: usize) -> Result<(), LeadersError> {
        (**self).start_broadcast(data, root)
    }

    fn start_send(&mut self, data: Vec<u8>, to: usize) -> Result<(), LeadersError> {
        (**self).start_send(data, to)
    }

    fn start_recv(&mut self, data: Vec<u8>, from: usize) -> Result<(), LeadersError> {
        (**self).start_recv(data, from)
    }

    fn test(&mut self, timeout: Option<Duration>) -> Result<Option<Vec<u8>>, LeadersError> {
        (**self).test(timeout)
    }

    fn fail(&mut self, notice: &[u8]) {
        (**self).fail(notice);
    }
}
