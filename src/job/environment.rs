//! The environment variables of this process. No other module reads them.

use std::env::{self, VarError};

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

/// The record in which this rank counts what it calls.
pub(super) fn record_file() -> Option<String> {
    variable("INTRANODE_REPORT").filter(|path| !path.is_empty())
}

/// The settings of this process, which do not depend on a rank's [`Config`](crate::Config).
pub(super) fn process_settings() -> ProcessSettings {
    settings_from(variable)
}

/// The same with any source of variables. They are for diagnosis and tests; an unknown value has no effect.
fn settings_from(get: impl Fn(&str) -> Option<String>) -> ProcessSettings {
    let is = |name: &str, value: &str| get(name).is_some_and(|set| set == value);
    ProcessSettings {
        debug: get("INTRANODE_DEBUG").is_some(),
        interleave: is("INTRANODE_NUMA_INTERLEAVE", "1") || is("COBRE_SHM_NUMA_INTERLEAVE", "1"),
        named_memory: is("INTRANODE_MEMORY", "named"),
        in_place: match get("INTRANODE_IN_PLACE").as_deref() {
            Some("0") => Some(false),
            Some("1") => Some(true),
            _ => None,
        },
        check: is("INTRANODE_CHECK", "1"),
        detection: match get("INTRANODE_LIVENESS").as_deref() {
            Some("scan") => Detection::Scan,
            Some("none") => Detection::None,
            _ => Detection::Wake,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> ProcessSettings {
        settings_from(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn each_variable_has_its_effect_and_no_other() {
        let usual = ProcessSettings::default();
        assert_eq!(settings(&[]), usual);
        assert_eq!(settings(&[("INTRANODE_DEBUG", "")]), ProcessSettings { debug: true, ..usual });
        for variable in ["INTRANODE_NUMA_INTERLEAVE", "COBRE_SHM_NUMA_INTERLEAVE"] {
            assert_eq!(settings(&[(variable, "1")]), ProcessSettings { interleave: true, ..usual });
            assert_eq!(settings(&[(variable, "0")]), usual);
        }
        assert_eq!(settings(&[("INTRANODE_MEMORY", "named")]), ProcessSettings { named_memory: true, ..usual });
        assert_eq!(settings(&[("INTRANODE_MEMORY", "without names")]), usual);
        for (value, in_place) in [("0", Some(false)), ("1", Some(true)), ("2", None)] {
            assert_eq!(settings(&[("INTRANODE_IN_PLACE", value)]), ProcessSettings { in_place, ..usual });
        }
        assert_eq!(settings(&[("INTRANODE_CHECK", "1")]), ProcessSettings { check: true, ..usual });
        assert_eq!(settings(&[("INTRANODE_CHECK", "0")]), usual);
        for (value, detection) in
            [("scan", Detection::Scan), ("none", Detection::None), ("else", Detection::Wake)]
        {
            assert_eq!(settings(&[("INTRANODE_LIVENESS", value)]), ProcessSettings { detection, ..usual });
        }
    }
}
