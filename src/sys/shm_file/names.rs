//! The names of a job's files. All begin with the job's name, which begins with '/'.
//!
//! | name | file |
//! | --- | --- |
//! | `{job}` | the job's segment, until all ranks have joined |
//! | `{job}_region_{number}` | a region, or a further communicator's segment, until all ranks have mapped it |
//! | `{job}_new_{number}` | either, until it is complete, where O_TMPFILE or linkat is missing |
//!
//! Numbers are hexadecimal, so that the largest fits behind the longest name of a job. A name proves nothing about a file's
//! origin; its [signature](super::signature) does.

/// The longest name of a job, in bytes without its leading '/'.
pub(crate) const MAX_NAME: usize = 230;

const REGION: &str = "_region_";
const DRAFT: &str = "_new_";

/// The longest name of a file, in bytes, that all systems support.
const MAX_FILE: usize = 255;

/// The largest number of digits.
const DIGITS: usize = u64::BITS as usize / 4;

const _: () =
    assert!(MAX_NAME + REGION.len() + DIGITS <= MAX_FILE && MAX_NAME + DRAFT.len() + DIGITS <= MAX_FILE);

/// Whether a job can have this name.
pub(crate) fn is_name(name: &str) -> bool {
    name.strip_prefix('/').is_some_and(|rest| {
        (1..=MAX_NAME).contains(&rest.len()) && !rest.contains(['/', '\0']) && rest != "." && rest != ".."
    })
}

/// The same in words.
pub(crate) fn name_rule() -> String {
    format!("'/' followed by 1 to {MAX_NAME} bytes without '/', as in /job-42")
}

/// The kind of a job's file, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Segment,
    Region,
    Draft,
}

pub(super) fn region(job: &str, number: u64) -> String {
    format!("{job}{REGION}{number:x}")
}

pub(super) fn draft(job: &str, number: u64) -> String {
    format!("{job}{DRAFT}{number:x}")
}

/// The kind of the file of this name, without '/'; `None` if the job uses no such name.
pub(super) fn kind(job: &str, file: &str) -> Option<Kind> {
    let rest = file.strip_prefix(job.strip_prefix('/')?)?;
    let numbered = |infix| {
        let digits: &str = rest.strip_prefix(infix)?;
        // Only the canonical form: no sign, no leading zeros.
        u64::from_str_radix(digits, 16).ok().filter(|number| format!("{number:x}") == digits)
    };
    match rest {
        "" => Some(Kind::Segment),
        _ if numbered(REGION).is_some() => Some(Kind::Region),
        _ if numbered(DRAFT).is_some() => Some(Kind::Draft),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_follows_from_the_name() {
        for number in [0, 1, 10, u64::from(u32::MAX) + 1, u64::MAX] {
            assert_eq!(kind("/job", &region("/job", number)[1..]), Some(Kind::Region));
            assert_eq!(kind("/job", &draft("/job", number)[1..]), Some(Kind::Draft));
            assert_eq!(kind("/jo", &region("/job", number)[1..]), None);
        }
        assert_eq!(kind("/job", "job"), Some(Kind::Segment));
        for other in
            ["", "jo", "job2", "job_region_", "job_region_x", "job_region_+1", "job_region_01", "job_other"]
        {
            assert_eq!(kind("/job", other), None, "{other:?}");
        }
    }

    #[test]
    fn a_name_has_a_limit() {
        let longest = format!("/{}", "x".repeat(MAX_NAME));
        assert!(is_name(&longest) && !is_name(&format!("{longest}x")));
        assert!(name_rule().contains(&MAX_NAME.to_string()));
    }

    #[test]
    fn the_longest_name_of_a_job_leaves_room_for_the_largest_number() {
        let job = format!("/{}", "x".repeat(MAX_NAME));
        let directory = tempfile::tempdir().unwrap();
        for name in [region(&job, u64::MAX), draft(&job, u64::MAX)] {
            std::fs::write(directory.path().join(&name[1..]), b"").unwrap();
        }
    }
}
