//! Rows of leaders that are not the library's: slow ones, some that bring too little, and some that panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use intranode::{
    Communicator, Error, Hierarchical, Leaders, LeadersError, LocalLeaders, NodeMap, ReduceOp, Waiting,
};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::scenario::{Outcome, Scenario, ensure_matches, row};

const TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(nodes_that_come_in_time_for_each_message).ranks(&[4]).timeout(TIMEOUT),
        row!(nodes_name_who_is_late_and_not_who_waits_for_it).ranks(&[4]).timeout(TIMEOUT),
        row!(nodes_whose_leaders_bring_too_little).ranks(&[3]),
        row!(nodes_whose_leader_panics).ranks(&[3]).timeout(TIMEOUT),
        row!(nodes_that_wait_for_their_turn_in_gather).ranks(&[12]).timeout(TIMEOUT),
        row!(nodes_that_wait_for_their_turn_in_scatter).ranks(&[12]).timeout(TIMEOUT),
        row!(nodes_name_who_is_late_and_not_who_is_done).ranks(&[4]).timeout(TIMEOUT),
        row!(nodes_of_which_a_rank_leaves_while_others_hand_on).ranks(&[5]).timeout(TIMEOUT),
        row!(nodes_of_which_a_forked_child_aborts).ranks(&[3]).processes_only(),
        row!(nodes_whose_leader_aborts_in_an_operation)
            .ranks(&[3])
            .processes_only()
            .ends(|rank, _| if rank == 1 { TOLD } else { 0 }),
        row!(nodes_whose_leader_aborts_beside_an_exchange)
            .ranks(&[3])
            .processes_only()
            .interrupt(waits)
            .ends(|rank, _| if rank == 1 { TOLD } else { 0 }),
    ]
}

/// Leaders over simulated nodes that take this long for each message, and that may have a fault.
struct Odd {
    leaders: LocalLeaders,
    delay: Duration,
    fault: Fault,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// It loses half of what comes in calls that are tested.
    Cuts,
    /// This call panics: the number of those before it.
    Panics(usize),
    /// Its process ends when it is to tell of a failure.
    Tells,
}

/// The exit code of a process that is to tell of a failure.
const TOLD: i32 = 99;

fn join(comm: &Communicator, map: NodeMap, delay: Duration, fault: Fault) -> Result<Hierarchical<Odd>, Error> {
    let own = map.node_of(comm.rank());
    let node = comm.split(own, comm.rank())?;
    let leads = node.rank() == 0;
    let meet = comm.split(usize::from(leads), comm.rank())?;
    let fault = if own == 1 { fault } else { Fault::None };
    let leaders = match leads {
        true => Some(Odd { leaders: LocalLeaders::new(meet)?, delay, fault }),
        false => None,
    };
    Hierarchical::new(node, leaders, map)
}

impl Odd {
    fn may_panic(&mut self) {
        match &mut self.fault {
            Fault::Panics(0) => panic!("a fault of the leaders"),
            Fault::Panics(before) => *before -= 1,
            _ => {}
        }
    }

