//! The configuration from the environment: our own variables, or those of a launcher.

use std::time::Duration;

use crate::error::Error;
use crate::job::config::{Config, WaitKind};
use crate::job::environment;
use crate::job::launchers::placement::{Launcher, OfProcess};
use crate::job::launchers::{Choice, choose, detect};
use crate::job::settings::{
    RANK_RULE, SPIN_RULE, given, group_rule, invalid, number, parse_seconds, size_rule, switch,
};
use crate::sys::process::user;
use crate::sys::random;
use crate::sys::shm_file::name_rule;

impl Config {
    /// The job, the rank and the size that a launcher has given to this process. Of these the one counts that `INTRANODE_LAUNCHER`
    /// names; else that whose variables the nearest ancestor of this process has set, or the first of them:
    ///
    /// | launcher | `INTRANODE_LAUNCHER` | rank and size, those of the node, the job |
    /// | --- | --- | --- |
    /// | `intranode run`, or any program that sets our variables | `intranode` | `INTRANODE_RANK`, `INTRANODE_SIZE`, `INTRANODE_NAME` |
    /// | `mpiexec` of Open MPI 4 and 5 | `openmpi` | `OMPI_COMM_WORLD_…`, `PMIX_NAMESPACE` |
    /// | `mpiexec` of MPICH and Intel MPI | `hydra`, `mpich`, `impi` | `PMI_RANK`, `PMI_SIZE`, `MPI_LOCAL…`, the process at the other end of `PMI_FD`, `I_MPI_HYDRA_UUID` |
    /// | `torchrun` | `torchrun` | `RANK`, `WORLD_SIZE`, `LOCAL_…`, `TORCHELASTIC_RUN_ID`, the agent's process |
    /// | `srun` of Slurm | `slurm` | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS`, `SLURM_LOCALID`, `SLURM_GTIDS`, the job and the step |
    /// | none, whatever is set | `none` | |
    ///
    /// If two launchers' variables disagree, `INTRANODE_DEBUG` lets a rank write both to stderr.
    ///
    /// If the launcher has started ranks on several nodes this is an error, since the ranks of one node alone would give wrong
    /// results without a word. `INTRANODE_SCOPE=node` makes a job of the ranks of each node: rank and size are then those of
    /// the node. The default is `job`.
    ///
    /// Our own variables are read as by [`from_env_prefix`](Config::from_env_prefix) with `INTRANODE`; the settings among
    /// them, as `INTRANODE_TIMEOUT`, hold under each launcher.
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
    /// [`Error::InvalidConfiguration`] names the variable, its value and what is allowed; `INTRANODE_NAME` if no launcher has
    /// started this process. [`Error::SeveralNodes`].
    pub fn from_env() -> Result<Self, Error> {
        launched()?.ok_or_else(|| {
            let allowed = format!(
                "{}; no launcher has started this process: start it by `intranode run -n 4 -- PROGRAM`, mpiexec, srun or \
                 torchrun",
                name_rule()
            );
            invalid("INTRANODE_NAME", None::<&str>, &allowed)
        })
    }

    /// The same, and where no launcher has started this process, a job of this rank alone: so a program runs without a
    /// launcher too. Variables of which only some are set are an error nevertheless.
    ///
    /// ```
    /// use intranode::Config;
    ///
    /// let comm = Config::from_env_or_alone()?.join()?;
    /// assert!(comm.rank() < comm.size());
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`from_env`](Config::from_env), if a launcher has started this process.
    pub fn from_env_or_alone() -> Result<Self, Error> {
        match launched()? {
            Some(config) => Ok(config),
            None => settings(Config::new(lonely_name(), 0, 1), "INTRANODE", environment::variable),
        }
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
        let required = |suffix: &str, allowed: &str| {
            let setting = format!("{prefix}_{suffix}");
            let value = get(&setting).ok_or_else(|| invalid(&setting, None::<&str>, allowed))?;
            Ok::<_, Error>((setting, value))
        };
        let (setting, name) = required("NAME", &name_rule())?;
        // What stands for bytes that are no UTF-8: two names would be the same.
        if name.contains(char::REPLACEMENT_CHARACTER) {
            return Err(invalid(&setting, Some(&name), &format!("{}, in UTF-8", name_rule())));
        }
        let (setting, rank) = required("RANK", RANK_RULE)?;
        let rank = number(&setting, &rank, RANK_RULE)?;
        let (setting, size) = required("SIZE", &size_rule())?;
        let size = number(&setting, &size, &size_rule())?;
        settings(Config::new(name, rank, size), prefix, get)
    }
}

