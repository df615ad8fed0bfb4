//! The configuration of a rank: its job, its number, and the settings of the communicator.

use std::time::Duration;

use crate::error::{Error, Operation};
use crate::job::launchers::placement::Launcher;
use crate::job::settings::{check_timeout, chunk_rule, group_rule, invalid, size_rule};
use crate::segment::layout::{CHUNK_STEP, Layout, MAX_CHUNK, MAX_RANKS};
use crate::segment::platform::Hooks;
use crate::sys::shm_file::{self, is_name, name_rule};

/// The configuration with which a rank joins a job.
///
/// ```
/// use std::time::Duration;
/// use intranode::{Config, WaitKind};
///
/// // A job of one rank needs no other process.
/// let name = format!("/example-config-{}", std::process::id());
/// let comm = Config::new(name, 0, 1)
///     .timeout(Duration::from_secs(10))
///     .join_timeout(Duration::from_secs(5))
///     .chunk_bytes(64 << 10)
///     .wait(WaitKind::Native)
///     .spin(Duration::ZERO)
///     .group(0)
///     .single_copy(false)
///     .fatal_signals(true)
///     .state_reports(true)
///     .join()?;
/// assert_eq!((comm.rank(), comm.size()), (0, 1));
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Config {
    pub(crate) name: String,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) join_timeout: Option<Duration>,
    pub(crate) hooks: Hooks,
    pub(crate) chunk_bytes: Option<usize>,
    pub(crate) wait: WaitKind,
    pub(crate) spin: Option<Duration>,
    pub(crate) group: Option<usize>,
    pub(crate) single_copy: Option<bool>,
    pub(crate) fatal_signals: bool,
    pub(crate) state_reports: bool,
    /// The launcher by whose variables this rank has its number.
    pub(super) launcher: Option<Launcher>,
    /// The prefix of the environment variables, for messages.
    pub(super) prefix: Option<String>,
}

/// How a rank sleeps while it waits: [`Config::wait`].
///
/// ```
/// use intranode::{Config, WaitKind};
///
/// let name = format!("/example-wait-{}", std::process::id());
/// let comm = Config::new(name, 0, 1).wait(WaitKind::Pthread).join()?;
/// comm.barrier()?;
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitKind {
    /// The system's best: futexes on Linux, `Pthread` elsewhere.
    #[default]
    Native,
    /// A process-shared mutex and condition variable, on any system. A rank that is killed inside a call of these can delay
    /// the others, so sleepers poll every few milliseconds.
    Pthread,
}

impl Config {
    /// The longest name of a job: bytes, not counting the `/` that it begins with. Example: [`new`](Config::new).
    pub const MAX_NAME_BYTES: usize = shm_file::MAX_NAME;

    /// The largest number of ranks. Example: [`new`](Config::new).
    pub const MAX_RANKS: usize = MAX_RANKS;

    /// The largest [chunk](Config::chunk_bytes), in bytes. Example: [`chunk_bytes`](Config::chunk_bytes).
    pub const MAX_CHUNK_BYTES: usize = MAX_CHUNK;

    /// Rank `rank` of the `size` ranks of the job `name`. `size` is 1 to [`MAX_RANKS`](Config::MAX_RANKS). The name is a `/`
    /// and up to [`MAX_NAME_BYTES`](Config::MAX_NAME_BYTES) bytes without `/`, as for POSIX shared memory.
    /// [`join`](Config::join) checks the values.
    ///
    /// ```
    /// use intranode::{Config, Error};
    ///
    /// let too_long = format!("/{}", "x".repeat(Config::MAX_NAME_BYTES + 1));
    /// for config in [Config::new(too_long, 0, 1), Config::new("/job", 0, Config::MAX_RANKS + 1)] {
    ///     assert!(matches!(config.join(), Err(Error::InvalidConfiguration(_))));
    /// }
    /// ```
    pub fn new(name: impl Into<String>, rank: usize, size: usize) -> Self {
        Config {
            name: name.into(),
            rank,
            size,
            timeout: Some(Duration::from_secs(60)),
            join_timeout: Some(Duration::from_secs(30)),
            hooks: Hooks::NONE,
            chunk_bytes: None,
            wait: WaitKind::Native,
            spin: None,
            group: None,
            single_copy: None,
            fatal_signals: false,
            state_reports: false,
            launcher: None,
            prefix: None,
        }
    }