    fn is_slow(&self, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        let begun = Instant::now();
        while begun.elapsed() < self.delay {
            wait.pause()?;
        }
        wait.restart();
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

    fn allgatherv(
        &mut self,
        data: &mut [u8],
        counts: &[usize],
        wait: &mut Waiting<'_>,
    ) -> Result<(), LeadersError> {
        self.may_panic();
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
        self.may_panic();
        let mut data = self.leaders.test(timeout)?;
        if let Some(data) = data.as_mut().filter(|_| self.fault == Fault::Cuts) {
            data.truncate(data.len() / 2);
        }
        Ok(data)
    }

    fn fail(&mut self, notice: &[u8]) {
        if self.fault == Fault::Tells {
            std::process::exit(TOLD);
        }
        self.leaders.fail(notice);
    }
}

/// All messages of a call take longer than the time-out, and none of them does.
fn nodes_that_come_in_time_for_each_message(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let nodes = join(&comm, NodeMap::even(size, size)?, TIMEOUT / 5, Fault::None)?;
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

/// The last node waits longer than the time-out for its turn, and the root for none of the nodes.
fn nodes_that_wait_for_their_turn_in_gather(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let nodes = join(&comm, NodeMap::even(size, size)?, TURN, Fault::None)?;
    let mut all = vec![0; LONG * size];
    nodes.gather(&vec![rank as u64; LONG], (rank == 0).then_some(&mut all[..]), 0)?;
    ensure!(rank != 0 || (0..size).all(|from| all[from * LONG..][..LONG] == vec![from as u64; LONG]));
    Ok(())
}

fn nodes_that_wait_for_their_turn_in_scatter(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let nodes = join(&comm, NodeMap::even(size, size)?, TURN, Fault::None)?;
    let all: Vec<u64> = (0..LONG * size).map(|index| (index / LONG) as u64).collect();
    let mut own = vec![0; LONG];
    nodes.scatter((rank == 0).then_some(&all[..]), &mut own, 0)?;
    ensure!(own == vec![rank as u64; LONG]);
    Ok(())
}

/// Eleven of them are longer than the time-out.
const TURN: Duration = TIMEOUT.checked_div(8).expect("8 is not 0");

/// The elements of a message that waits for its receiver.
const LONG: usize = 1 << 16;

/// Node 3 waits for node 2, which waits for node 1, which is late. Node 0 is done, and somewhere else. The network of node 2 is slow, so
/// node 3 asks first.
fn nodes_name_who_is_late_and_not_who_is_done(comm: Communicator) -> Outcome {
    let (rank, len) = (comm.rank(), 40_000);
    let delay = if rank == 2 { TIMEOUT / 2 } else { Duration::ZERO };
    let nodes = join(&comm, NodeMap::even(4, 4)?, delay, Fault::None)?;
    let begun = Instant::now();
    let computes = || {
        while begun.elapsed() < TIMEOUT * 2 {
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let is_late = |acc: &mut u64, x: &u64| {
        if rank == 1 {
            computes();
        }
        *acc += x;
    };
    match nodes.scan_with(&vec![1; len], &mut vec![0; len], "sum", is_late) {
        Ok(()) => {
            ensure!(rank == 0);
            computes();
        }
        Err(Error::NodeLate(late)) => ensure!(late.node == 1, "{late:?}"),
        other => ensure!(false, "{other:?}"),
    }
    Ok(comm.barrier()?)
}

/// Node 0 has its part of a scan, and fails after it, before node 1 has sent node 2 what that needs: its failure may come first. The ranks
/// of a node have the same outcome, and the next call succeeds nowhere.
fn nodes_of_which_a_rank_leaves_while_others_hand_on(comm: Communicator) -> Outcome {
    let (rank, len) = (comm.rank(), 20_000);
    let map = NodeMap::new(&[2, 1, 2])?;
    let delay = if rank == 2 { TIMEOUT / 8 } else { Duration::ZERO };
    let nodes = join(&comm, map.clone(), delay, Fault::None)?;
    let mut sums = vec![0; len];
    let scan = nodes.scan(&vec![1u64; len], &mut sums, ReduceOp::Sum);
    ensure!(scan.is_err() || sums == vec![rank as u64 + 1; len]);
    // Rank 0 learns only in the next call that rank 1 has left.
    let next = if rank == 1 { nodes.leave() } else { nodes.barrier() };
    ensure!((rank == 1) == next.is_ok(), "{next:?}");
    for result in [&scan, &next] {
        ensure!(matches!(result, Ok(()) | Err(Error::RankLeft { rank: 1, .. })), "{result:?}");
    }
    let mut succeeded = vec![0; comm.size()];
    comm.allgather(&[u8::from(scan.is_ok())], &mut succeeded)?;
    for node in 0..map.nodes() {
        let of_node = &succeeded[map.ranks_of(node)];
        ensure!(of_node.iter().all(|succeeds| *succeeds == of_node[0]), "{succeeded:?}");
    }
    Ok(())
}

/// The child is no leader: it tells nobody.
fn nodes_of_which_a_forked_child_aborts(comm: Communicator) -> Outcome {
    const CODE: i32 = 3;
    let nodes = join(&comm, NodeMap::new(&[1, 2])?, Duration::ZERO, Fault::Tells)?;
    if comm.rank() == 1 {
        // SAFETY: the child ends at once.
        let child = match unsafe { fork() }? {
            ForkResult::Parent { child } => child,
            ForkResult::Child => nodes.abort(CODE),
        };
        ensure_matches!(waitpid(child, None)?, WaitStatus::Exited(_, CODE));
    }
    Ok(nodes.barrier()?)
}

fn nodes_whose_leader_aborts_in_an_operation(comm: Communicator) -> Outcome {
    let nodes = join(&comm, NodeMap::new(&[1, 2])?, Duration::ZERO, Fault::Tells)?;
    let aborts = |acc: &mut u64, x: &u64| {
        if comm.rank() == 1 {
            nodes.abort(3);
        }
        *acc += x;
    };
    // Where it is complete without rank 1 the next call is not.
    let result = nodes.allreduce_with(&[1], &mut [0], "sum", aborts).and_then(|()| nodes.barrier());
    ensure!(result.is_err_and(|error| error.is_fatal()));
    Ok(())
}

/// Whether the rank has asked in a wait whether to go on.
static WAITS: AtomicBool = AtomicBool::new(false);

fn waits() -> bool {
    WAITS.store(true, Ordering::Relaxed);
    false
}

/// By a thread of its own, while the leader waits for rank 0.
fn nodes_whose_leader_aborts_beside_an_exchange(comm: Communicator) -> Outcome {
    let nodes = join(&comm, NodeMap::new(&[1, 2])?, Duration::ZERO, Fault::Tells)?;
    comm.barrier()?;
    WAITS.store(false, Ordering::Relaxed);
    std::thread::scope(|scope| {
        if comm.rank() == 1 {
            scope.spawn(|| {
                while !WAITS.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                nodes.abort(3)
            });
        }
        while comm.rank() == 0 && !comm.state()?.ended {
            std::thread::yield_now();
        }
        // One may succeed while the end spreads.
        let error = loop {
            if let Err(error) = nodes.barrier() {
                break error;
            }
        };
        ensure!(error.is_fatal(), "{error:?}");
        Ok(())
    })
}

fn nodes_whose_leaders_bring_too_little(comm: Communicator) -> Outcome {
    let size = comm.size();
    for counts in [vec![1, size - 1], vec![size - 1, 1]] {
        let nodes = join(&comm, NodeMap::new(&counts)?, Duration::ZERO, Fault::Cuts)?;
        let sum = nodes.start_allreduce(vec![1.0; 3], ReduceOp::Sum)?.wait();
        // On the other node it may have been complete.
        if nodes.node() == 1 {
            ensure_matches!(&sum, Err(Error::LeadersFailed { reason, .. }) if reason.contains(" bytes of "));
        }
        ensure_matches!(nodes.barrier(), Err(Error::LeadersFailed { .. }));
        comm.barrier()?;
    }
    Ok(())
}

/// The leader goes on after the panic: no rank hangs, or takes it for another fault.
fn nodes_whose_leader_panics(comm: Communicator) -> Outcome {
    for is_started in [false, true] {
        let map = NodeMap::new(&[1, 2])?;
        // The first call of the leaders is of a communicator that is made.
        let nodes = join(&comm, map, Duration::ZERO, Fault::Panics(1))?;
        let call = || if is_started { nodes.start_barrier()?.wait() } else { nodes.barrier() };
        let result = catch_unwind(AssertUnwindSafe(call));
        ensure!(result.is_err() == (comm.rank() == 1), "{result:?}");
        let text = match result.unwrap_or_else(|_| nodes.barrier()) {
            Err(error) => error.to_string(),
            Ok(()) => String::new(),
        };
        ensure!(text.contains("rank 1") && text.contains("panicked"), "{is_started}: {text}");
        comm.barrier()?;
    }
    Ok(())
}
