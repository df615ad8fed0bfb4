//! Values of settings, and the error that names one.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, InvalidSetting};
use crate::segment::layout::{CHUNK_STEP, MAX_CHUNK, MAX_RANKS};

pub(super) const RANK_RULE: &str = "a number from 0 to one less than the size";
pub(super) const SPIN_RULE: &str = "a number of microseconds from 0 to 4294967295";
pub(super) const SECONDS_RULE: &str = "a positive number of seconds, or none";

pub(super) fn size_rule() -> String {
    format!("a number from 1 to {MAX_RANKS}")
}

pub(super) fn group_rule() -> String {
    format!("a number of ranks from 0 to {MAX_RANKS}")
}

pub(super) fn chunk_rule() -> String {
    format!("a multiple of {CHUNK_STEP} up to {MAX_CHUNK}, in bytes")
}

/// Refuses a time-out of zero, with which no call could succeed. `value` is for the message.
pub(super) fn check_timeout(setting: &str, timeout: Option<Duration>, value: &str) -> Result<(), Error> {
    if timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(invalid(setting, Some(value), SECONDS_RULE));
    }
    Ok(())
}

pub(super) fn invalid(setting: &str, value: Option<impl Display>, allowed: &str) -> Error {
    Error::InvalidConfiguration(Box::new(InvalidSetting {
        setting: setting.to_owned(),
        value: value.map(|value| value.to_string()),
        allowed: allowed.to_owned(),
    }))
}

/// The value of a setting: an empty one is as none.
pub(super) fn given(value: Option<String>) -> Option<String> {
    value.filter(|value| !value.is_empty())
}

/// What the value of a setting means that has few of them; `None` if it is not set.
pub(super) fn one_of<T: Copy>(
    setting: &str,
    value: Option<String>,
    values: &[(&str, T)],
) -> Result<Option<T>, Error> {
    let Some(value) = value else { return Ok(None) };
    match values.iter().find(|(name, _)| *name == value) {
        Some((_, meaning)) => Ok(Some(*meaning)),
        None => {
            let allowed: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
            Err(invalid(setting, Some(value), &allowed.join(" or ")))
        }
    }
}

pub(super) fn switch(setting: &str, value: Option<String>) -> Result<Option<bool>, Error> {
    one_of(setting, value, &[("0", false), ("1", true)])
}

pub(super) fn number<T: FromStr>(setting: &str, value: &str, allowed: &str) -> Result<T, Error> {
    value.parse().map_err(|_| invalid(setting, Some(value), allowed))
}

pub(super) fn parse_seconds(setting: &str, value: &str) -> Result<Option<Duration>, Error> {
    if value == "none" {
        return Ok(None);
    }
    let seconds: f64 = number(setting, value, SECONDS_RULE)?;
    let timeout =
        Some(Duration::try_from_secs_f64(seconds).map_err(|_| invalid(setting, Some(value), SECONDS_RULE))?);
    check_timeout(setting, timeout, value)?;
    Ok(timeout)
}