    /// How long a call may make no progress before it fails on all ranks. The arrival of a rank is progress. The default is
    /// 60 seconds; `None` is no time-out; [`join`](Config::join) refuses zero. Example: [`Config`].
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// Asks the program whether this rank is to wait no longer, for example because somebody has pressed Ctrl-C. A rank that sleeps
    /// asks every 10 milliseconds, and when a signal ends its sleep; one that has never to sleep does not ask. When the answer is
    /// `true` the communicator ends, as by a death: the call fails on all ranks with [`Error::Interrupted`], which names this one, unless
    /// it was complete. Where a rank has left before, messages go on; then a wait for messages fails on this rank alone. The function is
    /// called on the thread that waits. It must not use this library.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    /// use intranode::{Config, Error};
    ///
    /// // The first is to be set by a handler of SIGINT: see the crates signal-hook and ctrlc.
    /// static PRESSED: AtomicBool = AtomicBool::new(false);
    /// static TOLD: AtomicBool = AtomicBool::new(false);
    ///
    /// let config = Config::new("/example", 0, 2).interrupt(|| PRESSED.load(Relaxed));
    /// let results = intranode::threads_with(&config, |comm| {
    ///     if comm.rank() == 1 {
    ///         PRESSED.store(true, Relaxed);
    ///         while !TOLD.load(Relaxed) {
    ///             std::thread::yield_now(); // does something that takes long
    ///         }
    ///     }
    ///     let told = comm.barrier();
    ///     TOLD.store(true, Relaxed);
    ///     told
    /// })?;
    /// for result in results {
    ///     assert!(matches!(result, Err(Error::Interrupted { rank: 0, .. })), "{result:?}");
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    pub fn interrupt(mut self, is_interrupted: fn() -> bool) -> Self {
        self.hooks.interrupt = Some(is_interrupted);
        self
    }