impl Launcher {
    /// The launcher that has started this process as a rank, by the rules of [`Config::from_env`]; `None` if none has.
    /// Whether its variables are complete is seen later. Example: [`Launcher`].
    ///
    /// # Errors
    /// [`Error::InvalidConfiguration`] if `INTRANODE_LAUNCHER` names no launcher.
    pub fn detect() -> Result<Option<Self>, Error> {
        detect(&OfProcess(environment::variable))
    }
}

/// The configuration by the variables of the launcher; `None` if there is none.
fn launched() -> Result<Option<Config>, Error> {
    let Some(choice) = choose(&OfProcess(environment::variable))? else { return Ok(None) };
    if let Some(disagreement) = &choice.disagreement {
        environment::process_settings()?.debug(disagreement);
    }
    of_choice(choice, environment::variable).map(Some)
}

fn of_choice(choice: Choice, get: impl Fn(&str) -> Option<String>) -> Result<Config, Error> {
    let Choice { launcher, job, .. } = choice;
    let Some((name, rank, size)) = job else { return Config::from_lookup("INTRANODE", get) };
    let mut config = Config::new(name, rank, size);
    config.launcher = Some(launcher);
    settings(config, "INTRANODE", get)
}

/// Adds what is set besides name, rank and size. An empty value is as none.
fn settings(mut config: Config, prefix: &str, get: impl Fn(&str) -> Option<String>) -> Result<Config, Error> {
    let get = |name: &str| given(get(name));
    let seconds = |suffix: &str, default: Option<Duration>| {
        let setting = format!("{prefix}_{suffix}");
        get(&setting).map_or(Ok(default), |value| parse_seconds(&setting, &value))
    };
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
        Some(value) => Some(Duration::from_micros(number::<u32>("INTRANODE_SPIN", &value, SPIN_RULE)?.into())),
    };
    config.group = match get("INTRANODE_GROUP") {
        None => None,
        Some(value) => Some(number("INTRANODE_GROUP", &value, &group_rule())?),
    };
    let switch = |setting: &str| switch(setting, get(setting));
    config.single_copy = switch("INTRANODE_SINGLE_COPY")?;
    config.state_reports = switch("INTRANODE_STATE")?.unwrap_or(false);
    config.check()?;
    Ok(config)
}

/// A name that no other job of this user has.
fn lonely_name() -> String {
    // Not by the process's number, which another has in another container.
    format!("/intranode-{}-alone-{:016x}", user(), random::number())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::settings::SECONDS_RULE;
    use crate::segment::layout::{CHUNK_STEP, MAX_CHUNK};

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
    fn an_empty_setting_is_as_none() {
        let usual = format!("{:?}", lookup(&GOOD).unwrap());
        for name in [
            "COBRE_SHM_TIMEOUT",
            "COBRE_SHM_JOIN_TIMEOUT",
            "INTRANODE_WAIT",
            "INTRANODE_SPIN",
            "INTRANODE_GROUP",
            "INTRANODE_SINGLE_COPY",
            "INTRANODE_STATE",
        ] {
            assert_eq!(format!("{:?}", with(name, "").unwrap()), usual, "{name}");
        }
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
            ("COBRE_SHM_NAME", "/job-\u{fffd}"),
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
