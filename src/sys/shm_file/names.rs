//! The names of a job's files. All begin with the job's own, which begins with '/'.
//!
//! | name | file |
//! | --- | --- |
//! | `{job}` | its segment, until all ranks have joined |
//! | `{job}_region_{number}` | a part, until all ranks have it |
//! | `{job}_new_{number}` | either, while it is being made, where it can not be made without a name |
//!
//! Numbers are hexadecimal: after the longest name of a job there is room for the largest of them. A name is never proof
//! of whose a file is; that is its [signature](super::signature).

const PART: &str = "_region_";
const DRAFT: &str = "_new_";

/// What a file is to a job, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Segment,
    Part,
    Draft,
}

pub(super) fn part(job: &str, number: u64) -> String {
    format!("{job}{PART}{number:x}")
}

pub(super) fn draft(job: &str, number: u64) -> String {
    format!("{job}{DRAFT}{number:x}")
}

/// What the file of this name, without '/', is to the job; `None`: nothing.
pub(super) fn kind(job: &str, file: &str) -> Option<Kind> {
    let rest = file.strip_prefix(job.strip_prefix('/')?)?;
    let numbered = |infix| {
        let digits: &str = rest.strip_prefix(infix)?;
        // Only as it is written here: no sign, no zero in front.
        u64::from_str_radix(digits, 16).ok().filter(|number| format!("{number:x}") == digits)
    };
    match rest {
        "" => Some(Kind::Segment),
        _ if numbered(PART).is_some() => Some(Kind::Part),
        _ if numbered(DRAFT).is_some() => Some(Kind::Draft),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_what_it_was_made_for() {
        for number in [0, 1, 10, u64::from(u32::MAX) + 1, u64::MAX] {
            assert_eq!(kind("/job", &part("/job", number)[1..]), Some(Kind::Part));
            assert_eq!(kind("/job", &draft("/job", number)[1..]), Some(Kind::Draft));
            assert_eq!(kind("/jo", &part("/job", number)[1..]), None);
        }
        assert_eq!(kind("/job", "job"), Some(Kind::Segment));
        for other in
            ["", "jo", "job2", "job_region_", "job_region_x", "job_region_+1", "job_region_01", "job_other"]
        {
            assert_eq!(kind("/job", other), None, "{other:?}");
        }
    }

    #[test]
    fn the_longest_name_of_a_job_leaves_room() {
        let job = format!("/{}", "x".repeat(230));
        for name in [part(&job, u64::MAX), draft(&job, u64::MAX)] {
            super::super::file::path(std::path::Path::new("/"), &name).unwrap();
        }
    }
}
