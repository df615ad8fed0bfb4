//! Rows of nodes that are late, or seem to be: leaders that are not the library's are slow.

use std::time::{Duration, Instant};

use anyhow::ensure;
use intranode::{Communicator, Error, Hierarchical, Leaders, LeadersError, LocalLeaders, NodeMap, Waiting};

use crate::scenario::{Outcome, Scenario, row};

const TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(nodes_that_come_in_time_for_each_message).ranks(&[4]).timeout(TIMEOUT),
        row!(nodes_name_who_is_late_and_not_who_waits_for_it).ranks(&[4]).timeout(TIMEOUT),
    ]
}

/// Leaders over simulated nodes that take this long for each message.
struct Odd {
    leaders: LocalLeaders,
    delay: Duration,
}

fn join(comm: &Communicator, map: NodeMap, delay: Duration) -> Result<Hierarchical<Odd>, Error> {
    let own = map.node_of(comm.rank());
    let node = comm.split(own, comm.rank())?;
    let leads = node.rank() == 0;
    let meet = comm.split(usize::from(leads), comm.rank())?;
    let leaders = match leads {
        true => Some(Odd { leaders: LocalLeaders::new(meet)?, delay }),
        false => None,
    };
    Hierarchical::new(node, leaders, map)
}

impl Odd {
    fn is_slow(&self, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        let begun = Instant::now();
        while begun.elapsed() < self.delay {
            wait.pause()?;
        }
        Ok(())
    }
}

impl Leaders for Odd {
    fn node(&self) -> usize {
        self.leaders.node()
    }

    fn nodes(&self) -> usize {
        self.leaders.nodes()
    }

    fn barrier(&mut self, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        self.leaders.barrier(wait)
    }

    fn allgatherv(
        &mut self,
        data: &mut [u8],
        counts: &[usize],
        wait: &mut Waiting<'_>,
    ) -> Result<(), LeadersError> {
        self.leaders.allgatherv(data, counts, wait)
    }

    fn broadcast(&mut self, data: &mut [u8], root: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        self.leaders.broadcast(data, root, wait)
    }

    fn send(&mut self, data: &[u8], to: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        self.is_slow(wait)?;
        self.leaders.send(data, to, wait)
    }

    fn recv(&mut self, data: &mut [u8], from: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        self.is_slow(wait)?;
        self.leaders.recv(data, from, wait)
    }

    fn start_allgatherv(&mut self, data: Vec<u8>, counts: &[usize]) -> Result<(), LeadersError> {
        self.leaders.start_allgatherv(data, counts)
    }

    fn start_broadcast(&mut self, data: Vec<u8>, root: usize) -> Result<(), LeadersError> {
        self.leaders.start_broadcast(data, root)
    }

    fn start_send(&mut self, data: Vec<u8>, to: usize) -> Result<(), LeadersError> {
        self.leaders.start_send(data, to)
    }

    fn start_recv(&mut self, data: Vec<u8>, from: usize) -> Result<(), LeadersError> {
        self.leaders.start_recv(data, from)
    }

    fn test(&mut self, timeout: Option<Duration>) -> Result<Option<Vec<u8>>, LeadersError> {
        self.leaders.test(timeout)
    }

    fn fail(&mut self, notice: &[u8]) {
        self.leaders.fail(notice);
    }
}

/// All messages of a call take longer than the time-out, and none of them does.
fn nodes_that_come_in_time_for_each_message(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let nodes = join(&comm, NodeMap::even(size, size)?, TIMEOUT / 5)?;
    let mut blocks: Vec<usize> = (0..size).map(|to| 10 * rank + to).collect();
    nodes.alltoall_in_place(&mut blocks)?;
    ensure!(blocks == (0..size).map(|from| 10 * from + rank).collect::<Vec<_>>());
    Ok(())
}

/// Node 0 is late in a fold that goes from node to node, where node 2 waits for node 1.
fn nodes_name_who_is_late_and_not_who_waits_for_it(comm: Communicator) -> Outcome {
    let nodes = Hierarchical::simulated(comm.split_local()?, &NodeMap::new(&[2, 1, 1])?)?;
    let begun = Instant::now();
    let is_late = |acc: &mut u64, x: &u64| {
        while nodes.rank() == 0 && begun.elapsed() < TIMEOUT * 3 / 2 {
            std::thread::sleep(Duration::from_millis(10));
        }
        *acc += x;
    };
    let len = 40_000;
    match nodes.allreduce_with(&vec![1; len], &mut vec![0; len], "sum", is_late) {
        Err(Error::TimedOut { late, .. }) => ensure!(*late == [0], "{late:?}"),
        Err(Error::NodeLate(late)) => ensure!(late.node == 0, "{late:?}"),
        other => ensure!(false, "{other:?}"),
    }
    Ok(comm.barrier()?)
}
