//! The environment variables of this process. No other module reads them.

use std::env::{self, VarError};

use crate::error::Error;
use crate::job::settings::{given, one_of, switch};
use crate::liveness::Detection;
use crate::rank::process_settings::ProcessSettings;

/// The value of a variable; `None` if it is not set.
pub(crate) fn variable(name: &str) -> Option<String> {
    match env::var(name) {
        Ok(value) => Some(value),
        Err(VarError::NotPresent) => None,
        Err(VarError::NotUnicode(raw)) => Some(raw.to_string_lossy().into_owned()),
    }
}

/// The value of a setting of this process.
pub(crate) fn setting(name: &str) -> Option<String> {
    given(variable(name))
}

/// The record in which this rank counts what it calls.
pub(super) fn record_file() -> Option<String> {
    setting("INTRANODE_REPORT")
}

/// The settings of this process, which do not depend on a rank's [`Config`](crate::Config).
///
/// # Errors
/// [`Error::InvalidConfiguration`] names the variable, its value and what is allowed.
pub(super) fn process_settings() -> Result<ProcessSettings, Error> {
    settings_from(variable)
}

/// The same with any source of variables. An empty value is as none.
fn settings_from(get: impl Fn(&str) -> Option<String>) -> Result<ProcessSettings, Error> {
    let set = |name: &str| given(get(name));
    let switch = |name: &str| switch(name, set(name));
    let memory = [("memfd", false), ("named", true)];
    let detections = [("watch", Detection::Wake), ("scan", Detection::Scan), ("none", Detection::None)];
    Ok(ProcessSettings {
        debug: get("INTRANODE_DEBUG").is_some(),
        // Cobre's own variable has the values that Cobre gives it.
        interleave: switch("INTRANODE_NUMA_INTERLEAVE")?.unwrap_or(false)
            || get("COBRE_SHM_NUMA_INTERLEAVE").is_some_and(|value| value == "1"),
        named_memory: one_of("INTRANODE_MEMORY", set("INTRANODE_MEMORY"), &memory)?.unwrap_or(false),
        in_place: switch("INTRANODE_IN_PLACE")?,
        check: switch("INTRANODE_CHECK")?.unwrap_or(false),
        detection: one_of("INTRANODE_LIVENESS", set("INTRANODE_LIVENESS"), &detections)?.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<ProcessSettings, String> {
        let get =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        settings_from(get).map_err(|error| error.to_string())
    }

    #[test]
    fn each_variable_has_its_effect_and_no_other() {
        let usual = ProcessSettings::default();
        assert_eq!(settings(&[]), Ok(usual));
        assert_eq!(settings(&[("INTRANODE_DEBUG", "")]), Ok(ProcessSettings { debug: true, ..usual }));
        for variable in ["INTRANODE_NUMA_INTERLEAVE", "COBRE_SHM_NUMA_INTERLEAVE"] {
            assert_eq!(settings(&[(variable, "1")]), Ok(ProcessSettings { interleave: true, ..usual }));
            assert_eq!(settings(&[(variable, "0")]), Ok(usual));
        }
        for (value, named_memory) in [("named", true), ("memfd", false)] {
            assert_eq!(settings(&[("INTRANODE_MEMORY", value)]), Ok(ProcessSettings { named_memory, ..usual }));
        }
        for (value, in_place) in [("0", Some(false)), ("1", Some(true))] {
            assert_eq!(settings(&[("INTRANODE_IN_PLACE", value)]), Ok(ProcessSettings { in_place, ..usual }));
        }
        for (value, check) in [("0", false), ("1", true)] {
            assert_eq!(settings(&[("INTRANODE_CHECK", value)]), Ok(ProcessSettings { check, ..usual }));
        }
        for (value, detection) in
            [("watch", Detection::Wake), ("scan", Detection::Scan), ("none", Detection::None)]
        {
            assert_eq!(settings(&[("INTRANODE_LIVENESS", value)]), Ok(ProcessSettings { detection, ..usual }));
        }
    }

    #[test]
    fn an_unknown_value_is_an_error_that_says_what_is_allowed() {
        for (variable, allowed) in [
            ("INTRANODE_NUMA_INTERLEAVE", "0 or 1"),
            ("INTRANODE_MEMORY", "memfd or named"),
            ("INTRANODE_IN_PLACE", "0 or 1"),
            ("INTRANODE_CHECK", "0 or 1"),
            ("INTRANODE_LIVENESS", "watch or scan or none"),
        ] {
            assert_eq!(settings(&[(variable, "")]), Ok(ProcessSettings::default()));
            let error = settings(&[(variable, "yes")]).unwrap_err();
            assert!([variable, "yes", allowed].iter().all(|word| error.contains(word)), "{error}");
        }
    }
}
