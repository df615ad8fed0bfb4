//! A row: the program of each rank, with its checks.

use std::sync::OnceLock;
use std::time::Duration;

use intranode::protocol::Staging;
use intranode::segment::layout::Layout;
use intranode::{Communicator, Config, ReduceOp};

/// The result of a check.
pub(crate) type Outcome = anyhow::Result<()>;

/// The time limit of a trial. It is long, since 100,000 barriers are slow on a busy machine. The library's own, shorter
/// time-out detects a call that hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

/// One row of the tables.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The program of each rank.
    pub(crate) body: fn(Communicator) -> Outcome,
    /// The numbers of ranks.
    pub(crate) ranks: &'static [usize],
    /// The exit status of a rank's process. A panic is 101, also in a thread.
    pub(crate) ends: fn(rank: usize, size: usize) -> i32,
    /// Whether it can run as threads of this process.
    pub(crate) threads: bool,
    /// Whether ranks that are processes differ in what they say of reading in place (`INTRANODE_IN_PLACE`).
    pub(crate) differ: bool,
    staging: Option<usize>,
    group: Option<usize>,
    timeout: Option<Duration>,
    spin: Option<Duration>,
    interrupt: Option<fn() -> bool>,
}

impl Scenario {
    pub(crate) const fn new(name: &'static str, body: fn(Communicator) -> Outcome) -> Self {
        let ends = |_, _| 0;
        Scenario {
            name,
            body,
            ranks: &[1, 2, 3, 4, 8],
            ends,
            threads: true,
            differ: false,
            staging: None,
            group: None,
            timeout: None,
            spin: None,
            interrupt: None,
        }
    }

    pub(crate) const fn ranks(mut self, ranks: &'static [usize]) -> Self {
        self.ranks = ranks;
        self
    }

    pub(crate) const fn staging(mut self, bytes: usize) -> Self {
        self.staging = Some(bytes);
        self
    }

    /// The same with a hierarchical barrier in groups of `of` ranks, under a name of its own.
    pub(crate) fn in_groups(mut self, of: usize) -> Self {
        self.name = Box::leak(format!("{}_in_groups_of_{of}", self.name).into_boxed_str());
        self.group = Some(of);
        self
    }

    pub(crate) const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How long a rank polls before it sleeps, for any number of processors.
    pub(crate) const fn spin(mut self, spin: Duration) -> Self {
        self.spin = Some(spin);
        self
    }

    /// What a rank that sleeps asks.
    pub(crate) const fn interrupt(mut self, is_interrupted: fn() -> bool) -> Self {
        self.interrupt = Some(is_interrupted);
        self
    }

    pub(crate) const fn ends(mut self, ends: fn(usize, usize) -> i32) -> Self {
        self.ends = ends;
        self
    }

    /// The same where each rank says something else of reading in place, under a name of its own.
    pub(crate) fn where_ranks_differ(mut self) -> Self {
        self.name = Box::leak(format!("{}_where_ranks_differ", self.name).into_boxed_str());
        self.differ = true;
        self.processes_only()
    }

    pub(crate) const fn processes_only(mut self) -> Self {
        self.threads = false;
        self
    }

    /// Its last rank, which is a process, is killed. Only messages, which are for Linux alone, ask for it.
    #[cfg(target_os = "linux")]
    pub(crate) const fn last_is_killed(self) -> Self {
        self.processes_only().ends(|rank, size| if rank == size - 1 { -9 } else { 0 })
    }

    /// The configuration of its ranks.
    pub(crate) fn configure(&self, mut config: Config) -> Config {
        if let Some(staging) = self.staging {
            config = config.chunk_bytes(staging);
        }
        if let Some(group) = self.group {
            config = config.group(group);
        }
        if let Some(timeout) = self.timeout {
            config = config.timeout(timeout);
        }
        if let Some(spin) = self.spin {
            config = config.spin(spin);
        }
        if let Some(interrupt) = self.interrupt {
            config = config.interrupt(interrupt);
        }
        config
    }
}

/// A scenario under its function's name.
macro_rules! row {
    ($function:ident) => {
        $crate::scenario::Scenario::new(stringify!($function), $function)
    };
}
pub(crate) use row;

/// Fails, with the value in the message, unless it matches the pattern.
macro_rules! ensure_matches {
    ($value:expr, $($pattern:tt)+) => {
        match &$value {
            $($pattern)+ => {}
            other => anyhow::bail!("expected {}, got {other:?}", stringify!($($pattern)+)),
        }
    };
}
pub(crate) use ensure_matches;

const SEED: &str = "CONFORMANCE_SEED";

/// The seed of all random choices: from the environment, through which the driver passes it to the ranks, or a new one.
pub(crate) fn seed() -> u64 {
    static CHOSEN: OnceLock<u64> = OnceLock::new();
    *CHOSEN.get_or_init(|| match std::env::var(SEED) {
        Ok(seed) => seed.parse().expect("CONFORMANCE_SEED is a number"),
        Err(_) => fastrand::u64(..),
    })
}

/// The variable of the driver's seed.
pub(crate) fn seed_variable() -> (&'static str, String) {
    (SEED, seed().to_string())
}

/// How calls use the staging of a communicator that has the default chunk.
pub(crate) fn staging(comm: &Communicator) -> Staging {
    Staging::of(Layout::default_chunk(comm.size()), comm.size())
}

/// Whether the communicator can still be used: all ranks are there, and their values arrive.
pub(crate) fn still_works(comm: &Communicator) -> Outcome {
    comm.barrier()?;
    let mut sum = [0];
    comm.allreduce(&[comm.rank()], &mut sum, ReduceOp::Sum)?;
    anyhow::ensure!(sum[0] == comm.size() * (comm.size() - 1) / 2, "a later sum is {}", sum[0]);
    Ok(())
}
