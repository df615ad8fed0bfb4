//! What errors say besides.

use std::fmt;
use std::io;
use std::ops::Range;
use std::time::Duration;

use super::operation::Operation;

/// What two ranks of an alltoallv say about the same data: in [`Error::CountsDisagree`](crate::Error::CountsDisagree).
///
/// ```
/// use intranode::Error;
///
/// let results = intranode::threads(2, |comm| {
///     // Rank 0 sends two elements to each rank; rank 1 expects three from it.
///     let (counts, mut recv) = ([2, 2], [0; 6]);
///     let expected = if comm.rank() == 1 { [3, 2] } else { [2, 2] };
///     comm.alltoallv(&[7; 4], &counts, &[0, 2], &mut recv, &expected, &[0, 3])
/// })?;
/// for result in results {
///     let Err(Error::CountsDisagree { pair, .. }) = result else { panic!("{result:?}") };
///     assert_eq!((pair.from, pair.to, pair.sent, pair.expected), (0, 1, 2, 3));
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CountPair {
    /// The rank that sends.
    pub from: usize,
    /// The rank that receives.
    pub to: usize,
    /// The count that the sender passed, in elements.
    pub sent: usize,
    /// The count that the receiver passed, in elements.
    pub expected: usize,
}

/// A missing or invalid setting: in [`Error::InvalidConfiguration`](crate::Error::InvalidConfiguration).
///
/// ```
/// use intranode::{Config, Error};
///
/// let error = Config::new("/job", 4, 4).join().expect_err("the ranks are 0 to 3");
/// let Error::InvalidConfiguration(bad) = error else { panic!("{error}") };
/// assert_eq!((bad.setting.as_str(), bad.value.as_deref()), ("rank", Some("4")));
/// assert_eq!(bad.allowed, "0 to 3, since size is 4");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidSetting {
    /// The environment variable, or the argument or the method of [`Config`](crate::Config).
    pub setting: String,
    /// Its value; `None` if it is not set.
    pub value: Option<String>,
    /// The values that are allowed.
    pub allowed: String,
}

/// The failure of a rank to join: in [`Error::InitializationFailed`](crate::Error::InitializationFailed).
///
/// ```
/// use std::time::Duration;
/// use intranode::{Config, Error};
///
/// let name = format!("/example-missing-{}", std::process::id());
/// // Rank 0 is never started.
/// let result = Config::new(name, 1, 2).join_timeout(Duration::from_millis(1)).join();
/// let Err(Error::InitializationFailed(failure)) = result else { panic!("{result:?}") };
/// assert_eq!((failure.rank, failure.missing.as_slice()), (1, &[0][..]));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct InitFailure {
    /// The name of the job.
    pub name: String,
    /// The rank that could not join.
    pub rank: usize,
    /// The reason, and the remedy.
    pub reason: String,
    /// The ranks that never joined, if that is the reason.
    pub missing: Vec<usize>,
    /// The operating system's error, if there is one.
    pub source: Option<io::Error>,
}

/// What a rank has waited for in vain: in [`Error::WaitTimedOut`](crate::Error::WaitTimedOut).
///
/// ```
/// use intranode::{Error, Until};
/// use std::time::Duration;
///
/// let config = intranode::Config::new("/example-wait", 0, 1).timeout(Duration::from_millis(10));
/// let results = intranode::threads_with(&config, |comm| comm.symmetric::<u32>(8)?.wait_until(5, Until::Ge(3)))?;
/// let Err(Error::WaitTimedOut(late)) = &results[0] else { panic!("{results:?}") };
/// assert_eq!((late.index, late.condition.as_str(), late.last.as_str()), (5, "Ge(3)", "0"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitTimeout {
    /// The rank that waited.
    pub rank: usize,
    /// The element.
    pub index: usize,
    /// What was to hold.
    pub condition: String,
    /// What the element held when the time was over.
    pub last: String,
    /// The communicator's time-out.
    pub timeout: Duration,
}

/// The details of a time-out: in [`Error::TimedOut`](crate::Error::TimedOut).
///
/// ```
/// use std::sync::Barrier;
/// use std::time::Duration;
/// use intranode::{Config, Error};
///
/// let timeout = Duration::from_millis(10);
/// let given_up = Barrier::new(2);
/// let results = intranode::threads_with(&Config::new("/example", 0, 2).timeout(timeout), |comm| {
///     // Rank 1 does not take part until rank 0 has given up.
///     let result = if comm.rank() == 0 { comm.barrier() } else { Ok(()) };
///     given_up.wait();
///     result
/// })?;
/// let Err(Error::TimedOut { late, info, .. }) = &results[0] else { panic!("{results:?}") };
/// assert_eq!((&**late, info.timeout), (&[1][..], Some(timeout)));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeoutInfo {
    /// The time-out of this rank.
    pub timeout: Option<Duration>,
    /// The processes of the late ranks, in the order of the ranks.
    pub pids: Vec<u32>,
    /// The round at which they did not arrive (modulo 2²⁸).
    pub round: u32,
}

/// A node whose leader did not come: in [`Error::NodeLate`](crate::Error::NodeLate).
///
/// ```
/// use std::sync::Barrier;
/// use std::time::Duration;
/// use intranode::{Config, Error, Hierarchical, NodeMap};
///
/// let config = Config::new("/example", 0, 2).timeout(Duration::from_millis(50));
/// let given_up = Barrier::new(2);
/// let results = intranode::threads_with(&config, |comm| {
///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 1])?)?;
///     // Node 1 does not take part until node 0 has given up.
///     let result = if comm.rank() == 0 { comm.barrier() } else { Ok(()) };
///     given_up.wait();
///     result
/// })?;
/// let Err(Error::NodeLate(late)) = &results[0] else { panic!("{results:?}") };
/// assert_eq!((late.node, late.ranks.clone()), (1, 1..2));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeTimeout {
    /// The operation that this rank called.
    pub operation: Operation,
    /// The first node that is late.
    pub node: usize,
    /// Its ranks.
    pub ranks: Range<usize>,
    /// The time-out of the leader that waited; zero if that is unknown.
    pub timeout: Duration,
}

impl std::error::Error for InitFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|error| error as _)
    }
}

impl fmt::Display for InitFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}
