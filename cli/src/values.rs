//! Values of the command line that several commands accept.

use intranode::Config;

/// A job's name.
pub(crate) fn job_name(text: &str) -> Result<String, String> {
    setting("INTRANODE_NAME", text)
}

/// Seconds without progress after which a call fails.
pub(crate) fn timeout(text: &str) -> Result<String, String> {
    setting("INTRANODE_TIMEOUT", text)
}

/// The number of ranks.
pub(crate) fn ranks(text: &str) -> Result<u32, String> {
    setting("INTRANODE_SIZE", text)?.parse().map_err(|error| format!("{error}"))
}

/// The number of ranks if none is given: one for each processor that this process may use.
pub(crate) fn one_for_each_processor() -> u32 {
    std::thread::available_parallelism().map_or(1, |processors| processors.get().try_into().unwrap_or(u32::MAX))
}

/// Checks a value by the library's rules for a variable.
fn setting(variable: &str, value: &str) -> Result<String, String> {
    let look_up = |name: &str| match name {
        name if name == variable => Some(value),
        "INTRANODE_NAME" => Some("/name"),
        "INTRANODE_RANK" => Some("0"),
        "INTRANODE_SIZE" => Some("1"),
        _ => None,
    };
    let config = Config::from_lookup("INTRANODE", |name| look_up(name).map(str::to_owned));
    config.map(|_| value.to_owned()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_the_library_s_rules() {
        assert_eq!(job_name("/job-42").as_deref(), Ok("/job-42"));
        assert_eq!(timeout("0.5").as_deref(), Ok("0.5"));
        assert_eq!(ranks("4"), Ok(4));
        for wrong in ["", "/", "job", "/a/b"] {
            assert!(job_name(wrong).is_err(), "{wrong:?}");
        }
        for wrong in ["0", "-1", "soon"] {
            assert!(timeout(wrong).is_err(), "{wrong:?}");
            assert!(ranks(wrong).is_err(), "{wrong:?}");
        }
    }
}