    /// Calls this before a collective waits for longer than a moment: a few microseconds with a processor for each rank, otherwise
    /// before it yields the processor. So the program can give away what others should not wait for meanwhile, such as the lock of an
    /// interpreter, and need not do so where the other ranks have arrived already. It is called on the thread that waits, again for each
    /// such wait of a call, and must not use this library. Waits of messages and of symmetric objects do not call it.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    /// use std::time::{Duration, Instant};
    /// use intranode::Config;
    ///
    /// static WAITS: AtomicBool = AtomicBool::new(false);
    ///
    /// let config = Config::new("/example", 0, 2).long_wait(|| WAITS.store(true, Relaxed));
    /// let results = intranode::threads_with(&config, |comm| {
    ///     let begin = Instant::now();
    ///     while comm.rank() == 1 && !WAITS.load(Relaxed) && begin.elapsed() < Duration::from_secs(30) {
    ///         std::thread::yield_now(); // comes when rank 0 waits for it
    ///     }
    ///     comm.barrier()
    /// })?;
    /// assert!(results.iter().all(Result::is_ok) && WAITS.load(Relaxed));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    pub fn long_wait(mut self, begins: fn()) -> Self {
        self.hooks.long_wait = Some(begins);
        self
    }

    /// How long [`join`](Config::join) waits until a further rank comes, each time anew. The default is 30 seconds; `None` is no time-out;
    /// [`join`](Config::join) refuses zero. Example: [`Config`].
    pub fn join_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.join_timeout = timeout.into();
        self
    }

    /// The length of a chunk in bytes: a multiple of 64 up to [`MAX_CHUNK_BYTES`](Config::MAX_CHUNK_BYTES). Each rank has
    /// staging for two chunks in the segment; data of any length streams through them. Rank 0's setting is used. The default
    /// is 1.5 MiB for up to eight ranks, and for more 12 MiB divided by their number, rounded up to a multiple of 4 KiB.
    ///
    /// ```
    /// use intranode::{Config, Error};
    ///
    /// let small = Config::new("/example", 0, 2).chunk_bytes(64);
    /// let sizes = intranode::threads_with(&small, |comm| {
    ///     let mut data = vec![comm.rank(); 1000]; // in many rounds
    ///     comm.broadcast(&mut data, 1)?;
    ///     Ok::<_, Error>(data)
    /// })?;
    /// for data in sizes {
    ///     assert_eq!(data?, [1; 1000]);
    /// }
    ///
    /// let too_large = small.chunk_bytes(Config::MAX_CHUNK_BYTES + 64);
    /// assert!(matches!(too_large.join(), Err(Error::InvalidConfiguration(_))));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn chunk_bytes(mut self, bytes: usize) -> Self {
        self.chunk_bytes = Some(bytes);
        self
    }

    /// How ranks sleep. Rank 0's setting is used. Example: [`WaitKind`].
    pub fn wait(mut self, wait: WaitKind) -> Self {
        self.wait = wait;
        self
    }

    /// How long this rank polls before it sleeps, for any number of processors, but for a tenth of the
    /// [time-out](Config::timeout) at most. By default it polls for 4000 µs if there is a
    /// processor for every rank. Otherwise it calls `sched_yield` up to 16 times, so that another rank can run. Example:
    /// [`Config`].
    ///
    /// Zero suits ranks with many threads that compute: a polling rank takes a processor from them. More than the default
    /// suits ranks that have processors of their own and often wait a little longer than 4000 µs: it takes some 25 µs to wake
    /// a sleeper.
    pub fn spin(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.spin = time.into();
        self
    }

    /// The number of ranks in a group of the hierarchical barrier, which runs in rounds without data: in `barrier`, and when a
    /// region is published or reclaimed. The first rank of a group, its leader, waits for the group. The leaders wait for each
    /// other, and then notify their groups. So no rank polls all others, but an arrival takes three steps to reach all ranks
    /// instead of one (a combining tree of two levels: Yew, Tzeng and Lawrie 1987).
    ///
    /// 0: every rank polls all others. By default, from 24 ranks on the ranks whose processors share a last-level cache form
    /// a group, with at most eight groups, unless there are more ranks than processors. Rank 0's setting is used, up to
    /// [`MAX_RANKS`](Config::MAX_RANKS).
    ///
    /// ```
    /// use intranode::Config;
    ///
    /// let grouped = Config::new("/example", 0, 6).group(3);
    /// let results = intranode::threads_with(&grouped, |comm| comm.barrier())?;
    /// assert!(results.iter().all(Result::is_ok));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    pub fn group(mut self, ranks: impl Into<Option<usize>>) -> Self {
        self.group = ranks.into();
        self
    }

    /// Whether collectives use single copy: the kernel copies a block once, from its owner's memory
    /// (`process_vm_readv`, on Linux), instead of two copies, into staging and out of it. It applies if every block has
    /// 384 KiB or more (allgatherv), 64 KiB (alltoall; in an alltoallv those of a sender on average) or 768 KiB (scatter), and all that a
    /// rank receives, or a root sends, has less than 16 MiB. Blocks of an alltoallv must follow one another in rank order, and so must
    /// those of a scatterv of less than 4 MiB. It also applies to each block of less that stays as it is from call to
    /// call, of 64 KiB or more (allgatherv), 256 KiB or more (scatter) or 256 KiB to 2 MiB (broadcast,
    /// up to 4 ranks); not with raw buffers. Blocks in memory that all ranks map are read there. By default it is
    /// enabled where it was measured to be faster: on Intel processors. With more ranks than processors it then applies to blocks for one
    /// rank each, of 128 KiB or more (alltoall, alltoallv) or 256 KiB (scatter, scatterv). Rank 0's setting is used. Example: [`Config`].
    ///
    /// Messages longer than 64 KiB whose sender waits go through buffers unless it is `true`, or by default where ranks share
    /// Intel's processors.
    ///
    /// If the system's policy forbids it (Yama's `ptrace_scope`, a container's filter), all data goes through staging. With
    /// `INTRANODE_DEBUG` in its environment a rank writes which of the two is used.
    pub fn single_copy(mut self, enable: impl Into<Option<bool>>) -> Self {
        self.single_copy = enable.into();
        self
    }

    /// Whether a fatal signal (SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE) of this process ends the communicator at once.
    /// Otherwise it ends with the process, which a core dump delays by seconds. The default is `false`. Example: [`Config`].
    ///
    /// It also turns the SIGBUS of a truncated segment into an error. The segment has a name only while ranks join, but a
    /// program that opens the file then can truncate it at any later time. The rank that accesses the missing pages leaves
    /// the job with an error; the other ranks may have completed that round.
    ///
    /// This installs a handler until the process ends. The handler calls the one that was installed before. It is not for
    /// programs that continue after such a signal, since the communicator has ended then.
    pub fn fatal_signals(mut self, enable: bool) -> Self {
        self.fatal_signals = enable;
        self
    }

    /// Whether the [state](crate::JobState) of the job is written to standard error: after a time-out, by the lowest rank
    /// that had arrived; and on SIGUSR2, by the process that gets the signal (Linux). The default is `false`, since a program
    /// may use that signal itself. A handler that was installed before is called too. Example: [`Config`].
    ///
    /// Calls are not slowed down: this rank's watcher thread samples the other ranks ten times a second.
    pub fn state_reports(mut self, enable: bool) -> Self {
        self.state_reports = enable;
        self
    }

    /// Checks this rank's settings.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let setting = |argument: &str| match &self.prefix {
            Some(prefix) => format!("{prefix}_{}", argument.to_uppercase()),
            None => argument.to_owned(),
        };
        if !is_name(&self.name) {
            return Err(invalid(&setting("name"), Some(&self.name), &name_rule()));
        }
        if !(1..=MAX_RANKS).contains(&self.size) {
            return Err(invalid(&setting("size"), Some(self.size), &size_rule()));
        }
        if self.rank >= self.size {
            let allowed = format!("0 to {}, since {} is {}", self.size - 1, setting("size"), self.size);
            return Err(invalid(&setting("rank"), Some(self.rank), &allowed));
        }
        if let Some(group) = self.group.filter(|group| *group > MAX_RANKS) {
            return Err(invalid(
                if self.prefix.is_some() { "INTRANODE_GROUP" } else { "group" },
                Some(group),
                &group_rule(),
            ));
        }
        check_timeout(&setting("timeout"), self.timeout, "0")?;
        check_timeout(&setting("join_timeout"), self.join_timeout, "0")?;
        match self.chunk_bytes {
            Some(bytes) if bytes == 0 || bytes > MAX_CHUNK || bytes % CHUNK_STEP != 0 => {
                Err(invalid("chunk_bytes", Some(bytes), &chunk_rule()))
            }
            _ => Ok(()),
        }
    }

    /// The layout of the job's segment.
    pub(crate) fn layout(&self) -> Result<Layout, Error> {
        let (operation, ranks) = (Operation::Init, self.size);
        let chunk_bytes = self.chunk_bytes.unwrap_or_else(|| Layout::default_chunk(ranks));
        Layout::new(ranks, chunk_bytes).map_err(|_| Error::InvalidLayout { operation, ranks, chunk_bytes })
    }
}
