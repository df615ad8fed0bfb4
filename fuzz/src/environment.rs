//! The environment: a configuration if and only if every variable has an allowed value, otherwise an error that names a
//! variable and its value.

use std::time::Duration;

use intranode::{Config, Error};

/// The prefix that the inputs use.
const PREFIX: &str = "JOB";

/// The input: lines of `NAME=value`, as in an environment. The first line of a name is used. Returns whether it was
/// accepted.
pub fn run(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let variables: Vec<(&str, &str)> = text.split('\n').filter_map(|line| line.split_once('=')).collect();
    let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    let config = Config::from_lookup(PREFIX, get);
    let expected =
        expect(|suffix| get(&format!("{PREFIX}_{suffix}")), |suffix| get(&format!("INTRANODE_{suffix}")));
    match config {
        Ok(config) => {
            let expected = expected.unwrap_or_else(|| panic!("{variables:?}: {config:?}"));
            let printed = format!("{config:?}");
            for part in expected {
                assert!(printed.contains(&part), "{part} is not in {printed}");
            }
            true
        }
        Err(Error::InvalidConfiguration(bad)) => {
            assert_eq!(expected, None, "{variables:?}: {bad:?}");
            // A number may be printed without its plus sign and its leading zeros.
            let (printed, set) = (bad.value.as_deref(), get(&bad.setting));
            let number = |text: Option<&str>| text.and_then(whole);
            let same = printed == set.as_deref()
                || (number(printed).is_some() && number(printed) == number(set.as_deref()));
            assert!(same, "{bad:?} for {set:?}");
            let text = Error::InvalidConfiguration(bad.clone()).to_string();
            assert!(text.contains(&bad.setting) && text.contains(&bad.allowed), "{text}");
            false
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// The parts of a configuration's debug output; `None` if there must be an error.
fn expect(
    get: impl Fn(&str) -> Option<String>,
    common: impl Fn(&str) -> Option<String>,
) -> Option<Vec<String>> {
    let name = get("NAME")?;
    // An empty setting is as none.
    let set = |suffix: &str| get(suffix).filter(|value| !value.is_empty());
    let common = |suffix: &str| common(suffix).filter(|value| !value.is_empty());
    let rest = name.strip_prefix('/')?;
    if rest.is_empty()
        || rest.len() > Config::MAX_NAME_BYTES
        || rest.contains(char::REPLACEMENT_CHARACTER)
        || rest == "."
        || rest == ".."
        || rest.bytes().any(|b| b == b'/' || b == 0)
    {
        return None;
    }
    let (rank, size) = (whole(&get("RANK")?)?, whole(&get("SIZE")?)?);
    if size == 0 || size > 65_536 || rank >= size {
        return None;
    }
    let timeout = seconds(set("TIMEOUT"), 60)?;
    let join_timeout = seconds(set("JOIN_TIMEOUT"), 30)?;
    let wait = match common("WAIT").as_deref() {
        None | Some("futex" | "native") => "Native",
        Some("pthread") => "Pthread",
        Some(_) => return None,
    };
    let spin = match common("SPIN") {
        None => None,
        Some(text) => Some(Duration::from_micros(u32::try_from(whole(&text)?).ok()?.into())),
    };
    let group = match common("GROUP") {
        None => None,
        Some(text) => Some(whole(&text).filter(|ranks| *ranks <= 65_536)?),
    };
    let switch = |suffix| match common(suffix).as_deref() {
        None => Some(None),
        Some("0") => Some(Some(false)),
        Some("1") => Some(Some(true)),
        Some(_) => None,
    };
    let (single_copy, state_reports) = (switch("SINGLE_COPY")?, switch("STATE")?.unwrap_or(false));
    Some(vec![
        format!("name: {name:?}, rank: {rank}, size: {size}"),
        format!("timeout: {timeout:?}, join_timeout: {join_timeout:?}"),
        format!("wait: {wait}, spin: {spin:?}, group: {group:?}, single_copy: {single_copy:?}"),
        format!("state_reports: {state_reports}"),
    ])
}

/// Decimal digits, possibly after a plus sign, without overflow.
fn whole(text: &str) -> Option<u128> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let value = digits.trim_start_matches('0');
    match value {
        "" => number.then_some(0),
        // Longer than any number that is allowed.
        _ if value.len() > 20 => None,
        _ => number.then(|| value.parse().ok()).flatten(),
    }
}

/// The outer `None`: not allowed.
fn seconds(value: Option<String>, default: u64) -> Option<Option<Duration>> {
    match value.as_deref() {
        None => Some(Some(Duration::from_secs(default))),
        Some("none") => Some(None),
        Some(text) => {
            let seconds: f64 = text.parse().ok()?;
            // Less than half a nanosecond is rounded to zero; 2^64 seconds do not fit.
            let allowed = (0.000_000_000_5..18_446_744_073_709_551_616.0).contains(&seconds);
            allowed.then(|| Some(Duration::from_secs_f64(seconds)))
        }
    }
}
