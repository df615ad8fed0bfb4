//! The configuration of a rank: its job, its number, and the settings of the communicator.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, InvalidSetting, Operation};
use crate::job::environment;
use crate::segment::layout::{CHUNK_STEP, Layout, MAX_CHUNK, MAX_RANKS};
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
pub struct Config {
    pub(crate) name: String,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) join_timeout: Option<Duration>,
    pub(crate) chunk_bytes: Option<usize>,
    pub(crate) wait: WaitKind,
    pub(crate) spin: Option<Duration>,
    pub(crate) group: Option<usize>,
    pub(crate) single_copy: Option<bool>,
    pub(crate) fatal_signals: bool,
    pub(crate) state_reports: bool,
    /// The prefix of the environment variables, for messages.
    prefix: Option<String>,
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
            chunk_bytes: None,
            wait: WaitKind::Native,
            spin: None,
            group: None,
            single_copy: None,
            fatal_signals: false,
            state_reports: false,
            prefix: None,
        }
    }

    /// Reads `INTRANODE_NAME`, `INTRANODE_RANK`, `INTRANODE_SIZE` and, if they are set, `INTRANODE_TIMEOUT` and
    /// `INTRANODE_JOIN_TIMEOUT`: [`from_env_prefix`](Config::from_env_prefix) with `INTRANODE`.
    ///
    /// ```
    /// use intranode::{Config, Error};
    ///
    /// match Config::from_env() {
    ///     Ok(config) => println!("started by a launcher: {config:?}"),
    ///     Err(Error::InvalidConfiguration(bad)) => assert!(bad.setting.starts_with("INTRANODE_")),
    ///     Err(other) => return Err(other),
    /// }
    /// # Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidConfiguration`] names the variable, its value and what is allowed.
    pub fn from_env() -> Result<Self, Error> {
        Config::from_env_prefix("INTRANODE")
    }

    /// Reads the variables `{prefix}_NAME`, `{prefix}_RANK`, `{prefix}_SIZE` and, if they are set,
    /// `{prefix}_TIMEOUT` and `{prefix}_JOIN_TIMEOUT`, in seconds (fractions are allowed, 0 is not; `none` is no time-out).
    /// With any prefix, `INTRANODE_WAIT=pthread` selects [`WaitKind::Pthread`], `INTRANODE_SPIN` is the time to
    /// [`spin`](Config::spin) in microseconds, `INTRANODE_GROUP` the number of ranks in a [`group`](Config::group),
    /// `INTRANODE_SINGLE_COPY=0` or `1` disables or enables [`single_copy`](Config::single_copy), and `INTRANODE_STATE=1`
    /// enables [`state_reports`](Config::state_reports).
    ///
    /// ```
    /// use intranode::{Config, Error};
    ///
    /// let error = Config::from_env_prefix("EXAMPLE").expect_err("EXAMPLE_NAME is not set");
    /// assert!(matches!(error, Error::InvalidConfiguration(bad) if bad.setting == "EXAMPLE_NAME"));
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidConfiguration`] names the variable, its value and what is allowed.
    pub fn from_env_prefix(prefix: &str) -> Result<Self, Error> {
        Config::from_lookup(prefix, environment::variable)
    }

    /// The same with any source of variables.
    #[doc(hidden)]
    pub fn from_lookup(prefix: &str, get: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let variable = |suffix: &str| format!("{prefix}_{suffix}");
        let required = |suffix: &str, allowed: &str| {
            let setting = variable(suffix);
            get(&setting).ok_or_else(|| invalid(&setting, None::<&str>, allowed))
        };
        let seconds = |suffix: &str, default: Option<Duration>| {
            let setting = variable(suffix);
            get(&setting).map_or(Ok(default), |value| parse_seconds(&setting, &value))
        };
        let name = required("NAME", &name_rule())?;
        let rank = number(&variable("RANK"), &required("RANK", RANK_RULE)?, RANK_RULE)?;
        let size = number(&variable("SIZE"), &required("SIZE", &size_rule())?, &size_rule())?;
        let mut config = Config::new(name, rank, size);
        config.prefix = Some(prefix.to_owned());
        config.timeout = seconds("TIMEOUT", config.timeout)?;
        config.join_timeout = seconds("JOIN_TIMEOUT", config.join_timeout)?;
        config.wait = match get("INTRANODE_WAIT").as_deref() {
            None | Some("futex" | "native") => WaitKind::Native,
            Some("pthread") => WaitKind::Pthread,
            Some(other) => return Err(invalid("INTRANODE_WAIT", Some(other), "futex or pthread")),
        };
        config.spin = match get("INTRANODE_SPIN") {
            None => None,
            Some(value) => {
                Some(Duration::from_micros(number::<u32>("INTRANODE_SPIN", &value, SPIN_RULE)?.into()))
            }
        };
        config.group = match get("INTRANODE_GROUP") {
            None => None,
            Some(value) => Some(number("INTRANODE_GROUP", &value, &group_rule())?),
        };
        let switch = |setting: &str| match get(setting).as_deref() {
            None => Ok(None),
            Some("0") => Ok(Some(false)),
            Some("1") => Ok(Some(true)),
            Some(other) => Err(invalid(setting, Some(other), "0 or 1")),
        };
        config.single_copy = switch("INTRANODE_SINGLE_COPY")?;
        config.state_reports = switch("INTRANODE_STATE")?.unwrap_or(false);
        config.check()?;
        Ok(config)
    }

    /// How long a call may make no progress before it fails on all ranks. The arrival of a rank is progress. The default is
    /// 60 seconds; `None` is no time-out; [`join`](Config::join) refuses zero. Example: [`Config`].
    #[must_use]
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// How long [`join`](Config::join) waits for all ranks. The default is 30 seconds; `None` is no time-out;
    /// [`join`](Config::join) refuses zero. Example: [`Config`].
    #[must_use]
    pub fn join_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.join_timeout = timeout.into();
        self
    }

    /// The length of a chunk in bytes: a multiple of 64 up to [`MAX_CHUNK_BYTES`](Config::MAX_CHUNK_BYTES). Each rank has
    /// staging for two chunks in the segment; data of any length streams through them. Rank 0's setting is used. The default
    /// is 1.5 MiB for up to four ranks, and 3 MiB divided by the number of ranks for more.
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
    #[must_use]
    pub fn chunk_bytes(mut self, bytes: usize) -> Self {
        self.chunk_bytes = Some(bytes);
        self
    }

    /// How ranks sleep. Rank 0's setting is used. Example: [`WaitKind`].
    #[must_use]
    pub fn wait(mut self, wait: WaitKind) -> Self {
        self.wait = wait;
        self
    }

    /// How long this rank polls before it sleeps, for any number of processors. By default it polls for 4000 µs if there is a
    /// processor for every rank. Otherwise it calls `sched_yield` up to 16 times, so that another rank can run. Example:
    /// [`Config`].
    ///
    /// Zero suits ranks with many threads that compute: a polling rank takes a processor from them. More than the default
    /// suits ranks that have processors of their own and often wait a little longer than 4000 µs: it takes some 25 µs to wake
    /// a sleeper.
    #[must_use]
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
    #[must_use]
    pub fn group(mut self, ranks: impl Into<Option<usize>>) -> Self {
        self.group = ranks.into();
        self
    }

    /// Whether an allgatherv uses single copy: the kernel copies each block once, from its owner's memory
    /// (`process_vm_readv`, on Linux), instead of two copies, into staging and out of it. It applies if every block has
    /// 384 KiB or more, and all together have less than 16 MiB. By default it is enabled where it was measured to be faster:
    /// on Intel processors, with a processor for every rank. Rank 0's setting is used. Example: [`Config`].
    ///
    /// If the system's policy forbids it (Yama's `ptrace_scope`, a container's filter), all data goes through staging. With
    /// `INTRANODE_DEBUG` in its environment a rank writes which of the two is used.
    #[must_use]
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
    #[must_use]
    pub fn fatal_signals(mut self, enable: bool) -> Self {
        self.fatal_signals = enable;
        self
    }

    /// Whether the [state](crate::JobState) of the job is written to standard error: after a time-out, by the lowest rank
    /// that had arrived; and on SIGUSR2, by the process that gets the signal (Linux). The default is `false`, since a program
    /// may use that signal itself. A handler that was installed before is called too. Example: [`Config`].
    ///
    /// Calls are not slowed down: this rank's watcher thread samples the other ranks ten times a second.
    #[must_use]
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

const RANK_RULE: &str = "a number from 0 to one less than the size";
const SPIN_RULE: &str = "a number of microseconds from 0 to 4294967295";
const SECONDS_RULE: &str = "a positive number of seconds, or none";

fn size_rule() -> String {
    format!("a number from 1 to {MAX_RANKS}")
}

fn group_rule() -> String {
    format!("a number of ranks from 0 to {MAX_RANKS}")
}

fn chunk_rule() -> String {
    format!("a multiple of {CHUNK_STEP} up to {MAX_CHUNK}, in bytes")
}

/// Refuses a time-out of zero, with which no call could succeed. `value` is for the message.
fn check_timeout(setting: &str, timeout: Option<Duration>, value: &str) -> Result<(), Error> {
    if timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(invalid(setting, Some(value), SECONDS_RULE));
    }
    Ok(())
}

fn invalid(setting: &str, value: Option<impl Display>, allowed: &str) -> Error {
    Error::InvalidConfiguration(Box::new(InvalidSetting {
        setting: setting.to_owned(),
        value: value.map(|value| value.to_string()),
        allowed: allowed.to_owned(),
    }))
}

fn number<T: FromStr>(setting: &str, value: &str, allowed: &str) -> Result<T, Error> {
    value.parse().map_err(|_| invalid(setting, Some(value), allowed))
}

fn parse_seconds(setting: &str, value: &str) -> Result<Option<Duration>, Error> {
    if value == "none" {
        return Ok(None);
    }
    let seconds: f64 = number(setting, value, SECONDS_RULE)?;
    let timeout =
        Some(Duration::try_from_secs_f64(seconds).map_err(|_| invalid(setting, Some(value), SECONDS_RULE))?);
    check_timeout(setting, timeout, value)?;
    Ok(timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(variables: &[(&str, &str)]) -> Result<Config, Error> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, v)| (*v).to_owned());
        Config::from_lookup("COBRE_SHM", find)
    }

    const GOOD: [(&str, &str); 3] =
        [("COBRE_SHM_NAME", "/job"), ("COBRE_SHM_RANK", "1"), ("COBRE_SHM_SIZE", "2")];

    fn with(name: &'static str, value: &'static str) -> Result<Config, Error> {
        let others = GOOD.into_iter().filter(|(key, _)| *key != name);
        lookup(&others.chain([(name, value)]).collect::<Vec<_>>())
    }

    #[track_caller]
    fn assert_names(result: Result<Config, Error>, setting: &str, value: Option<&str>) {
        let text = result.as_ref().map(|_| ()).unwrap_err().to_string();
        match result {
            Err(Error::InvalidConfiguration(bad)) => {
                assert_eq!((bad.setting.as_str(), bad.value.as_deref()), (setting, value), "{text}");
                assert!(text.contains(setting) && text.contains(&bad.allowed), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reads_the_environment() {
        let config = lookup(&GOOD).unwrap();
        assert_eq!((config.name.as_str(), config.rank, config.size), ("/job", 1, 2));
        assert_eq!(config.timeout, Some(Duration::from_secs(60)));
        assert_eq!(with("COBRE_SHM_TIMEOUT", "2.5").unwrap().timeout, Some(Duration::from_millis(2500)));
        assert_eq!(with("COBRE_SHM_TIMEOUT", "none").unwrap().timeout, None);
        assert_eq!(with("INTRANODE_WAIT", "pthread").unwrap().wait, WaitKind::Pthread);
        assert_eq!(config.spin, None);
        assert_eq!(with("INTRANODE_SPIN", "0").unwrap().spin, Some(Duration::ZERO));
        assert_eq!(with("INTRANODE_SPIN", "20").unwrap().spin, Some(Duration::from_micros(20)));
        assert_eq!((config.group, with("INTRANODE_GROUP", "8").unwrap().group), (None, Some(8)));
        assert_eq!(config.single_copy, None);
        assert_eq!(with("INTRANODE_SINGLE_COPY", "0").unwrap().single_copy, Some(false));
        assert_eq!(with("INTRANODE_SINGLE_COPY", "1").unwrap().single_copy, Some(true));
        assert!(!config.state_reports && with("INTRANODE_STATE", "1").unwrap().state_reports);
    }

    #[test]
    fn a_missing_variable_is_named() {
        for missing in ["COBRE_SHM_NAME", "COBRE_SHM_RANK", "COBRE_SHM_SIZE"] {
            let rest: Vec<_> = GOOD.into_iter().filter(|(key, _)| *key != missing).collect();
            assert_names(lookup(&rest), missing, None);
        }
    }

    #[test]
    fn a_bad_value_is_named_with_what_is_allowed() {
        let cases = [
            ("COBRE_SHM_NAME", "job"),
            ("COBRE_SHM_NAME", ""),
            ("COBRE_SHM_NAME", "/"),
            ("COBRE_SHM_NAME", "/a/b"),
            ("COBRE_SHM_NAME", "/.."),
            ("COBRE_SHM_RANK", "2"),
            ("COBRE_SHM_RANK", "-1"),
            ("COBRE_SHM_RANK", "one"),
            ("COBRE_SHM_RANK", ""),
            ("COBRE_SHM_SIZE", "0"),
            ("COBRE_SHM_SIZE", "1.5"),
            ("COBRE_SHM_SIZE", "99999999"),
            ("COBRE_SHM_TIMEOUT", "0"),
            ("COBRE_SHM_TIMEOUT", "-1"),
            ("COBRE_SHM_TIMEOUT", "soon"),
            ("COBRE_SHM_TIMEOUT", "NaN"),
            ("COBRE_SHM_JOIN_TIMEOUT", "inf"),
            ("INTRANODE_WAIT", "busy"),
            ("INTRANODE_SPIN", "-1"),
            ("INTRANODE_SPIN", "50us"),
            ("INTRANODE_GROUP", "all"),
            ("INTRANODE_GROUP", "65537"),
            ("INTRANODE_SINGLE_COPY", "2"),
            ("INTRANODE_STATE", "yes"),
        ];
        for (name, value) in cases {
            assert_names(with(name, value), name, Some(value));
        }
        let long = format!("/{}", "x".repeat(Config::MAX_NAME_BYTES + 1));
        let config = Config::new(long.clone(), 0, 1).check().map(|()| Config::new("", 0, 0));
        assert_names(config, "name", Some(&long));
        assert!(Config::new(format!("/{}", "x".repeat(Config::MAX_NAME_BYTES)), 0, 1).check().is_ok());
    }

    #[test]
    fn arguments_are_named_as_arguments() {
        let config = |config: Config| config.check().map(|()| config);
        assert_names(config(Config::new("/x", 3, 3)), "rank", Some("3"));
        assert_names(config(Config::new("/x", 0, 0)), "size", Some("0"));
        assert_names(config(Config::new("/x", 0, 1).chunk_bytes(100)), "chunk_bytes", Some("100"));
        let too_large = MAX_CHUNK + CHUNK_STEP;
        let config_of_chunks = config(Config::new("/x", 0, 1).chunk_bytes(too_large));
        assert_names(config_of_chunks, "chunk_bytes", Some(&too_large.to_string()));
    }

    #[test]
    fn a_time_out_of_zero_is_refused_from_arguments_and_variables() {
        let allowed = |result: Result<Config, Error>| match result {
            Err(Error::InvalidConfiguration(bad)) => (bad.setting, bad.value, bad.allowed),
            other => panic!("{other:?}"),
        };
        let checked = |config: Config| config.check().map(|()| config);
        let of_argument = |argument: &str| (argument.to_owned(), Some("0".to_owned()), SECONDS_RULE.to_owned());
        let zero = Config::new("/x", 0, 1);
        assert_eq!(allowed(checked(zero.clone().timeout(Duration::ZERO))), of_argument("timeout"));
        assert_eq!(allowed(checked(zero.join_timeout(Duration::ZERO))), of_argument("join_timeout"));
        assert_eq!(allowed(with("COBRE_SHM_TIMEOUT", "0")), of_argument("COBRE_SHM_TIMEOUT"));
        assert_eq!(allowed(with("COBRE_SHM_JOIN_TIMEOUT", "0")), of_argument("COBRE_SHM_JOIN_TIMEOUT"));
        // A time that is rounded to zero appears in the error as it was given.
        assert_names(with("COBRE_SHM_TIMEOUT", "1e-12"), "COBRE_SHM_TIMEOUT", Some("1e-12"));
        let of_read = with("COBRE_SHM_TIMEOUT", "5").map(|config| config.timeout(Duration::ZERO));
        assert_eq!(allowed(of_read.and_then(checked)), of_argument("COBRE_SHM_TIMEOUT"));
    }
}
